from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npumark.diagnose.sustained import paces
from npumark.worker.steps import sustained
from npumark.worker.steps.sustained import ROWS, call_for, calls_per_row

PROBE = {"kind": "sustained", "seconds": 2.0}


def run(tiny: Any, folder: Path, **changes: Any) -> Any:
    return tiny.run(kind="diagnose", probe=PROBE, samples_path=str(folder), **changes)


def test_calls_follow_each_other_for_as_long_as_asked(tiny: Any, tmp_path: Path) -> None:
    result = run(tiny, tmp_path / "kept")
    assert (result.status, result.why) == ("ok", None)
    kept = result.probed.samples["calls"]
    raw = (tmp_path / "kept" / kept.file).read_bytes()
    assert hashlib.sha256(raw).hexdigest() == kept.sha256
    assert kept.columns == 2
    calls = np.frombuffer(raw, "<i8").reshape(kept.n, 2)
    # A call takes 1 ms, and the last one begins before the time is over.
    assert len(calls) == result.probed.facts["calls"] == 2000
    assert (calls[1:, 0] >= calls[:-1, 1]).all()
    assert int(calls[-1, 1] - calls[0, 0]) == result.probed.facts["loop_ns"]
    assert result.probed.facts["loop_cpu_ns"] >= 0  # some systems count it in ticks
    assert int(calls[-1, 1] - calls[0, 0]) >= 2e9 > int(calls[-1, 0] - calls[0, 0])


def test_many_short_calls_are_kept_as_blocks(
    tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sustained, "ROWS", 500)
    result = run(tiny, tmp_path / "kept")
    kept, facts = result.probed.samples["calls"], result.probed.facts
    raw = (tmp_path / "kept" / kept.file).read_bytes()
    blocks = np.frombuffer(raw, "<i8").reshape(kept.n, 3)
    assert (kept.columns, facts["calls_per_row"], facts["calls"]) == (3, 4, 2000)
    assert len(blocks) == 500
    assert set(blocks[:, 2]) == {4}
    assert paces(blocks, 0.5) == pytest.approx([1000.0] * 4)


@pytest.mark.parametrize(
    ("seconds", "fastest_ns", "size"),
    [
        pytest.param(300, 10_000_000, 1, id="a slow network"),
        pytest.param(ROWS / 1e6, 1000, 1, id="just as many as are kept one by one"),
        pytest.param((ROWS + 1) / 1e6, 1000, 2, id="one more"),
        pytest.param(300, 50_000, 32, id="5 min of 50 us"),
    ],
)
def test_a_row_is_so_many_calls_that_the_rows_stay_few(
    seconds: float, fastest_ns: int, size: int
) -> None:
    assert calls_per_row(seconds, fastest_ns) == size
    assert seconds * 1e9 / fastest_ns / size <= ROWS + 1


def test_rows_beyond_the_expected_number_are_kept_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sustained, "ROWS", 8)
    now = [0]

    def step() -> None:
        now[0] += 99

    def clock() -> int:
        now[0] += 1
        return now[0] - 1

    buffer = np.zeros(2, np.float32)
    rows = call_for(
        step,
        [buffer],
        [np.zeros(1, np.float32)],
        [(np.ones(2, np.float32),), (np.full(2, 3, np.float32),)],
        seconds=2e-6,
        per_row=1,
        clock=clock,
    )
    assert len(rows) == 20  # of 8 expected
    assert set(rows[:, 1] - rows[:, 0]) == {100}  # no allocation between two blocks is in a call
    assert (rows[1:, 0] > rows[:-1, 1]).all()
    assert rows[-1, 1] - rows[0, 0] >= 2000 > rows[-2, 1] - rows[0, 0]
    assert buffer.tolist() == [3, 3]  # each call had the next input
