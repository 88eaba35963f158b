"""What each entry of a plan still wants: first pass, screening and stop rules together.

The scheduler runs what this says; the recomputation asks the same function whether each entry
of a record stopped where it had to. Everything follows from the plan and the attempts alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from npumark.policy import Policy
from npumark.record.model import Preparation
from npumark.score import repetition
from npumark.score.attempt import JudgedAttempt
from npumark.score.planned import Planned

Key = tuple[str, str, str]
History = Mapping[Key, Sequence[JudgedAttempt]]
Contest = tuple[str, str, str]
Hangs = Mapping[Key, int]

NO_HANGS: Hangs = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Demand:
    """``wants`` maps each entry to the attempts it still needs at the least; 0 is finished.

    ``first_pass`` says that every entry has had its first attempt; only then are entries
    ``screened``. Where the leader of a contest turns out unable to count, the next one leads,
    and those that only the first one kept screened want attempts again.
    """

    wants: Mapping[Key, int]
    screened: frozenset[Key]
    first_pass: bool

    @property
    def finished(self) -> bool:
        return not any(self.wants.values())


@dataclass(frozen=True, slots=True)
class Standing:
    """Where an entry stands by its own attempts, whatever the others did.

    ``first_tops`` is the rate of its first attempt, null where that cannot count. ``wants`` is
    what it still needs unless it is ``screened``. ``barred``: it can no longer count, whatever it
    measures next: it answered wrong or ran elsewhere, its attempts were computed in different
    formats, or it came to its end with fewer than two that landed.
    """

    ran: bool
    first_tops: float | None
    wants: int
    barred: bool


def tried(attempts: Sequence[JudgedAttempt]) -> list[JudgedAttempt]:
    """Return the attempts that stand: an interrupted one is void."""
    return [a for a in attempts if a.outcome != "void"]


def contest(planned: Planned) -> Contest:
    """Return which entries one is screened against.

    A network variant meets the variants of its network on its engine; a peak configuration all
    those of its engine in its tier, never of another tier.
    """
    if planned.kind == "peak":
        return (planned.engine, "peak", planned.tier)
    return (planned.engine, "network", planned.workload)


def hangs_of(prepared: Iterable[Preparation]) -> Hangs:
    """Return how many preparations of each entry were ended by their deadline."""
    return Counter((p.engine, p.workload, p.variant) for p in prepared if p.status == "timeout")


def demand(
    plan: Sequence[Planned],
    history: History,
    policy: Policy,
    *,
    quick: bool,
    hangs: Hangs = NO_HANGS,
) -> Demand:
    """Return what every entry of ``plan`` still wants after ``history``.

    ``hangs`` counts the preparations of an entry that timed out.
    """
    standings = {
        p.key: standing(
            p, history.get(p.key, ()), policy, quick=quick, hung_before=hangs.get(p.key, 0)
        )
        for p in plan
    }
    return settle(plan, standings, policy, quick=quick)


def standing(
    planned: Planned,
    attempts: Sequence[JudgedAttempt],
    policy: Policy,
    *,
    quick: bool,
    hung_before: int = 0,
) -> Standing:
    """Return where an entry stands by its own attempts. ``hung_before`` counts its preparations
    that timed out."""
    stand = tried(attempts)
    left = repetition.tally([a.ips for a in stand], planned.kind, policy.repetition).wants
    dead = any(a.dead for a in stand)
    ended = hung(stand, policy, hung_before)
    wants = 0 if dead or ended else left
    few = (ended or not left) and sum(a.ips is not None for a in stand) < 2
    return Standing(
        ran=bool(stand),
        first_tops=stand[0].tops if stand and stand[0].can_count else None,
        wants=(0 if stand else 1) if quick else wants,
        barred=dead or len(formats(stand)) > 1 or few,
    )


def settle(
    plan: Sequence[Planned],
    standings: Mapping[Key, Standing],
    policy: Policy,
    *,
    quick: bool,
    first_pass: bool | None = None,
) -> Demand:
    """Return what every entry of ``plan`` still wants, given where each stands by itself.

    ``plan`` may be some contests of a larger one, whose ``first_pass`` is then given.
    """
    active = [(p, standings[p.key]) for p in plan if p.skip is None]
    if first_pass is None:
        first_pass = all(s.ran for _, s in active)
    screened: frozenset[Key] = frozenset()
    if first_pass and not quick:
        best = _best_first(active)
        screened = frozenset(p.key for p, s in active if _screened(p, s, best, policy))
    wants: dict[Key, int] = {p.key: 0 for p in plan}
    wants.update((p.key, s.wants) for p, s in active if p.key not in screened)
    return Demand(wants, screened, first_pass)


def next_entry(plan: Sequence[Planned], history: History, state: Demand) -> Planned | None:
    """Return the entry whose turn it is: the first in plan order of those furthest behind.

    One pass over the whole plan, then later passes in plan order over what still wants
    attempts. Null where nothing does.
    """
    wanting = [p for p in plan if state.wants[p.key] > 0]
    return min(wanting, key=lambda p: len(tried(history.get(p.key, ()))), default=None)


def hung(attempts: Sequence[JudgedAttempt], policy: Policy, before: int = 0) -> bool:
    """Whether an entry has timed out so often that it is measured no more.

    ``before`` counts its preparations that timed out: what hangs there hangs for as long. At
    least one attempt is made all the same, and says so. What had landed by then counts like
    that of any entry that ended.
    """
    timeouts = before + sum(a.status == "timeout" for a in attempts)
    return bool(attempts) and timeouts >= policy.repetition.max_timeouts


def formats(attempts: Sequence[JudgedAttempt]) -> frozenset[str]:
    """Return the formats that landed attempts report to have been computed in."""
    return frozenset(a.format for a in attempts if a.ips is not None and a.format is not None)


def _best_first(active: Iterable[tuple[Planned, Standing]]) -> dict[Contest, float]:
    """Return the best first attempt of each contest among the entries that can count.

    A wrong answer, however fast, is no yardstick, in whichever attempt it shows. An entry with
    a first attempt that died is none either; it always runs to its maximum.
    """
    best: dict[Contest, float] = {}
    for planned, stands in active:
        if stands.first_tops is not None and not stands.barred:
            group = contest(planned)
            best[group] = max(best.get(group, 0.0), stands.first_tops)
    return best


def _screened(
    planned: Planned, stands: Standing, best: Mapping[Contest, float], policy: Policy
) -> bool:
    if stands.first_tops is None:
        return False
    rules = policy.repetition
    share = rules.peak_screen if planned.kind == "peak" else rules.network_screen
    return stands.first_tops < share * best.get(contest(planned), 0.0)
