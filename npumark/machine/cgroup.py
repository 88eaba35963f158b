"""The control groups this process lives in: their CPU quota, memory limit and throttling.

The group's folder is not at the mount's root unless a container hides the rest, so it is found
as the kernel documents: ``/proc/self/cgroup`` names the path, ``/proc/self/mountinfo`` says
where each hierarchy is mounted and which part of it shows there. A limit binds at any level,
so every folder from the group up to the mount is read and the tightest wins.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import PurePosixPath

from npumark.machine.host import Host, cpu_list, whole_number

_NO_LIMIT_BYTES = 1 << 60
"""Version 1 spells 'no limit' as a number near 2**63."""


@dataclass(frozen=True, slots=True)
class Group:
    """The folders of one hierarchy, the process's own group first, its ancestors after it."""

    version: int
    folders: tuple[str, ...]


def groups(host: Host, controller: str) -> tuple[Group, ...]:
    """Return where ``controller`` (``cpu``, ``memory``) may limit this process, v1 and v2."""
    own = host.read("/proc/self/cgroup").value
    mounts = host.read("/proc/self/mountinfo").value
    if own is None or mounts is None:
        return ()
    found = []
    for line in own.splitlines():
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if names == "" and path:
            mount = _mount(mounts, 2, controller)
            version = 2
        elif controller in names.split(","):
            mount = _mount(mounts, 1, controller)
            version = 1
        else:
            continue
        if mount is not None:
            found.append(Group(version, _folders(*mount, path)))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Quota:
    """``cpus`` worth of time; ``file`` is where the kernel holds it, ``free`` what lifts it."""

    cpus: float
    file: str
    free: str


def quota_cpus(host: Host) -> float | None:
    """Return how many CPUs' worth of time the tightest quota allows, or None without one."""
    found = quota(host)
    return None if found is None else found.cpus


def quota(host: Host) -> Quota | None:
    """Return the tightest CPU quota that binds this process, or None without one."""
    limits = []
    for group in groups(host, "cpu"):
        for folder in group.folders:
            if group.version == 2:
                text = host.read(f"{folder}/cpu.max").value or ""
                fields = [whole_number(field) or 0 for field in text.split()]
                share, period = (fields[0], fields[1]) if len(fields) == 2 else (0, 0)
                file, free = f"{folder}/cpu.max", "max"
            else:
                share = host.number(f"{folder}/cpu.cfs_quota_us") or 0
                period = host.number(f"{folder}/cpu.cfs_period_us") or 0
                file, free = f"{folder}/cpu.cfs_quota_us", "-1"
            if share > 0 and period > 0:
                limits.append(Quota(share / period, file, free))
    return min(limits, key=lambda found: found.cpus, default=None)


def cpuset(host: Host) -> frozenset[int] | None:
    """Return the CPUs that the process's cpuset allows, or None where none is set up."""
    for group in groups(host, "cpuset"):
        names = (
            ("cpuset.cpus.effective",)
            if group.version == 2
            else ("cpuset.effective_cpus", "cpuset.cpus")
        )
        for name in names:
            text = host.read(f"{group.folders[0]}/{name}").value
            try:
                if text is not None and (cpus := cpu_list(text)):
                    return cpus
            except ValueError:
                continue
    return None


def memory_room(host: Host) -> int | None:
    """Return the bytes the tightest memory limit still leaves, or None without a limit.

    File pages the kernel would drop under pressure (``inactive_file``) count as room.
    """
    return min((room for _, room in memory_limits(host)), default=None)


def memory_limits(host: Host) -> list[tuple[int, int]]:
    """Return (limit, what it still leaves) in bytes of every memory limit that binds."""
    rooms = []
    for group in groups(host, "memory"):
        for folder in group.folders:
            names = (
                ("memory.max", "memory.current", "inactive_file")
                if group.version == 2
                else ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            )
            limit = host.number(f"{folder}/{names[0]}")
            used = host.number(f"{folder}/{names[1]}")
            if limit is None or used is None or limit >= _NO_LIMIT_BYTES:
                continue
            droppable = _statistics(host, f"{folder}/memory.stat").get(names[2], 0)
            rooms.append((limit, max(0, limit - max(0, used - droppable))))
    return rooms


def throttled(host: Host) -> tuple[int, int] | None:
    """Return (periods throttled, microseconds throttled) so far, summed over the levels.

    None where no level counts, which is so without a CPU controller.
    """
    counts = []
    for group in groups(host, "cpu"):
        for folder in group.folders:
            stat = _statistics(host, f"{folder}/cpu.stat")
            if "nr_throttled" not in stat:
                continue
            lost = stat.get("throttled_usec", stat.get("throttled_time", 0) // 1000)
            counts.append((stat["nr_throttled"], lost))
    if not counts:
        return None
    return sum(n for n, _ in counts), sum(lost for _, lost in counts)


def whole_cpus(quota: float) -> int:
    """Return how many threads a quota carries: rounded down, so that the threads themselves
    never exhaust it and are never stopped for it; one at least."""
    return max(1, math.floor(quota))


def _mount(mounts: str, version: int, controller: str) -> tuple[str, str] | None:
    """Return (mount point, part of the hierarchy that shows there) from mountinfo's text."""
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        head, tail = before.split(), after.split()
        if len(head) < 5 or len(tail) < 3:
            continue
        kind = "cgroup2" if version == 2 else "cgroup"
        if tail[0] == kind and (version == 2 or controller in tail[2].split(",")):
            return head[4], head[3]
    return None


def _folders(mount: str, shown: str, path: str) -> tuple[str, ...]:
    """Return the group's folder and its ancestors' under the mount point.

    A path that lies outside the shown part (as a container without a namespace of its own
    sees it) leaves the mount point itself, which is then the group.
    """
    inner = PurePosixPath(path)
    base = PurePosixPath(shown)
    if ".." in inner.parts or not inner.is_relative_to(base):
        return (mount,)
    parts = inner.relative_to(base).parts
    levels = [PurePosixPath(mount, *parts[:depth]) for depth in range(len(parts), -1, -1)]
    return tuple(str(level) for level in levels)


def _statistics(host: Host, path: str) -> dict[str, int]:
    found = {}
    for line in (host.read(path).value or "").splitlines():
        name, _, number = line.partition(" ")
        if (count := whole_number(number.strip())) is not None and count >= 0:
            found[name] = count
    return found
