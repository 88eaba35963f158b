from __future__ import annotations

import io
import os

import pytest

from npumark.plain import LONGEST
from npumark.report.page import NARROWEST, Page, page_of


class Stream(io.StringIO):
    """A stream that says what it is: a terminal or not, and its encoding."""

    def __init__(self, *, terminal: bool, encoding: str = "utf-8") -> None:
        super().__init__()
        self._terminal = terminal
        self._encoding = encoding

    def isatty(self) -> bool:
        return self._terminal

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._encoding

    def fileno(self) -> int:
        raise OSError("no descriptor")


def test_a_pipe_has_no_width_no_colour_and_no_redrawing() -> None:
    page = page_of(Stream(terminal=False), {"COLUMNS": "20", "TERM": "xterm"})
    assert (page.width, page.colour, page.live) == (None, False, False)


def test_a_terminal_has_all_three() -> None:
    page = page_of(Stream(terminal=True), {"TERM": "xterm"})
    assert (page.width, page.colour, page.live) == (80, True, True)


@pytest.mark.parametrize(
    ("columns", "width"),
    [
        ("0", 80),
        ("", 80),
        ("-5", 80),
        ("wide", 80),
        ("9" * 5000, 80),
        ("\u0661\u0662\u0663", 80),
        ("1", NARROWEST),
        ("20", 20),
        ("132", 132),
    ],
)
def test_columns_is_obeyed_where_it_makes_sense(columns: str, width: int) -> None:
    assert page_of(Stream(terminal=True), {"COLUMNS": columns}).width == width


@pytest.mark.parametrize(
    ("terminal", "env", "colour"),
    [
        (True, {"NO_COLOR": "1"}, False),
        (False, {"FORCE_COLOR": "1"}, True),
        (False, {"FORCE_COLOR": "0"}, False),
        (True, {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        (True, {"TERM": "dumb"}, False),
        (False, {"FORCE_COLOR": "1", "TERM": "dumb"}, True),
    ],
)
def test_colour_follows_the_usual_variables(
    terminal: bool, env: dict[str, str], colour: bool
) -> None:
    assert page_of(Stream(terminal=terminal), env).colour is colour


def test_a_dumb_terminal_is_never_redrawn_even_when_colour_is_forced() -> None:
    page = page_of(Stream(terminal=True), {"TERM": "dumb", "FORCE_COLOR": "1"})
    assert not page.live


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "latin-1", "no-such-encoding"])
def test_an_encoding_without_blocks_gets_ascii(encoding: str) -> None:
    page = page_of(Stream(terminal=True, encoding=encoding), {})
    assert not page.unicode
    page.plain("0.83 TOPS · CPU — 512×2048 → █▏…").encode("ascii")


def test_a_real_pseudo_terminal_tells_its_width() -> None:
    pty = pytest.importorskip("pty")
    leader, follower = pty.openpty()
    try:
        os.set_blocking(leader, False)
        with os.fdopen(follower, "w") as stream:
            assert page_of(stream, {"TERM": "xterm"}).width == 80  # a new one says 0
    finally:
        os.close(leader)


def test_a_closed_stream_is_no_terminal() -> None:
    stream = io.StringIO()
    stream.close()
    assert not page_of(stream, {}).live


def test_text_loses_what_a_terminal_would_obey_and_keeps_its_spaces() -> None:
    page = Page()
    assert page.plain("\x1b[31ma\x1b[0m  b\x1b]0;title\x07") == "a  b"
    assert page.plain("a\x07b\nc\x9bd\u202ee\ud800") == "a b c d e "
    assert page.plain("0.83 TOPS · µs — ✓") == "0.83 TOPS · µs — ✓"


def test_a_text_that_would_fill_screens_is_cut_and_a_path_is_not() -> None:
    page = Page()
    assert page.plain("w" * 600_000) == "w" * LONGEST + "…"
    path = "/" + "p" * 4095
    assert page.plain(path) == path
