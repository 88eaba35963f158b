"""Which attempt runs next: a pure function of the plan, the attempts so far and the time.

The order (methodology §7): one pass over the whole plan, then later passes in plan order over
the entries that still want attempts. Two attempts of one entry start at least the spacing
apart; where the next entry is not due yet the run waits, and nothing is reordered. No state is
kept: a run resumed from its journal goes on exactly as it would have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from npumark.policy import Policy
from npumark.score.demand import NO_HANGS, Demand, Hangs, History, Key, demand, next_entry, tried
from npumark.score.planned import Planned

NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Run:
    """Start attempt ``n`` (from 1, void ones included) of ``entry`` now."""

    entry: Planned
    n: int


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing may start before ``until_ns``; ``entry`` is the one waited for."""

    until_ns: int
    entry: Planned


@dataclass(frozen=True, slots=True)
class Done:
    """``complete``: every entry finished by its rule; else the time budget ended the run."""

    complete: bool


Action = Run | Wait | Done


@dataclass(frozen=True, slots=True)
class TimeLeft:
    """``attempts`` is the least number still to run; ``seconds`` a projection for the view,
    null before anything has been measured."""

    attempts: int
    seconds: float | None


def next_action(
    plan: Sequence[Planned],
    history: History,
    now_ns: int,
    policy: Policy,
    *,
    quick: bool = False,
    deadline_ns: int | None = None,
    hangs: Hangs = NO_HANGS,
) -> Action:
    """Return what to do at ``now_ns``, a time on the clock that stamped the attempts.

    ``deadline_ns`` is where the time budget ends: an attempt that is not expected to finish
    before it is not started, and the run ends. ``hangs`` counts the preparations of each entry
    that timed out.
    """
    state = demand(plan, history, policy, quick=quick, hangs=hangs)
    entry = next_entry(plan, history, state)
    if entry is None:
        return Done(complete=True)
    due = _due_ns(entry, history, policy)
    if deadline_ns is not None:
        start = max(now_ns, due)
        if start + expected_ns(entry, plan, history, policy, quick=quick) > deadline_ns:
            return Done(complete=False)
    if due > now_ns:
        return Wait(due, entry)
    return Run(entry, len(history.get(entry.key, ())) + 1)


def expected_ns(
    entry: Planned,
    plan: Sequence[Planned],
    history: History,
    policy: Policy,
    *,
    quick: bool,
) -> int:
    """Return how long an attempt of ``entry`` is expected to take, process and all.

    Its own longest attempt so far; before that, the median over the engine's attempts of the
    same kind; before that, the timed loop and the warm-up alone.
    """
    # An attempt that nobody saw end has no length.
    own = [a.wall_ns for a in history.get(entry.key, ()) if a.wall_ns]
    if own:
        return max(own)
    kin = sorted(
        a.wall_ns
        for p in plan
        if (p.engine, p.kind) == (entry.engine, entry.kind)
        for a in history.get(p.key, ())
        if a.wall_ns
    )
    if kin:
        return kin[len(kin) // 2]
    return round(loop_and_warmup_s(policy, quick=quick) * NS)


def loop_and_warmup_s(policy: Policy, *, quick: bool) -> float:
    """Return the seconds of one attempt that the policy fixes: the loop and the longest warm-up."""
    timing = policy.timing
    return (timing.quick_loop_s if quick else timing.loop_s) + timing.warmup_max_s


def time_left(
    plan: Sequence[Planned],
    history: History,
    now_ns: int,
    policy: Policy,
    *,
    quick: bool = False,
    hangs: Hangs = NO_HANGS,
) -> TimeLeft:
    """Return the attempts left at the least and how long they are projected to take.

    The least holds if no attempt yet to run ends its entry for good. During the first pass an
    entry may yet be screened, so only the entries that have not run count, and those that must
    run to their maximum because an attempt died.

    Passes are laid end to end; a pass is at least as long as the spacing where a later one
    repeats one of its entries.
    """
    state = demand(plan, history, policy, quick=quick, hangs=hangs)
    certain = _certain(plan, history, state)
    if not any(history.values()):
        return TimeLeft(sum(certain.values()), None)
    gap = _spacing_ns(policy)
    # What the first pass has not screened yet may repeat: the projection takes it in.
    left = dict(state.wants)
    starts = [_due_ns(p, history, policy) for p in plan if left[p.key]]
    total = max(0, min(starts) - now_ns) if starts and state.first_pass else 0
    while any(left.values()):
        busy = sum(
            expected_ns(p, plan, history, policy, quick=quick) for p in plan if left[p.key] > 0
        )
        left = {k: max(0, n - 1) for k, n in left.items()}
        total += max(busy, gap) if any(left.values()) else busy
    return TimeLeft(sum(certain.values()), total / NS)


def _spacing_ns(policy: Policy) -> int:
    return round(policy.repetition.spacing_s * NS)


def _due_ns(entry: Planned, history: History, policy: Policy) -> int:
    """Return when the entry may start again: the spacing after its last start, void or not."""
    starts = [a.started_ns for a in history.get(entry.key, ())]
    return max(starts) + _spacing_ns(policy) if starts else 0


def _certain(plan: Sequence[Planned], history: History, state: Demand) -> dict[Key, int]:
    left: dict[Key, int] = {}
    for planned in plan:
        wants = state.wants[planned.key]
        attempts = tried(history.get(planned.key, ()))
        if not state.first_pass:
            if not attempts:
                wants = min(wants, 1)
            elif attempts[0].outcome == "landed":
                wants = 0
        left[planned.key] = wants
    return left
