"""Judging one attempt: did it measure, did it answer right, did it run where it should."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from npumark.gates.judge import judge
from npumark.pack.manifest import Manifest, Workload
from npumark.policy import Policy
from npumark.record.model import (
    Attempt,
    Gate,
    MeasurementFields,
    PlacementFields,
    TimedCheckFields,
)
from npumark.score.planned import Planned
from npumark.worker.protocol import Status

Role = Literal["CPU", "iGPU", "dGPU", "NPU"]

Outcome = Literal["landed", "died", "void", "final"]
"""``landed``: it measured. ``died``: its worker ended without a result. ``void``: it was
interrupted and is as if it had not been. ``final``: no later attempt can do better."""

DEATHS: frozenset[Status] = frozenset({"crashed", "timeout", "no_result"})


@dataclass(frozen=True, slots=True)
class JudgedAttempt:
    """An attempt and the verdicts on it.

    ``status`` is that after judging. ``ips`` and ``tops`` are null where nothing was measured;
    ``tops`` also where the work ran on the wrong device, which is no rate of this engine.
    ``can_count`` says whether this attempt lets its entry count, ``why_not`` is the reason code
    where it does not and ``why`` a sentence. ``strict`` is the near-lossless gate. ``format``
    is the family that the runtime says it computed in, null where it does not say.
    """

    n: int
    outcome: Outcome
    status: Status
    why: str | None
    started_ns: int
    wall_ns: int
    ips: float | None
    tops: float | None
    can_count: bool
    why_not: str | None
    standard: Gate | None
    strict: Gate | None
    timed_check: bool | None
    placed: bool
    format: str | None

    @property
    def dead(self) -> bool:
        """Whether this attempt shows that its entry can never count."""
        return self.outcome == "final" or (self.outcome == "landed" and not self.can_count)


def inferences_per_second(iterations: float, timed_ns: int) -> float:
    """Return iterations / summed timed durations (never 1 / median), of whole iterations correctly
    rounded."""
    return iterations * 1_000_000_000 / timed_ns


def tera_operations(flops: int, ips: float) -> float:
    """Return TOPS: FLOPs of one inference x inferences/s / 10**12."""
    return flops * ips / 1e12


def static_reason(planned: Planned, manifest: Manifest) -> tuple[str, str] | None:
    """Return why an entry can never count, whatever is measured: a code and a sentence."""
    workload = manifest.workloads[planned.workload]
    if workload.flops < 1:
        return "no_operations", "the manifest gives the workload no operations to count"
    variant = workload.variant(planned.graph_variant)
    if not variant.validated:
        return "unvalidated", "the variant did not pass its gate when the pack was built"
    if variant.division != "standard":
        return "division", f"the variant is in the {variant.division} division"
    return None


def placement_reason(
    placement: PlacementFields | None, role: Role, needed: float
) -> tuple[str, str] | None:
    """Return why the work is not known to have run on the engine: a code and a sentence.

    None where it is eligible: on a CPU always, elsewhere with a proved share of at least
    ``needed``. A share below that is ``wrong_device``; no share, or one that is only inferred,
    is ``placement_unproved``.
    """
    if role == "CPU":
        return None
    if placement is None:
        return "placement_unproved", "the attempt reports no placement"
    share = placement.share
    if share is not None and share < needed:
        return "wrong_device", f"{share:.1%} of the time ran on the {role}; {needed:.0%} is needed"
    if placement.verdict != "proved" or share is None:
        said = placement.why or f"the placement is {placement.verdict}"
        return "placement_unproved", said
    return None


def needed_share(planned: Planned, policy: Policy) -> float:
    """Return the share of time that must be proved on an NPU or a GPU."""
    rules = policy.placement
    return rules.peak_min_share if planned.kind == "peak" else rules.network_min_share


def judge_attempt(
    planned: Planned,
    attempt: Attempt,
    manifest: Manifest,
    policy: Policy,
    role: Role,
    *,
    quick: bool = False,
) -> JudgedAttempt:
    """Return the verdicts on ``attempt``, from its own fields, the manifest and the policy."""
    measured = attempt.measurement
    hopeless = static_reason(planned, manifest) is not None
    if attempt.status != "ok":
        return _unmeasured(attempt, attempt.status, attempt.why, hopeless=hopeless)
    if measured is None or measured.iterations < 1 or measured.timed_ns < 1:
        why = attempt.why or "the worker measured nothing"
        return _unmeasured(attempt, "no_result", why, hopeless=hopeless)
    workload = manifest.workloads[planned.workload]
    ips = inferences_per_second(measured.iterations, measured.timed_ns)
    standard = _gate(measured, workload, "standard")
    fault = _fault(planned, attempt, measured, standard, manifest, policy, role, quick=quick)
    status: Status = "ok"
    if fault and fault[0] in ("gate_failed", "timed_check_failed"):
        status = "gate_failed"
    elif fault and fault[0] == "wrong_device":
        status = "wrong_device"
    needed = needed_share(planned, policy)
    return JudgedAttempt(
        n=attempt.n,
        outcome="landed",
        status=status,
        why=fault[1] if fault else None,
        started_ns=attempt.started_ns,
        wall_ns=attempt.wall_ns,
        ips=ips,
        tops=None if status == "wrong_device" else tera_operations(workload.flops, ips),
        can_count=fault is None,
        why_not=fault[0] if fault else None,
        standard=standard,
        strict=_gate(measured, workload, "strict"),
        timed_check=timed_check_passes(measured.timed_check, policy),
        placed=placement_reason(attempt.placement, role, needed) is None,
        format=attempt.observed.precision if attempt.observed else None,
    )


def _fault(
    planned: Planned,
    attempt: Attempt,
    measured: MeasurementFields,
    standard: Gate | None,
    manifest: Manifest,
    policy: Policy,
    role: Role,
    *,
    quick: bool,
) -> tuple[str, str] | None:
    """Return the first reason for which a measured attempt cannot count: wrong answers first."""
    if standard is None:
        return "gate_missing", "the manifest holds no standard gate for this workload"
    if not standard.passed or measured.accuracy_why:
        return "gate_failed", measured.accuracy_why or standard.why or "the gate failed"
    if not timed_check_passes(measured.timed_check, policy):
        return "timed_check_failed", "outputs of the timed loop differ from the untimed ones"
    placement = placement_reason(attempt.placement, role, needed_share(planned, policy))
    if placement:
        return placement
    least = least_iterations(planned, policy, quick=quick)
    if measured.iterations < least:
        return "too_short", f"{measured.iterations} timed calls; at least {least} are needed"
    return static_reason(planned, manifest)


def timed_check_passes(check: TimedCheckFields, policy: Policy) -> bool:
    """Whether the timed calls' outputs are the untimed ones, by what the comparison found.

    All bits alike; or, from an engine that declares itself nondeterministic, no further apart
    than the policy's SNR. Nothing compared is nothing passed.
    """
    if not check.iterations:
        return False
    least, found = policy.timing.timed_check_min_snr_db, check.min_snr_db
    close = check.nondeterministic and found is not None and found >= least
    return check.bit_identical or close


def least_iterations(planned: Planned, policy: Policy, *, quick: bool) -> int:
    """Return how many timed calls an attempt needs at the least."""
    timing = policy.timing
    if quick:
        return timing.quick_min_iterations
    if planned.kind == "peak":
        return timing.min_iterations_peak
    return timing.min_iterations_network


def _gate(measured: MeasurementFields, workload: Workload, name: str) -> Gate | None:
    spec = workload.gates.get(name)
    return judge(measured.measures, spec) if spec else None


def _unmeasured(
    attempt: Attempt, status: Status, why: str | None, *, hopeless: bool
) -> JudgedAttempt:
    outcome: Outcome = "final"
    if status in DEATHS:
        # An entry that can never count is not repeated, death or not.
        outcome = "final" if hopeless else "died"
    elif status == "interrupted":
        outcome = "void"
    return JudgedAttempt(
        n=attempt.n,
        outcome=outcome,
        status=status,
        why=why,
        started_ns=attempt.started_ns,
        wall_ns=attempt.wall_ns,
        ips=None,
        tops=None,
        can_count=False,
        why_not=status,
        standard=None,
        strict=None,
        timed_check=None,
        placed=False,
        format=None,
    )
