"""MLX in its own environment, through the product's own worker: every encoding, on its CPU."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from npumark.engines.registry import BUILT_IN
from npumark.gates.judge import judge
from npumark.orchestrator.supervisor import Outcome
from npumark.pack.manifest import GateSpec, Manifest, load_manifest
from npumark.pack.materialize import materialize, workload_paths
from npumark.pack.program import PROGRAM
from npumark.pack.program_file import parse_program
from npumark.worker.protocol import EngineInfo, FileCheck, Job, Result, TimingOptions
from workloads.graph import Graph, Values
from workloads.mlx_build import variant
from workloads.onnx_emit import Quantisation, save
from workloads.programs_build import document, encode, weight_files

CHAIN = "peak-16x256x3"
ENVIRONMENT = "mlx"
REF = BUILT_IN["mlx"]

BRIEF = TimingOptions(
    loop_s=0.0,
    min_iterations=3,
    burst_s=0.01,
    drift_window_s=0.005,
    warmup_min_calls=1,
    warmup_max_s=0.0,
    warmup_steady_window=3,
    warmup_steady_cv=0.05,
    timed_checks=2,
    timed_check_min_snr_db=60.0,
)

Work = Callable[..., Outcome]


@pytest.fixture(scope="module")
def cpu(run_worker: Work) -> EngineInfo:
    outcome = run_worker(Job("probe", REF), ENVIRONMENT)
    assert outcome.result is not None, outcome.why
    return next(e for e in outcome.result.engines if e.id == "mlx-cpu")


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> tuple[Manifest, Path]:
    manifest, root = load_manifest(), tmp_path_factory.mktemp("pack")
    materialize(manifest, workload_paths(manifest, [CHAIN]), root=root)
    return manifest, root


def job(root: Path, engine: EngineInfo, workload: dict[str, Any], entry: dict[str, Any]) -> Job:
    ev = workload["eval"]
    stored = [t["file"] for kind in ("inputs", "references") for t in ev[kind]]
    checks = []
    for path in (*entry["files"], *stored):
        raw = (root / path).read_bytes()
        checks.append(FileCheck(path, len(raw), hashlib.sha256(raw).hexdigest(), None))
    return Job(
        kind="measure",
        engine_ref=REF,
        engine_id=engine.id,
        options=engine.options,
        threads=1,
        pack_root=str(root),
        workload=workload,
        variant=entry,
        files=tuple(checks),
        timing=BRIEF,
        profile_runs=3,
    )


def measured(outcome: Outcome) -> Result:
    assert outcome.result is not None, outcome.why
    assert outcome.result.status == "ok", (outcome.result.why, outcome.log_tail)
    return outcome.result


def chain_job(pack: tuple[Manifest, Path], engine: EngineInfo, name: str) -> Job:
    workload = pack[0].workloads[CHAIN]
    return job(pack[1], engine, asdict(workload), asdict(workload.variant(name)))


@pytest.mark.parametrize(
    ("name", "ran"),
    [("mlx-fp16", "FP16"), ("mlx-bf16", "BF16"), ("mlx-w8", "W8"), ("mlx-w4", "INT4")],
)
def test_a_chain_is_measured_in_every_encoding(
    name: str, ran: str, run_worker: Work, cpu: EngineInfo, pack: tuple[Manifest, Path]
) -> None:
    result = measured(run_worker(chain_job(pack, cpu, name), ENVIRONMENT))
    assert result.measurement is not None
    assert result.observed is not None
    assert result.placement is not None
    workload = pack[0].workloads[CHAIN]
    verdict = judge(result.measurement.measures, workload.gates["standard"])
    assert verdict.passed == workload.variant(name).validated == (name != "mlx-w4")
    assert result.measurement.timed_check.bit_identical
    assert (result.observed.device, result.observed.precision) == ("Device(cpu, 0)", ran)
    assert (result.placement.verdict, result.placement.share) == ("proved", 1.0)


def test_layers_that_change_places_fail_the_gate(
    run_worker: Work, cpu: EngineInfo, pack: tuple[Manifest, Path], tmp_path: Path
) -> None:
    workload = pack[0].workloads[CHAIN]
    for path in workload.files("mlx-fp16"):
        place = tmp_path / path
        place.parent.mkdir(exist_ok=True)
        place.write_bytes((pack[1] / path).read_bytes())
    weights = tmp_path / CHAIN / "fp16.weights"
    raw = weights.read_bytes()
    third = len(raw) // 3
    weights.write_bytes(raw[third : 2 * third] + raw[:third] + raw[2 * third :])
    result = measured(run_worker(chain_job((pack[0], tmp_path), cpu, "mlx-fp16"), ENVIRONMENT))
    assert result.measurement is not None
    assert not judge(result.measurement.measures, workload.gates["standard"]).passed


def test_a_gpu_that_is_not_here_is_never_replaced(
    run_worker: Work, cpu: EngineInfo, pack: tuple[Manifest, Path]
) -> None:
    gpu = replace(cpu, id="mlx-gpu", options={**cpu.options, "device": "gpu"})
    outcome = run_worker(chain_job(pack, gpu, "mlx-fp16"), ENVIRONMENT)
    assert outcome.result is not None
    if outcome.result.status == "ok":
        assert outcome.result.observed is not None
        assert outcome.result.observed.device == "Device(gpu, 0)"
    else:
        assert "gpu" in (outcome.result.why or "")


def vision() -> Graph:
    """Return a network with every operation that images go through."""
    g = Graph("tiny")
    x = g.input("x", (1, 3, 16, 16))
    y = g.activation(g.conv(x, "stem", 8, 3, stride=2), "stem_act", "hardswish")
    z = g.activation(g.conv(y, "deep", 8, 3, dilation=2, groups=8), "deep_act", "relu")
    gate = g.conv(g.global_pool(z, "pool"), "excite", 8, 1, norm=False)
    z = g.mul(z, g.activation(gate, "gate", "hardsigmoid"), "gated")
    z = g.add(z, y, "sum")
    low = g.max_pool(z, "low", 3, 2, 1)
    mean = g.resize(g.global_pool(low, "mean"), "mean_up", 4, 4)
    joined = g.concat([low, mean], "joined", 1)
    head = g.conv(joined, "head", 5, 1, norm=False)
    g.output("y", g.resize(head, "up", 16, 16))
    return g


def write_tiny(root: Path, graph: Graph, values: Values) -> dict[str, Any]:
    """Write a pack of one network whose references are ONNX Runtime's; return its workload."""
    folder = root / graph.workload
    folder.mkdir(parents=True)
    none = Quantisation({})
    save(graph, values, "fp16", folder, none)
    path = save(graph, values, "fp32", folder, none)
    doc = document(graph, none) | {"files": weight_files(graph, values, none)}
    (folder / PROGRAM).write_bytes(encode(doc))
    x = np.random.default_rng(5).standard_normal((2, 3, 16, 16)).astype(np.float32)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    y = np.concatenate([session.run(["y"], {"x": one[None]})[0] for one in x])
    for name, array in (("x.bin", x), ("y.bin", y)):
        (folder / name).write_bytes(np.ascontiguousarray(array, "<f4").tobytes())

    def stored(name: str, array: Any) -> dict[str, Any]:
        file = f"{graph.workload}/{name}.bin"
        return {"name": name, "file": file, "dtype": "float32", "shape": list(array.shape)}

    return {
        "id": graph.workload,
        "kind": "network",
        "tier": "extra",
        "task": "chain",
        "title": "tiny",
        "macs": graph.macs(),
        "params": graph.parameters(),
        "eval": {
            "n": 2,
            "canonical": 0,
            "inputs": [stored("x", x)],
            "references": [stored("y", y)],
        },
        "gates": {},
        "variants": [variant(parse_program(encode(doc)), "mlx-fp16", validated=True)],
    }


def test_a_network_of_images_is_the_one_that_onnx_runs(
    run_worker: Work, cpu: EngineInfo, tmp_path: Path
) -> None:
    draw, graph = np.random.default_rng(4), vision()
    values = {
        name: (draw.standard_normal(w.shape) / np.sqrt(max(1, np.prod(w.shape[1:]))))
        .astype(np.float16)
        .astype(np.float32)
        for name, w in graph.weights.items()
    }
    workload = write_tiny(tmp_path / "right", graph, values)
    entry = workload["variants"][0]
    assert entry["outputs"][0] == {
        "name": "y",
        "dtype": "float16",
        "shape": [1, 16, 16, 5],
        "perm": [0, 2, 3, 1],
    }
    asked = job(tmp_path / "right", cpu, workload, entry)
    result = measured(run_worker(asked, ENVIRONMENT))
    assert result.measurement is not None
    assert result.measurement.timed_check.bit_identical
    gate = GateSpec("float16", {"snr_db": 45.0})
    assert judge(result.measurement.measures, gate).passed, result.measurement.measures
    # Negative control: an output in the wrong order of axes.
    turned = {**entry, "outputs": [{**entry["outputs"][0], "perm": [0, 1, 3, 2]}]}
    outcome = run_worker(replace(asked, variant=turned), ENVIRONMENT)
    assert outcome.result is not None
    assert "in the layout" in (outcome.result.why or "")
