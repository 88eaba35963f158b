"""How large the last-level cache is: what streams through memory must not fit into it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from npumark.machine.host import THIS, Host, cpu_list, whole_number

_CPU = "/sys/devices/system/cpu"
_SIZE = re.compile(r"([0-9]{1,9})([KMG]?)", re.ASCII)
_SCALE = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclass(frozen=True, slots=True)
class LastLevel:
    """``bytes`` of one instance, null with ``why`` where the system does not say; ``shared_by``
    are the CPUs that share it, null where unknown."""

    bytes: int | None
    shared_by: frozenset[int] | None = None
    why: str | None = None


def last_level(host: Host = THIS, cpu: int = 0) -> LastLevel:
    """Return the largest-numbered level that holds data of ``cpu``."""
    if host.system == "darwin":
        return _apple(host)
    if host.system != "linux":
        return LastLevel(None, why="this system is not asked for the size of its caches")
    found: list[tuple[int, int, str]] = []
    for index in host.listing(f"{_CPU}/cpu{cpu}/cache", "index[0-9]*"):
        level = host.number(f"{index}/level")
        size = _bytes(host.read(f"{index}/size").value or "")
        if level is not None and size and host.read(f"{index}/type").value != "Instruction":
            found.append((level, size, index))
    if not found:
        return LastLevel(None, why="the kernel lists no caches here")
    _, size, index = max(found)
    try:
        shared = cpu_list(host.read(f"{index}/shared_cpu_list").value or "")
    except ValueError:
        shared = frozenset()
    return LastLevel(size, shared or None)


def _apple(host: Host) -> LastLevel:
    """macOS states each cluster's second level, and not the system's cache behind it."""
    for name in ("hw.perflevel0.l2cachesize", "hw.l3cachesize", "hw.l2cachesize"):
        size = whole_number((host.output(("sysctl", "-n", name)).value or "").strip())
        if size:
            return LastLevel(size)
    return LastLevel(None, why="sysctl states no cache size")


def _bytes(text: str) -> int | None:
    match = _SIZE.fullmatch(text)
    return None if match is None else int(match[1]) * _SCALE[match[2]]
