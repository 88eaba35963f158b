"""A pack small enough for a test, a script of virtual engines, and jobs that measure it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npumark.worker.__main__ import carry_out
from npumark.worker.protocol import FileCheck, Job, Result, TimingOptions

ROWS, WIDTH, SAMPLES = 4, 8, 3

TIMING = TimingOptions(
    loop_s=0.05,
    min_iterations=5,
    burst_s=0.01,
    drift_window_s=0.005,
    warmup_min_calls=3,
    warmup_max_s=0.01,
    warmup_steady_window=3,
    warmup_steady_cv=0.05,
    timed_checks=4,
    timed_check_min_snr_db=60.0,
)


def make_pack(root: Path, graph: bytes = b"a graph", *, samples: int = SAMPLES) -> dict[str, Any]:
    """Write a chain's eval set and ``graph`` under ``root``; return the workload's dictionary."""
    draw = np.random.default_rng(7)
    x = draw.standard_normal((samples, ROWS, WIDTH)).astype("<f2")
    y = np.maximum(x.astype("<f4"), 0).astype("<f2")
    root.mkdir(parents=True, exist_ok=True)
    (root / "x.bin").write_bytes(x.tobytes())
    (root / "y.bin").write_bytes(y.tobytes())
    (root / "graph.onnx").write_bytes(graph)
    spec = {"dtype": "float32", "shape": [ROWS, WIDTH]}
    stored = {"dtype": "float16", "shape": [samples, ROWS, WIDTH]}
    return {
        "id": "peak-4x8x1",
        "kind": "peak",
        "tier": "peak",
        "task": "chain",
        "title": "tiny",
        "macs": 1,
        "params": 1,
        "eval": {
            "n": samples,
            "canonical": 0,
            "inputs": [{"name": "x", "file": "x.bin", **stored}],
            "references": [{"name": "y", "file": "y.bin", **stored}],
        },
        "gates": {},
        "variants": [
            {
                "id": "fp32",
                "format": "FP32",
                "encoding": "fp32",
                "graph": "graph.onnx",
                "files": ["graph.onnx"],
                "inputs": [{"name": "x", **spec}],
                "outputs": [{"name": "y", **spec}],
                "validated": True,
                "division": "standard",
            }
        ],
    }


def checks(root: Path, *paths: str) -> tuple[FileCheck, ...]:
    found = []
    for path in paths:
        raw = (root / path).read_bytes()
        found.append(FileCheck(path, len(raw), hashlib.sha256(raw).hexdigest(), None))
    return tuple(found)


def make_job(root: Path, workload: dict[str, Any], **changes: Any) -> Job:
    """Return a job that measures the workload's first variant on the virtual engine."""
    job: dict[str, Any] = {
        "kind": "measure",
        "engine_ref": "npumark.engines.virtual:Virtual",
        "engine_id": "virtual-cpu",
        "options": {"script": str(root / "script.json")},
        "threads": 2,
        "pack_root": str(root),
        "workload": workload,
        "variant": workload["variants"][0],
        "files": checks(root, "graph.onnx", "x.bin", "y.bin"),
        "timing": TIMING,
        "seed": 11,
        "profile_runs": 2,
    }
    return Job(**{**job, **changes})


@dataclass
class Tiny:
    """A pack at ``root``; ``run`` carries a job out in this very process."""

    root: Path
    workload: dict[str, Any]

    def script(self, *faults: dict[str, Any], **card: Any) -> None:
        card = {"id": "virtual-cpu", "latency_us": {"*/*": 1000}, **card, "faults": faults}
        (self.root / "script.json").write_text(json.dumps({"engines": [card]}))

    def job(self, **changes: Any) -> Job:
        return make_job(self.root, self.workload, **changes)

    def run(self, *faults: dict[str, Any], **changes: Any) -> Result:
        if not (self.root / "script.json").exists() or faults:
            self.script(*faults)
        return carry_out(self.job(**changes), 0)


@pytest.fixture
def tiny(tmp_path: Path) -> Tiny:
    root = tmp_path / "pack"
    return Tiny(root, make_pack(root))


@pytest.fixture
def timing() -> TimingOptions:
    return TIMING


@pytest.fixture
def map_of_classes(tiny: Tiny) -> Tiny:
    """A segmentation whose references are stored at half the size of its output's maps."""
    draw = np.random.default_rng(8)
    shapes = {"x": (SAMPLES, 1, 4, 4), "y": (SAMPLES, 1, 2, 4, 4)}
    for name, shape in shapes.items():
        values = draw.standard_normal(shape).astype("<f2")
        (tiny.root / f"{name}.bin").write_bytes(values.tobytes())
        kind = "inputs" if name == "x" else "references"
        tiny.workload["eval"][kind][0]["shape"] = list(shape)
    tiny.workload["task"] = "segmentation"
    tiny.workload["kind"] = "network"
    tiny.workload["eval"]["parameters"] = {"decisive_margin": 0.1, "reference_scale": 2}
    variant = tiny.workload["variants"][0]
    variant["inputs"][0]["shape"] = [1, 4, 4]
    variant["outputs"][0]["shape"] = [1, 2, 8, 8]
    return tiny
