"""Keeps the machine from going to sleep while it is measured, by the system's own means.

Nothing is changed that would outlive this program: each means ends with it, even when it is
killed. Where there is none the run goes on, and the record says so.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

_ES_CONTINUOUS = 0x80000000
_ES_SYSTEM_REQUIRED = 0x00000001


def command(platform: str = sys.platform, pid: int | None = None) -> tuple[str, ...] | None:
    """Return the program that holds sleep off while it runs, or None where there is none."""
    if platform == "linux":
        return (
            "systemd-inhibit",
            "--what=sleep:idle",
            "--who=npumark",
            "--why=a measurement is running",
            "--mode=block",
            "cat",  # ends when its input closes, which this program's end does
        )
    if platform == "darwin":
        return ("caffeinate", "-i", "-s", "-w", str(pid or os.getpid()))
    return None


class KeepAwake:
    """Holds sleep off while entered; ``state`` says how, or why not."""

    def __init__(self, argv: Sequence[str] | None = None) -> None:
        self._argv = tuple(argv) if argv is not None else command()
        self._process: subprocess.Popen[bytes] | None = None
        self._why = "this system has no known means"

    def __enter__(self) -> Self:
        if sys.platform == "win32":
            self._windows(_ES_CONTINUOUS | _ES_SYSTEM_REQUIRED)
        elif self._argv and shutil.which(self._argv[0]) is None:
            self._why = f"{self._argv[0]} is not installed"
        elif self._argv:
            try:
                self._process = subprocess.Popen(
                    self._argv,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
            except OSError as fault:
                self._why = f"{self._argv[0]} cannot be started: {fault.strerror}"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if sys.platform == "win32":
            self._windows(_ES_CONTINUOUS)
        elif self._process is not None:
            if self._process.stdin is not None:
                with suppress(OSError):
                    self._process.stdin.close()
            self._process.terminate()
            self._process.wait()

    def state(self) -> dict[str, str | None]:
        """Return ``means`` (null where sleep is not held off) and ``why`` where it is null."""
        if self._process is not None and self._argv:
            code = self._process.poll()
            if code is None:
                return {"means": self._argv[0], "why": None}
            return {"means": None, "why": f"{self._argv[0]} ended with status {code}"}
        if sys.platform == "win32" and not self._why:
            return {"means": "SetThreadExecutionState", "why": None}
        return {"means": None, "why": self._why}

    if sys.platform == "win32":

        def _windows(self, flags: int) -> None:
            import ctypes

            set_state = ctypes.windll.kernel32.SetThreadExecutionState
            set_state.argtypes = (ctypes.c_uint,)
            self._why = "" if set_state(flags) else "SetThreadExecutionState was refused"
