"""Peak resident memory of this process."""

from __future__ import annotations

import platform
from pathlib import Path


def peak_rss_bytes() -> int | None:
    """Return the high-water mark of resident memory, or null where the system has none.

    On Linux it is VmHWM: the kernel's ``ru_maxrss`` survives exec, and would report the parent.
    """
    system = platform.system()
    if system == "Linux":
        return _vm_hwm(Path("/proc/self/status"))
    if system == "Windows":
        import psutil

        peak: int = psutil.Process().memory_info()._asdict()["peak_wset"]
        return peak
    if system == "Darwin":
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return None


def _vm_hwm(status: Path) -> int | None:
    try:
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        return None
    return None
