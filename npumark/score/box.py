"""The box total: the median of what all cards of a role did at once (methodology §3b)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from npumark.pack.manifest import Manifest
from npumark.policy import Policy
from npumark.record.box import Box, BoxAttempt, BoxCard, BoxRole, BoxSolo
from npumark.record.model import EngineRecord, Entry, Plan, Processor
from npumark.score import stats
from npumark.score.attempt import DEATHS
from npumark.score.box_attempt import counted_calls, judged
from npumark.score.box_cards import RoleCards, nothing_to_sum, role_cards, stage_why

__all__ = [
    "BoxFacts",
    "RoleCards",
    "attempts_needed",
    "box_stage",
    "counted_calls",
    "derive_box",
    "judged",
    "role_cards",
    "stage_why",
    "wants_attempt",
]


@dataclass(frozen=True, slots=True)
class BoxFacts:
    """What a run's box stage follows from; ``engines`` hold their peaks."""

    options: Plan
    engines: Sequence[EngineRecord]
    processors: Sequence[Processor]
    entries: Sequence[Entry]
    attempts: Sequence[BoxAttempt]


def attempts_needed(policy: Policy, *, quick: bool) -> int:
    """Return how many attempts that count a total is the median of."""
    return 1 if quick else policy.box.attempts


def wants_attempt(
    cards: RoleCards, attempts: Sequence[BoxAttempt], policy: Policy, *, quick: bool
) -> bool:
    """Whether a role wants another attempt after these, which are judged.

    A voided attempt is repeated while enough can still count; an interrupted one is as if it had
    not been, and one that was skipped is the last. A card that answered wrong, or cannot run its
    configuration, never counts.
    """
    own = [a for a in attempts if a.role == cards.role]
    ran = [a for a in own if a.status == "ran"]
    skipped = any(a.status == "skipped" for a in own)
    if cards.why is not None or skipped or any(_hopeless(a) for a in ran):
        return False
    missing = attempts_needed(policy, quick=quick) - sum(a.counts for a in ran)
    return 0 < missing <= policy.box.max_attempts - len(ran)


def box_stage(
    facts: BoxFacts, manifest: Manifest, policy: Policy, *, measured: bool
) -> tuple[Box | None, str | None]:
    """Return a run's box stage, or null and a sentence that says why there is none.

    ``measured`` says that its scored stages are complete: the box stage comes after them.
    """
    if why := stage_why(facts.options):
        return None, why
    cards = role_cards(facts.engines, facts.processors, facts.options.box, facts.entries, manifest)
    if cards and not measured and not facts.attempts:
        return None, "the run ended before its box stage"
    return derive_box(
        cards, facts.attempts, facts.processors, manifest, policy, quick=facts.options.quick
    )


def derive_box(
    cards: Sequence[RoleCards],
    attempts: Sequence[BoxAttempt],
    processors: Sequence[Processor],
    manifest: Manifest,
    policy: Policy,
    *,
    quick: bool,
) -> tuple[Box | None, str | None]:
    """Return the box stage of a record, or null and a sentence that says why there is none.

    Pure. ``attempts`` are those of all roles in order; their derived fields are derived anew.
    """
    if why := nothing_to_sum(cards):
        return None, why
    fresh = [judged(a, manifest, policy) for a in attempts]
    known = {p.id: p for p in processors}
    return Box(roles=[_role(c, fresh, known, policy, quick=quick) for c in cards]), None


def _hopeless(attempt: BoxAttempt) -> bool:
    """Whether a card showed that it can never count."""
    passing = {"ok", "interrupted", *DEATHS}
    return any(run.passed is False or run.status not in passing for run in attempt.cards)


def _role(
    cards: RoleCards,
    attempts: Sequence[BoxAttempt],
    processors: Mapping[str, Processor],
    policy: Policy,
    *,
    quick: bool,
) -> BoxRole:
    own = [a for a in attempts if a.role == cards.role]
    needed = attempts_needed(policy, quick=quick)
    counted = [a for a in own if a.counts][:needed]
    finished = not wants_attempt(cards, own, policy, quick=quick)
    why = _why(cards, own, counted, needed, finished=finished)
    totals = [a.tops for a in counted if a.tops is not None]
    tops = stats.median(totals) if why is None else None
    solo_tops = math.fsum(s.tops for s in cards.solos) if cards.why is None else None
    return BoxRole(
        role=cards.role,
        tops=tops,
        why=why,
        solo_tops=solo_tops,
        scaling=_ratio(tops, solo_tops),
        agreement=stats.spread(totals) if tops and len(totals) > 1 else None,
        cards=_cards(cards.solos, counted, processors, policy.box.slow_card),
        left_out=list(cards.left_out),
        attempts=own,
        finished=finished,
    )


def _why(
    cards: RoleCards,
    attempts: Sequence[BoxAttempt],
    counted: Sequence[BoxAttempt],
    needed: int,
    *,
    finished: bool,
) -> str | None:
    """Return why a role has no total; null where it has."""
    if cards.why is not None or len(counted) == needed:
        return cards.why
    if not attempts:
        return "no attempt was made"
    if not finished:
        return f"{len(counted)} of the {needed} attempts that it needs were made"
    last = next(a for a in reversed(attempts) if not a.counts)
    return f"{len(counted)} of {len(attempts)} attempts count: {'; '.join(last.void_because)}"


def _cards(
    solos: Sequence[BoxSolo],
    counted: Sequence[BoxAttempt],
    processors: Mapping[str, Processor],
    slow: float,
) -> list[BoxCard]:
    ran: dict[str, list[float]] = {s.card: [] for s in solos}
    for run in (r for a in counted for r in a.cards):
        if run.card in ran and run.tops is not None:
            ran[run.card].append(run.tops)
    names = {s.card: processors[s.card].name for s in solos}
    in_box = {card: stats.median(tops) if tops else None for card, tops in ran.items()}
    slow_alone = _slow({s.card: s.tops for s in solos}, names, slow)
    slow_in_box = _slow(in_box, names, slow)
    return [
        BoxCard(
            card=s.card,
            name=names[s.card],
            number=processors[s.card].number,
            solo=s,
            in_box_tops=in_box[s.card],
            of_solo=_ratio(in_box[s.card], s.tops),
            slow_alone=slow_alone[s.card],
            slow_in_box=slow_in_box[s.card],
        )
        for s in solos
    ]


def _ratio(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


def _slow(
    tops: Mapping[str, float | None], names: Mapping[str, str], share: float
) -> dict[str, bool | None]:
    """Return whether each card lies under ``share`` of the median of its identical cards, itself
    included; null where it has none, or where a figure among them is missing."""
    found: dict[str, bool | None] = dict.fromkeys(tops)
    for name in set(names.values()):
        like = [card for card in tops if names[card] == name]
        known = {card: own for card in like if (own := tops[card]) is not None}
        if len(like) > 1 and len(known) == len(like):
            bound = share * stats.median(list(known.values()))
            found |= {card: own < bound for card, own in known.items()}
    return found
