"""Evidence of the kernel's out-of-memory killer (Linux): counters that only it raises."""

from __future__ import annotations

from pathlib import Path


def oom_kills(proc: Path = Path("/proc")) -> int | None:
    """Return how many processes the kernel has killed for lack of memory since boot.

    ``/proc/vmstat`` counts those of control groups as well. None where it does not say.
    """
    try:
        text = (proc / "vmstat").read_text()
    except OSError:
        return None
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if name == "oom_kill" and value.strip().isdecimal():
            return int(value)
    return None
