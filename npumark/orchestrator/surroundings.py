"""The environment of a run: preconditions before it, and what was seen while it measured."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from npumark.machine import cpu_limits, preconditions
from npumark.orchestrator.events import Event, Stage
from npumark.orchestrator.request import RunRequest
from npumark.orchestrator.worker_env import environment_facts
from npumark.policy import Policy
from npumark.record.model import Check, Environment

Tell = Callable[[Event], None]
Counters = dict[str, int | None]

_WHILE = "throttling_while_measuring"
_BESIDE = "load_beside_measuring"


def look(
    request: RunRequest, policy: Policy, resident_bytes: int | None, tell: Tell
) -> Environment:
    """Check the preconditions as the request asks.

    Raises SetupError where it asks for ``--strict`` and one is violated.
    """
    if request.skip_preconditions:
        return preconditions.skipped("left out with --skip-preconditions")
    rules = policy.preconditions
    window = rules.quick_idle_window_s if request.quick else rules.idle_window_s
    waited = _wait_idle(policy, window, tell) if request.wait_idle else None
    until = time.monotonic_ns() + round(window * 1e9)
    tell(Stage("preconditions", "Watching whether the machine is idle", until_ns=until))
    seen = preconditions.check(policy, resident_bytes, window)
    if request.strict and (refusal := preconditions.strict_error(seen)):
        raise refusal
    if waited is not None:
        seen = seen.model_copy(update={"facts": {**seen.facts, "became_idle": waited}})
    return seen


def _wait_idle(policy: Policy, window_s: float, tell: Tell) -> bool:
    def progress(waited: float, busy: float | None) -> None:
        load = "" if busy is None else f" ({busy:.0%} busy)"
        tell(Stage("wait-idle", f"Waited {waited:.0f} s until the machine is idle{load}"))

    tell(Stage("wait-idle", "Waiting until the machine is idle"))
    return preconditions.wait_idle(policy, window_s, progress=progress)


def rejoin(first: Environment, again: Environment) -> Environment:
    """Return a resumed run's environment: noisy where either part was, both parts recorded."""
    later = [*first.facts.get("on_resume", []), again.model_dump(mode="json")["checks"]]
    return first.model_copy(
        update={
            "noisy": first.noisy or again.noisy,
            "skipped": first.skipped or again.skipped,
            "facts": {**first.facts, "on_resume": later},
        }
    )


class Throttling:
    """Counts stolen processor time while measuring, over all parts of a run."""

    def __init__(self, before: Mapping[str, int | None]) -> None:
        self._before = dict(before)
        self._start = cpu_limits.throttling()

    def total(self) -> Counters:
        """Return how far each counter moved; null where it, or an earlier part, is unknown."""
        moved = cpu_limits.throttling_delta(self._start, cpu_limits.throttling())
        return {name: _sum(self._before.get(name, 0), delta) for name, delta in moved.items()}


def load_beside(load: Mapping[str, Any] | None, policy: Policy) -> Check:
    """Return what other programs took of the machine while this run measured.

    ``load`` is ``sensors.load_between`` of two samples around the measurement. Their share of
    the machine's CPU time is held to the same bound as the idle window before it.
    """
    others = load.get("others") if load else None
    if others is None:
        why = load.get("why") if load else None
        why = why or "the load was not sampled to the end"
        return Check(value=None, why=why, violation=False)
    return Check(value=others, why=None, violation=others > policy.preconditions.max_busy)


def with_observations(
    environment: Environment,
    throttled: Counters,
    facts: Mapping[str, Any],
    load: Mapping[str, Any] | None,
    policy: Policy,
) -> Environment:
    """Return the environment with what was seen while measuring: throttling is a violation,
    and so is the load of other programs where the machine's state was to be watched."""
    known = any(count is not None for count in throttled.values())
    check = Check(
        value=throttled if known else None,
        why=None if known else "no throttling counters here",
        violation=any(count for count in throttled.values()),
    )
    seen = {_WHILE: check}
    if not environment.skipped:
        seen[_BESIDE] = load_beside(load, policy)
    return environment.model_copy(
        update={
            "checks": {**environment.checks, **seen},
            "noisy": environment.noisy or any(c.violation for c in seen.values()),
            "facts": {
                **environment.facts,
                **facts,
                "load_while_measuring": dict(load) if load else None,
                "environment_variables": environment_facts(os.environ),
            },
        }
    )


def _sum(first: int | None, second: int | None) -> int | None:
    return None if first is None or second is None else first + second
