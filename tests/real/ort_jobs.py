"""Brief jobs for ONNX Runtime's providers, as a run would make them, and what they must give."""

from __future__ import annotations

import hashlib
from dataclasses import asdict
from pathlib import Path
from typing import Any

from npumark.gates.judge import judge
from npumark.orchestrator.supervisor import Outcome
from npumark.pack.manifest import Manifest
from npumark.policy import load_policy
from npumark.worker.protocol import EngineInfo, FileCheck, Job, Result, TimingOptions

REF = "npumark.engines.ort:OnnxRuntime"
CHAIN = "peak-64x256x3"
POLICY = load_policy()

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


def chain_job(
    pack: tuple[Manifest, Path], engine: EngineInfo, variant: str, encoding: str = ""
) -> Job:
    manifest, root = pack
    workload = manifest.workloads[CHAIN]
    files = (manifest.files[path] for path in workload.files(variant))
    return Job(
        kind="measure",
        engine_ref=REF,
        engine_id=engine.id,
        options={**engine.options, "cache": False},
        threads=1,
        pack_root=str(root),
        workload=asdict(workload),
        variant=asdict(workload.variant(variant)),
        encoding=encoding,
        format=encoding.upper(),
        files=tuple(FileCheck(f.path, f.size, f.sha256, None) for f in files),
        timing=BRIEF,
        seed=1,
        profile_runs=POLICY.placement.profile_runs,
    )


def own_job(root: Path, engine: EngineInfo, workload: dict[str, Any], **options: Any) -> Job:
    """Return a job that measures a workload of write_pack's."""
    raw = {name: (root / name).read_bytes() for name in ("graph.onnx", "x.bin", "y.bin")}
    checks = [FileCheck(n, len(r), hashlib.sha256(r).hexdigest(), None) for n, r in raw.items()]
    return Job(
        kind="measure",
        engine_ref=REF,
        engine_id=engine.id,
        options={**engine.options, "cache": False, **options},
        threads=1,
        pack_root=str(root),
        workload=workload,
        variant=workload["variants"][0],
        files=tuple(checks),
        timing=BRIEF,
        seed=1,
        profile_runs=3,
    )


def measured(outcome: Outcome) -> Result:
    assert outcome.status == "ok", (outcome.status, outcome.why, outcome.log_tail)
    assert outcome.result is not None
    assert outcome.result.measurement is not None
    return outcome.result


def passes(manifest: Manifest, result: Result) -> bool:
    assert result.measurement is not None
    return judge(result.measurement.measures, manifest.workloads[CHAIN].gates["standard"]).passed
