"""The steps single, threads and idle, carried out on a virtual engine in this very process."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from npumark.worker.protocol import Result

LATENCY_NS = 1_000_000


def step(tiny: Any, tmp_path: Path, kind: str, **options: Any) -> Result:
    result: Result = tiny.run(
        kind="diagnose", probe={"kind": kind, **options}, samples_path=str(tmp_path / "samples")
    )
    return result


def raw(tmp_path: Path, result: Result, name: str) -> npt.NDArray[np.int64]:
    assert result.probed is not None
    told = result.probed.samples[name]
    values = np.fromfile(tmp_path / "samples" / told.file, dtype="<i8").astype(np.int64)
    return values if told.columns == 1 else values.reshape(told.n, told.columns)


def test_single_leaves_the_duration_of_each_call(tiny: Any, tmp_path: Path) -> None:
    result = step(tiny, tmp_path, "single")
    assert result.status == "ok", result.why
    assert result.probed is not None
    assert raw(tmp_path, result, "calls").tolist() == [LATENCY_NS] * 50
    assert result.probed.facts["first_call_ns"] == LATENCY_NS
    assert result.probed.facts["observed"]["device"] == "Virtual CPU"


@pytest.mark.parametrize("threads", [1, 3])
def test_each_thread_calls_a_session_of_its_own_from_the_common_start(
    tiny: Any, tmp_path: Path, threads: int
) -> None:
    result = step(tiny, tmp_path, "threads", threads=threads, seconds=0.02)
    assert result.status == "ok", result.why
    assert result.probed is not None
    assert sorted(result.probed.samples) == [f"thread-{i}" for i in range(threads)]
    for name in result.probed.samples:
        calls = raw(tmp_path, result, name)
        assert calls[:, 0].tolist() == [i * LATENCY_NS for i in range(20)]
        assert (calls[:, 1] - calls[:, 0] == LATENCY_NS).all()


def test_threads_on_the_real_clock_start_together(tiny: Any, tmp_path: Path) -> None:
    tiny.script()
    script = tiny.root / "script.json"
    script.write_text(script.read_text().replace('{"engines"', '{"clock": "real", "engines"'))
    result = step(tiny, tmp_path, "threads", threads=2, seconds=0.05)
    assert result.status == "ok", result.why
    for i in range(2):
        calls = raw(tmp_path, result, f"thread-{i}")
        # Counted from the common start, which no call begins before.
        assert 0 <= calls[0, 0] < 50_000_000
        assert calls[-1, 1] >= 50_000_000


def test_a_thread_that_fails_ends_the_step_and_leaves_no_thread(tiny: Any, tmp_path: Path) -> None:
    tiny.script({"do": "raise", "call": 2, "attempts": [2]})
    before = threading.active_count()
    result = step(tiny, tmp_path, "threads", threads=3, seconds=0.02)
    assert result.status == "crashed"
    assert result.why is not None
    assert "Barrier" not in result.why
    assert threading.active_count() == before


def test_idle_lets_time_pass_before_each_call(tiny: Any, tmp_path: Path) -> None:
    tiny.script(wake={"after_ms": 10, "factor": 3})
    result = step(tiny, tmp_path, "idle", idle_ms=[1, 10], calls=[4, 2])
    assert result.status == "ok", result.why
    assert raw(tmp_path, result, "busy").tolist() == [LATENCY_NS] * 5
    assert raw(tmp_path, result, "after-1-ms").tolist() == [LATENCY_NS] * 4
    assert raw(tmp_path, result, "after-10-ms").tolist() == [3 * LATENCY_NS] * 2


def test_single_may_be_as_short_as_a_level(tiny: Any, tmp_path: Path) -> None:
    result = step(tiny, tmp_path, "single", seconds=0.02)
    assert raw(tmp_path, result, "calls").tolist() == [LATENCY_NS] * 20
    told = facts(result)
    assert list(told["last_answers"]) == ["the last call"]
    assert told["last_answers"]["the last call"]["sample"] == 19 % 3
    # What is known of the engine already is not profiled once more.
    assert "observed" not in told


def facts(result: Result) -> dict[str, Any]:
    assert result.probed is not None, result.why
    return result.probed.facts


def test_single_tells_how_it_answers_the_whole_eval_set(tiny: Any, tmp_path: Path) -> None:
    right = facts(step(tiny, tmp_path, "single"))["answers"]
    assert right["why"] is None
    assert right["timed_check"]["passed"]
    assert len(right["timed_check"]["iterations"]) > 1
    assert len(right["levels_db"]) == 3
    assert min(right["levels_db"]) > 60
    tiny.script({"do": "noise", "snr_db": 10})
    wrong = facts(step(tiny, tmp_path, "single"))["answers"]
    assert wrong["measures"]["snr_db"] < 15
    assert max(wrong["levels_db"]) < 15


@pytest.mark.parametrize(
    ("kind", "options", "streams"),
    [
        ("threads", {"threads": 2, "seconds": 0.02}, ["thread-0", "thread-1"]),
        ("idle", {"idle_ms": [1], "calls": [4]}, ["the last call"]),
        ("sustained", {"seconds": 0.02}, ["the last call"]),
    ],
)
def test_one_answer_of_each_stream_is_told(
    tiny: Any, tmp_path: Path, kind: str, options: dict[str, Any], streams: list[str]
) -> None:
    right = facts(step(tiny, tmp_path, kind, **options))["last_answers"]
    assert list(right) == streams
    assert all(answer["snr_db"] > 60 and answer["why"] is None for answer in right.values())
    tiny.script({"do": "zeros"})
    wrong = facts(step(tiny, tmp_path, kind, **options))["last_answers"]
    assert all("is zero everywhere" in answer["why"] for answer in wrong.values())
    assert {answer["snr_db"] for answer in wrong.values()} == {None}


def test_an_answer_larger_than_its_stored_reference_is_compared(
    map_of_classes: Any, tmp_path: Path
) -> None:
    result = step(map_of_classes, tmp_path, "threads", threads=1, seconds=0.02)
    assert result.probed is not None, result.why
    (answer,) = result.probed.facts["last_answers"].values()
    assert answer["why"].endswith("is zero everywhere")
