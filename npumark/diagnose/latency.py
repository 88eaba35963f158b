"""Latency of raw samples: the median, and what of the tail the samples can support."""

from __future__ import annotations

from npumark.diagnose.probe import Samples
from npumark.policy import DiagnoseRules
from npumark.record.model import LatencyFields
from npumark.record.samples import latency


def latency_of(durations: Samples, rules: DiagnoseRules) -> LatencyFields:
    """Return the latency of [n] durations in nanoseconds, as a record tells it; ``rules`` say
    which percentiles so many samples support.

    Raises ValueError where there is none.
    """
    if not len(durations):
        raise ValueError("no call was timed")
    return latency(durations.tolist(), rules.percentiles)


def median_ns(durations: Samples, rules: DiagnoseRules) -> int:
    """Return the median of [n] durations, rounded down. Raises ValueError where there is none."""
    return latency_of(durations, rules).median


def p95_ns(durations: Samples, rules: DiagnoseRules) -> int | None:
    """Return the 95th percentile (nearest rank); null where the samples do not support it.

    Raises ValueError where there is none.
    """
    return latency_of(durations, rules).p95
