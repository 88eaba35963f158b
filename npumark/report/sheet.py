"""A sheet of lines: prose that wraps, tables that become lists where they do not fit."""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from npumark.report.page import Page, width_of

Part = str | tuple[str, str]
"""Text, or text with a Rich style."""

GOOD, BAD, WARN, DIM, STRONG = "green", "red", "yellow", "dim", "bold"

_GAP = "  "
_HOLD = "\x00"
_UNIT = re.compile(r"(?<=\d) (?=(?:%|[kMG]?B|[mµun]?s|min|h|dB|nat|TOPS|inf/s)(?!\w))")


@dataclass(frozen=True, slots=True)
class Column:
    """``unit`` follows a value where a row is shown as a list (``412 inf/s``)."""

    title: str
    right: bool = False
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """Cells by column; ``note`` takes a line of its own below them. A row of one cell is a
    heading of those that follow."""

    cells: tuple[Part, ...]
    note: Part | None = None


class Sheet:
    """Lines laid out for one page. Nothing is ever cut: what does not fit wraps or is stacked."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self._lines: list[Text] = []

    def line(self, *parts: Part, indent: int = 0) -> None:
        """Add one line as it is."""
        text = Text(" " * indent)
        for part in parts:
            content, style = _split(part)
            text.append(self.page.plain(content), style)
        text.rstrip()
        self._lines.append(text)

    def blank(self) -> None:
        """Add an empty line, unless the sheet is empty or ends with one."""
        if self._lines and self._lines[-1].plain:
            self._lines.append(Text())

    def heading(self, title: str) -> None:
        self.blank()
        self.say(title, style=STRONG)

    def say(self, text: str, *, indent: int = 0, hang: int = 0, style: str = "") -> None:
        """Add prose, wrapped between words; ``hang`` indents every line but the first."""
        room = self.page.prose - indent - hang
        plain = _together(self.page.plain(" ".join(text.split())), room)
        lines = textwrap.wrap(
            plain,
            max(self.page.prose, 8),
            initial_indent=" " * indent,
            subsequent_indent=" " * (indent + hang),
            break_long_words=False,
            break_on_hyphens=False,
        )
        self._lines += [Text(line.replace(_HOLD, " "), style) for line in lines]

    def parts(self, parts: Sequence[Part], *, indent: int = 0) -> None:
        """Add parts with gaps between them, breaking between parts where they do not fit."""
        self._flow("", parts, indent)

    def path(self, lead: str, path: str, *, indent: int = 0) -> None:
        """Add a path after ``lead``, on a line of its own where both do not fit on one."""
        if self.page.fits(indent + width_of(lead) + 1 + width_of(path)):
            self.line(f"{lead} {path}", indent=indent)
        else:
            self.line(lead, indent=indent)
            self.line(path, indent=indent)

    def facts(self, rows: Sequence[tuple[str, Sequence[Part]]], *, indent: int = 0) -> None:
        """Add names and what is to be said of them, the latter aligned; parts wrap as wholes."""
        if not rows:
            return
        lead = max(width_of(name) for name, _ in rows) + len(_GAP)
        for name, parts in rows:
            self._flow(name.ljust(lead), parts, indent)

    def table(self, columns: Sequence[Column], rows: Sequence[Row], *, indent: int = 0) -> None:
        """Add a table, or a list of its rows where the page is too narrow for it."""
        full = [row for row in rows if len(row.cells) == len(columns)]
        if not full:
            return
        widths = [
            max(width_of(self.page.plain(t)) for t in (c.title, *(_text(r.cells[i]) for r in full)))
            for i, c in enumerate(columns)
        ]
        total = indent + sum(widths) + len(_GAP) * (len(columns) - 1)
        if self.page.fits(total):
            self._table(columns, rows, widths, indent)
        else:
            self._list(columns, rows, indent)

    def text(self) -> str:
        """Return the lines as one string that ends with a newline."""
        if not self.page.colour:
            return "".join(line.plain + "\n" for line in self._lines)
        out = io.StringIO()
        console = Console(
            file=out, force_terminal=True, color_system="standard", width=10_000, highlight=False
        )
        for line in self._lines:
            console.print(line, soft_wrap=True)
        return out.getvalue()

    def _flow(self, lead: str, parts: Sequence[Part], indent: int) -> None:
        pad = " " * (indent + width_of(lead))
        line = Text(" " * indent + self.page.plain(lead))
        empty = True
        for piece, gap, style in self._pieces(parts, len(pad)):
            if not empty and not self.page.fits(width_of(line.plain + gap + piece)):
                self._lines.append(line)
                line, empty = Text(pad), True
            line.append("" if empty else gap)
            line.append(piece, style)
            empty = False
        self._lines.append(line)

    def _pieces(self, parts: Sequence[Part], indent: int) -> Iterator[tuple[str, str, str]]:
        """Yield what must stay together, the gap before it and its style: a whole part, or
        its words where the part alone is wider than the page."""
        for part in parts:
            content, style = _split(part)
            content = self.page.plain(content)
            whole = self.page.fits(indent + width_of(content))
            for i, piece in enumerate([content] if whole else _with_units(content).split()):
                yield piece.replace(_HOLD, " "), " " if i else _GAP, style

    def _table(
        self, columns: Sequence[Column], rows: Sequence[Row], widths: Sequence[int], indent: int
    ) -> None:
        self._row([(c.title, DIM) for c in columns], columns, widths, indent)
        for row in rows:
            if len(row.cells) == len(columns):
                self._row(row.cells, columns, widths, indent)
            else:
                self.line(*row.cells, indent=indent)
            self._note(row, indent + len(_GAP) * 2)

    def _row(
        self, cells: Sequence[Part], columns: Sequence[Column], widths: Sequence[int], indent: int
    ) -> None:
        text = Text(" " * indent)
        for i, (cell, column, width) in enumerate(zip(cells, columns, widths, strict=True)):
            content, style = _split(cell)
            content = self.page.plain(content)
            space = " " * (width - width_of(content))
            text.append(_GAP if i else "")
            text.append(space if column.right else "")
            text.append(content, style)
            text.append("" if column.right else space)
        text.rstrip()
        self._lines.append(text)

    def _list(self, columns: Sequence[Column], rows: Sequence[Row], indent: int) -> None:
        for row in rows:
            if len(row.cells) != len(columns):
                self.line(*row.cells, indent=indent)
                continue
            parts: list[Part] = []
            for column, cell in zip(columns[1:], row.cells[1:], strict=True):
                content, style = _split(cell)
                unit = column.unit if any(c.isdigit() for c in content) else ""
                name = "" if column.unit else f"{column.title} "
                if content:
                    parts.append((f"{name}{content}{unit}", style))
            first, style = _split(row.cells[0])
            self.line((first, style), indent=indent)
            self._flow("  ", parts, indent + 2)
            self._note(row, indent + len(_GAP) * 2)

    def _note(self, row: Row, indent: int) -> None:
        if row.note is not None:
            content, style = _split(row.note)
            self.say(content, indent=indent, hang=2, style=style)


def _together(text: str, room: int) -> str:
    """Return ``text`` with commands in backticks held together where they fit on one line with
    the mark that follows."""

    def hold(match: re.Match[str]) -> str:
        return match[0].replace(" ", _HOLD) if len(match[0]) <= room else match[0]

    return _with_units(re.sub(r"`[^`]+`\S*", hold, text))


def _with_units(text: str) -> str:
    """Return ``text`` with each number held together with its unit."""
    return _UNIT.sub(_HOLD, text)


def _split(part: Part) -> tuple[str, str]:
    return (part, "") if isinstance(part, str) else part


def _text(part: Part) -> str:
    return _split(part)[0]
