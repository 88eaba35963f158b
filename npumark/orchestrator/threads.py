"""Threads beside a worker; that the system gives none is said like any other lack."""

from __future__ import annotations

import threading
from collections.abc import Callable

from npumark.errors import SetupError


def start_thread(work: Callable[[], object], name: str) -> threading.Thread:
    """Return a thread that does ``work``, already begun; it does not keep the program alive.

    Raises SetupError where the system gives none: a limit of processes counts threads too.
    """
    thread = threading.Thread(target=work, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError as fault:
        raise SetupError(
            f"no worker can be started: {fault}",
            "Close other programs, or raise the limit of processes (of a container: pids).",
        ) from fault
    return thread
