"""Whether a record can be what it claims to be, and whether it is ranked (methodology §8, §10).

``judge`` is pure: the payload, the rules and the present go in, a verdict comes out. The rules
that have a name of their own are looked at first, so that each kind of tampering has its own
code; at last everything is recomputed, by the functions that ``npumark verify`` calls.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from npumark.record.model import Payload
from npumark.score.catalogued import row_of
from npumark.score.comparability import RANKABLE_WITH
from npumark.score.difference import Difference
from npumark.score.formula import formula_sha256, is_known_formula
from npumark.score.recompute import recompute
from npumark.server.ceilings import ceiling
from npumark.server.plan import missing_entries
from npumark.server.privacy import private_data
from npumark.server.refusal import Fault
from npumark.server.rules import Case, Rules, load_rules
from npumark.server.stopping import stopped_rightly

__all__ = ["Rules", "Verdict", "judge", "load_rules"]

CEILING_FACTOR: Final = 1.25
"""A peak below this multiple of its chip family's ceiling is plausible (methodology §8)."""

FIRST: Final = datetime(2025, 1, 1, tzinfo=UTC)
"""No run is older than the program that makes it."""

MOST: Final = {"processors": 64, "engines": 512, "entries": 16_384, "prepared": 16_384}
MOST_ATTEMPTS: Final = 256
MOST_RESUMED: Final = 1_024
"""More than any run has, which bounds what judging one can cost: of a payload's parts, of an
entry's attempts and of a run's resumptions."""

_SHOWN: Final = 10
"""Differences that a refusal lists."""

_FIGURES = re.compile(
    r"(?:score|score_why|complete|comparable|not_comparable_because|warnings|large_peak|box_why"
    r"|where_time_went_ns|engines\[\d+\]\.(?:peak|delivered|high_accuracy)"
    r"|entries\[\d+\]\.(?!attempts|declared_format|graph_variant|workload|variant|engine)\w+"
    r"|box\.roles\[\d+\]\.(?!attempts)\w+"
    r"|box\.roles\[\d+\]\.attempts\[\d+\]\.(?:counts|void_because|skew_ns|tops)"
    r"|box\.roles\[\d+\]\.attempts\[\d+\]\.cards\[\d+\]\.(?:passed|counted|tops))(?:[.\[]|$)"
)
"""Paths of what follows from attempts; all others are the facts themselves."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """``refusals``, the most telling first, keep a record out; ``not_ranked_because`` are codes of
    ``score.comparability.NOT_RANKED`` for one that is accepted."""

    refusals: list[Fault]
    not_ranked_because: list[str]

    @property
    def ranked(self) -> bool:
        return not self.refusals and not self.not_ranked_because


def judge(payload: Payload, *, rules: Rules, now: datetime) -> Verdict:
    """Return the verdict on a payload at the instant ``now``."""
    case = Case(payload, rules, now)
    refusals = [*_possible_size(case)] or [*_series(case)]
    if not refusals:
        refusals = [fault for rule in _RULES for fault in rule(case)]
    reasons = [r for r in payload.not_comparable_because if r not in RANKABLE_WITH]
    if not refusals and _unknown_chips(case):
        reasons.append("ceiling_unknown")
    return Verdict(refusals, reasons)


def _possible_size(case: Case) -> Iterator[Fault]:
    payload, box = case.payload, case.payload.box
    roles = box.roles if box else []
    attempts = [len(e.attempts) for e in payload.entries] + [len(r.attempts) for r in roles]
    sizes = [(name, len(getattr(payload, name)), most) for name, most in MOST.items()]
    sizes += [
        ("resumed", len(payload.resumed), MOST_RESUMED),
        ("attempts", max(attempts, default=0), MOST_ATTEMPTS),
        ("roles", len(roles), MOST["processors"]),
        ("cards", max((len(role.cards) for role in roles), default=0), MOST["processors"]),
    ]
    for name, held, most in sizes:
        if held > most:
            what = "an entry has" if name == "attempts" else "it has"
            yield Fault(
                "too_large",
                f"{what} {held} {name}, and no run has more than {most}",
                {"part": name, "count": held, "most": most},
            )


def _series(case: Case) -> Iterator[Fault]:
    """What a record was measured and computed with; nothing of another kind can be judged."""
    payload, rules = case.payload, case.rules
    if payload.score_version not in rules.score_versions:
        yield Fault(
            "unknown_score_version",
            f"the score version {payload.score_version[:40]} is unknown here",
            {"score_version": payload.score_version[:40], "known": list(rules.score_versions)},
        )
        return
    suite = payload.suite
    if not suite.verified or suite.manifest_sha256 != rules.pinned_sha256:
        why = "was not verified" if not suite.verified else "is not the one that is pinned"
        yield Fault(
            "another_pack",
            f"the pack {why}",
            {
                "manifest_sha256": suite.manifest_sha256[:80],
                "pinned": rules.pinned_sha256,
                "verified": suite.verified,
            },
        )
    if payload.policy_sha256 != rules.policy.sha256:
        yield Fault(
            "another_policy",
            "the policy is unknown here",
            {"policy_sha256": payload.policy_sha256[:80], "known": [rules.policy.sha256]},
        )
    if not is_known_formula(payload.formula_sha256):
        yield Fault(
            "another_policy",
            "the formula is unknown here; the server and the sender need one version of npumark",
            {"formula_sha256": payload.formula_sha256[:80], "known": [formula_sha256()]},
        )


def _of_its_time(case: Case) -> Iterator[Fault]:
    skew = case.rules.skew
    created = _instant(case.payload.created)
    if created is not None and created < FIRST:
        yield Fault(
            "inconsistent",
            f"it was created at {created.isoformat()}, before there was a program to make it; the "
            "clock was wrong",
            {"created": created.isoformat(), "first": FIRST.isoformat()},
        )
    for name in ("created", "finished"):
        at = _instant(getattr(case.payload, name))
        if at is not None and at > case.now + skew:
            yield Fault(
                "future_date",
                f"it was {name} at {at.isoformat()}, which lies in the future",
                {name: at.isoformat(), "now": case.now.isoformat(), "skew_s": skew.seconds},
            )


def _instant(text: str | None) -> datetime | None:
    """Return an instant with its offset; null for what is none, which the recomputation names."""
    try:
        at = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return at if at.tzinfo is not None else None


def _nothing_private(case: Case) -> Iterator[Fault]:
    found = private_data(case.payload)
    if found:
        first = found[0]
        yield Fault(
            "private_data",
            f"{first.path} holds {first.what}, which must not leave a computer",
            {"found": [{"path": f.path, "what": f.what} for f in found[:_SHOWN]]},
        )


def _publishable(case: Case) -> Iterator[Fault]:
    held = []
    for engine in case.payload.engines:
        row = row_of(engine)
        if engine.local_only or (row is not None and row.local_only):
            held.append(engine.id)
    if held:
        yield Fault(
            "local_only",
            f"it holds results of {', '.join(held)[:200]}, which may not be published",
            {"engines": held},
        )


def _whole_plan(case: Case) -> Iterator[Fault]:
    payload = case.payload
    if not payload.complete or {*payload.not_comparable_because} - RANKABLE_WITH:
        return
    missing = missing_entries(payload, case.rules.manifest)
    if missing:
        yield Fault(
            "plan_incomplete",
            f"it claims to be complete and lacks {' · '.join(missing[0])}",
            {"missing": [list(key) for key in missing[:_SHOWN]], "count": len(missing)},
        )


def _below_the_ceiling(case: Case) -> Iterator[Fault]:
    """No figure is above what its chip can compute, nor a peak that the box stage took over."""
    payload, chips = case.payload, case.rules.chips
    processors = {p.id: p for p in payload.processors}
    owner = {e.id: processors.get(e.processor) for e in payload.engines}
    claimed = [
        (f"entries[{i}]", owner.get(e.engine), e.format, e.figure.tops)
        for i, e in enumerate(payload.entries)
        if e.figure is not None
    ]
    claimed += [
        (f"plan.box.solo[{i}]", processors.get(solo.card), None, solo.tops)
        for i, solo in enumerate(payload.plan.box.solo)
    ]
    for path, processor, number_format, tops in claimed:
        if processor is None:
            continue
        most = ceiling(processor, number_format, payload, chips)
        if most is not None and tops >= CEILING_FACTOR * most.tops:
            shown = number_format or "any format"
            yield Fault(
                "above_ceiling",
                f"{path} claims {tops:.4g} TOPS ({shown}) on {processor.name[:80]}, which can "
                f"compute {most.tops:.4g}",
                {
                    "entry": path,
                    "tops": tops,
                    "format": number_format,
                    "chip": most.chip,
                    "ceiling_tops": most.tops,
                    "factor": CEILING_FACTOR,
                    "source": most.source,
                    "how": most.how,
                },
            )


def _box_within_solo(case: Case) -> Iterator[Fault]:
    box, most = case.payload.box, case.rules.policy.box.most_scaling
    for role in box.roles if box else []:
        solo = sum(card.solo.tops for card in role.cards)
        if role.tops is not None and role.tops > most * solo:
            yield Fault(
                "box_above_solo",
                f"the box total of the {role.role}s is {role.tops:.4g} TOPS; their solo peaks "
                f"allow {most * solo:.4g}",
                {"role": role.role, "tops": role.tops, "solo_tops": solo, "most_scaling": most},
            )


def _recomputed(case: Case) -> Iterator[Fault]:
    """Rebuild every figure; a contradiction among the facts is told before what follows from it."""
    rules = case.rules
    found = recompute(case.payload, rules.manifest, rules.policy, pinned_sha256=rules.pinned_sha256)
    facts = [d for d in found if not _FIGURES.match(d.path)]
    figures = [d for d in found if _FIGURES.match(d.path)]
    if facts:
        yield _fault("inconsistent", facts)
    if figures:
        yield _fault("figures_differ", figures)


def _fault(code: str, found: Sequence[Difference]) -> Fault:
    return Fault(
        code,
        str(found[0]),
        {
            "differences": [
                {"path": d.path, "recorded": _brief(d.recorded), "recomputed": _brief(d.recomputed)}
                | ({"why": d.why} if d.why else {})
                for d in found[:_SHOWN]
            ],
            "count": len(found),
        },
    )


def _brief(value: object) -> object:
    """Return a value as it may stand in an answer: a scalar as it is, anything else as text."""
    if value is None or isinstance(value, bool | int | float):
        return value
    return str(value)[:200]


Rule = Callable[[Case], Iterator[Fault]]

_RULES: Final[Sequence[Rule]] = (
    _nothing_private,
    _of_its_time,
    _publishable,
    stopped_rightly,
    _whole_plan,
    _below_the_ceiling,
    _box_within_solo,
    _recomputed,
)
"""In the order in which they are told; what everything else may follow from comes first."""


def _unknown_chips(case: Case) -> bool:
    """Whether a processor of an engine that has a peak is of no known family."""
    payload = case.payload
    processors = {p.id: p for p in payload.processors}
    peaks = [(processors[e.processor], e.peak.format) for e in payload.engines if e.peak]
    return any(ceiling(p, fmt, payload, case.rules.chips) is None for p, fmt in peaks)
