"""Builds the Core ML part of the pack: ``tool/build_pack.py coreml``.

Every variant's package is written as a user's machine will write it, run over the whole eval set
by the interpreter (``workloads.coreml_interpret``) and judged by the workload's standard gate:
that verdict is the variant's ``validated``, and the measures are kept beside those of the other
formats. Needs coremltools, which an environment of its own may hold.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from npumark.engines.coreml_program import ENCODINGS, Encoding, lopsided, write_package
from npumark.gates.judge import judge
from npumark.gates.metrics import accumulator
from npumark.pack import recipes
from npumark.pack.manifest import Manifest, Workload, parse_manifest, variant_from
from npumark.pack.program import PROGRAM, Program
from npumark.pack.program_file import load_program
from npumark.policy import DATA
from npumark.worker.eval_set import load_inputs, load_mu, load_references
from workloads.coreml_interpret import Interpreter
from workloads.gate_rules import Run

SHIPPED = DATA / "pack"
PART = DATA / "manifest.coreml.json"
MEASURES_FILE = Path(__file__).with_name("COREML_MEASURES.json")

SOURCES = ("peak", "networks", "programs")
"""The parts of the manifest that this one adds to."""

Document = dict[str, Any]


def main(argv: Sequence[str]) -> int:
    """Write, run and judge every variant; write the part and the measures."""
    parser = argparse.ArgumentParser(prog="build_pack.py coreml", description=__doc__)
    parser.add_argument(
        "--missing", action="store_true", help="measure only what has no kept measures"
    )
    kept: dict[str, dict[str, Run]] = {}
    if parser.parse_args(argv).missing:
        kept = _read(MEASURES_FILE)
    manifest = base_manifest()
    variants: dict[str, list[Document]] = {}
    measured: dict[str, dict[str, Run]] = {}
    with tempfile.TemporaryDirectory(prefix="npumark-coreml-") as temporary:
        pack = Pack(manifest, Path(temporary))
        for workload in with_programs(manifest):
            program = load_program(pack.file(f"{workload.id}/{PROGRAM}"))
            runs = measured[workload.id] = {}
            documents = variants[workload.id] = []
            for encoding in encodings(program):
                run = kept.get(workload.id, {}).get(encoding.id)
                run = _rounded(run or measure(pack, workload, program, encoding))
                runs[encoding.id] = run
                passed = passes(workload, run)
                documents.append(variant_document(program, encoding, passed=passed))
                told = ", ".join(f"{k} {v:.5g}" for k, v in run.items() if v is not None)
                print(f"{workload.id} {encoding.id}: {told}", flush=True)
    _write(PART, {"files": [], "variants": variants})
    _write(MEASURES_FILE, dict(sorted(measured.items())))
    return 0


def base_manifest() -> Manifest:
    """Return the manifest without the parts that add formats, read from its parts."""
    parts = [_read(DATA / f"manifest.{part}.json") for part in SOURCES]
    files = {file["path"]: file for part in parts for file in part["files"]}
    workloads = [workload for part in parts for workload in part.get("workloads", ())]
    doc = {"suite": {}, "files": list(files.values()), "workloads": workloads}
    return parse_manifest(json.dumps(doc).encode())


def with_programs(manifest: Manifest) -> list[Workload]:
    """Return the workloads that have a program: all but the large chain."""
    return [w for w in manifest.workloads.values() if f"{w.id}/{PROGRAM}" in manifest.files]


def encodings(program: Program) -> list[Encoding]:
    """Return the encodings of a workload: the affine one only where symmetric ranges are poor."""
    return [e for e in ENCODINGS.values() if not e.affine or lopsided(program)]


class Pack:
    """The files of a manifest, made one by one as they are asked for."""

    def __init__(self, manifest: Manifest, root: Path) -> None:
        self.manifest = manifest
        self.root = root

    def file(self, path: str) -> Path:
        """Return where a file lies, made first where it does not lie there yet."""
        place = self.root / path
        if not place.exists():
            made = self.manifest.files[path]
            for need in made.needs:
                self.file(need)
            place.parent.mkdir(parents=True, exist_ok=True)
            with place.open("wb") as out:
                recipes.make(made, recipes.Source(self.root, SHIPPED), out)
        return place


def measure(
    pack: Pack,
    workload: Workload,
    program: Program,
    encoding: Encoding,
    samples: Sequence[int] | None = None,
) -> Run:
    """Return the measures of an encoding over the eval set, or over some of its samples.

    Raises ValueError where the outputs cannot be judged.
    """
    pack.file(program.files[encoding.weights].path)
    with tempfile.TemporaryDirectory(prefix="npumark-package-") as folder:
        package = write_package(program, pack.root, encoding.id, Path(folder))
        return judged(pack, workload, program, package, samples)


def judged(
    pack: Pack,
    workload: Workload,
    program: Program,
    package: Path,
    samples: Sequence[int] | None = None,
) -> Run:
    """Return the measures of a package over the eval set, or over some of its samples."""
    for tensor in (*workload.eval.inputs, *workload.eval.references, *workload.eval.mu):
        pack.file(tensor.file)
    chosen = list(range(workload.eval.n)) if samples is None else list(samples)
    specs = variant_from(
        variant_document(program, next(iter(ENCODINGS.values())), passed=False)
    ).inputs
    inputs = load_inputs(pack.root, workload.eval, specs)
    references = [np.asarray(r)[chosen] for r in load_references(pack.root, workload.eval)]
    told = accumulator(
        workload.task, references, load_mu(pack.root, workload.eval), workload.eval.parameters
    )
    interpreter = Interpreter(package)
    names = [spec.name for spec in specs]
    for index, sample in enumerate(chosen):
        outputs = interpreter.run(dict(zip(names, inputs[sample], strict=True)))
        told.add(index, [outputs[name] for name in program.outputs])
    measures, why = told.result()
    if why is not None:
        raise ValueError(f"{workload.id}: {why}")
    return measures


def passes(workload: Workload, run: Run) -> bool:
    """Say whether measures pass the workload's standard gate."""
    return judge(run, workload.gates["standard"]).passed


def variant_document(program: Program, encoding: Encoding, *, passed: bool) -> Document:
    """Return the manifest's entry of one variant."""
    path = f"{program.workload}/{PROGRAM}"
    kinds = {"float": "float16", "int64": "int32"}
    shapes = program.shapes()
    return {
        "id": encoding.id,
        "format": encoding.format,
        "encoding": encoding.id,
        "graph": path,
        "files": [path, program.files[encoding.weights].path],
        "inputs": [
            {"name": x.name, "dtype": kinds[x.dtype], "shape": list(x.shape)}
            for x in program.inputs
        ],
        "outputs": [
            {"name": name, "dtype": "float16", "shape": list(shapes[tensor])}
            for name, tensor in program.outputs.items()
        ],
        "validated": passed,
        "division": "standard",
    }


def _rounded(run: Run) -> Run:
    """Six digits: what the last ones hold differs between processors."""
    return {k: None if v is None else float(f"{v:.6g}") for k, v in run.items()}


def _read(path: Path) -> Document:
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}


def _write(path: Path, document: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
