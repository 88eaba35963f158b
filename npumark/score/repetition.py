"""How often an entry is measured, and which attempts its figure is a median of.

One function serves the scheduler, which asks what an entry still wants, and the recomputation,
which asks whether an entry stopped where it had to. An *outcome* is an attempt's inferences/s,
or None where its worker died without a result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from npumark.pack.manifest import Kind
from npumark.policy import Repetition
from npumark.score import stats

Outcome = float | None


@dataclass(frozen=True, slots=True)
class Tally:
    """``wants``: attempts still to run, at the least (0: finished by the rule).

    ``counted`` holds the values that enter the figure's median and ``ips`` is that median,
    null where nothing landed. ``agreed``: the entry ended, or may end, at its minimum because
    its attempts agree.
    """

    wants: int
    counted: tuple[float, ...]
    ips: float | None
    agreed: bool


def bounds(kind: Kind, rules: Repetition) -> tuple[int, int]:
    """Return the least and the greatest number of attempts of an entry that can count."""
    if kind == "peak":
        return rules.peak_min_attempts, rules.peak_max_attempts
    return rules.network_min_attempts, rules.network_max_attempts


def tally(outcomes: Sequence[Outcome], kind: Kind, rules: Repetition) -> Tally:
    """Return what an entry with these outcomes, in order, still wants and counts with.

    A network is the median of 3 attempts that range within 2 % of their median, else of 5; a
    peak configuration the median of its fastest 3 of 5 where those agree, else of its fastest
    5 of 9. An entry with a death among its first (minimum) attempts runs to its maximum, and
    counts those that landed. Raises ValueError for an outcome that is not finite.
    """
    least, most = bounds(kind, rules)
    ran = len(outcomes)
    landed = [v for v in outcomes if v is not None]
    agreed = ran >= least and _agree(outcomes[:least], kind, rules)
    if ran < least:
        died = None in outcomes
        wants = (most if died else least) - ran
    elif agreed:
        wants = 0
    else:
        wants = max(0, most - ran)
    counted = _counted(landed, kind, rules, at_minimum=ran <= least)
    return Tally(
        wants=wants,
        counted=tuple(counted),
        ips=stats.median(counted) if counted else None,
        agreed=agreed,
    )


def _agree(first: Sequence[Outcome], kind: Kind, rules: Repetition) -> bool:
    landed = [v for v in first if v is not None]
    if len(landed) < len(first):
        return False
    return stats.spread(_counted(landed, kind, rules, at_minimum=True)) <= rules.agreement


def _counted(
    landed: Sequence[float], kind: Kind, rules: Repetition, *, at_minimum: bool
) -> Sequence[float]:
    if not landed:
        return ()
    if kind == "network":
        return stats.checked(landed)
    k = rules.peak_counted_at_min if at_minimum else rules.peak_counted_at_max
    return stats.fastest(landed, k)
