"""Builds the peak chains' part of the pack: graphs, hashes and the manifest's entries.

Weights, inputs and references are not stored, only what they must hash to: any machine can
write them again from their names (``npumark.pack.peak_files``).
"""

from __future__ import annotations

import hashlib
import math
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import onnxruntime

from npumark.pack import peak_files, recipes
from npumark.pack.manifest import PackFile, Tier
from npumark.pack.seeded import Chain
from npumark.policy import load_policy
from workloads.peak import graphs

CHAINS: tuple[tuple[Chain, Tier], ...] = (
    (Chain(512, 2048, 8), "peak"),
    (Chain(2048, 2048, 4), "peak"),
    (Chain(8192, 4096, 4), "large"),
    (Chain(16, 256, 3), "extra"),
    (Chain(64, 256, 3), "extra"),
)
"""The methodology's shapes (§3, §3a), and two small ones for emulators and trials."""

FloatArray = npt.NDArray[np.float64]


def build(shipped: Path) -> dict[str, Any]:
    """Write every chain's graphs under ``shipped`` and return the manifest's fragment."""
    files: list[dict[str, Any]] = []
    workloads: list[dict[str, Any]] = []
    for chain, tier in CHAINS:
        print(f"{chain.workload}: graphs", flush=True)
        entries = [*_graph_files(chain, shipped), *_recipes(chain)]
        with tempfile.TemporaryDirectory(prefix="npumark-peak-") as temporary:
            root = Path(temporary)
            files += [_made(entry, root, shipped) for entry in entries]
            passed = {e.id: passes(chain, e, root) for e in graphs.ENCODINGS}
        workloads.append(_workload(chain, tier, passed))
    return {"files": files, "workloads": workloads}


def write_graphs(chain: Chain, folder: Path) -> None:
    """Write the four graphs of a chain into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    for encoding in graphs.ENCODINGS:
        model = graphs.graph(chain, encoding)
        path = folder / f"{encoding.id}.onnx"
        path.write_bytes(model.SerializeToString(deterministic=True))


def snr_db(output: npt.NDArray[Any], reference: FloatArray) -> float:
    """Return the signal-to-noise ratio of an output about zero; -inf where not finite."""
    error = output.astype(np.float64) - reference
    if not np.isfinite(error).all():
        return -math.inf
    noise = float(np.square(error).sum())
    return 10 * math.log10(float(np.square(reference).sum()) / noise) if noise else math.inf


def _graph_files(chain: Chain, shipped: Path) -> Iterator[PackFile]:
    write_graphs(chain, shipped / chain.workload)
    for encoding in graphs.ENCODINGS:
        yield PackFile(f"{chain.workload}/{encoding.id}.onnx", 0, "", "shipped", None, {}, needs=())


def _recipes(chain: Chain) -> Iterator[PackFile]:
    def derived(name: str, recipe: str, **args: Any) -> PackFile:
        path = f"{chain.workload}/{name}"
        return PackFile(path, 0, "", "derived", recipe, {"workload": chain.workload, **args}, ())

    for form in ("fp32", "fp16", "int8"):
        yield derived(f"{form}.weights", "peak-weights", form=form)
    yield derived("inputs.f32", "peak-inputs", names=list(peak_files.EVAL))
    yield derived("canonical.f32", "peak-inputs", names=[peak_files.CANONICAL])
    yield derived("references.f16", "peak-references", names=list(peak_files.EVAL))


class _Measured:
    """A binary sink that counts and hashes what passes through."""

    def __init__(self, out: BinaryIO) -> None:
        self.out = out
        self.size = 0
        self.digest = hashlib.sha256()

    def write(self, block: Any) -> int:
        view = memoryview(block).cast("B")
        self.digest.update(view)
        self.size += len(view)
        return self.out.write(view)


def _made(file: PackFile, root: Path, shipped: Path) -> dict[str, Any]:
    print(f"  {file.path}", flush=True)
    path = root / file.path
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as out:
        sink = _Measured(out)
        recipes.make(file, recipes.Source(root, shipped), sink)  # type: ignore[arg-type]
    entry: dict[str, Any] = {
        "path": file.path,
        "size": sink.size,
        "sha256": sink.digest.hexdigest(),
        "origin": file.origin,
    }
    if file.recipe:
        entry |= {"recipe": file.recipe, "args": file.args}
    return entry


def passes(chain: Chain, encoding: graphs.Encoding, root: Path) -> bool:
    """Say whether a variant reaches the peak gate on ONNX Runtime's CPU when built.

    ``root`` holds the chain's folder with graph, weights, inputs and references.
    """
    folder = root / chain.workload
    shape = (-1, chain.rows, chain.width)
    inputs = np.fromfile(folder / "inputs.f32", "<f4").reshape(shape)
    references = np.fromfile(folder / "references.f16", "<f2").reshape(shape)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        folder / f"{encoding.id}.onnx", options, providers=["CPUExecutionProvider"]
    )
    outputs = [session.run(None, {"x": x.astype(encoding.io)})[0] for x in inputs]
    snr = snr_db(np.stack(outputs), references.astype(np.float64))
    print(f"  {encoding.id}: {snr:.1f} dB", flush=True)
    return snr >= load_policy().gates.peak_snr_db


def _workload(chain: Chain, tier: Tier, passed: dict[str, bool]) -> dict[str, Any]:
    one = [chain.rows, chain.width]
    judged = len(peak_files.EVAL)

    def stored(name: str, file: str, dtype: str, n: int) -> dict[str, Any]:
        path = f"{chain.workload}/{file}"
        return {"name": name, "file": path, "dtype": dtype, "shape": [n, *one]}

    return {
        "id": chain.workload,
        "kind": "peak",
        "tier": tier,
        "task": "chain",
        "title": f"Matrix chain {chain.rows}×{chain.width}, {chain.layers} layers",
        "macs": chain.macs,
        "params": chain.width * chain.width * chain.layers,
        "published": {},
        "eval": {
            "n": judged,
            "canonical": 0,
            "inputs": [stored("x", "inputs.f32", "float32", judged)],
            "canonical_inputs": [stored("x", "canonical.f32", "float32", 1)],
            "references": [stored("y", "references.f16", "float16", judged)],
            "mu": [],
            "parameters": {},
        },
        "gates": {
            "standard": {
                "basis": "methodology §3",
                "bounds": {"snr_db": load_policy().gates.peak_snr_db},
            }
        },
        "variants": [variant(chain, encoding, passed) for encoding in graphs.ENCODINGS],
    }


def variant(chain: Chain, encoding: graphs.Encoding, passed: dict[str, bool]) -> dict[str, Any]:
    """Return the manifest's entry of one encoding; ``passed`` says which reached the gate."""
    graph = f"{chain.workload}/{encoding.id}.onnx"

    def tensor(name: str) -> dict[str, Any]:
        return {"name": name, "dtype": encoding.io, "shape": [chain.rows, chain.width]}

    return {
        "id": encoding.id,
        "format": encoding.format,
        "encoding": encoding.id,
        "graph": graph,
        "files": [graph, f"{chain.workload}/{encoding.weights}.weights"],
        "inputs": [tensor("x")],
        "outputs": [tensor("y")],
        "validated": passed[encoding.id],
        "division": "standard",
    }
