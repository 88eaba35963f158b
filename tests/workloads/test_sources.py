"""The photographs: licences, one use each, and no overlap between fitting and evaluation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

FREE = re.compile(r"CC0-1\.0|public domain")
PAGE = Path(__file__).parents[2] / "workloads" / "EVAL_SOURCES.md"
COLUMNS = ("id", "use", "file", "sha256", "author", "licence", "licence text", "obtained from")


def rows() -> list[dict[str, str]]:
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line[:1] == "|"]
    cells = [[c.strip().strip("`") for c in line.strip("|").split("|")] for line in lines]
    assert tuple(cells[0]) == COLUMNS
    return [dict(zip(COLUMNS, row, strict=True)) for row in cells[2:]]


def test_every_photograph_is_free_and_says_who_made_it() -> None:
    for row in rows():
        assert FREE.match(row["licence"]), row
        assert row["licence text"].startswith("http"), row
        assert re.fullmatch(r"[0-9a-f]{64}", row["sha256"]), row
        assert row["author"], row
        assert row["obtained from"], row


@pytest.mark.parametrize("column", ["id", "file", "sha256"])
def test_no_photograph_serves_two_uses(column: str) -> None:
    named = [row[column] for row in rows()]
    assert len(named) == len(set(named))


def test_uses_are_calibration_or_evaluation_and_both_exist() -> None:
    # Heads are fitted on crops of the calibration photographs alone, so fit crops cannot
    # overlap eval crops as long as no photograph appears twice.
    assert {row["use"] for row in rows()} == {"calibration", "evaluation"}


def test_the_builder_cuts_fit_and_calibration_crops_from_calibration_photographs_only() -> None:
    source = (PAGE.parent / "vision.py").read_text(encoding="utf-8")
    uses = dict(re.findall(r"(calibration|fit|candidates) = _pictures\(folder, \"(\w+)\"", source))
    assert uses == {"calibration": "calibration", "fit": "calibration", "candidates": "evaluation"}
