"""The result: what a worker answers, and what an engine's probe tells.

Plain dataclasses: nothing here is checked, and what an engine says is believed by nobody yet.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from npumark.worker.job import SCHEMA, Stamp

MAX_RESULT_BYTES = 64 << 20

Status = Literal[
    "ok",
    "gate_failed",
    "wrong_device",
    "unsupported",
    "skipped",
    "crashed",
    "timeout",
    "no_result",
    "pack_error",
    "interrupted",
]


@dataclass(frozen=True, slots=True)
class Observed:
    """What really ran, read back from the runtime; never what was requested.

    ``precision`` is a format family (FP32, BF16, FP16, INT8, W8 …) or null with
    ``precision_why``. ``device`` is the runtime's own word. ``versions`` maps package or
    driver to version. ``details`` holds engine-specific evidence (primitive types, op counts).
    Where the runtime could not tell, ``precision_why`` says why and the rest is null.
    """

    device: str | None
    precision: str | None
    precision_why: str | None
    threads: int | None
    runtime: str
    version: str | None
    versions: dict[str, str] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)


Verdict = Literal["proved", "inferred", "unproved"]


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the work ran: ``share`` of time on the engine's own processor, 0 to 1, or null.

    ``evidence`` names the source (``profile``, ``execution-devices``, ``plan`` …).
    """

    verdict: Verdict
    share: float | None
    op_share: float | None
    partitions: int | None
    evidence: str
    why: str | None = None


CacheState = Literal["reused", "built", "rebuilt", "unkept"]


@dataclass(frozen=True, slots=True)
class CacheUse:
    """What a worker found of its entry's compiled model, and did.

    ``reused``: it was what was sealed, and the runtime loaded it. ``built``: there was none.
    ``rebuilt``: what was there could not be believed or loaded, for the reason ``why``.
    ``unkept``: none can be kept, for the reason ``why``, and the graph was compiled for this
    session alone. ``compile_ns`` is how long compiling took where a model was made; ``bytes``
    the size of its files.
    """

    state: CacheState
    why: str | None
    compile_ns: int | None
    bytes: int | None


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a ``prepare`` job took, in nanoseconds: the whole load, compiling included, and the
    first call, in which some runtimes compile. ``same_answers``: whether the compiled model
    answers as it did when it was compiled, null where nothing was there to compare."""

    load_ns: int
    first_call_ns: int
    same_answers: bool | None


@dataclass(frozen=True, slots=True)
class Latency:
    """Nanoseconds; a percentile the sample size cannot support is null."""

    median: int
    p90: int | None
    p95: int | None
    p99: int | None
    p999: int | None
    min: int
    max: int


@dataclass(frozen=True, slots=True)
class TimedCheck:
    """Outputs of ``iterations`` timed calls against the untimed ones of the same inputs.

    ``min_snr_db`` is null where every comparison was bit-identical or a value was not finite.
    """

    iterations: tuple[int, ...]
    passed: bool
    bit_identical: bool
    min_snr_db: float | None
    nondeterministic: bool


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one attempt measured. Durations are integer nanoseconds.

    ``timed_ns`` is the sum of the timed durations; inferences/s is iterations / timed_ns.
    ``burst_ips``, ``drift`` and ``sustained_ips`` are defined in worker.loop_stats.
    ``peak_rss_bytes`` is the process's high-water mark at the end of the timed loop.
    ``measures`` are the accuracy measures of the whole eval set, by name (see gates.metrics);
    one that is not finite is null. ``accuracy_why`` names a wrong shape, NaN and so on.
    """

    iterations: int
    timed_ns: int
    latency: Latency
    burst_ips: float | None
    drift: float | None
    sustained_ips: float | None
    first_call_ns: int
    warmup_calls: int
    warmup_steady: bool
    import_ns: int
    verify_ns: int
    load_ns: int
    warmup_ns: int
    loop_ns: int
    accuracy_ns: int
    placement_ns: int
    timer_overhead_ns: int
    peak_rss_bytes: int | None
    measures: dict[str, float | None]
    accuracy_why: str | None
    timed_check: TimedCheck
    samples_sha256: str | None
    loaded_from_cache: bool | None


@dataclass(frozen=True, slots=True)
class WindowCheck:
    """The outputs of a window's last call against the reference of its input. ``snr_db`` is null
    where it is not finite, with the reason ``why``."""

    iteration: int
    sample: int
    snr_db: float | None
    why: str | None


@dataclass(frozen=True, slots=True)
class Window:
    """What one worker did in a shared window. Times are nanoseconds after the window's start.

    ``late_ns`` is when its first call began. ``inside`` counts the calls that began and ended
    inside; ``straddling`` are (begin, end) of those that an end of the window cuts, in order.
    ``calls`` is how many there were in all. ``samples_sha256`` is that of the raw file: pairs of
    little-endian int64, begin and end of each call, null where they are not kept. ``cpus`` are
    those the worker could run on, read back; null where the system does not say.
    """

    late_ns: int
    inside: int
    straddling: tuple[tuple[int, int], ...]
    calls: int
    check: WindowCheck
    load_ns: int
    warmup_ns: int
    samples_sha256: str | None
    cpus: tuple[int, ...] | None
    peak_rss_bytes: int | None


@dataclass(frozen=True, slots=True)
class ProbeSamples:
    """One array of raw samples that a diagnostics step left: ``file`` in the job's folder holds
    little-endian int64, ``n`` rows of ``columns`` (1: durations; 2: begin and end of a call on
    one clock; 3: begin and end of a block of calls, and their number). Times are nanoseconds."""

    file: str
    sha256: str
    n: int
    columns: int


@dataclass(frozen=True, slots=True)
class Probed:
    """What a ``diagnose`` job saw: raw samples by name, and facts that are no samples."""

    samples: dict[str, ProbeSamples]
    facts: dict[str, Any]


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """One engine a probe found, or the reason there is none.

    ``id`` is ``<runtime>-<role>[-n]``. ``processor`` holds ``key`` (UUID, bus address, LUID;
    ``cpu`` for the CPU), ``role`` (CPU, iGPU, dGPU, NPU), ``name``. ``variants`` lists the
    encodings it measures by default, ``extra_variants`` those only ``--all-variants`` runs;
    an encoding such as ``bf16`` may name the graph variant it computes from in
    ``derived_from``. ``options`` is handed back to the engine in every job. ``environment``
    names the environment of its own that it lives in, null for npumark's; the orchestrator
    fills it in. ``versions`` maps a package
    or driver to its version, and a native library's file name to its sha256.
    ``note`` is a sentence that a reader should know of an engine that works.
    ``package`` is the distribution, with its version, that an engine of another party comes from,
    null for the built-in ones; the orchestrator fills it in too.
    """

    id: str
    available: bool
    reason: str | None
    runtime: str
    runtime_title: str
    version: str | None
    versions: dict[str, str] = field(default_factory=dict)
    processor: dict[str, Any] = field(default_factory=dict)
    variants: tuple[str, ...] = ()
    extra_variants: tuple[str, ...] = ()
    derived_from: dict[str, str] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    emulated: bool = False
    virtual: bool = False
    local_only: bool = False
    environment: str | None = None
    note: str | None = None
    package: str | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """The one answer of a worker. ``status`` ``ok`` says it measured; judging is not its work.

    ``stamps`` returns the stamps of the files it hashed, by path. ``harness`` answers an
    ``overhead`` job: nanoseconds by name (see worker.overhead). ``cache`` says what became of
    the compiled model, null where the engine keeps none, and ``cache_stamps`` are those of its
    files; ``prepared`` answers a ``prepare`` job, ``window`` a ``window`` job and ``probed`` a
    ``diagnose`` job. ``python`` is the version of the interpreter that ran, as it says itself.
    """

    status: Status
    why: str | None = None
    engines: tuple[EngineInfo, ...] = ()
    observed: Observed | None = None
    placement: Placement | None = None
    measurement: Measurement | None = None
    stamps: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    harness: dict[str, int] = field(default_factory=dict)
    cache: CacheUse | None = None
    cache_stamps: dict[str, Stamp] = field(default_factory=dict)
    prepared: Prepared | None = None
    window: Window | None = None
    probed: Probed | None = None
    python: str | None = None
    schema: str = SCHEMA

    def encode(self) -> bytes:
        return json.dumps(asdict(self), allow_nan=False).encode()
