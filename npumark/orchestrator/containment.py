"""Starting a process so that all of it can be ended: group, job object, marked descendants.

On POSIX a worker leads its own session and group; a descendant that left the group is found
by the marker it inherited in its environment. On Windows a job object holds every descendant
and dies with this program.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import psutil

from npumark.orchestrator.worker_env import MARKER
from npumark.worker.parent import PARENT

if sys.platform == "win32":
    import msvcrt

    from npumark.orchestrator.windows_job import WindowsJob


_PR_SET_PDEATHSIG, _SIGKILL = 1, 9


class Contained:
    """A running process with everything it starts."""

    def __init__(self, process: subprocess.Popen[bytes], marker: str) -> None:
        self._process = process
        self._marker = marker
        self.pid = process.pid
        if sys.platform == "win32":
            self._job = WindowsJob(process)

    def await_exit(self) -> None:
        """Block until the process has ended. On POSIX it stays unreaped where the platform
        allows, so that its group's number cannot pass to another before ``end``."""
        if sys.platform != "win32" and hasattr(os, "waitid"):
            with suppress(ChildProcessError):
                os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        else:
            self._process.wait()

    def ask_to_end(self) -> None:
        """Ask the whole group to end (SIGTERM; Ctrl-Break on Windows)."""
        with suppress(OSError):
            if sys.platform == "win32":
                self._process.send_signal(signal.CTRL_BREAK_EVENT)
            else:
                os.killpg(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        """End the process and all its descendants at once."""
        self.kill_group()
        kill_strays([self._marker])

    def kill_group(self) -> None:
        """End the process and those of its descendants that did not leave its group, which on
        Windows is all of them; ``kill_strays`` ends the rest."""
        if sys.platform == "win32":
            self._job.terminate()
        else:
            with suppress(OSError):
                os.killpg(self.pid, signal.SIGKILL)

    def exit_code(self, timeout: float) -> int | None:
        """Return the exit status, minus the signal's number where one ended it; None where
        the process is still there after ``timeout`` seconds (stuck in the kernel)."""
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None


def start(
    argv: Sequence[str],
    *,
    stdin: int | IO[bytes],
    log_fd: int,
    result_fd: int,
    env: dict[str, str],
    cwd: Path,
) -> Contained:
    """Start ``argv`` contained, the number of its result pipe appended as last argument.

    ``log_fd`` becomes its stdout and stderr. Both descriptors stay open here; the caller closes
    them. The calling thread must outlive the process: on Linux a worker ends with it. Raises
    OSError where the program cannot be started.
    """
    marker = env[MARKER]
    env = {**env, PARENT: str(os.getpid())}
    if sys.platform == "win32":
        handle = msvcrt.get_osfhandle(result_fd)
        os.set_handle_inheritable(handle, True)
        info = subprocess.STARTUPINFO(lpAttributeList={"handle_list": [handle]})
        process = subprocess.Popen(
            [*argv, str(handle)],
            stdin=stdin,
            stdout=log_fd,
            stderr=log_fd,
            env=env,
            cwd=cwd,
            startupinfo=info,
            creationflags=subprocess.CREATE_NEW_PROCESS_GROUP,
        )
    else:
        process = subprocess.Popen(
            [*argv, str(result_fd)],
            stdin=stdin,
            stdout=log_fd,
            stderr=log_fd,
            env=env,
            cwd=cwd,
            pass_fds=(result_fd,),
            start_new_session=True,
        )
    return Contained(process, marker)


def before_it_starts() -> Callable[[], None] | None:
    """Return what a child is to run before its program, so that the kernel ends it with this
    program, however that ends; null where only ``once_started`` can do that, or nothing.

    It is the calling thread that counts: it must outlive the child. What the child starts is not
    bound, but loses whoever read it. To be used for programs that are not measured.
    """
    try:
        prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None
    except (OSError, AttributeError):
        prctl = None
    if prctl is None:
        return None
    parent = os.getpid()

    # Between fork and exec: nothing here imports, allocates much or takes a lock.
    def bind() -> None:
        prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it ended before it was bound to
            os._exit(1)

    return bind


def once_started(process: subprocess.Popen[Any]) -> None:
    """Have Windows end a process, with all it starts, when this program ends, however that ends."""
    if sys.platform == "win32":
        WindowsJob(process)  # its handle stays open as long as this program runs


def kill_strays(markers: Sequence[str]) -> None:
    """Kill what workers with these markers started and left behind, in one look at all processes
    of the computer: the more there are, the longer it takes."""
    if sys.platform != "win32":  # there a job object holds every descendant
        kill_marked(*markers)


def kill_marked(*markers: str) -> list[int]:
    """Kill every process that carries one of ``markers`` or one below it (``marker/…``); return
    their numbers.

    Processes of other users cannot be read and are not ours.
    """
    below = tuple(f"{marker}/" for marker in markers)
    killed = []
    for process in psutil.process_iter():
        if process.pid == os.getpid():
            continue
        with suppress(psutil.Error, OSError):
            carried = process.environ().get(MARKER, "")
            if carried in markers or carried.startswith(below):
                process.kill()
                killed.append(process.pid)
    return killed
