"""The policy: every threshold that can move or judge a number, read from ``data/policy.toml``."""

from __future__ import annotations

import hashlib
import tomllib
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

_T = TypeVar("_T")

DATA = Path(__file__).parent / "data"


@dataclass(frozen=True, slots=True)
class Timing:
    loop_s: float
    min_iterations_network: int
    min_iterations_peak: int
    burst_s: float
    drift_window_s: float
    warmup_min_calls: int
    warmup_max_s: float
    warmup_steady_window: int
    warmup_steady_cv: float
    timed_checks: int
    timed_check_min_snr_db: float
    quick_loop_s: float
    quick_min_iterations: int


@dataclass(frozen=True, slots=True)
class WorkerLimits:
    probe_deadline_s: float
    attempt_deadline_s: float
    log_tail_bytes: int
    log_cap_bytes: int
    kill_grace_s: float


@dataclass(frozen=True, slots=True)
class Repetition:
    network_min_attempts: int
    network_max_attempts: int
    peak_min_attempts: int
    peak_max_attempts: int
    peak_counted_at_min: int
    peak_counted_at_max: int
    agreement: float
    peak_screen: float
    network_screen: float
    spacing_s: float
    unstable_robust_cv: float
    max_timeouts: int
    tail_ratio_warning: float


@dataclass(frozen=True, slots=True)
class FixedFloors:
    kl: float
    miou: float
    token_cosine: float
    cosine_mean: float
    cosine_p10: float


@dataclass(frozen=True, slots=True)
class Degenerate:
    min_snr_db: float
    max_flip_fraction: float
    min_miou_bound: float


@dataclass(frozen=True, slots=True)
class GateRules:
    peak_snr_db: float
    snr_margin_db: float
    kl_factor: float
    gap_fraction: float
    flip_fraction: float
    min_decisive: int
    fixed_floors: FixedFloors
    degenerate: Degenerate


@dataclass(frozen=True, slots=True)
class PlacementRules:
    peak_min_share: float
    network_min_share: float
    profile_runs: int


@dataclass(frozen=True, slots=True)
class Preconditions:
    idle_window_s: float
    max_busy: float
    memory_factor: float
    quick_idle_window_s: float


@dataclass(frozen=True, slots=True)
class Percentiles:
    p90: int
    p95: int
    p99: int
    p999: int


@dataclass(frozen=True, slots=True)
class BoxRules:
    window_s: float
    attempts: int
    max_attempts: int
    slow_card: float
    most_scaling: float
    late_share: float
    lead_s: float
    overrun_s: float


@dataclass(frozen=True, slots=True)
class DiagnoseRules:
    """``percentiles`` are the policy's: whoever has a document's rules can read its tails again."""

    loop_s: float
    level_s: float
    streams: tuple[int, ...]
    batches: tuple[int, ...]
    idle_ms: tuple[int, ...]
    idle_calls: tuple[int, ...]
    sustained_s: float
    sensor_s: float
    pace_window_s: float
    cold_loads: int
    stream_caches: int
    cache_bytes: int
    notable: float
    percentiles: Percentiles


@dataclass(frozen=True, slots=True)
class Policy:
    version: str
    score_version: str
    timing: Timing
    worker: WorkerLimits
    repetition: Repetition
    gates: GateRules
    placement: PlacementRules
    preconditions: Preconditions
    percentiles: Percentiles
    box: BoxRules
    diagnose: DiagnoseRules
    sha256: str


def parse_policy(raw: bytes) -> Policy:
    """Return the policy that ``raw`` (TOML) states; every key known, none missing.

    Raises ValueError naming the section where a key is missing or unknown.
    """
    doc = tomllib.loads(raw.decode())
    gates = dict(doc["gates"])
    gates["fixed_floors"] = _section(FixedFloors, gates["fixed_floors"])
    gates["degenerate"] = _section(Degenerate, gates["degenerate"])
    percentiles = _section(Percentiles, doc["percentiles"])
    return Policy(
        version=doc["version"],
        score_version=doc["score_version"],
        timing=_section(Timing, doc["timing"]),
        worker=_section(WorkerLimits, doc["worker"]),
        repetition=_section(Repetition, doc["repetition"]),
        gates=_section(GateRules, gates),
        placement=_section(PlacementRules, doc["placement"]),
        preconditions=_section(Preconditions, doc["preconditions"]),
        percentiles=percentiles,
        box=_section(BoxRules, doc["box"]),
        diagnose=_section(DiagnoseRules, {**doc["diagnose"], "percentiles": percentiles}),
        sha256=hashlib.sha256(raw).hexdigest(),
    )


@cache
def load_policy() -> Policy:
    """Return the policy this build ships."""
    return parse_policy((DATA / "policy.toml").read_bytes())


def _section(kind: type[_T], values: dict[str, Any]) -> _T:
    known = {f.name for f in fields(kind)}  # type: ignore[arg-type]
    if set(values) != known:
        odd = ", ".join(sorted(set(values) ^ known))
        raise ValueError(f"policy section {kind.__name__}: missing or unknown keys: {odd}")
    return kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()})
