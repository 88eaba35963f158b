"""Adds MLX's variants to the manifest: ``tool/build_pack.py mlx``.

A variant is the workload's program with one of its weight files; nothing is shipped for it.
Whether it reaches its gate is decided by a run of MLX's CPU back end here. Its kernel for packed
weights is far too slow there for a whole network, so for the judgement those are unpacked first
and multiplied in FP16, as the kernel does it element by element; chains of 256 wide run the
kernel itself. Needs ``pip install 'mlx[cpu]'`` under Linux.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from npumark.engines.mlx_program import GROUP, NHWC, RECIPES, Builder, Quantised, images
from npumark.gates.judge import judge
from npumark.gates.metrics import accumulator
from npumark.pack.manifest import Manifest, TensorSpec, Workload, load_manifest
from npumark.pack.materialize import materialize
from npumark.pack.program import PROGRAM, Program
from npumark.pack.program_file import load_program
from npumark.policy import DATA
from npumark.worker.eval_set import StoredLayout, load_inputs, load_mu, load_references

PART = DATA / "manifest.mlx.json"
SHIPPED = DATA / "pack"

FAMILY = {"mlx-fp16": "FP16", "mlx-bf16": "BF16", "mlx-w8": "W8", "mlx-w4": "INT4"}
"""Variant -> number format family."""

WORKLOADS = (
    "peak-16x256x3",
    "peak-64x256x3",
    "mobilenet_v3_large",
    "resnet50",
    "deeplabv3_mobilenet_v3_large",
    "granite_embedding_30m",
    "peak-512x2048x8",
    "peak-2048x2048x4",
)

_SMALL = 256
"""A chain as wide as this runs the packed kernel in a second."""

Document = dict[str, Any]


def main(argv: Sequence[str]) -> int:
    """Write the part; with ``--only`` judge some workloads again and keep the others."""
    parser = argparse.ArgumentParser(prog="build_pack.py mlx", description=__doc__)
    parser.add_argument("--only", choices=WORKLOADS, action="append")
    parser.add_argument("--pack", type=Path, help="a folder to keep the materialised files in")
    args = parser.parse_args(argv)
    manifest = load_manifest()
    variants = dict(json.loads(PART.read_bytes())["variants"]) if args.only else {}
    with tempfile.TemporaryDirectory(prefix="npumark-mlx-") as temporary:
        root = args.pack or Path(temporary)
        for name in args.only or WORKLOADS:
            variants[name] = list(_variants(manifest, manifest.workloads[name], root))
    ordered = {name: variants[name] for name in WORKLOADS if name in variants}
    part = {"files": [], "variants": ordered}
    PART.write_text(json.dumps(part, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return 0


def encodings(program: Program) -> list[str]:
    """Return the variants that a program has: packed weights only where none is a filter."""
    convolves = any(w.kind in ("conv", "depthwise") for w in program.weights.values())
    return [name for name in FAMILY if not (convolves and RECIPES[name].bits)]


def variant(program: Program, encoding: str, *, validated: bool) -> Document:
    """Return a variant's entry in the manifest."""
    name, recipe = program.workload, RECIPES[encoding]
    graph = f"{name}/{PROGRAM}"
    floats = "float16" if recipe.compute == "float16" else "float32"
    held, shapes = images(program), program.shapes()

    def tensor(public: str, inner: str, dtype: str) -> Document:
        shape = shapes[inner]
        if inner not in held:
            return {"name": public, "dtype": dtype, "shape": list(shape)}
        turned = [shape[axis] for axis in NHWC]
        return {"name": public, "dtype": dtype, "shape": turned, "perm": list(NHWC)}

    return {
        "id": encoding,
        "format": FAMILY[encoding],
        "encoding": encoding,
        "graph": graph,
        "files": [graph, program.files[recipe.form].path],
        "inputs": [
            tensor(x.name, x.name, floats if x.dtype == "float" else "int32")
            for x in program.inputs
        ],
        "outputs": [tensor(public, inner, floats) for public, inner in program.outputs.items()],
        "validated": validated,
        "division": "standard",
    }


def _variants(manifest: Manifest, workload: Workload, root: Path) -> Iterator[Document]:
    program = load_program(SHIPPED / workload.id / PROGRAM)
    ev = workload.eval
    stored = {t.file for t in (*ev.inputs, *ev.references, *ev.mu)}
    for encoding in encodings(program):
        weights = program.files[RECIPES[encoding].form].path
        materialize(manifest, sorted({*stored, weights}), root=root)
        began = time.monotonic()
        measures, passed = _judged(workload, program, encoding, root)
        told = ", ".join(f"{k} {v:.5g}" for k, v in measures.items() if v is not None)
        verdict = "passes" if passed else "fails"
        took = time.monotonic() - began
        print(f"{workload.id}/{encoding} {verdict}: {told} ({took:.0f} s)", flush=True)
        yield variant(program, encoding, validated=passed)


def _judged(
    workload: Workload, program: Program, encoding: str, root: Path
) -> tuple[dict[str, float | None], bool]:
    """Run the whole eval set on MLX's CPU back end; return the measures and the verdict."""
    import mlx.core as mx

    mx.set_default_device(mx.cpu)
    entry = variant(program, encoding, validated=False)
    inputs, outputs = specs(entry["inputs"]), specs(entry["outputs"])
    builder = Builder(program, root, encoding)
    if max(x.shape[-1] for x in program.inputs) > _SMALL or workload.kind == "network":
        unpack(builder)
    function = mx.compile(builder.function(inputs, outputs))
    judged = accumulator(
        workload.task,
        load_references(root, workload.eval),
        load_mu(root, workload.eval),
        workload.eval.parameters,
    )
    for index, sample in enumerate(load_inputs(root, workload.eval, inputs)):
        made = function(*[mx.array(array) for array in sample])
        mx.eval(made)
        views: list[npt.NDArray[Any]] = [np.array(array, copy=False) for array in made]
        judged.add(index, StoredLayout(views, outputs))
    measures, why = judged.result()
    return measures, why is None and judge(measures, workload.gates["standard"]).passed


def unpack(builder: Builder) -> None:
    """Replace packed matrices of dense layers by the values that they stand for."""
    import mlx.core as mx

    for name, held in builder.weights.items():
        if isinstance(held, Quantised) and builder.program.weights[name].kind == "dense":
            parts = (held.packed, held.scales, held.biases)
            value = mx.dequantize(*parts, group_size=GROUP, bits=builder.recipe.bits)
            builder.weights[name] = mx.contiguous(value.T)


def specs(entries: Sequence[Document]) -> tuple[TensorSpec, ...]:
    """Return the tensors that a variant's entry describes."""
    return tuple(
        TensorSpec(e["name"], e["dtype"], tuple(e["shape"]), tuple(e.get("perm", ())))
        for e in entries
    )
