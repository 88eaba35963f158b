"""How busy, how full, how hot and how throttled this computer is right now.

Load comes from the system's cumulative counters at two instants, never from a library's own
notion of "since the last call", whose first answer means nothing. Nothing here polls: what a
run needs to know of the time it measured is the difference of two samples around it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from npumark.machine import cgroup, cpu_limits
from npumark.machine.host import THIS, CpuTimes, Host, whole_number
from npumark.machine.identity import meminfo
from npumark.record.model import Check

_THERMAL = "/sys/class/thermal"
_TICKS_PER_S = 100
"""USER_HZ, in which Linux states /proc/stat on every architecture it runs Python on."""

_LIMITING_TRIPS = {"passive", "hot", "critical"}


@dataclass(frozen=True, slots=True)
class LoadSample:
    """One instant: CPU seconds since boot, those of this process and its finished children
    (null where the system does not add them up), and the throttling counters. ``at`` is
    monotonic seconds."""

    at: float
    cpu: CpuTimes | None
    own_s: float | None
    throttling: dict[str, int | None]


def load_sample(host: Host = THIS) -> LoadSample:
    """Take a sample; cheap enough to take right before and after what is measured."""
    return LoadSample(
        host.monotonic(), cpu_times(host), host.own_cpu_s(), cpu_limits.throttling(host)
    )


def cpu_times(host: Host = THIS) -> CpuTimes | None:
    """Return the machine's cumulative CPU seconds, or None where they cannot be read."""
    if host.system != "linux":
        return host.cpu_times()
    first = (host.read("/proc/stat").value or "").partition("\n")[0].split()
    if not first or first[0] != "cpu" or len(first) < 5:
        return None
    counted = [whole_number(field) for field in first[1:9]]
    ticks = [n for n in counted if n is not None] + [0] * (9 - len(first))
    if None in counted:
        return None
    user, nice, system, idle, iowait, irq, softirq, steal = ticks
    busy = user + nice + system + irq + softirq + steal  # guest time is inside user already
    return CpuTimes(busy / _TICKS_PER_S, (idle + iowait) / _TICKS_PER_S, steal / _TICKS_PER_S)


def busy_share(first: CpuTimes | None, last: CpuTimes | None) -> float | None:
    """Return which share of the machine's CPU time between two samples was not idle, or None
    where either is missing or no time passed."""
    if first is None or last is None:
        return None
    busy, idle = last.busy - first.busy, max(0.0, last.idle - first.idle)
    if busy < 0 or busy + idle <= 0:
        return None
    return busy / (busy + idle)


def load_between(first: LoadSample, last: LoadSample) -> dict[str, Any]:
    """Return what went on between two samples, for the record's ``environment.facts``.

    ``busy`` is the whole machine's share of its ``cpu_s`` CPU seconds, ``own`` this program's
    and its workers', ``others`` the rest: what other programs took while measuring. Null where
    a counter is missing; ``why`` says for what reason ``others`` is.
    """
    busy = busy_share(first.cpu, last.cpu)
    own = steal = whole = None
    why = "the system keeps no CPU time counters"
    if busy is not None and first.cpu is not None and last.cpu is not None:
        whole = last.cpu.busy - first.cpu.busy + max(0.0, last.cpu.idle - first.cpu.idle)
        why = "the system does not tell which CPU time was the workers' own"
        if first.own_s is not None and last.own_s is not None:
            own = min(busy, max(0.0, (last.own_s - first.own_s) / whole))
        if first.cpu.steal is not None and last.cpu.steal is not None:
            steal = max(0.0, last.cpu.steal - first.cpu.steal) / whole
    return {
        "seconds": last.at - first.at,
        "cpu_s": whole,
        "busy": busy,
        "own": own,
        "others": None if busy is None or own is None else busy - own,
        "steal": steal,
        "why": why if own is None else None,
        "throttling": cpu_limits.throttling_delta(first.throttling, last.throttling),
    }


def available_memory(host: Host = THIS) -> int | None:
    """Return the bytes this process could still be given: the machine's, or the control
    group's where that leaves less."""
    if host.system != "linux":
        return host.memory().available
    free = meminfo(host).get("MemAvailable")
    room = cgroup.memory_room(host)
    known = [n for n in (free, room) if n is not None]
    return min(known, default=None)


def thermal(host: Host = THIS) -> Check:
    """Return the hottest zones; a zone at a trip point that slows or stops the machine is a
    violation. Temperatures are in degrees Celsius."""
    if host.system == "darwin":
        return _apple_thermal(host)
    zones = []
    limited = False
    for zone in host.listing(_THERMAL, "thermal_zone[0-9]*"):
        milli = host.number(f"{zone}/temp")
        if milli is None:
            continue
        trips = _trips(host, zone)
        reached = sorted(kind for kind, at in trips if milli >= at)
        limited = limited or bool(reached)
        zones.append(
            {
                "kind": host.read(f"{zone}/type").value or "unnamed",
                "celsius": milli / 1000,
                "lowest_limit_celsius": min((at for _, at in trips), default=None),
                "reached": reached,
            }
        )
    if not zones:
        return Check(value=None, why="this system exposes no thermal zone", violation=False)
    for seen in zones:
        if isinstance(seen["lowest_limit_celsius"], int):
            seen["lowest_limit_celsius"] /= 1000
    return Check(value=zones, why=None, violation=limited)


def _trips(host: Host, zone: str) -> list[tuple[str, int]]:
    """Return (kind, millidegrees) of the zone's trip points that limit; unset ones are 0 or
    below and left out."""
    found = []
    for path in host.listing(zone, "trip_point_*_temp"):
        kind = host.read(path.removesuffix("_temp") + "_type").value or ""
        at = host.number(path)
        if kind in _LIMITING_TRIPS and at is not None and at > 0:
            found.append((kind, at))
    return found


def _apple_thermal(host: Host) -> Check:
    text = host.output(("pmset", "-g", "therm")).value or ""
    limits = [line.split("=") for line in text.splitlines() if "CPU_Speed_Limit" in line]
    if not limits:
        return Check(value=None, why="pmset reports no thermal pressure so far", violation=False)
    percent = whole_number(limits[0][-1].strip())
    if percent is None:
        return Check(value=None, why="pmset's speed limit is not a number", violation=False)
    return Check(value={"speed_limit_percent": percent}, why=None, violation=percent < 100)
