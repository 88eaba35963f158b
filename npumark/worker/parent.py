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
    # One that ended before this process was bound to it is not its parent any more.
    return str(os.getppid()) == parent
