"""Concurrency: the total against a count by hand, and what is said of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from npumark.diagnose.concurrency import PROBE, together_ips
from npumark.diagnose.probe import Finding, Samples, Seen, Step, Target
from npumark.policy import load_policy

RULES = replace(load_policy().diagnose, streams=(1, 2, 4), level_s=1.0)
TARGET = Target("ort-cpu", "ort", "CPU", "net", "fp32", compiles=False, cores=2)
MS = 1_000_000
SINGLE = Seen(Step("single", "single"), "ok", None, {"calls": np.full(100, 10 * MS)}, {})
"""100 inferences/s."""


def stream(call_ms: int, seconds: float = 1.0, begin_ms: int = 0) -> Samples:
    """Return calls back to back, each of ``call_ms``, until ``seconds`` have passed."""
    begins = np.arange(round(seconds * 1000) // call_ms, dtype=np.int64) * call_ms + begin_ms
    return np.stack((begins, begins + call_ms), axis=1) * MS


def seen_at(**latency_ms: int) -> dict[str, Seen]:
    """Return the steps' answers: ``t2=20`` says that each of 2 threads took 20 ms a call."""
    found = {}
    for step in PROBE.steps(TARGET, RULES):
        k, _, many = step.name.partition("-")
        call = latency_ms.get(f"{many[0]}{k}")
        samples = {f"{many}-{i}": stream(call) for i in range(int(k))} if call else {}
        status: Any = "ok" if call else "crashed"
        found[step.name] = Seen(step, status, None if call else "it died", samples, {})
    return found


def found(**latency_ms: int) -> Finding:
    return PROBE.finding(TARGET, SINGLE, seen_at(**latency_ms), RULES)


def test_one_stream_is_the_single_attempt_and_no_step_of_its_own() -> None:
    steps = PROBE.steps(TARGET, RULES)
    assert [s.name for s in steps] == ["2-threads", "4-threads", "2-processes", "4-processes"]
    assert steps[0].options == {"threads": 2, "seconds": 1.0}
    row = found(t2=10, t4=10, p2=10, p4=10).rows[0]
    assert (row["streams"], row["ips"], row["median_ns"]) == ("1 stream", 100.0, 10 * MS)


def test_a_rate_counts_each_call_by_its_share_of_the_time_in_which_all_ran() -> None:
    early, late = stream(100, 1.0), stream(100, 1.0, begin_ms=250)
    # All ran from 250 ms to 1000 ms: 7.5 calls of each, the cut ones by half.
    assert together_ips([early, late]) == pytest.approx(15 / 0.75)


def test_a_rate_is_what_a_count_over_every_microsecond_gives() -> None:
    draw = np.random.default_rng(3)
    streams = []
    for _ in range(3):
        ends = np.cumsum(draw.integers(500, 9_000, 60))
        begins = np.concatenate(([draw.integers(0, 4_000)], ends[:-1]))
        begins = np.minimum(begins, ends - 1)
        streams.append(np.stack((begins, ends), axis=1).astype(np.int64))
    lo, hi = max(int(s[0, 0]) for s in streams), min(int(s[-1, 1]) for s in streams)
    counted = sum(
        1 / (end - begin)
        for s in streams
        for begin, end in s.tolist()
        for t in range(begin, end)
        if lo <= t < hi
    )
    assert together_ips(streams) == pytest.approx(counted / ((hi - lo) / 1e9), rel=1e-9)


def test_streams_that_never_ran_at_once_have_no_rate() -> None:
    with pytest.raises(ValueError, match="never ran at once"):
        together_ips([stream(10, 0.1), stream(10, 0.1, begin_ms=500)])


def test_threads_that_bring_more_are_recommended_with_the_fewest_that_do() -> None:
    told = found(t2=10, t4=20, p2=10, p4=20)
    assert [r.value for r in told.ratios] == pytest.approx([2.0, 2.0])
    assert told.finding == "2 threads give 2.00 × the single stream; more give nothing."
    assert told.advice is not None
    assert told.advice.endswith("serve requests with 2 threads.")
    assert [row["each_ips"] for row in told.rows] == pytest.approx([100, 100, 50, 100, 50])


def test_processes_are_recommended_only_where_they_bring_more_than_threads() -> None:
    told = found(t2=20, t4=40, p2=10, p4=20)
    assert told.finding == "2 processes give 2.00 × the single stream; more give nothing."


def test_streams_that_share_what_one_uses_bring_nothing() -> None:
    told = found(t2=20, t4=40, p2=20, p4=40)
    assert told.finding == "Several streams at once get together what one gets alone."
    assert told.advice is not None
    assert told.advice.startswith("Keep one session")


def test_streams_that_hinder_each_other_are_told_of() -> None:
    told = found(t2=25, t4=100, p2=25, p4=50)
    assert told.finding == "4 threads get together 0.40 × what one stream gets."


def test_too_many_streams_are_told_of_where_fewer_bring_more() -> None:
    told = found(t2=10, t4=25, p2=20, p4=40)
    assert told.finding == "2 threads give 2.00 × the single stream; 4 give 1.60 ×."


def test_a_level_that_died_has_a_row_with_the_reason_and_no_rate() -> None:
    told = found(t2=10, t4=0, p2=10, p4=20)
    row = told.rows[2]
    assert (row["streams"], row["ips"], row["why"]) == ("4 threads", None, "it died")
    assert ("why", "not measured because") in told.columns
    assert told.status == "ok"


def test_where_no_level_was_measured_the_probe_failed() -> None:
    told = found()
    assert (told.status, told.why, told.ratios) == ("failed", "it died", ())
