"""The loop of a shared window: calls from its start until one ends at or after its end.

A call is what it is in the timed loop: its input is copied, the step runs, one element of every
output is read, and nothing is allocated, copied, logged or slept for. Every call's begin and end
are kept: those that an end of the window cuts count by their share, which is computed later and
can be computed again from the raw times. When the loop has ended the bound outputs still hold the
last call's answer.

Pure of engines and of the system clock, like ``timed_loop``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from npumark.worker.timed_loop import (
    BLOCK,
    READ,
    Array,
    Clock,
    Sample,
    Step,
    gc_off,
    input_feeds,
    plain_outputs,
    require_arrays,
)

Pairs = npt.NDArray[np.int64]

_SPIN_NS = 2_000_000
"""The last of the wait is spent looking at the clock: a sleep may end later than it was to."""


@dataclass(frozen=True, slots=True)
class Cut:
    """How the calls lie in the window. ``inside`` counts those that began and ended in it;
    ``straddling`` are (begin, end) of those that an end of it cuts, in order."""

    inside: int
    straddling: tuple[tuple[int, int], ...]


def cut(pairs: Pairs, window_ns: int) -> Cut:
    """Return how calls, [n, 2] nanoseconds after the window's start, lie in it.

    A call that begins or ends exactly at an end of the window lies on the inner side of it.
    """
    begins, ends = pairs[:, 0], pairs[:, 1]
    inside = (begins >= 0) & (ends <= window_ns)
    touching = (begins < window_ns) & (ends > 0) & ~inside
    return Cut(
        inside=int(np.count_nonzero(inside)),
        straddling=tuple((int(begin), int(end)) for begin, end in pairs[touching]),
    )


def run_window_loop(
    step: Step,
    buffers: Sequence[Array],
    outputs: Sequence[Array],
    samples: Sequence[Sample],
    *,
    window_ns: int,
    fastest_ns: int,
    clock: Clock,
    start: Callable[[], int],
    sleep: Callable[[float], object] = time.sleep,
) -> Pairs:
    """Call ``step`` from the window's start until a call has ended at or after its end.

    Returns int64 [calls, 2]: begin and end of each call, nanoseconds after the start.

    All that takes room is made before ``start`` is called: it waits for the release and returns
    the start, an instant of ``clock``. Until then calls go on, untimed, so that what cools down or
    falls asleep has no time to; the first call of the window begins at the start or after it,
    never before. The samples are cycled in order. ``fastest_ns`` (of the warm-up) only sizes the
    first block of times. Raises EngineError where an output is no plain array.
    """
    feeds = input_feeds(buffers, samples)
    require_arrays(outputs)
    cycle = len(feeds)
    size = min(BLOCK, max(1, 2 * -(-window_ns // fastest_ns)))
    blocks: list[Pairs] = []
    count, done = 0, False
    read = READ
    begins, ends = np.full(size, -1, dtype=np.int64), np.full(size, -1, dtype=np.int64)
    with gc_off(), plain_outputs(outputs):
        origin = start()
        _keep_warm(step, feeds, outputs, clock, origin, fastest_ns, sleep)
        stop = origin + window_ns
        while not done:
            used = size
            for i in range(size):
                feed = feeds[(count + i) % cycle]
                begin = clock()
                for buffer, source in feed:
                    buffer[...] = source
                step()
                for output in outputs:
                    read(output, -1)
                end = clock()
                begins[i] = begin
                ends[i] = end
                if end >= stop:
                    used, done = i + 1, True
                    break
            count += used
            blocks.append(np.stack((begins[:used], ends[:used]), axis=1))
            if not done:
                begins, ends = np.full(size, -1, dtype=np.int64), np.full(size, -1, dtype=np.int64)
    return np.concatenate(blocks) - origin


def _keep_warm(
    step: Step,
    feeds: Sequence[Sequence[tuple[Array, Array]]],
    outputs: Sequence[Array],
    clock: Clock,
    until: int,
    longest: int,
    sleep: Callable[[float], object],
) -> None:
    """Call untimed while twice the longest call so far still fits before ``until``; then wait."""
    calls = 0
    while (begin := clock()) + 2 * longest < until:
        for buffer, source in feeds[calls % len(feeds)]:
            buffer[...] = source
        step()
        for output in outputs:
            READ(output, -1)
        longest = max(longest, clock() - begin)
        calls += 1
    if (left := until - _SPIN_NS - clock()) > 0:
        sleep(left / 1e9)
    while clock() < until:
        pass
