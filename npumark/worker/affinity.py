"""Binding this worker to CPUs: those nearest to its card, where the system can do that (Linux)."""

from __future__ import annotations

import os
from collections.abc import Sequence

from npumark.errors import EngineError


def bind(cpus: Sequence[int]) -> None:
    """Run on ``cpus`` alone, as do all threads that are started later; none leaves all as it was.

    Where the system has no such call, nothing happens, and ``bound`` is null. Raises EngineError
    where this process may run on none of them.
    """
    if not cpus or not hasattr(os, "sched_setaffinity"):
        return
    try:
        os.sched_setaffinity(0, cpus)
    except (OSError, ValueError, OverflowError) as fault:
        asked = ", ".join(map(str, cpus))
        raise EngineError(f"the worker cannot be bound to the CPUs {asked}: {fault}") from fault


def bound() -> tuple[int, ...] | None:
    """Return the CPUs that this process may run on, null where the system does not say."""
    if not hasattr(os, "sched_getaffinity"):
        return None
    return tuple(sorted(os.sched_getaffinity(0)))
