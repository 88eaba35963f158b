"""How many CPUs this process may use, and how many threads an engine is told to run.

Three numbers go into the record apart: the CPUs the machine has, those the affinity mask (and
with it a cpuset) allows, and the quota of the control groups. Usable is the least of them.

Threads. A CPU engine gets one thread per physical core, of the fastest type where the kernel
names types, and never more than is usable:

* two hardware threads of a core share its multipliers, so a second one adds contention and
  no arithmetic;
* a parallel region ends with its slowest thread, so an efficiency core holds up the others;
* every engine gets the same number by the same rule, and reports what it really used.

Arm systems state a capacity per CPU without naming types. It is recorded, and every physical
core counts: where a capacity makes a core "slow" would be a threshold of our own.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from npumark.machine import cgroup
from npumark.machine.host import THIS, Host, cpu_list, whole_number
from npumark.machine.windows import core_classes

_CPU = "/sys/devices/system/cpu"

_INTEL_TYPES = (
    ("performance", "cpu_core"),
    ("efficiency", "cpu_atom"),
    ("low-power", "cpu_lowpower"),
)
_NAMED_TYPES = {
    "performance": "performance",
    "intel_core": "performance",
    "core": "performance",
    "efficiency": "efficiency",
    "intel_atom": "efficiency",
    "atom": "efficiency",
}
_FASTEST_FIRST = ("performance", "efficiency", "low-power")


@dataclass(frozen=True, slots=True)
class CpuLimits:
    """``physical`` counts the physical cores among the allowed CPUs, ``fast`` those of the
    fastest type; null where the system does not say. ``core_types`` counts logical CPUs of the
    whole machine by type and is empty where all are alike or nothing names them."""

    logical: int | None
    affinity: int | None
    quota: float | None
    usable: int
    physical: int | None
    fast: int | None
    core_types: dict[str, int]
    capacities: dict[str, int]
    threads: int

    def fields(self) -> dict[str, Any]:
        return asdict(self)


def limits(host: Host = THIS) -> CpuLimits:
    """Return every number that bounds a CPU engine here."""
    logical = host.logical()
    allowed = host.affinity()
    quota = cgroup.quota_cpus(host) if host.system == "linux" else None
    bounds = [n for n in (logical, len(allowed) if allowed else None) if n]
    if quota is not None:
        bounds.append(cgroup.whole_cpus(quota))
    usable = min(bounds, default=1)
    types, physical, fast = _cores(host, allowed)
    return CpuLimits(
        logical=logical,
        affinity=len(allowed) if allowed else None,
        quota=quota,
        usable=usable,
        physical=physical,
        fast=fast,
        core_types=types,
        capacities=_capacities(host) if host.system == "linux" else {},
        threads=max(1, min(n for n in (usable, physical, fast) if n)),
    )


def thread_count(host: Host = THIS) -> int:
    """Return the thread count every CPU engine is asked for (the module says by what rule)."""
    return limits(host).threads


def throttling(host: Host = THIS) -> dict[str, int | None]:
    """Return the counters of stolen time so far; null where this system keeps none.

    ``nr_throttled`` and ``throttled_usec`` are the control groups', ``thermal_core`` and
    ``thermal_package`` how often the processor lowered its clock because it was hot.
    """
    counts = cgroup.throttled(host) if host.system == "linux" else None
    return {
        "nr_throttled": counts[0] if counts else None,
        "throttled_usec": counts[1] if counts else None,
        "thermal_core": _thermal(host, "core_throttle_count"),
        "thermal_package": _thermal(host, "package_throttle_count"),
    }


def throttling_delta(
    before: dict[str, int | None], after: dict[str, int | None]
) -> dict[str, int | None]:
    """Return how far each counter moved; null where either reading is, or it ran backwards
    (a group that was replaced starts anew)."""
    moved: dict[str, int | None] = {}
    for name in before:
        first, last = before[name], after.get(name)
        moved[name] = None if first is None or last is None or last < first else last - first
    return moved


def _thermal(host: Host, counter: str) -> int | None:
    """Return the largest count of any CPU: those of one package repeat the same number."""
    counts = [
        count
        for cpu in host.listing(_CPU, "cpu[0-9]*")
        if (count := host.number(f"{cpu}/thermal_throttle/{counter}")) is not None
    ]
    return max(counts, default=None)


def _cores(
    host: Host, allowed: frozenset[int] | None
) -> tuple[dict[str, int], int | None, int | None]:
    """Return (logical CPUs by type, physical cores allowed, fast physical cores allowed)."""
    if host.system == "darwin":
        return _apple_cores(host)
    if host.system == "win32":
        return _windows_cores(host)
    kinds = _linux_types(host)
    cores = _linux_cores(host)
    if allowed is not None:
        cores = {cpu: core for cpu, core in cores.items() if cpu in allowed}
    physical = len(set(cores.values())) or host.physical()
    counts = {kind: len(cpus) for kind, cpus in kinds.items()}
    for kind in _FASTEST_FIRST:
        fast = {core for cpu, core in cores.items() if cpu in kinds.get(kind, ())}
        if fast:
            return counts, physical, len(fast)
    return counts, physical, physical


def _linux_cores(host: Host) -> dict[int, tuple[int, int]]:
    """Return each online CPU's (package, core)."""
    found = {}
    for cpu, path in _cpus(host):
        core = host.number(f"{path}/topology/core_id")
        package = host.number(f"{path}/topology/physical_package_id")
        if core is not None and package is not None:
            found[cpu] = (package, core)
    return found


def _cpus(host: Host) -> list[tuple[int, str]]:
    """Return (number, folder) of each CPU that is listed."""
    listed = host.listing(_CPU, "cpu[0-9]*")
    numbered = ((whole_number(path.rpartition("/cpu")[2]), path) for path in listed)
    return [(cpu, path) for cpu, path in numbered if cpu is not None]


def _linux_types(host: Host) -> dict[str, frozenset[int]]:
    """Return the CPUs of each named type; empty on a machine whose cores are alike."""
    found: dict[str, frozenset[int]] = {}
    for kind, device in _INTEL_TYPES:
        text = host.read(f"/sys/devices/{device}/cpus").value
        if text is not None:
            try:
                found[kind] = cpu_list(text)
            except ValueError:
                continue
    if not found:
        named: dict[str, set[int]] = {}
        for cpu, path in _cpus(host):
            text = (host.read(f"{path}/topology/core_type").value or "").lower()
            if text in _NAMED_TYPES:
                named.setdefault(_NAMED_TYPES[text], set()).add(cpu)
        found = {kind: frozenset(cpus) for kind, cpus in named.items()}
    return found if len(found) > 1 else {}


def _capacities(host: Host) -> dict[str, int]:
    """Return how many CPUs state each capacity (the largest core of a system states 1024)."""
    counts: dict[str, int] = {}
    for cpu in host.listing(_CPU, "cpu[0-9]*"):
        capacity = host.number(f"{cpu}/cpu_capacity")
        if capacity is not None:
            counts[str(capacity)] = counts.get(str(capacity), 0) + 1
    return counts if len(counts) > 1 else {}


def _apple_cores(host: Host) -> tuple[dict[str, int], int | None, int | None]:
    """Read macOS's performance levels; level 0 is the fastest."""

    def ask(name: str) -> int | None:
        return whole_number((host.output(("sysctl", "-n", name)).value or "").strip())

    physical = ask("hw.physicalcpu")
    counts = {}
    for level, kind in enumerate(("performance", "efficiency")):
        cpus = ask(f"hw.perflevel{level}.logicalcpu")
        if cpus is not None:
            counts[kind] = cpus
    fast = ask("hw.perflevel0.physicalcpu")
    return (counts if len(counts) > 1 else {}), physical, fast or physical


def _windows_cores(host: Host) -> tuple[dict[str, int], int | None, int | None]:
    """Read Windows's efficiency classes; the highest class is the fastest."""
    cores = core_classes(host.windows_cores())
    if not cores:
        physical = host.physical()
        return {}, physical, physical
    classes = sorted({kind for kind, _ in cores}, reverse=True)
    counts = {
        name: sum(cpus for kind, cpus in cores if kind == level)
        for name, level in zip(_FASTEST_FIRST, classes, strict=False)
    }
    fast = sum(1 for kind, _ in cores if kind == classes[0])
    return (counts if len(classes) > 1 else {}), len(cores), fast
