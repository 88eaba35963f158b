"""Concurrency: the total against a count by hand, and what is said of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from npumark.diagnose.concurrency import PROBE, together_ips
from npumark.diagnose.probe import Finding, Samples, Seen, Step, StepKind, Target
from npumark.policy import load_policy

RULES = replace(load_policy().diagnose, streams=(1, 2, 4), level_s=1.0)
TARGET = Target("ort-cpu", "ort", "CPU", "net", "fp32", compiles=False, cores=2)
MS = 1_000_000
SINGLE = Seen(Step("single", "single"), "ok", None, {"calls": np.full(100, 10 * MS)}, {})
"""100 inferences/s."""
AGAIN = replace(SINGLE, step=Step("again", "single", {"seconds": 1.0}))


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
    return PROBE.finding(TARGET, SINGLE, {**seen_at(**latency_ms), "again": AGAIN}, RULES)


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
    told = found(t2=50, t4=40, p2=20, p4=40)
    assert told.finding == "2 threads get together 0.40 × what one stream gets."


def test_the_level_that_is_advised_is_a_gain_itself() -> None:
    # 1.04 and 1.08: four give a gain, two give none, though they give almost as much.
    rules = replace(RULES, notable=0.01)
    steps = {"2-threads": at(2, "threads", 1.0), "4-threads": at(4, "threads", 1.04)}
    told = PROBE.finding(TARGET, SINGLE, {**steps, "again": again(1.025)}, rules)
    assert told.advice is not None
    assert told.advice.startswith("Keep one session")
    told = PROBE.finding(TARGET, SINGLE, {**steps, "again": AGAIN}, rules)
    assert told.advice is not None
    assert told.advice.endswith("serve requests with 4 threads.")


def again(ratio: float) -> Seen:
    return replace(AGAIN, samples={"calls": np.full(100, round(10 * MS / ratio))})


def at(k: int, many: StepKind, gain: float) -> Seen:
    """Return a level whose streams give so much of the single stream together."""
    call = round(10 * MS * k / gain)
    ends = np.arange(1, round(400 * MS / call) + 1, dtype=np.int64) * call
    calls = np.stack((ends - call, ends), axis=1)
    asked = Step(f"{k}-{many}", many, {many: k, "seconds": 1.0})
    return Seen(asked, "ok", None, {f"{many}-{i}": calls for i in range(k)}, {})


def levels(gains: Sequence[float]) -> dict[str, Seen]:
    """Return the levels of 2, 4 and 8 streams, threads first."""
    names: list[tuple[int, StepKind]] = [
        (k, m) for m in ("threads", "processes") for k in (2, 4, 8)
    ]
    found = [at(k, many, gain) for (k, many), gain in zip(names, gains, strict=True)]
    return {step.step.name: step for step in found}


@pytest.mark.parametrize("within", [False, True], ids=["from loop to loop", "within loops too"])
def test_noise_alone_is_hardly_ever_advised_and_a_gain_always(within: bool) -> None:
    draw = np.random.default_rng(20)
    rules, advised, found = replace(RULES, streams=(1, 2, 4, 8)), 0, 0
    for run in range(1000):
        once, repeated, *gains = 1 + 0.03 * draw.standard_normal(8)
        loops = [
            wavering(draw, pace, 0.06 if within else 0.0) for pace in (float(once), float(repeated))
        ]
        single = replace(SINGLE, samples={"calls": loops[0]})
        steps = {"again": replace(AGAIN, samples={"calls": loops[1]})}
        told = PROBE.finding(TARGET, single, {**levels(gains), **steps}, rules)
        advised += "serve requests" in (told.advice or "")
        if run >= 100:
            continue
        more = levels([1.5 * gain for gain in gains])
        told = PROBE.finding(TARGET, single, {**more, **steps}, rules)
        found += "serve requests" in (told.advice or "")
    assert advised < 50
    assert found > 95


def wavering(draw: np.random.Generator, pace: float, sd: float) -> Samples:
    """Return a loop of 100 calls whose quarters waver by ``sd``."""
    quarters = pace * (1 + sd * draw.standard_normal(4))
    return np.repeat(np.round(10 * MS / quarters).astype(np.int64), 25)


def test_what_chance_may_give_is_no_gain_and_is_told() -> None:
    steps = {"2-threads": at(2, "threads", 1.2), "4-threads": at(4, "threads", 1.1)}
    told = PROBE.finding(TARGET, SINGLE, {**steps, "again": again(1.25)}, RULES)
    assert (told.finding or "").startswith(
        "2 threads give 1.20 × the single stream, which chance may give here: up to 1."
    )
    assert (told.advice or "").startswith("Keep one session, unless")
    assert told.ratios[0].of == "inferences/s of 1 stream ÷ probe_ips"


def test_a_gain_that_the_cpus_cannot_give_is_no_advice() -> None:
    told = found(t2=10, t4=10, p2=10, p4=10)
    assert told.finding == (
        "4 threads would give 4.00 × the single stream, more than 2 CPUs can: something else moved "
        "these figures."
    )
    assert told.advice == "Go by none of this: run it again on a quiet machine."
    seen = {**seen_at(t2=5), "again": AGAIN}
    told = PROBE.finding(replace(TARGET, cores=64), SINGLE, seen, RULES)
    assert "more than 2 streams can" in (told.finding or "")
    card = PROBE.finding(replace(TARGET, role="dGPU"), SINGLE, seen, RULES)
    assert (card.advice or "").endswith("serve requests with 2 threads.")


def test_without_a_repetition_the_finding_says_that_it_is_missing() -> None:
    steps = seen_at(t2=10, t4=20, p2=10, p4=20)
    told = PROBE.finding(TARGET, SINGLE, steps, RULES)
    assert (told.finding or "").endswith(
        "more give nothing; the single loop was not repeated after it."
    )
    died = replace(AGAIN, status="crashed", why="it died", samples={})
    told = PROBE.finding(TARGET, SINGLE, {**steps, "again": died}, RULES)
    assert (told.finding or "").endswith("; the single loop could not be repeated: it died.")


def test_streams_that_lose_less_than_others_are_told_by_the_worst() -> None:
    told = found(t2=34, t4=57, p2=20, p4=40)
    assert told.finding == "2 threads get together 0.59 × what one stream gets."


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
