from __future__ import annotations

from pathlib import Path

import pytest

from npumark.record.history import Row, RunFolder, State
from npumark.report.page import Page, width_of
from npumark.report.runs import render_runs


def run(state: State, **over: object) -> Row:
    known = {
        "folder": RunFolder(Path("/runs/20261130T233136Z-fe32e2")),
        "state": state,
        "created": "2026-11-30T23:31:36Z",
        "tops": 0.83,
        "label": "0.83 TOPS · CPU · Intel Xeon (ONNX Runtime) · INT8 · quick run",
        "edition": "seeded",
        "quick": True,
        "comparable": False,
        "noisy": True,
        "why": None,
    }
    return Row(**(known | over))  # type: ignore[arg-type]


RUNS = [
    run("complete"),
    run("partial", quick=False, comparable=True, noisy=False),
    run("unreadable", label=None, comparable=None, why="snr_db is missing"),
]


@pytest.mark.parametrize("width", [40, 80])
def test_the_history_fits(width: int) -> None:
    text = render_runs(RUNS, Page(width=width))
    assert all(width_of(line) <= width for line in text.splitlines())
    assert "snr_db" not in text


def test_the_history_is_a_table_at_80_columns() -> None:
    lines = render_runs(RUNS, Page(width=80)).splitlines()
    assert lines[0].split() == ["run", "when", "(UTC)", "state", "comparable"]
    assert lines[1].split()[-3:] == ["no,", "quick,", "noisy"]
    assert lines[3].split()[-2:] == ["partial", "yes"]
    assert lines[5].split()[-2:] == ["unreadable", "—"]
