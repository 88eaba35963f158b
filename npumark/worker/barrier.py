"""Where the workers of a shared window wait for each other: ready, then released by an instant.

The instant is one of ``time.perf_counter_ns``, which is the same clock for every process of a
computer on Linux, macOS and Windows.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from typing import BinaryIO

from npumark.errors import EngineError
from npumark.worker.protocol import READY

Barrier = Callable[[], int]
"""Says that this worker is ready; returns the instant at which the window begins."""


class Abandoned(Exception):
    """Nobody will release this worker: it is to end at once, without a result."""


def alone() -> int:
    """The barrier of a worker that waits for no other: the window begins at once."""
    return time.perf_counter_ns()


def pipe_barrier(pipe: int, lines: BinaryIO) -> Barrier:
    """Return the barrier of a worker: it writes READY to ``pipe``, and reads a line of ``lines``.

    It raises Abandoned where the lines end, or nobody reads the pipe, and EngineError where the
    line is no start.
    """

    def wait() -> int:
        try:
            os.write(pipe, READY)
        except OSError as fault:
            raise Abandoned(f"nobody waits for this worker: {fault}") from fault
        line = lines.readline()
        if not line:
            raise Abandoned("nobody releases this worker")
        return _start(line)

    return wait


def start_line(start_ns: int) -> bytes:
    """Return the line that releases a worker."""
    return json.dumps({"start_ns": start_ns}).encode() + b"\n"


def _start(line: bytes) -> int:
    try:
        start = json.loads(line)["start_ns"]
    except (ValueError, KeyError, TypeError) as fault:
        raise EngineError(f"not a start of a window: {fault!r}") from fault
    if type(start) is not int:
        raise EngineError(f"not a start of a window: {start!r}")
    return start
