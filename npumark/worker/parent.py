"""Binding this worker to the program that started it: it ends with it, however that ends.

Nothing asks a worker to stop where its parent is killed, and one that computes for hours would
spoil whatever is measured next. Only Linux lets a process ask for this by itself. On Windows a
job object does it; on macOS what was left behind is ended by the next npumark that measures.
"""

from __future__ import annotations

import os
import sys

PARENT = "NPUMARK_PARENT"
"""The variable that holds the number of the process which starts a worker."""

_PR_SET_PDEATHSIG, _SIGKILL = 1, 9


def end_with_parent() -> bool:
    """Have the kernel kill this process when the thread that started it ends; return false where
    its process has ended already.

    That thread waits for the worker (``orchestrator.supervisor``). Nothing is bound where no
    parent is named, and what this process starts is not.
    """
    parent = os.environ.get(PARENT)
    if parent is None or sys.platform != "linux":
        return True
    import ctypes

    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)
    except (OSError, AttributeError):
        return True
    # One that ended before this process was bound to it is not its parent any more; but neither is
    # one that lives, where ``python`` is a program that starts the interpreter as its child.
    return str(os.getppid()) == parent or _lives(parent)


def _lives(pid: str) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            state = file.read().rpartition(")")[2].split()[:1]
    except OSError:
        return False
    return state not in ([], ["Z"], ["X"])
