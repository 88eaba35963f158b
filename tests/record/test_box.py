"""The raw facts of a box attempt as a record holds them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from npumark.record.box import BoxWindow


def window(straddling: list[Any]) -> dict[str, Any]:
    check = {"iteration": 0, "sample": 0, "snr_db": 60.0, "why": None}
    return {
        "late_ns": 5,
        "inside": 9,
        "straddling": straddling,
        "calls": 10,
        "check": check,
        "load_ns": 1,
        "warmup_ns": 1,
        "samples_sha256": None,
        "peak_rss_bytes": None,
    }


def test_a_call_that_an_end_cuts_is_read_back_as_strictly_as_a_record_is() -> None:
    known = BoxWindow.model_validate(window([(990, 1010)]))
    again = BoxWindow.model_validate(json.loads(known.model_dump_json()), strict=True)
    assert again == known
    assert again.straddling == [(990, 1010)]


@pytest.mark.parametrize("cut", [[], [1], [1, 2, 3], ["1", "2"], [1.5, 2.5], 7, None])
def test_what_is_no_begin_and_end_is_refused(cut: Any) -> None:
    with pytest.raises(ValidationError):
        BoxWindow.model_validate(window([cut]), strict=True)
