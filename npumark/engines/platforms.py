"""This platform by the name that the catalogue, wheels and people's pages use."""

from __future__ import annotations

import platform
import sys
import sysconfig

_LINUX_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}


def here() -> str:
    """Return this platform as the catalogue writes it (``linux-x86_64``): the interpreter's own,
    which on Windows may be another than the machine's, for it decides which packages there are."""
    if sys.platform == "win32":
        return sysconfig.get_platform().replace("win-", "windows-")
    machine = platform.machine().lower()
    if sys.platform == "darwin":
        return f"macos-{machine}"
    return f"{sys.platform}-{_LINUX_MACHINES.get(machine, machine)}"


def is_x86() -> bool:
    """Say whether the interpreter, and so what it loads, is of Intel's and AMD's architecture."""
    machine = here().rpartition("-")[2]
    return machine in ("x86_64", "amd64", "i386", "i686", "x86", "win32")
