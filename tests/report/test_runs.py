from __future__ import annotations

from pathlib import Path

import pytest

from npumark.record.history import BoxTotal, Row, RunFolder, State
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


@pytest.mark.parametrize(
    ("over", "said"),
    [
        ({"box_only": True, "box": (BoxTotal("dGPU", 3.67, 0.96, None),)}, "box 3.67 TOPS dGPU"),
        (
            {"box_only": True, "box": (BoxTotal("dGPU", None, None, "snr_db is missing"),)},
            "no dGPU box total: SNR is missing",
        ),
        ({"box_only": True, "why": "the run ended before"}, "no box total: the run ended before"),
    ],
)
def test_a_run_of_cards_alone_shows_the_box_and_no_card(over: dict[str, object], said: str) -> None:
    note = render_runs([run("complete", **over)], Page()).splitlines()[2].strip()
    assert note.startswith(said)
    assert "quick run" not in note


def test_a_box_total_stands_beside_a_score() -> None:
    boxes = (BoxTotal("dGPU", 3.67, 0.96, None), BoxTotal("NPU", None, None, "npu-2 hung"))
    text = render_runs([run("complete", box=boxes)], Page())
    assert "INT8 · quick run · box 3.67 TOPS dGPU, scaling 0.960" in " ".join(text.split())
    assert "hung" not in text
