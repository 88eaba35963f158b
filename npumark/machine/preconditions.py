"""Is this computer fit to be measured now? Every check is recorded; a violation makes it noisy.

A check that cannot be read is null with its reason, and no violation: not knowing must neither
condemn a run nor excuse one. Nothing here changes a setting of the machine.
"""

from __future__ import annotations

from collections.abc import Callable

from npumark.errors import SetupError
from npumark.machine import cpu_limits, identity, power, sensors
from npumark.machine.host import THIS, Host, Reading
from npumark.policy import Policy
from npumark.record.model import Check, Environment

DEFAULT_WAIT_S = 600.0
"""How long ``--wait-idle`` waits at most: a machine busier than that will not get idle soon."""

Progress = Callable[[float, float | None], None]
"""Called after each window of a wait: seconds waited so far, and the busy share just seen."""

_ADVICE = {
    "power_source": "plug in the power supply",
    "power_profile": "leave the energy-saving profile",
    "cpu_busy": "stop other programs, or use --wait-idle",
    "memory": "free some memory",
    "thermal": "let the machine cool down",
    "throttling": "raise the CPU quota, or stop what shares it",
    "throttling_while_measuring": "raise the CPU quota, or let the machine cool down",
    "load_beside_measuring": "stop other programs, and leave the machine alone meanwhile",
}

_JUDGED = ("power_source", "power_profile", "cpu_busy", "memory", "thermal", "throttling")


def check(
    policy: Policy, resident_bytes: int | None, window_s: float, host: Host = THIS
) -> Environment:
    """Return every precondition, after watching the machine for ``window_s`` seconds.

    ``resident_bytes`` is what the run keeps in memory at once, null where it is not known.
    Blocks for the window: the caller shows that, and starts nothing meanwhile.
    """
    first = sensors.load_sample(host)
    host.sleep(window_s)
    last = sensors.load_sample(host)
    busy = sensors.busy_share(first.cpu, last.cpu)
    checks = {
        "power_source": power.source(host),
        "power_profile": power.profile(host),
        "cpu_busy": _busy(busy, policy),
        "memory": _memory(resident_bytes, policy, host),
        "thermal": sensors.thermal(host),
        "throttling": _throttling(first, last),
        **_recorded(host),
    }
    return Environment(
        checks=checks,
        noisy=any(c.violation for c in checks.values()),
        skipped=False,
        facts={"idle_window_s": window_s, "resident_bytes": resident_bytes},
    )


def skipped(reason: str, host: Host = THIS) -> Environment:
    """Return the environment of a run whose checks were left out: the judged ones are null
    with ``reason``, those that only describe the machine are recorded all the same."""
    checks = {name: Check(value=None, why=reason, violation=False) for name in _JUDGED}
    return Environment(checks={**checks, **_recorded(host)}, noisy=False, skipped=True, facts={})


def wait_idle(
    policy: Policy,
    window_s: float,
    *,
    limit_s: float = DEFAULT_WAIT_S,
    progress: Progress | None = None,
    host: Host = THIS,
) -> bool:
    """Watch window after window until one is idle enough; False where ``limit_s`` ran out.

    A machine whose load cannot be read is not waited for.
    """
    began = host.monotonic()
    before = sensors.cpu_times(host)
    while True:
        host.sleep(window_s)
        after = sensors.cpu_times(host)
        busy = sensors.busy_share(before, after)
        waited = host.monotonic() - began
        if progress is not None:
            progress(waited, busy)
        if busy is None or busy <= policy.preconditions.max_busy:
            return True
        if waited + window_s > limit_s:
            return False
        before = after


def violations(environment: Environment) -> list[str]:
    """Return a sentence for each violation, with what to do about it."""
    return [
        f"{_described(name, seen)}: {_advice(name)}"
        for name, seen in environment.checks.items()
        if seen.violation
    ]


def _advice(name: str) -> str:
    return _ADVICE.get(name.removesuffix("_in_a_part"), "see the record")


def strict_error(environment: Environment) -> SetupError | None:
    """Return the error that ends a ``--strict`` run, or None where nothing is violated."""
    found = violations(environment)
    if not found:
        return None
    return SetupError(
        "this computer is not fit to be measured now: " + "; ".join(found),
        "Without --strict the run goes on and is flagged as noisy.",
    )


def _described(name: str, seen: Check) -> str:
    if name == "power_source":
        return "it runs on battery"
    if name == "power_profile":
        return "a power profile holds its clocks down"
    if name == "cpu_busy":
        return f"its processor is {seen.value:.0%} busy"
    if name == "memory":
        needed, free = seen.value["needed_bytes"], seen.value["available_bytes"]
        return f"{needed / 1e9:.1f} GB of memory are needed and {free / 1e9:.1f} GB are free"
    if name == "thermal":
        return "it is so hot that it slows down"
    if name == "throttling":
        return "its processor time is being throttled"
    if name in ("throttling_while_measuring", "throttling_while_measuring_in_a_part"):
        return "its processor time was throttled while it measured"
    if name == "load_beside_measuring":
        return f"other programs took {seen.value:.0%} of its processor while it measured"
    if name == "load_beside_measuring_in_a_part":
        return f"other programs took {seen.value:.0%} of its processor in a part of the run"
    return name.replace("_", " ")


def _busy(share: float | None, policy: Policy) -> Check:
    if share is None:
        return Check(value=None, why="the system keeps no CPU time counters", violation=False)
    return Check(value=share, why=None, violation=share > policy.preconditions.max_busy)


def _memory(resident_bytes: int | None, policy: Policy, host: Host) -> Check:
    free = sensors.available_memory(host)
    if free is None:
        return Check(value=None, why="the system does not state free memory", violation=False)
    needed = (
        None
        if resident_bytes is None
        else round(resident_bytes * policy.preconditions.memory_factor)
    )
    return Check(
        value={"available_bytes": free, "needed_bytes": needed},
        why="how much the run keeps in memory is not known" if needed is None else None,
        violation=needed is not None and free < needed,
    )


def _throttling(first: sensors.LoadSample, last: sensors.LoadSample) -> Check:
    """Judge the counters' movement over the window: an idle machine that is being throttled
    has no quota to spare, or is hot."""
    if all(count is None for count in last.throttling.values()):
        return Check(value=None, why="no throttling counters here", violation=False)
    moved = cpu_limits.throttling_delta(first.throttling, last.throttling)
    return Check(
        value={"before": last.throttling, "in_window": moved},
        why=None,
        violation=any(n for n in moved.values()),
    )


def _recorded(host: Host) -> dict[str, Check]:
    """Return what is recorded and judges nothing."""
    limits = cpu_limits.limits(host)
    kernel = host.release()
    return {
        "clocks": power.clocks(host),
        "cpu_limits": Check(value=limits.fields(), why=None, violation=False),
        "core_types": Check(
            value=limits.core_types or None,
            why=None if limits.core_types else "all cores are alike, or nothing names their types",
            violation=False,
        ),
        "kernel": _fact(Reading(kernel or None, "the system does not state it")),
        "microcode": _fact(identity.microcode(host)),
        "bios": _fact(identity.bios(host)),
    }


def _fact(reading: Reading) -> Check:
    why = (reading.why or "not stated") if reading.value is None else None
    return Check(value=reading.value, why=why, violation=False)
