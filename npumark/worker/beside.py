"""A load that a diagnostics probe puts on the machine beside an engine: one process of it.

    PYTHON -P …/npumark/worker/beside.py cpu CPU BYTES
    PYTHON -P …/npumark/worker/beside.py memory CPU BYTES

``cpu`` computes on a few numbers; ``memory`` copies one half of a buffer of ``BYTES`` onto the
other, again and again. Both keep one CPU busy: ``CPU`` alone, where the system lets a process
choose, or any where it is ``any``. Once busy it writes one line; when its standard input ends it
stops and writes another: a JSON object with what it did. Its standard input ends at the latest
when whoever started it does, however that ends.

A program by itself: it imports the standard library and NumPy, and nothing of npumark.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time

import numpy as np

BUSY = "busy"
_ROUNDS = 200_000
_CHUNK = 8 << 20
"""Bytes copied between two looks at whether to end: some milliseconds' worth."""


class Until:
    """Set once the standard input has ended."""

    def __init__(self) -> None:
        self.over = False
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        sys.stdin.buffer.read()
        self.over = True


def busy() -> tuple[float, float]:
    """Say so; return the present time and the CPU seconds spent so far.

    Those of this thread alone: NumPy's BLAS starts threads of its own that spin for a while
    before they sleep, and theirs would come on top of the load.
    """
    print(BUSY, flush=True)
    return time.perf_counter(), time.thread_time()


def compute(until: Until) -> tuple[float, float, int]:
    """Count until it is over; return when that began (see ``busy``) and the bytes moved: none."""
    since = busy()
    value = 1
    while not until.over:
        for i in range(_ROUNDS):
            value = value * 1_103_515_245 + i & 0x7FFFFFFF
    return *since, 0


def stream(until: Until, size: int) -> tuple[float, float, int]:
    """Copy through a buffer of ``size`` bytes until it is over; return when that began and the
    bytes read and written. Every page was written to before."""
    half = max(size // 2, _CHUNK)
    source, target = np.ones(half, np.uint8), np.ones(half, np.uint8)
    since = busy()
    moved = 0
    while True:
        for at in range(0, half, _CHUNK):
            if until.over:
                return *since, moved
            piece = source[at : at + _CHUNK]
            target[at : at + _CHUNK] = piece
            moved += 2 * len(piece)


def bind(cpu: str) -> bool:
    """Bind this process to one CPU; return whether that could be done."""
    if cpu == "any" or not hasattr(os, "sched_setaffinity"):
        return False
    try:
        os.sched_setaffinity(0, {int(cpu)})
    except OSError:
        return False
    return True


def main(arguments: list[str]) -> int:
    """Carry the load until the standard input ends; return the exit status."""
    kind, cpu, size = arguments
    bound, until = bind(cpu), Until()
    began, spent, moved = compute(until) if kind == "cpu" else stream(until, int(size))
    told = {
        "seconds": time.perf_counter() - began,
        "cpu_s": time.thread_time() - spent,
        "bytes": moved,
        "bound": bound,
    }
    print(json.dumps(told), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
