"""What the durations of a timed loop say: latency, burst, drift and sustained pace.

Time here is timed time, the running sum of the durations; what lies between two calls is not
part of it. Pure functions of an int64 array of nanoseconds.
"""

from __future__ import annotations

import math

import numpy as np

from npumark.policy import Percentiles
from npumark.worker.protocol import Latency
from npumark.worker.timed_loop import Durations


def latency(durations: Durations, support: Percentiles) -> Latency:
    """Return median, tail and extremes; a percentile that the sample cannot support is null.

    Percentiles are nearest-rank: the smallest sample that at least that share of the samples
    does not exceed. The median of an even number is the mean of the middle two, rounded down.
    """
    ordered = np.sort(durations)
    n = len(ordered)

    def rank(permille: int, needed: int) -> int | None:
        return int(ordered[-(-n * permille // 1000) - 1]) if n >= needed else None

    return Latency(
        median=(int(ordered[(n - 1) // 2]) + int(ordered[n // 2])) // 2,
        p90=rank(900, support.p90),
        p95=rank(950, support.p95),
        p99=rank(990, support.p99),
        p999=rank(999, support.p999),
        min=int(ordered[0]),
        max=int(ordered[-1]),
    )


def burst_ips(durations: Durations, burst_s: float) -> float | None:
    """Return the rate of the calls that ended within the first ``burst_s``.

    Null where none did, or where the loop was shorter than that.
    """
    ends = np.cumsum(durations)
    span = math.floor(burst_s * 1e9)
    calls = int(np.searchsorted(ends, span, side="right"))
    if calls == 0 or int(ends[-1]) < span:
        return None
    return calls / (int(ends[calls - 1]) / 1e9)


def drift(durations: Durations, window_s: float) -> float | None:
    """Return by what share the slowest window's mean duration exceeds the median duration.

    A window starts at any call and takes the fewest calls that fill ``window_s``; a call
    longer than that is a window by itself. 0 is none, 0.1 is 10 % slower. Null where the loop
    is shorter than one window.
    """
    ends = np.cumsum(durations)
    starts = ends - durations
    span = math.ceil(window_s * 1e9)
    last = np.searchsorted(ends, starts + span, side="left")
    full = np.flatnonzero(last < len(ends))
    if len(full) == 0:
        return None
    last = last[full]
    means = (ends[last] - starts[full]) / (last - full + 1)
    median = float(np.median(durations))
    return float(means.max()) / median - 1.0 if median > 0 else None


def sustained_ips(durations: Durations) -> float | None:
    """Return the rate of the loop's second half: the calls that began at or after half its time.

    Null where no call did.
    """
    ends = np.cumsum(durations)
    starts = ends - durations
    total = int(ends[-1])
    first = int(np.searchsorted(2 * starts, total, side="left"))
    if first == len(durations):
        return None
    time = total - int(starts[first])
    return (len(durations) - first) / (time / 1e9) if time > 0 else None
