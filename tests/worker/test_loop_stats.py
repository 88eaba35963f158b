from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npumark.policy import load_policy
from npumark.worker.loop_stats import burst_ips, drift, latency, sustained_ips

SUPPORT = load_policy().percentiles
LOOPS = st.lists(st.integers(1, 400_000_000), min_size=1, max_size=60)


def array(durations: list[int]) -> np.ndarray:
    return np.asarray(durations, np.int64)


@given(LOOPS)
def test_percentiles_are_the_least_sample_that_enough_do_not_exceed(durations: list[int]) -> None:
    found = latency(array(durations), SUPPORT)
    n = len(durations)
    assert (found.min, found.max) == (min(durations), max(durations))
    for value, share, needed in (
        (found.p90, 0.9, SUPPORT.p90),
        (found.p95, 0.95, SUPPORT.p95),
        (found.p99, 0.99, SUPPORT.p99),
        (found.p999, 0.999, SUPPORT.p999),
    ):
        if n < needed:
            assert value is None
        else:
            enough = [d for d in durations if sum(x <= d for x in durations) >= share * n - 1e-9]
            assert value == min(enough)


@pytest.mark.parametrize(
    ("durations", "median"), [([3], 3), ([1, 4], 2), ([9, 1, 5], 5), ([1, 2, 4, 9], 3)]
)
def test_median(durations: list[int], median: int) -> None:
    assert latency(array(durations), SUPPORT).median == median


def test_percentiles_appear_with_their_sample_size() -> None:
    assert latency(np.arange(1, 100), SUPPORT).p99 is None
    assert latency(np.arange(1, 101), SUPPORT).p99 == 99
    assert latency(np.arange(1, 1001), SUPPORT).p999 == 999


@given(LOOPS, st.sampled_from([0.01, 0.1, 0.4]))
def test_burst_is_the_rate_of_the_calls_that_ended_in_time(
    durations: list[int], burst_s: float
) -> None:
    span, total, calls, time = round(burst_s * 1e9), 0, 0, 0
    for d in durations:
        total += d
        if total <= span:
            calls, time = calls + 1, total
    found = burst_ips(array(durations), burst_s)
    if calls == 0 or total < span:
        assert found is None
    else:
        assert found == pytest.approx(calls / (time / 1e9), rel=1e-12)


@given(LOOPS, st.sampled_from([0.001, 0.25]))
def test_drift_is_the_slowest_window_by_brute_force(durations: list[int], window_s: float) -> None:
    span = round(window_s * 1e9)
    means = []
    for i in range(len(durations)):
        total = 0
        for j in range(i, len(durations)):
            total += durations[j]
            if total >= span:
                means.append(total / (j - i + 1))
                break
    found = drift(array(durations), window_s)
    if not means:
        assert found is None
    else:
        expected = max(means) / float(np.median(durations)) - 1
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-9)


@given(LOOPS)
def test_sustained_is_the_rate_of_the_second_half(durations: list[int]) -> None:
    total, start, calls, time = sum(durations), 0, 0, 0
    for d in durations:
        if 2 * start >= total:
            calls, time = calls + 1, time + d
        start += d
    found = sustained_ips(array(durations))
    if calls == 0:
        assert found is None
    else:
        assert found == pytest.approx(calls / (time / 1e9), rel=1e-12)


def test_a_steady_loop_has_no_drift_and_one_pace() -> None:
    steady = np.full(400, 5_000_000)
    assert drift(steady, 0.25) == 0
    assert burst_ips(steady, 0.4) == pytest.approx(200)
    assert sustained_ips(steady) == pytest.approx(200)


def test_a_loop_that_slows_shows_it() -> None:
    slowing = np.concatenate([np.full(200, 5_000_000), np.full(100, 10_000_000)])
    assert drift(slowing, 0.25) == pytest.approx(1.0)
    burst, sustained = burst_ips(slowing, 0.4), sustained_ips(slowing)
    assert burst is not None
    assert sustained is not None
    assert math.isclose(burst, 200)
    assert sustained == pytest.approx(100)
