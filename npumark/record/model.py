"""The record's shape. Every field is measured or observed, or says what it was derived from.

An attempt's fields are what workers reported; everything above an attempt (figures, statistics,
gates, score, comparability) is derived from attempts, manifest and policy by
``score.recompute`` and by nothing else. Unknown is null with a reason beside it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from npumark.record.box import Box, BoxPlan
from npumark.record.signatures import Signatures
from npumark.worker.protocol import CacheState, Status

SCHEMA = "npumark-record/1"
MAX_RECORD_BYTES = 32 << 20
MAX_DEPTH = 24

Nanoseconds = Annotated[int, Field(ge=0, le=2**53 - 1)]
Count = Annotated[int, Field(ge=0, le=2**53 - 1)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ObservedFields(Model):
    """What the runtime said really ran (worker.protocol.Observed)."""

    device: str | None
    precision: str | None
    precision_why: str | None
    threads: Count | None
    runtime: str
    version: str | None
    versions: dict[str, str]
    details: dict[str, Any]


class PlacementFields(Model):
    """Where the work ran, as one attempt proved it (worker.protocol.Placement)."""

    verdict: Literal["proved", "inferred", "unproved"]
    share: Share | None
    op_share: Share | None
    partitions: Count | None
    evidence: str
    why: str | None


class LatencyFields(Model):
    median: Nanoseconds
    p90: Nanoseconds | None
    p95: Nanoseconds | None
    p99: Nanoseconds | None
    p999: Nanoseconds | None
    min: Nanoseconds
    max: Nanoseconds


class TimedCheckFields(Model):
    iterations: list[int]
    passed: bool
    bit_identical: bool
    min_snr_db: Finite | None
    nondeterministic: bool


class MeasurementFields(Model):
    """One attempt's figures (worker.protocol.Measurement); ``ips`` is iterations / timed_ns."""

    iterations: Count
    timed_ns: Nanoseconds
    ips: Finite
    latency_ns: LatencyFields
    burst_ips: Finite | None
    drift: Finite | None
    sustained_ips: Finite | None
    first_call_ns: Nanoseconds
    warmup_calls: Count
    warmup_steady: bool
    import_ns: Nanoseconds
    verify_ns: Nanoseconds
    load_ns: Nanoseconds
    warmup_ns: Nanoseconds
    loop_ns: Nanoseconds
    accuracy_ns: Nanoseconds
    placement_ns: Nanoseconds
    timer_overhead_ns: Nanoseconds
    peak_rss_bytes: Count | None
    measures: dict[str, Finite | None]
    accuracy_why: str | None
    timed_check: TimedCheckFields
    samples_sha256: str | None
    loaded_from_cache: bool | None


class CacheFields(Model):
    """What an attempt found of its compiled model, and did (worker.protocol.CacheUse)."""

    state: CacheState
    why: str | None
    compile_ns: Nanoseconds | None
    bytes: Count | None


class Attempt(Model):
    """One fresh-load measurement of an entry, in its own worker process.

    ``status`` is the worker's fate (``ok`` means it measured); whether its figures count is
    judged from the fields below. ``started_ns`` and ``wall_ns`` are on the run's own monotonic
    clock, zero at the run's start. ``pid_exit`` is the exit status or minus the signal.
    ``seed`` drew the timed checks. ``log_tail`` is kept where the attempt did not measure.
    ``cache`` is null where the engine keeps no compiled model.
    """

    n: int
    status: Status
    why: str | None
    started_ns: Nanoseconds
    wall_ns: Nanoseconds
    seed: int
    pid_exit: int | None
    observed: ObservedFields | None
    placement: PlacementFields | None
    measurement: MeasurementFields | None
    log_tail: str | None
    cache: CacheFields | None


class Preparation(Model):
    """What was done, untimed, before attempt ``before`` of an entry whose engine compiles.

    ``state`` is what the attempts find: a compiled model that was ``reused`` from an earlier
    run, ``built`` or ``rebuilt`` now and seen to load in a fresh process, or ``unkept``; null
    where none was reached. ``why`` says what was wrong with the one that was there, why none is
    kept, or why preparing failed (``status``). ``compile_ns`` is how long compiling took,
    ``first_call_ns`` the call after it, in which some runtimes compile, and ``load_ns`` how
    long a fresh process takes to load what was compiled. Null: not done.
    """

    engine: str
    workload: str
    variant: str
    before: int
    status: Status
    why: str | None
    state: CacheState | None
    compile_ns: Nanoseconds | None
    first_call_ns: Nanoseconds | None
    load_ns: Nanoseconds | None
    bytes: Count | None
    started_ns: Nanoseconds
    wall_ns: Nanoseconds


class Gate(Model):
    """A pass/fail judgement. ``margin`` is the slack of the ``binding`` bound, in its own unit;
    negative where it failed, null where the measure is not finite."""

    passed: bool
    basis: str
    binding: str | None
    margin: Finite | None
    bounds: dict[str, float]
    measures: dict[str, Finite | None]
    why: str | None


class EntryGates(Model):
    standard: Gate | None
    strict: Gate | None
    timed_check: bool | None


class Figure(Model):
    """What an entry counts with: a median by rule, and TOPS = FLOPs x inferences/s / 1e12."""

    ips: Finite
    tops: Finite


class Stats(Model):
    """Statistics of an entry. ``spread`` is (max - min) / median over all attempts that ran.

    ``counted`` is how many attempts entered the figure's median. ``tail_ratio`` is the median
    attempt's p95 / median latency, a warning only.
    """

    attempts: int
    counted: int
    spread: Finite | None
    robust_cv: Finite | None
    unstable: bool
    screened: bool
    screened_outlier: bool
    agreed: bool
    tail_ratio: Finite | None


class CrashedAttempt(Model):
    attempt: int
    why: str


class EntryPlacement(Model):
    """``share`` is of time, ``op_share`` of operations; ``partitions`` is into how many pieces
    the runtime cut the graph. ``eligible``: on a CPU always; elsewhere a proved share of time at
    or above the policy's."""

    verdict: Literal["proved", "inferred", "unproved"] | None
    share: Share | None
    op_share: Share | None
    partitions: Count | None
    evidence: str | None
    why: str | None
    eligible: bool


class Entry(Model):
    """Engine x workload x variant. ``format`` is the family that ran; ``declared_format`` the
    one the variant is encoded in; ``label`` says both where they differ, and what sets its
    engine apart (``emulated``). ``counts`` says whether the figure may enter a score,
    ``why_not`` the reason code where it may not. Work that ran on the wrong device has no
    ``figure``: its rates stay with its attempts."""

    engine: str
    workload: str
    variant: str
    graph_variant: str
    declared_format: str
    format: str | None
    label: str
    status: Status
    why: str | None
    figure: Figure | None
    counts: bool
    why_not: str | None
    high_accuracy: bool
    stats: Stats
    gates: EntryGates
    placement: EntryPlacement
    crashed_attempts: list[CrashedAttempt]
    attempts: list[Attempt]


class NetworkFigure(Model):
    """A network's counted figure on one engine."""

    variant: str
    format: str
    tops: Finite
    ips: Finite
    unstable: bool
    screened_outlier: bool


class Delivered(Model):
    """Geometric mean over the scored networks; partial (``complete`` false) is never ranked."""

    tops: Finite
    complete: bool
    unstable: bool
    missing: list[str]
    networks: dict[str, NetworkFigure]


class Peak(Model):
    tops: Finite
    format: str
    label: str
    workload: str
    variant: str
    unstable: bool
    robust_cv: Finite | None
    attempts: int
    counted: int


class EngineEnvironment(Model):
    """The environment of its own that an engine lives in: its interpreter's version, and what it
    held when the run began. ``sha256`` is that of its ``environment.json``."""

    name: str
    python: str
    packages: dict[str, str]
    sha256: str


class EngineRecord(Model):
    """One engine of the run: what it is (from its probe) and the figures derived for it.

    ``environment`` is null where it lives in npumark's own interpreter (see ``tool``);
    ``package`` is the distribution, with its version, that another party's engine comes from,
    null for npumark's own engines."""

    id: str
    runtime: str
    runtime_title: str
    version: str | None
    versions: dict[str, str]
    processor: str
    requested: dict[str, Any]
    emulated: bool
    virtual: bool
    local_only: bool
    environment: EngineEnvironment | None
    package: str | None
    peak: Peak | None
    delivered: Delivered | None
    high_accuracy: Delivered | None


class Processor(Model):
    """A physical device. ``id`` is run-local (``cpu``, ``dgpu-1`` …); hardware keys stay out."""

    id: str
    role: Literal["CPU", "iGPU", "dGPU", "NPU"]
    name: str
    number: int
    details: dict[str, Any]


class Score(Model):
    """The most TOPS the best engine produced, labelled with processor, runtime and format."""

    tops: Finite
    label: str
    engine: str
    processor: str
    format: str
    workload: str
    variant: str
    unstable: bool


class Suite(Model):
    """What may be compared: name, version and edition; ``verified`` every file matched and the
    manifest is the one this build pins."""

    name: str
    version: str
    edition: str
    basis: str
    manifest_sha256: str
    verified: bool
    why_not: str | None


class Tool(Model):
    version: str
    python: str
    packages: dict[str, str]


class Plan(Model):
    """What was asked for. ``quick``, ``ladder`` and selections keep a run from being complete;
    ``skipped`` lists entries left out with their reasons."""

    quick: bool
    ladder: str | None
    all_variants: bool
    engines: list[str] | None
    workloads: list[str] | None
    variants: list[str] | None
    time_budget_s: Finite | None
    include_known_crashes: bool
    include_emulated: bool
    large_peak: bool
    box: BoxPlan
    argv: list[str]
    spacing_s: Finite
    loop_s: Finite


class Check(Model):
    """One precondition or machine fact: ``value`` null has a ``why``; unread is no violation."""

    value: Any
    why: str | None
    violation: bool


class Environment(Model):
    """Before and while measuring. ``noisy`` where any check is a violation."""

    checks: dict[str, Check]
    noisy: bool
    skipped: bool
    facts: dict[str, Any]


class ResumeEvent(Model):
    """A resumption: at which instant, and what had changed since (empty: nothing)."""

    at_ns: Nanoseconds
    changed: list[str]


class Payload(Model):
    schema_: Literal["npumark-record/1"] = Field(alias="schema")
    score_version: str
    run_id: str
    created: str
    finished: str | None
    complete: bool
    tool: Tool
    suite: Suite
    policy_sha256: str
    formula_sha256: str
    plan: Plan
    score: Score | None
    score_why: str | None
    comparable: bool
    not_comparable_because: list[str]
    machine: dict[str, Any]
    processors: list[Processor]
    environment: Environment
    engines: list[EngineRecord]
    entries: list[Entry]
    prepared: list[Preparation]
    resumed: list[ResumeEvent]
    where_time_went_ns: dict[str, Nanoseconds]
    harness: dict[str, Any]
    large_peak: dict[str, Any] | None
    box: Box | None
    box_why: str | None
    warnings: list[str]

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class Record(Model):
    """The document: payload, the sha256 of its RFC 8785 bytes, and signatures (null: none)."""

    payload: Payload
    payload_sha256: str
    signatures: Signatures | None
