"""Builds the LiteRT models' part of the pack: ``tool/build_pack.py litert``.

What is shipped per model is its structure; the model itself is made of it and of a weight file
that the pack has already. Whether a variant passes its gate is measured on this CPU, by the
same engine that will measure it. Also writes the two small models that the engine probes with.
Built from what is shipped: neither PyTorch nor the photographs are needed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import lzma
import os
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from npumark.engines import number_probe
from npumark.engines.base import LoadRequest
from npumark.engines.litert import LiteRt
from npumark.engines.litert_probe import MODELS, NUMBER_PROBE, ONE_NODE
from npumark.engines.one_node import SHAPE
from npumark.gates.judge import judge
from npumark.gates.metrics import accumulator
from npumark.pack import litert_model
from npumark.pack.manifest import TensorSpec, Variant, Workload, load_manifest
from npumark.pack.materialize import materialize
from npumark.pack.program import (
    PROGRAM,
    Program,
    ProgramInput,
    ProgramNode,
    ProgramWeight,
    Section,
    WeightFile,
)
from npumark.pack.program_file import load_program
from npumark.policy import DATA
from npumark.worker.eval_set import StoredLayout, load_inputs, load_mu, load_references
from workloads.litert_emit import VARIANTS, emit
from workloads.litert_file import Model
from workloads.litert_tensors import image_perm

SHIPPED = DATA / "pack"
PART = DATA / "manifest.litert.json"
FAMILY = {"litert-fp16": "FP16", "litert-int8": "INT8"}

Document = dict[str, Any]


def main(argv: Sequence[str]) -> int:
    """Write every structure, the probes' models and the part."""
    parser = argparse.ArgumentParser(prog="build_pack.py litert", description=__doc__)
    parser.parse_args(argv)
    MODELS.mkdir(exist_ok=True)
    (MODELS / ONE_NODE).write_bytes(one_node_model())
    (MODELS / NUMBER_PROBE).write_bytes(lzma.compress(number_probe_model(), preset=9))
    manifest = load_manifest()
    files: list[Document] = []
    variants: dict[str, list[Document]] = {}
    with tempfile.TemporaryDirectory(prefix="npumark-litert-") as temporary:
        root = Path(temporary)
        for workload in manifest.workloads.values():
            if not (SHIPPED / workload.id / PROGRAM).exists():
                continue
            materialize(manifest, _sources(workload), root=root)
            for variant in VARIANTS:
                entries, made = build(workload, variant, root)
                files += entries
                variants.setdefault(workload.id, []).append(made)
            for path in (root / workload.id).glob("*.tflite"):
                path.unlink()
    part = {"files": files, "variants": variants}
    PART.write_text(json.dumps(part, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return 0


def build(workload: Workload, variant: str, root: Path) -> tuple[list[Document], Document]:
    """Ship one structure and measure its model; return its files and its manifest entry."""
    program = load_program(SHIPPED / workload.id / PROGRAM)
    structure = structure_of(emit(program, variant))
    shipped = f"{workload.id}/{variant}.head.xz"
    (SHIPPED / shipped).write_bytes(structure)
    (root / shipped).write_bytes(structure)
    weights = program.files[VARIANTS[variant]].path
    path = f"{workload.id}/{variant}.tflite"
    with (root / path).open("wb") as out:
        litert_model.write_model(root / shipped, root / weights, out)
    entry = variant_entry(program, variant)
    measures = measure(workload, entry, root)
    verdict = judge(measures, workload.gates["standard"])
    told = ", ".join(f"{k} {v:.5g}" for k, v in measures.items() if v is not None)
    print(f"{path}: {'passes' if verdict.passed else 'FAILS'}: {told}", flush=True)
    made = {
        "origin": "derived",
        "recipe": "litert-model",
        "args": {},
        "needs": [shipped, weights],
    }
    files = [_entry(root, shipped) | {"origin": "shipped"}, _entry(root, path) | made]
    return files, _document(replace(entry, validated=verdict.passed))


def structure_of(model: Model) -> bytes:
    """Return the bytes of a model's structure file."""
    return litert_model.pack_structure(model.flatbuffer, model.parts)


def variant_entry(program: Program, variant: str) -> Variant:
    """Return the manifest's entry of a variant, not validated."""
    path = f"{program.workload}/{variant}.tflite"
    shapes = program.shapes()
    outputs = [(name, shapes[tensor]) for name, tensor in program.outputs.items()]
    kinds = {"float": "float32", "int64": "int32"}
    return Variant(
        id=variant,
        format=FAMILY[variant],
        encoding=variant,
        graph=path,
        files=(path,),
        inputs=tuple(_spec(program, i.name, kinds[i.dtype], i.shape) for i in program.inputs),
        outputs=tuple(_spec(program, name, "float32", shape) for name, shape in outputs),
        validated=False,
        division="standard",
    )


def measure(workload: Workload, variant: Variant, root: Path) -> dict[str, float | None]:
    """Return the measures of a variant's model under ``root`` over its eval set, on this CPU.

    Raises ValueError where the outputs cannot be judged.
    """
    session = LiteRt().load(
        LoadRequest(
            engine_id="litert-cpu",
            workload_id=workload.id,
            graph=root / variant.graph,
            encoding=variant.encoding,
            format=variant.format,
            inputs=variant.inputs,
            outputs=variant.outputs,
            threads=os.cpu_count(),
            options={"device": "CPU"},
            cache_dir=None,
        )
    )
    ev = workload.eval
    judged = accumulator(workload.task, load_references(root, ev), load_mu(root, ev), ev.parameters)
    step, buffers = session.step(), session.inputs()
    shown = StoredLayout(session.outputs(), variant.outputs)
    for index, sample in enumerate(load_inputs(root, ev, variant.inputs)):
        for buffer, value in zip(buffers, sample, strict=True):
            buffer[...] = value
        step()
        judged.add(index, shown)
    session.close()
    measures, why = judged.result()
    if why is not None:
        raise ValueError(f"{workload.id}/{variant.id}: {why}")
    return measures


def one_node_model() -> bytes:
    """Return y = relu(x) on float32 [1, 4]."""
    x = ProgramInput("x", "float", SHAPE)
    relu = ProgramNode("relu", "relu", ("x",), SHAPE, {}, ())
    program = Program(
        workload="one_node",
        inputs=(x,),
        outputs={"y": "relu"},
        weights={},
        nodes=(relu,),
        activations={},
        quantised_ops=frozenset(),
        files={"fp16": WeightFile("", {})},
    )
    return emit(program, "litert-fp16").flatbuffer


def number_probe_model() -> bytes:
    """Return the products of npumark.engines.number_probe, weights inside."""
    operands = number_probe.product("float16")
    shape = (number_probe.ROWS, number_probe.WIDTH)
    weights = {name: ProgramWeight(name, "dense", operands.w.shape) for name in "wuv"}
    nodes = tuple(
        ProgramNode("dense", name, (source,), shape, {}, (weight,))
        for name, source, weight in (
            ("outer", "x", "w"),
            ("inner", "x", "u"),
            ("twice", "inner", "v"),
        )
    )
    raw = b"".join(getattr(operands, name).tobytes() for name in "wuv")
    sections = {
        name: Section(name, "float16", operands.w.shape, index * operands.w.nbytes)
        for index, name in enumerate("wuv")
    }
    program = Program(
        workload="number_probe",
        inputs=(ProgramInput("x", "float", operands.x.shape),),
        outputs={"y": "outer", "z": "twice"},
        weights=weights,
        nodes=nodes,
        activations={},
        quantised_ops=frozenset(),
        files={"fp16": WeightFile("", sections)},
    )
    model = emit(program, "litert-fp16")
    with tempfile.TemporaryDirectory(prefix="npumark-litert-") as temporary:
        folder = Path(temporary)
        (folder / "head.xz").write_bytes(structure_of(model))
        (folder / "weights").write_bytes(raw)
        with (folder / "model").open("wb") as out:
            litert_model.write_model(folder / "head.xz", folder / "weights", out)
        return (folder / "model").read_bytes()


def _sources(workload: Workload) -> list[str]:
    """Return what the models of a workload are made from, and what judges them."""
    stored = (*workload.eval.inputs, *workload.eval.references, *workload.eval.mu)
    weights = [f"{workload.id}/{form}.weights" for form in VARIANTS.values()]
    return [*weights, *(tensor.file for tensor in stored)]


def _spec(program: Program, name: str, dtype: str, shape: tuple[int, ...]) -> TensorSpec:
    perm = image_perm(program, shape)
    return TensorSpec(name, dtype, tuple(shape[axis] for axis in perm) or shape, perm)


def _entry(root: Path, path: str) -> Document:
    with (root / path).open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return {"path": path, "size": (root / path).stat().st_size, "sha256": digest}


def _document(variant: Variant) -> Document:
    def tensor(spec: TensorSpec) -> Document:
        told = {"name": spec.name, "dtype": spec.dtype, "shape": list(spec.shape)}
        return told | ({"perm": list(spec.perm)} if spec.perm else {})

    return {
        "id": variant.id,
        "format": variant.format,
        "encoding": variant.encoding,
        "graph": variant.graph,
        "files": list(variant.files),
        "inputs": [tensor(spec) for spec in variant.inputs],
        "outputs": [tensor(spec) for spec in variant.outputs],
        "validated": variant.validated,
        "division": variant.division,
    }
