"""The job: what the orchestrator asks of a worker."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

SCHEMA = "npumark-worker/1"
"""Of jobs and results alike."""

Stamp = tuple[int, int, int]
"""Size, mtime in nanoseconds and inode: while they hold, a hashed file is not hashed again."""

JobKind = Literal["probe", "measure", "overhead", "prepare", "window", "diagnose"]


@dataclass(frozen=True, slots=True)
class FileCheck:
    """A pack file the job reads. ``stamp`` is [size, mtime_ns, inode] as seen when this run
    hashed it; a file whose stamp still holds is not hashed again (methodology §6: checked
    once per run while unchanged)."""

    path: str
    size: int
    sha256: str
    stamp: tuple[int, int, int] | None


@dataclass(frozen=True, slots=True)
class TimingOptions:
    """How the timed loop runs; from the policy, shortened for a quick run."""

    loop_s: float
    min_iterations: int
    burst_s: float
    drift_window_s: float
    warmup_min_calls: int
    warmup_max_s: float
    warmup_steady_window: int
    warmup_steady_cv: float
    timed_checks: int
    timed_check_min_snr_db: float


@dataclass(frozen=True, slots=True)
class WindowOptions:
    """A window that several workers share. ``seconds`` is its length; it begins at the instant
    that the worker is told once every worker is ready (see worker.barrier)."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Job:
    """One unit of work.

    ``engine_ref`` is ``module:Class`` of the engine (its entry point's value). For ``probe``
    only ``engine_ref`` and ``options`` matter; ``overhead`` needs ``engine_id`` and ``threads``
    too, and measures what the harness costs on a one-node graph. ``prepare`` is as ``measure``,
    but only loads and calls once, so that the compiled model is there and known to load.

    ``cache_dir`` is the entry's place for its compiled model, empty where it keeps none;
    ``cache_stamps`` are those of its files as this run hashed them, and ``rebuild`` says that
    what lies there must be thrown away first.

    ``workload`` and ``variant`` are the manifest's own dictionaries (see pack.manifest);
    ``encoding`` and ``format`` say what is asked for where the engine computes in a format of
    its own (``bf16``, BF16 from the ``fp32`` graph), and are empty where they are the variant's.
    ``seed`` draws the timed checks. ``profile_runs`` is the length of the separate placement
    run. ``samples_path`` is where raw durations go (little-endian int64 nanoseconds), or null.

    ``window`` is as ``measure`` until the warm-up's end; then the worker says that it is ready,
    and calls from the shared window's start to its end; its last call is checked, which no seed
    draws. ``diagnose`` carries out one step of a
    diagnostics probe, which ``probe`` describes (its ``kind`` and options, see
    worker.diagnose); its raw samples go into the folder ``samples_path``. ``cpus`` are the CPUs
    that the worker binds itself to before anything is loaded, empty: as it was started.
    """

    kind: JobKind
    engine_ref: str
    engine_id: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    threads: int | None = None
    pack_root: str = ""
    cache_dir: str = ""
    cache_stamps: dict[str, Stamp] = field(default_factory=dict)
    rebuild: bool = False
    workload: dict[str, Any] | None = None
    variant: dict[str, Any] | None = None
    encoding: str = ""
    format: str = ""
    files: tuple[FileCheck, ...] = ()
    timing: TimingOptions | None = None
    seed: int = 0
    profile_runs: int = 0
    samples_path: str | None = None
    window: WindowOptions | None = None
    probe: dict[str, Any] = field(default_factory=dict)
    cpus: tuple[int, ...] = ()
    schema: str = SCHEMA

    def encode(self) -> bytes:
        return json.dumps(asdict(self), allow_nan=False).encode()


def decode_job(raw: bytes) -> Job:
    """Return the job in ``raw``. Raises ValueError where it is not one of this version."""
    doc = json.loads(raw)
    if not isinstance(doc, dict) or doc.get("schema") != SCHEMA:
        raise ValueError("not a job of this version")
    files = tuple(
        FileCheck(f["path"], f["size"], f["sha256"], tuple(f["stamp"]) if f["stamp"] else None)
        for f in doc.pop("files")
    )
    timing = doc.pop("timing")
    window = doc.pop("window")
    doc["cache_stamps"] = stamps_from(doc["cache_stamps"])
    doc["cpus"] = tuple(doc["cpus"])
    try:
        return Job(
            files=files,
            timing=TimingOptions(**timing) if timing else None,
            window=WindowOptions(**window) if window else None,
            **doc,
        )
    except TypeError as fault:
        raise ValueError(f"not a job of this version: {fault}") from fault


def stamps_from(doc: dict[str, Any]) -> dict[str, Stamp]:
    """Return stamps by path from what JSON made of them."""
    return {str(k): (int(v[0]), int(v[1]), int(v[2])) for k, v in doc.items()}
