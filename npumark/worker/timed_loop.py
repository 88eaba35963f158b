"""The timed loop: one call after another, each copying its input into the bound buffer and
reading one element of every output.

The reading makes an engine that computes when it is looked at compute in time: what a call has
left to do is paid for in that call. It goes through the engine's own sequence of outputs and by
NumPy's own ``ndarray.item``, which reads memory and refuses whatever is no array; it costs about
0.1 µs an output.

Pure of engines and of the system clock: it takes a step, the bound buffers, the samples and a
clock. Nothing is allocated, logged or slept for between two calls, garbage collection is off,
and durations go to a preallocated array. Outputs of a few iterations, drawn from a seed, are
copied between two calls, outside the timed region; what they are compared with is computed
later, untimed.
"""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from npumark.errors import EngineError
from npumark.gates.draw import Reservoir
from npumark.worker.protocol import TimingOptions

Array = npt.NDArray[Any]
Durations = npt.NDArray[np.int64]
Clock = Callable[[], int]
Step = Callable[[], object]
Sample = tuple[Array, ...]

READ = np.ndarray.item
"""Reads one element of an output: by NumPy's own method, whatever the engine hands out."""

BLOCK = 1 << 20
"""Times are allocated in blocks of at most this many calls: a loop may outgrow its estimate."""


@dataclass(frozen=True, slots=True)
class WarmUp:
    """``steady``: the last calls agreed before the cap was reached. Times in nanoseconds."""

    first_call_ns: int
    calls: int
    steady: bool
    fastest_ns: int
    total_ns: int


@dataclass(frozen=True, slots=True)
class Check:
    """The outputs of one timed iteration, and the index of the sample that it computed on."""

    iteration: int
    sample: int
    outputs: tuple[Array, ...]


@dataclass(frozen=True, slots=True)
class Loop:
    """``durations`` int64 [iterations], nanoseconds; ``checks`` in order of iteration."""

    durations: Durations
    checks: tuple[Check, ...]
    wall_ns: int


def timer_overhead_ns(clock: Clock) -> int:
    """Return what two readings of the clock cost by themselves: the median of 1001 pairs."""
    pairs = [0] * 1001
    for i in range(len(pairs)):
        start = clock()
        pairs[i] = clock() - start
    return int(statistics.median(pairs))


def warm_up(
    step: Step,
    buffers: Sequence[Array],
    outputs: Sequence[Array],
    samples: Sequence[Sample],
    timing: TimingOptions,
    clock: Clock,
) -> WarmUp:
    """Call ``step`` untimed, as the timed loop does, until steady or capped.

    Steady: the sample standard deviation of the last ``warmup_steady_window`` durations is
    within ``warmup_steady_cv`` of their mean. The cap is ``warmup_max_s``, looked at between
    two calls, and never below ``warmup_min_calls`` calls.
    """
    feeds = input_feeds(buffers, samples)
    require_arrays(outputs)
    window = timing.warmup_steady_window
    durations: list[int] = []
    read = READ
    total, cap, steady = 0, timing.warmup_max_s * 1e9, False
    while not steady:
        start = clock()
        for buffer, source in feeds[len(durations) % len(feeds)]:
            buffer[...] = source
        step()
        for output in outputs:
            read(output, -1)
        durations.append(clock() - start)
        total += durations[-1]
        if len(durations) < timing.warmup_min_calls:
            continue
        recent = durations[-window:]
        if len(recent) == window:
            mean = statistics.fmean(recent)
            spread = statistics.stdev(recent) if window > 1 else 0.0
            steady = spread <= timing.warmup_steady_cv * mean
        if total >= cap:
            break
    return WarmUp(durations[0], len(durations), steady, max(1, min(durations)), total)


def run_timed(
    step: Step,
    buffers: Sequence[Array],
    outputs: Sequence[Array],
    samples: Sequence[Sample],
    timing: TimingOptions,
    *,
    seed: int,
    fastest_ns: int,
    clock: Clock,
) -> Loop:
    """Time calls until their durations sum to ``loop_s`` and there are ``min_iterations``.

    The samples are cycled in order, so that no two calls in a row compute on the same input.
    ``fastest_ns`` (of the warm-up) only sizes the first block of durations. Raises EngineError
    where an output is no plain array.
    """
    feeds = input_feeds(buffers, samples)
    require_arrays(outputs)
    cycle = len(feeds)
    slots = [tuple(np.empty_like(o) for o in outputs) for _ in range(timing.timed_checks)]
    kept: dict[int, int] = {}
    reservoir = Reservoir(seed, timing.timed_checks, cycle)
    limit, least = round(timing.loop_s * 1e9), timing.min_iterations
    size = min(BLOCK, max(least, 2 * -(-limit // fastest_ns)))
    blocks: list[Durations] = []
    elapsed, count, done = 0, 0, False
    read = READ
    with gc_off(), plain_outputs(outputs):
        began = clock()
        while not done:
            block = np.full(size, -1, dtype=np.int64)
            takes = iter(reservoir.takes(size))
            take, slot = next(takes, (-1, -1))
            used = size
            for i in range(size):
                feed = feeds[(count + i) % cycle]
                start = clock()
                for buffer, source in feed:
                    buffer[...] = source
                step()
                for output in outputs:
                    read(output, -1)
                duration = clock() - start
                block[i] = duration
                elapsed += duration
                if count + i == take:
                    require_arrays(outputs)
                    for into, output in zip(slots[slot], outputs, strict=True):
                        into[...] = output
                    kept[slot] = take
                    take, slot = next(takes, (-1, -1))
                if elapsed >= limit and count + i + 1 >= least:
                    used, done = i + 1, True
                    break
            count += used
            blocks.append(block[:used])
        wall = clock() - began
    checks = (Check(i, i % cycle, slots[slot]) for slot, i in kept.items())
    return Loop(np.concatenate(blocks), tuple(sorted(checks, key=lambda c: c.iteration)), wall)


def require_arrays(outputs: Sequence[object]) -> None:
    """Raise EngineError where an output is anything but a NumPy array that holds an element.

    A subclass counts as another thing: it may compute when it is copied, and not before.
    """
    for i, output in enumerate(outputs):
        if type(output) is not np.ndarray:
            kind = f"{type(output).__module__}.{type(output).__qualname__}"
            raise EngineError(f"output {i} is a {kind}; an engine's outputs must be numpy.ndarray")
        if not output.size:
            raise EngineError(f"output {i} holds no element")


def input_feeds(
    buffers: Sequence[Array], samples: Sequence[Sample]
) -> list[tuple[tuple[Array, Array], ...]]:
    """Return for each sample what is copied where. Raises ValueError where one does not fit."""
    feeds = []
    for sample in samples:
        for buffer, source in zip(buffers, sample, strict=True):
            if buffer.shape != source.shape or buffer.dtype != source.dtype:
                # A cast or a broadcast would be paid inside the timed region.
                raise ValueError(
                    f"an input of {source.dtype}{list(source.shape)} does not fit the bound "
                    f"buffer of {buffer.dtype}{list(buffer.shape)}"
                )
        feeds.append(tuple(zip(buffers, sample, strict=True)))
    return feeds


@contextmanager
def plain_outputs(outputs: Sequence[object]) -> Iterator[None]:
    """Say what is wrong with outputs that could not be read."""
    try:
        yield
    except TypeError:
        require_arrays(outputs)
        raise


@contextmanager
def gc_off() -> Iterator[None]:
    """Collect garbage now, and none inside."""
    was = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
