"""What a stream can show: its width, colour and characters.

A terminal tells its width and gets colour. Anything else (a pipe, a file, a CI log) gets neither
colour nor truncation: its width is unlimited, so no path is ever cut.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO

from rich.cells import cell_len

from npumark.plain import bounded, printable

NARROWEST = 20
"""Columns below which nothing is laid out; a narrower terminal wraps by itself."""

COMFORTABLE = 100
"""Where lines of prose wrap however wide the page is."""

_COLUMNS = re.compile(r"[0-9]{1,6}")

_PLAIN = str.maketrans(
    {
        "·": "-", "×": "x", "–": "-", "—": "-", "…": "...", "→": "->", "≤": "<=", "≥": ">=",
        "÷": "/", "−": "-", "█": "#", "▉": "#", "▊": "#", "▋": "#", "▌": "#", "▍": "", "▎": "",
        "▏": "", "░": ".", "✓": "+", "✗": "x", "²": "2", "’": "'", "µ": "u",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Page:
    """``width`` is in columns, None where lines may be of any length. ``live`` says whether
    the stream is a terminal whose lines can be redrawn."""

    width: int | None = None
    colour: bool = False
    unicode: bool = True
    live: bool = False

    @property
    def prose(self) -> int:
        """The width at which sentences wrap."""
        return min(self.width or COMFORTABLE, COMFORTABLE)

    def fits(self, columns: int) -> bool:
        return self.width is None or columns <= self.width

    def plain(self, text: str) -> str:
        """Return ``text`` in characters that the stream can show: without what a terminal would
        obey, whoever wrote it, and cut where it would fill screens. All text of a page comes
        through here."""
        text = printable(bounded(text))
        return text if self.unicode else text.translate(_PLAIN)


def page_of(stream: IO[str], env: Mapping[str, str] | None = None) -> Page:
    """Return what ``stream`` can show, by its own word and the usual variables.

    ``NO_COLOR`` (any value) takes colour away; ``FORCE_COLOR`` gives it to a pipe; ``TERM=dumb``
    has neither colour nor redrawing; ``COLUMNS`` overrides a terminal's width where it is a
    positive number.
    """
    env = os.environ if env is None else env
    terminal = _is_terminal(stream)
    dumb = env.get("TERM", "").lower() in {"dumb", "unknown"}
    forced = env.get("FORCE_COLOR", "") not in {"", "0"}
    colour = (forced or (terminal and not dumb)) and not env.get("NO_COLOR")
    return Page(
        width=max(_columns(stream, env), NARROWEST) if terminal else None,
        colour=colour,
        unicode=_can_show_blocks(stream),
        live=terminal and not dumb,
    )


def width_of(text: str) -> int:
    """Return how many columns ``text`` takes."""
    return cell_len(text)


def _is_terminal(stream: IO[str]) -> bool:
    try:
        return stream.isatty()
    except ValueError:  # closed
        return False


def _columns(stream: IO[str], env: Mapping[str, str]) -> int:
    asked = env.get("COLUMNS", "")
    if _COLUMNS.fullmatch(asked) and int(asked) > 0:
        return int(asked)
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError):
        return 80


def _can_show_blocks(stream: IO[str]) -> bool:
    try:
        "█▏·×—→".encode(getattr(stream, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
