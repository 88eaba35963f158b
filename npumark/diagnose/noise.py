"""How far figures stray by themselves, and what else took the processor meanwhile.

A gain or a loss is told as one only where it is larger than what the machine did to the single
loop: between its first time and its repetition after the probe (the step ``again``), and from
part to part within each of the two.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from npumark.diagnose.probe import Samples, Seen, rate
from npumark.policy import DiagnoseRules

AGAIN = "again"
"""The step that repeats the single loop after a probe's own steps."""

QUIET = "run it again on a quiet machine"
MOVED = "something else moved these figures"

_PARTS = 4
"""A loop is compared with itself in quarters, of at least two calls each."""

_CHANCE = 0.1
"""How often a figure that is no gain may pass its bound; the best of n must pass a bound that
each passes n times as seldom."""

_SELDOM = 0.05
"""How often one of a probe's medians may pass its limit where nothing differs."""


@dataclass(frozen=True, slots=True)
class Noise:
    """``share`` is what two figures may differ by, as a share, at least the rules' ``notable``;
    ``again`` the repetition's rate ÷ the single attempt's, null where it was not measured, and
    ``lacks`` then says so. ``others`` and ``stolen`` are the largest shares of the processor that
    other programs and other virtual machines took during a step, null where nothing tells."""

    notable: float
    share: float
    again: float | None
    lacks: str | None
    others: float | None
    stolen: float | None

    @property
    def disturbed(self) -> bool:
        """Say whether others took a notable share of the processor."""
        return any(
            taken is not None and taken >= self.notable for taken in (self.others, self.stolen)
        )

    def stray(self, figures: int = 1) -> float:
        """Return how far the best, or the worst, of so many figures may stray from another: more
        than one alone, as the best of many throws of a die is more than one throw."""
        normal = NormalDist()
        wider = normal.inv_cdf(1 - _CHANCE / max(figures, 1)) / normal.inv_cdf(1 - _CHANCE)
        return self.share * wider

    def gain(self, figures: int = 1) -> float:
        """Return the ratio to the single attempt that is a gain: beyond what the best of so many
        figures strays by from the faster of the single loops."""
        return (1 + self.stray(figures)) * max(1.0, self.again or 1.0)

    def loss(self, figures: int = 1) -> float:
        """Return the ratio to the single attempt that is a loss, against the slower of them."""
        return max(0.0, 1 - self.stray(figures)) * min(1.0, self.again or 1.0)

    def fewest(self, gains: Mapping[int, float], figures: int) -> int:
        """Return the smallest key whose gain is as much as any, but for what two figures differ
        by, and a gain itself among so many ``figures``; 1 where none is."""
        limit, top = self.gain(figures), max(gains.values())
        if top <= limit:
            return 1
        return min(
            n for n, gain in gains.items() if gain > limit and gain * (1 + self.share) >= top
        )

    def told(self, said: str, advice: str) -> tuple[str, str]:
        """Return a finding and its advice with what is to be known of them: who else took the
        processor, in which case the advice is to measure again, and whether the single loop was
        repeated."""
        clauses = [said.removesuffix(".")]
        for who, taken in (
            ("other programs", self.others),
            ("other virtual machines", self.stolen),
        ):
            if taken is not None and taken >= self.notable:
                clauses.append(f"{who} took {100 * taken:.0f} % of the processor meanwhile")
        if self.lacks is not None:
            clauses.append(self.lacks)
        if self.disturbed:
            advice = f"This machine was busy with other things: {QUIET}."
        return f"{'; '.join(clauses)}.", advice


def noise(
    single: Seen, seen: Mapping[str, Seen], rules: DiagnoseRules, *, repeated: bool = True
) -> Noise:
    """Return how far the figures of a probe stray, by its single attempt and ``seen``.

    ``repeated`` False leaves the repetition out: for a probe that has none, or whose own effect
    it would show. Loads that a step asked for are nobody else's.
    """
    ratio, lacks = None, None
    loops = [single.samples["calls"]]
    if repeated:
        step = seen.get(AGAIN)
        try:
            loops.append(_calls(step))
            ratio = rate(loops[1]) / rate(loops[0])
        except ValueError as fault:
            loops, lacks = loops[:1], str(fault)
    known = [spread(loop) for loop in loops]
    share = max(rules.notable, abs((ratio or 1.0) - 1), *known)
    loads = [
        told
        for step in (single, *seen.values())
        if step.status == "ok" and step.step.beside is None and (told := step.facts.get("load"))
    ]
    stolen = [t["steal"] for t in loads if t.get("steal") is not None]
    others = [t["others"] - (t.get("steal") or 0.0) for t in loads if t.get("others") is not None]
    return Noise(
        rules.notable,
        share,
        ratio,
        lacks,
        max(others, default=None),
        max(stolen, default=None),
    )


def spread(durations: Samples) -> float:
    """Return how far the rates of a loop's parts lie apart, as a share of its rate; 0 where it
    has too few calls for parts."""
    parts = np.array_split(durations, max(1, min(_PARTS, len(durations) // 2)))
    rates = [rate(part) for part in parts]
    return (max(rates) - min(rates)) / rate(durations)


def median_limit(busy: Samples, calls: int, figures: int) -> int:
    """Return the duration that the median of so many further ``calls`` of the kind of ``busy``
    [n] passes by chance in 1 of 20 probes, where it has so many ``figures`` to pass it with.

    Where ``busy`` has too few to say, it is as far beyond the longest as that is beyond the
    shortest. Raises ValueError where there is none.
    """
    if not len(busy):
        raise ValueError("no call was timed")
    ordered = np.sort(busy)
    for rank, value in enumerate(ordered, 1):
        if _passed(rank, len(busy), calls) <= _SELDOM / max(figures, 1):
            return int(value)
    return int(2 * ordered[-1] - ordered[0])


def _passed(rank: int, known: int, calls: int) -> float:
    """Return how likely half or more of further ``calls`` are above the ``rank``-th of ``known``
    ones, all of one kind, whatever that is: by the orders in which they may lie."""
    orders = sum(
        math.comb(above + known - rank, above) * math.comb(calls - above + rank - 1, calls - above)
        for above in range((calls + 1) // 2, calls + 1)
    )
    return orders / math.comb(known + calls, calls)


def _calls(step: Seen | None) -> Samples:
    """Return the repetition's durations. Raises ValueError where there are none."""
    if step is None:
        raise ValueError("the single loop was not repeated after it")
    if step.status != "ok":
        raise ValueError(f"the single loop could not be repeated: {step.why or step.status}")
    calls = step.samples.get("calls")
    if calls is None or not len(calls):
        raise ValueError("the single loop's repetition timed no call")
    return calls
