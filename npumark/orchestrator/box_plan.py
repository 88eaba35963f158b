"""What the box stage of a run will be, before anything is measured: which cards, how long."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from npumark.errors import UsageError
from npumark.machine import identity
from npumark.orchestrator import box_choice, box_from
from npumark.orchestrator.box_choice import RoleChoice
from npumark.orchestrator.request import RunRequest
from npumark.orchestrator.select import select_engines
from npumark.orchestrator.survey import Survey
from npumark.pack.manifest import Manifest
from npumark.policy import Policy
from npumark.record.box import BoxSolo
from npumark.score.box import attempts_needed
from npumark.score.planned import Planned


@dataclass(frozen=True, slots=True)
class BoxAhead:
    """The box stage that lies ahead of a run.

    ``choices`` are its roles, empty where there is no such stage. ``solo`` are the peaks that
    another record gives, ``plan`` how they are run again and ``notes`` what is told of them; all
    three are empty where the run measures its own.
    """

    choices: tuple[RoleChoice, ...] = ()
    solo: tuple[BoxSolo, ...] = ()
    plan: tuple[Planned, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def engines(self) -> frozenset[str]:
        """The engines of every card that a total may be formed of."""
        return frozenset(e for c in self.choices if c.why is None for e in c.engines)


def attempt_s(policy: Policy) -> float:
    """Return the seconds of an attempt that the policy fixes: the longest warm-up, the lead and
    the window."""
    return policy.timing.warmup_max_s + policy.box.lead_s + policy.box.window_s


def stage_s(ahead: BoxAhead, policy: Policy, *, quick: bool) -> tuple[float, float]:
    """Return how long the box stage takes at the least, where every attempt counts, and at the
    most; loading comes on top."""
    each, spacing = attempt_s(policy), policy.repetition.spacing_s

    def seconds(attempts: int) -> float:
        return max((attempts - 1) * spacing + each, attempts * each) if attempts else 0.0

    least, most = stage_attempts(ahead, policy, quick=quick)
    return seconds(least), seconds(most)


def stage_attempts(ahead: BoxAhead, policy: Policy, *, quick: bool) -> tuple[int, int]:
    """Return how many attempts at all cards at once are made, at the least, where every one
    counts, and at the most."""
    roles = sum(c.why is None for c in ahead.choices)
    return roles * attempts_needed(policy, quick=quick), roles * policy.box.max_attempts


def look_ahead(request: RunRequest, survey: Survey, manifest: Manifest, policy: Policy) -> BoxAhead:
    """Return the box stage of a run, its cards named by processor id.

    Raises UsageError and NothingToMeasure where what was asked for cannot be: every role and
    card that was named must be able to give a total, and at least one role must where the box
    stage was insisted on.
    """
    if not _has_stage(request):
        return BoxAhead()
    able = select_engines(survey.infos, request.engines, include_emulated=request.include_emulated)
    choices = box_choice.choose(request, able, survey.processors, survey.owner)
    if request.box == "auto":
        return BoxAhead(choices)
    refused = [c for c in choices if c.why is not None]
    box_choice.require(
        refused if refused and request.box_roles is not None else choices, survey.processors
    )
    if request.box_from is None:
        return BoxAhead(choices)
    record = box_from.verified(request.box_from, manifest, policy)
    summed = [c for c in choices if c.why is None]
    solo = box_from.solo_peaks(record, request, summed, survey, manifest, identity.machine())
    plan = box_from.plan_of(solo, survey, manifest)
    return BoxAhead(choices, solo, plan, box_from.notes(solo, record, survey))


def check_peaks(ahead: BoxAhead, plan: Sequence[Planned], survey: Survey) -> None:
    """Raise UsageError where ``plan`` does not measure the peak of each card alone first."""
    peaks = {
        survey.owner[p.engine]
        for p in plan
        if p.kind == "peak" and p.tier == "peak" and p.skip is None
    }
    for choice in ahead.choices:
        lacking = [p.id for p in choice.cards if p.id not in peaks]
        if choice.why is None and lacking:
            raise UsageError(
                "all cards at once take the peak of each card alone, and that of "
                f"{', '.join(lacking)} is not measured{_skipped(lacking, plan, survey)}",
                "Leave out --box, or what keeps the peak test from being measured.",
            )


def _skipped(cards: Sequence[str], plan: Sequence[Planned], survey: Survey) -> str:
    """Return why the peak tests of the first of these cards are skipped; empty where none is."""
    why = [p.skip for p in plan if p.kind == "peak" and survey.owner[p.engine] == cards[0]]
    return next((f": {skip}" for skip in why if skip), "")


def _has_stage(request: RunRequest) -> bool:
    if request.box == "auto":
        chosen = (request.engines, request.workloads, request.variants)
        return not request.quick and all(c is None for c in chosen)
    return request.box != "off"
