"""The methodology's page says what the code does where it quotes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from npumark.gates.segmentation import MIN_CLASS_SHARE
from npumark.pack.manifest import load_manifest
from npumark.score.comparability import REASONS

TEXT = (Path(__file__).parents[1] / "docs" / "METHODOLOGY.md").read_text(encoding="utf-8")
WORDS = " ".join(TEXT.split())


@pytest.mark.parametrize("code", REASONS)
def test_each_reason_for_not_being_comparable_is_named(code: str) -> None:
    assert f"`{code}`" in TEXT


@pytest.mark.parametrize("code", ["screened_outlier", "too_few_attempts", "format_changed"])
def test_codes_that_void_or_flag_a_figure_are_explained(code: str) -> None:
    assert f"`{code}`" in TEXT


def test_thresholds_outside_the_policy_are_stated() -> None:
    assert f"at most {MIN_CLASS_SHARE:.0%}".replace("%", " %") in WORDS
    margins = {
        w.eval.parameters["decisive_margin"]
        for w in load_manifest().workloads.values()
        if "decisive_margin" in w.eval.parameters
    }
    assert len(margins) == 1
    assert f"leads the second by at least {margins.pop()}" in WORDS
