"""The environment of a run: preconditions before it, and what was seen while it measured."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from npumark.machine import preconditions, sensors
from npumark.orchestrator.events import Event, Stage
from npumark.orchestrator.request import RunRequest
from npumark.orchestrator.worker_env import environment_facts
from npumark.pack.inspection import Fault
from npumark.policy import Policy
from npumark.record.model import Check, Environment

Tell = Callable[[Event], None]
Counters = dict[str, int | None]

_WHILE = "throttling_while_measuring"
_BESIDE = "load_beside_measuring"
_IN_PART = "_in_a_part"
_REBUILT = "pack_files_rebuilt"
_UNAVAILABLE = "unavailable"


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


def with_rebuilt(environment: Environment, rebuilt: Sequence[Fault]) -> Environment:
    """Return the environment with the pack files that were damaged and are right again."""
    if not rebuilt:
        return environment
    files = [{"path": fault.path, "was": fault.kind} for fault in rebuilt]
    return environment.model_copy(update={"facts": {**environment.facts, _REBUILT: files}})


def with_unavailable(environment: Environment, failed: Mapping[str, str]) -> Environment:
    """Return the environment with the runtimes that are here and broke, each with its reason."""
    if not failed:
        return environment
    facts = {**environment.facts, _UNAVAILABLE: dict(failed)}
    return environment.model_copy(update={"facts": facts})


def rejoin(first: Environment, again: Environment) -> Environment:
    """Return a resumed run's environment: all looks recorded, each check as it was violated
    first, or else as it was seen first. Noisy where any look was."""
    later = [*first.facts.get("on_resume", []), again.model_dump(mode="json")["checks"]]
    worse = {
        name: check
        for name, check in again.checks.items()
        if check.violation and not (name in first.checks and first.checks[name].violation)
    }
    checks = {**first.checks, **worse}
    start = first.facts.get("at_start", first.model_dump(mode="json")["checks"])
    facts = {**first.facts, "at_start": start, "on_resume": later}
    rebuilt = [*first.facts.get(_REBUILT, []), *again.facts.get(_REBUILT, [])]
    if rebuilt:
        facts[_REBUILT] = rebuilt
    broken = {**again.facts.get(_UNAVAILABLE, {}), **first.facts.get(_UNAVAILABLE, {})}
    if broken:
        facts[_UNAVAILABLE] = broken
    return first.model_copy(
        update={
            "checks": checks,
            "noisy": any(check.violation for check in checks.values()),
            "skipped": first.skipped or again.skipped,
            "facts": facts,
        }
    )


@dataclass(frozen=True, slots=True)
class Part:
    """What was seen while one part of a run measured, from its begin or resumption to its end.

    ``load`` is ``sensors.load_between``, null where nothing is known of it. ``watched`` says
    whether the machine's state was to be looked at, ``notes`` how it was measured.
    """

    load: dict[str, Any] | None
    watched: bool
    notes: dict[str, Any]


class Parts:
    """The parts of a run: those before a resumption and, once it has begun, the present one."""

    def __init__(self, earlier: Sequence[Part], *, watched: bool) -> None:
        self._earlier = tuple(earlier)
        self._watched = watched
        self._first: sensors.LoadSample | None = None
        self.notes: dict[str, Any] = {}

    def begin(self) -> None:
        """Count from here on."""
        self._first = sensors.load_sample()

    def seen(self) -> tuple[Part, ...]:
        """Return every part up to this instant."""
        if self._first is None:
            return self._earlier
        load = sensors.load_between(self._first, sensors.load_sample())
        return (*self._earlier, Part(load, self._watched, dict(self.notes)))


def combined_load(parts: Sequence[Part]) -> dict[str, Any] | None:
    """Return the load over all parts, shares weighted by the CPU seconds of each; what is not
    known of one part is not known of the whole. Null where a part has none."""
    loads = [part.load for part in parts]
    known = [load for load in loads if load is not None]
    if not known or len(known) < len(loads):
        return None
    if len(known) == 1:
        return known[0]
    whole = _total([load.get("cpu_s") for load in known])
    shares = {
        name: _mean([(load.get(name), load.get("cpu_s")) for load in known])
        for name in ("busy", "own", "others", "steal")
    }
    return {
        "seconds": _total([load.get("seconds") for load in known]),
        "cpu_s": whole,
        **shares,
        "why": next((load["why"] for load in known if load.get("why")), None),
        "throttling": combined_throttling(parts),
    }


def combined_throttling(parts: Sequence[Part]) -> Counters:
    """Return how far each counter moved in all parts; null where one part does not tell."""
    told = [_throttling(part) for part in parts]
    return {
        name: _total([counters.get(name) for counters in told])
        for name in dict.fromkeys(name for counters in told for name in counters)
    }


def load_beside(load: Mapping[str, Any] | None, policy: Policy) -> Check:
    """Return what other programs took of the machine while this run measured.

    ``load`` is ``sensors.load_between`` of two samples around the measurement. Their share of
    the machine's CPU time is held to the same bound as the idle window before it.
    """
    others = load.get("others") if load else None
    if others is None:
        why = load.get("why") if load else None
        why = why or "what ran beside a part of the measurement is not known"
        return Check(value=None, why=why, violation=False)
    return Check(value=others, why=None, violation=others > policy.preconditions.max_busy)


def with_observations(
    environment: Environment, parts: Sequence[Part], policy: Policy
) -> Environment:
    """Return the environment with what was seen while measuring: throttling is a violation,
    and so is the load of other programs where the machine's state was to be watched.

    A run that was noisy in one part is noisy, however quiet or unknown another part was.
    """
    load, throttled = combined_load(parts), combined_throttling(parts)
    known = any(count is not None for count in throttled.values())
    seen = {
        _WHILE: Check(
            value=throttled if known else None,
            why=None if known else _why_uncounted(parts),
            violation=any(count for count in throttled.values()),
        )
    }
    if not environment.skipped:
        seen[_BESIDE] = load_beside(load, policy)
    if len(parts) > 1:
        worst = _worst(parts, policy)
        seen |= {f"{n}{_IN_PART}": c for n, c in worst.items() if not _violated(seen.get(n))}
    checks = {**environment.checks, **seen}
    facts = {
        **environment.facts,
        **(parts[-1].notes if parts else {}),
        "load_while_measuring": load,
        "environment_variables": environment_facts(os.environ),
    }
    if len(parts) > 1:
        facts["parts"] = [asdict(part) for part in parts]
    return environment.model_copy(
        update={
            "checks": checks,
            "noisy": any(check.violation for check in checks.values()),
            "facts": facts,
        }
    )


def _worst(parts: Sequence[Part], policy: Policy) -> dict[str, Check]:
    """Return the checks of the worst part, where one by itself is a violation."""
    found = {}
    moved: Counters = {}
    for counters in map(_throttling, parts):
        for name, count in counters.items():
            moved[name] = max((n for n in (moved.get(name), count) if n is not None), default=None)
    if any(moved.values()):
        found[_WHILE] = Check(value=moved, why=None, violation=True)
    shares = [
        check.value
        for part in parts
        if part.watched and (check := load_beside(part.load, policy)).violation
    ]
    if shares:
        found[_BESIDE] = Check(value=max(shares), why=None, violation=True)
    return found


def _why_uncounted(parts: Sequence[Part]) -> str:
    if not parts:
        return "nothing has been measured"
    if any(part.load is None for part in parts):
        return "what was throttled in a part of the measurement is not known"
    return "no throttling counters here"


def _violated(check: Check | None) -> bool:
    return check is not None and check.violation


def _throttling(part: Part) -> Counters:
    return dict((part.load or {}).get("throttling") or {})


def _total(amounts: Sequence[Any]) -> Any:
    return None if any(amount is None for amount in amounts) else sum(amounts)


def _mean(shares: Sequence[tuple[float | None, float | None]]) -> float | None:
    """Return the mean of (share, weight) pairs; null where one is."""
    total = 0.0
    weights = 0.0
    for share, weight in shares:
        if share is None or weight is None:
            return None
        total += share * weight
        weights += weight
    return total / weights if weights > 0 else None
