"""The computer as its facts are read: files under a root, and a few documented system calls.

Everything that looks at the machine goes through a ``Host``, so that a test can hand over a
folder that holds a fake ``/sys`` and ``/proc``, or the recorded answers of another system.
"""

from __future__ import annotations

import os
import platform
import re
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

import psutil

from npumark.hardware import plain_text
from npumark.machine import windows

_COMMAND_LIMIT_S = 10.0
_WHOLE = re.compile(r"[+-]?[0-9]{1,30}", re.ASCII)
_MOST_BYTES = 1 << 24
"""More than any file of facts has: that of 4000 CPUs takes some 9 MB."""
_PIECE = 1 << 16
"""Linux makes room for all that is asked of a file below /proc/sys at once, and refuses from 4 MiB
on, however little there is in it."""
_MOST_CPUS = 1 << 20
"""More than any system has: a list that names one beyond it is damaged."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A value that was read, or null with the reason it could not be."""

    value: str | None
    why: str | None = None


@dataclass(frozen=True, slots=True)
class CpuTimes:
    """Cumulative CPU seconds of the whole machine since boot. ``busy`` holds everything that
    is neither idle nor waiting for a disk; ``steal``, part of it, is what a hypervisor took."""

    busy: float
    idle: float
    steal: float | None


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes: physical in all, and what programs could still be given without swapping."""

    total: int
    available: int


@dataclass(frozen=True, slots=True)
class Running:
    """A process: its number, when it started (a number that tells it from a later one of the
    same number), its program's name and the CPU seconds it has taken. Never its arguments.

    ``mine``: the user who asks runs it, and it is no part of the system; false where that is
    not told."""

    pid: int
    started: float
    name: str
    cpu_s: float
    mine: bool = False


@dataclass(frozen=True, slots=True)
class Battery:
    """What a system call says of the battery; ``plugged`` null where it does not know."""

    present: bool
    plugged: bool | None


def _affinity() -> frozenset[int] | None:
    ask = getattr(psutil.Process(), "cpu_affinity", None)  # macOS has no such notion
    return frozenset(ask()) if ask is not None else None


def _physical() -> int | None:
    return psutil.cpu_count(logical=False)


def _output(argv: tuple[str, ...]) -> Reading:
    try:
        done = subprocess.run(
            argv, capture_output=True, check=False, timeout=_COMMAND_LIMIT_S, text=True
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError) as fault:
        return Reading(None, f"{argv[0]} could not be run ({type(fault).__name__})")
    if done.returncode != 0:
        return Reading(None, f"{argv[0]} ended with status {done.returncode}")
    return Reading(done.stdout)


def _registry(key: str, name: str) -> Reading:
    """Read a value below HKEY_LOCAL_MACHINE as text; bytes come back as hexadecimal."""
    if sys.platform == "win32":
        import winreg

        try:
            with winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, key) as handle:
                value, _ = winreg.QueryValueEx(handle, name)
        except OSError as fault:
            return Reading(None, f"registry value {name}: {type(fault).__name__}")
        return Reading(value.hex() if isinstance(value, bytes) else str(value))
    else:  # noqa: RET505 - a type checker sees one branch only, and calls the rest unreachable
        return Reading(None, "there is no registry on this system")


def _battery() -> Battery | None:
    reader = getattr(psutil, "sensors_battery", None)
    state = reader() if reader is not None else None
    return None if state is None else Battery(True, state.power_plugged)


def _memory() -> Memory:
    seen = psutil.virtual_memory()
    return Memory(seen.total, seen.available)


def _cpu_times() -> CpuTimes:
    seen = psutil.cpu_times()
    busy = seen.user + seen.system + getattr(seen, "nice", 0.0)
    return CpuTimes(busy, seen.idle, None)


def _processes() -> tuple[Running, ...]:
    """Return the processes whose times this user may read."""
    found = []
    user = psutil.Process().username()
    for process in psutil.process_iter(["pid", "name", "cpu_times", "create_time", "username"]):
        told = process.info
        times, name = told["cpu_times"], told["name"]
        if times is not None and name:
            spent = times.user + times.system
            mine = told["username"] == user and process.pid > 1
            found.append(Running(process.pid, told["create_time"] or 0.0, name, spent, mine))
    return tuple(found)


def _user() -> int | None:
    ask = getattr(os, "geteuid", None)  # Windows has no such number
    return ask() if ask is not None else None


def _own_cpu_s() -> float | None:
    """CPU seconds of this process and of every child it has waited for; None on Windows, which
    forgets a child's time with the child (``os.times`` states 0 there)."""
    if sys.platform == "win32":
        return None
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


@dataclass(frozen=True, slots=True)
class Host:
    """``system`` is ``linux``, ``darwin`` or ``win32``; ``root`` is where ``/`` is looked for."""

    system: str = sys.platform
    root: Path = Path("/")
    affinity: Callable[[], frozenset[int] | None] = _affinity
    logical: Callable[[], int | None] = os.cpu_count
    physical: Callable[[], int | None] = _physical
    windows_cores: Callable[[], bytes] = windows.cores_blob
    output: Callable[[tuple[str, ...]], Reading] = _output
    registry: Callable[[str, str], Reading] = _registry
    battery: Callable[[], Battery | None] = _battery
    memory: Callable[[], Memory] = _memory
    cpu_times: Callable[[], CpuTimes] = _cpu_times
    own_cpu_s: Callable[[], float | None] = _own_cpu_s
    processes: Callable[[], tuple[Running, ...]] = _processes
    user: Callable[[], int | None] = _user
    boot_time: Callable[[], float] = psutil.boot_time
    sleep: Callable[[float], None] = time.sleep
    monotonic: Callable[[], float] = time.monotonic
    release: Callable[[], str] = platform.release
    version: Callable[[], str] = platform.version
    architecture: Callable[[], str] = platform.machine

    def path(self, absolute: str) -> Path:
        """Return where ``absolute`` (``/proc/stat``) lies under this host's root."""
        return self.root / absolute.lstrip("/")

    def read(self, absolute: str) -> Reading:
        """Return a file's text without the white space around it, or why there is none.

        Files of facts are short and regular: what is longer is not read to its end, and nothing
        else is opened, as it might never answer.
        """
        path = self.path(absolute)
        try:
            if not stat.S_ISREG(path.stat().st_mode):
                return Reading(None, f"{absolute} could not be read (no regular file)")
            raw = bytearray()
            with path.open("rb", buffering=0) as file:
                while len(raw) <= _MOST_BYTES and (piece := file.read(_PIECE)):
                    raw += piece
            if len(raw) > _MOST_BYTES:
                return Reading(None, f"{absolute} could not be read (longer than 16 MiB)")
            text = raw.decode("utf-8", errors="replace").strip("\0\r\n\t ")
        except FileNotFoundError:
            return Reading(None, f"{absolute} does not exist")
        except PermissionError:
            return Reading(None, f"{absolute} may not be read by this user")
        except OSError as fault:
            return Reading(None, f"{absolute} could not be read ({fault.strerror})")
        return Reading(text) if text else Reading(None, f"{absolute} is empty")

    def number(self, absolute: str) -> int | None:
        """Return the integer that a file holds, or None where it holds none."""
        text = self.read(absolute).value
        return None if text is None else whole_number(text)

    def listing(self, absolute: str, pattern: str) -> list[str]:
        """Return the absolute paths that match ``pattern`` in a folder, in natural order; none
        where it cannot be listed."""
        try:
            names = [p.name for p in self.path(absolute).iterdir() if fnmatch(p.name, pattern)]
        except OSError:
            return []
        return [f"{absolute}/{name}" for name in sorted(names, key=lambda n: (len(n), n))]

    def exists(self, absolute: str) -> bool:
        """Say whether there is such a file or folder, and it may be looked at."""
        try:
            return self.path(absolute).exists()
        except OSError:
            return False

    def linked(self, absolute: str) -> str | None:
        """Return the last part of where a link leads, null where there is none."""
        try:
            return plain_text(self.path(absolute).readlink().name)
        except OSError:
            return None


THIS = Host()


def whole_number(text: str) -> int | None:
    """Return a decimal number that a kernel or a tool wrote, null for what is none."""
    return int(text) if _WHOLE.fullmatch(text) else None


def cpu_list(text: str) -> frozenset[int]:
    """Return the CPUs of a kernel list such as ``0-3,8``. Raises ValueError where it is none."""
    found: set[int] = set()
    for part in filter(None, (p.strip() for p in text.split(","))):
        ends = [whole_number(end) for end in part.split("-")]
        if len(ends) > 2 or any(end is None or not 0 <= end < _MOST_CPUS for end in ends):
            raise ValueError(f"not a list of CPUs: {part[:40]!r}")
        known = [end for end in ends if end is not None]
        found.update(range(known[0], known[-1] + 1))
    return frozenset(found)
