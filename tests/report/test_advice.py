from __future__ import annotations

from typing import get_args

import pytest

from npumark.report.advice import ENTRIES, NOT_COMPARABLE, WARNINGS, advice
from npumark.score import comparability
from npumark.worker.protocol import Status


def test_every_reason_against_comparing_has_advice() -> None:
    assert set(NOT_COMPARABLE) == set(comparability.REASONS)


def test_every_warning_has_advice() -> None:
    assert set(WARNINGS) == set(comparability.WARNINGS)


def test_every_status_that_is_no_success_has_advice() -> None:
    assert set(get_args(Status)) - {"ok"} <= set(ENTRIES)


@pytest.mark.parametrize("table", [NOT_COMPARABLE, WARNINGS, ENTRIES])
def test_advice_is_whole_sentences(table: dict[str, object]) -> None:
    for said in map(str, table.values()):
        assert said.endswith(".")
        assert said[0].isupper() or said[0] == "`"


def test_an_unknown_code_stands_for_itself() -> None:
    assert str(advice(WARNINGS, "odd_thing")) == "odd thing."
