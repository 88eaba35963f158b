from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npumark.engines.base import Engine


def run(tiny: Any, folder: Path, *faults: dict[str, Any], n: int = 4, **changes: Any) -> Any:
    probe = {"kind": "batch", "batch": n, "seconds": 0.05}
    return tiny.run(*faults, kind="diagnose", probe=probe, samples_path=str(folder), **changes)


def test_a_call_of_a_batch_is_timed_whole(tiny: Any, tmp_path: Path) -> None:
    result = run(tiny, tmp_path)
    assert (result.status, result.why) == ("ok", None)
    calls = np.fromfile(tmp_path / result.probed.samples["calls"].file, "<i8")
    # Each of the 4 inputs takes 1 ms of the virtual engine's clock; the loop ends after 50 ms.
    assert set(calls) == {4_000_000}
    assert len(calls) == 13
    facts = result.probed.facts
    assert (facts["batch"], facts["rows_checked"], facts["first_call_ns"]) == (4, 4, 4_000_000)
    assert facts["min_snr_db"] is None  # bit by bit


def test_a_batch_may_be_larger_than_the_eval_set(tiny: Any, tmp_path: Path) -> None:
    result = run(tiny, tmp_path, n=8)
    assert (result.status, result.why) == ("ok", None)
    assert len(np.fromfile(tmp_path / "calls.i64", "<i8")) >= 3


def test_rows_that_differ_in_their_last_bits_alone_are_a_batch(tiny: Any, tmp_path: Path) -> None:
    result = run(tiny, tmp_path, {"do": "noise", "snr_db": 90, "when": "batch"})
    assert result.status == "ok"
    assert 70 < result.probed.facts["min_snr_db"] < 110


@pytest.mark.parametrize("snr_db", [40, 50])
def test_rows_may_be_summed_in_another_order(tiny: Any, tmp_path: Path, snr_db: int) -> None:
    """FP16 and INT8 agree to 45 to 55 dB where two orders of summing do."""
    result = run(tiny, tmp_path, {"do": "noise", "snr_db": snr_db, "when": "batch"})
    assert (result.status, result.why) == ("ok", None)


def test_the_answers_to_each_input_alone_are_told(tiny: Any, tmp_path: Path) -> None:
    told = run(tiny, tmp_path, n=2).probed.facts["last_answers"]
    assert [told[name]["sample"] for name in told] == [0, 1]
    assert all(answer["snr_db"] > 60 for answer in told.values())


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ({"do": "noise", "snr_db": 15}, "row 1 agrees with the input alone to"),
        ({"do": "memoised"}, "row 2 agrees"),
        ({"do": "zeros"}, "row 1 agrees with the input alone to 0.0 dB"),
        ({"do": "nan_one"}, "row 1 agrees with the input alone to not finite"),
        ({"do": "roll"}, "row 1 agrees"),
    ],
)
def test_a_row_that_is_answered_otherwise_than_alone_fails(
    tiny: Any, tmp_path: Path, fault: dict[str, Any], told: str
) -> None:
    result = run(tiny, tmp_path, {**fault, "when": "batch"})
    assert result.status == "crashed"
    assert result.why.startswith("batch 4 answers differently")
    assert told in result.why
    assert not (tmp_path / "calls.i64").exists()


def test_a_batch_that_is_refused_at_load_is_not_supported(tiny: Any, tmp_path: Path) -> None:
    result = run(tiny, tmp_path, {"do": "unsupported", "when": "batch"})
    assert result.status == "unsupported"


def test_what_a_runtime_says_in_the_first_call_is_the_reason(tiny: Any, tmp_path: Path) -> None:
    result = run(tiny, tmp_path, {"do": "raise", "call": 1})
    assert result.status == "crashed"
    assert result.why == "with 4 inputs per call: RuntimeError: a virtual fault of two lines"


def test_an_engine_that_takes_one_input_per_call_is_not_asked(
    tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("npumark.engines.virtual.Virtual.batches", Engine.batches)
    result = run(tiny, tmp_path)
    assert (result.status, result.why) == ("unsupported", "virtual takes one input per call")
