"""A record may be a stranger's: its texts show, and a terminal obeys none of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from npumark.plain import LONGEST
from npumark.record.model import Record
from npumark.report.page import Page
from npumark.report.terminal import render

Make = Callable[..., Record]

EVIL = "\x1b[31mred\x1b]0;title\x07\x1b]52;c;AAAA\x1b\\\x08\r\x7f\x9b1A\u202e\ttext"
FREE = frozenset(
    {"name", "label", "runtime", "runtime_title", "version", "why", "log_tail", "device"}
    | {"precision", "precision_why", "score_why", "evidence", "format", "declared_format", "os"}
    | {
        "cpu_model",
        "kernel",
        "why_not",
        "suite",
        "runtimes",
        "raw_name",
        "identity",
        "driver",
        "package",
    }
)
"""Fields whose text is somebody else's."""


def spoilt(value: Any, key: str = "", more: str = EVIL) -> Any:
    if isinstance(value, dict):
        return {k: spoilt(v, k, more) for k, v in value.items()}
    if isinstance(value, list):
        return [spoilt(v, key, more) for v in value]
    return f"{value}{more}" if isinstance(value, str) and key in FREE else value


@pytest.mark.parametrize("width", [None, 40, 100])
@pytest.mark.parametrize("unicode", [True, False])
def test_no_record_makes_the_terminal_do_anything(
    make_record: Make, width: int | None, unicode: bool
) -> None:
    record = Record.model_validate(spoilt(make_record().model_dump(mode="json")))
    text = render(record, Page(width=width, unicode=unicode))
    assert "red" in text
    odd = {c for c in text if not c.isprintable() and c != "\n"}
    assert odd == set()
    assert "AAAA" not in text


def test_no_record_fills_the_screen_with_one_text(make_record: Make) -> None:
    told = spoilt(make_record().model_dump(mode="json"), more="w" * 100_000)
    text = render(Record.model_validate(told), Page())
    assert "w" * 1000 in text
    assert "w" * (LONGEST + 1) not in text
