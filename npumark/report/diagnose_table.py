"""A probe's table with its chart: a bar beside each row, or below where the page is narrow."""

from __future__ import annotations

from collections.abc import Sequence

from npumark.diagnose.document import Cell, ProbeFinding
from npumark.report.charts import bar
from npumark.report.page import Page, width_of
from npumark.report.sheet import Column, Row, Sheet
from npumark.report.words import DASH, figure, percent, size

_MOST_ROWS = 12
_WIDEST_BAR, _NARROWEST_BAR = 24, 6
_GAP = 2

_Drawn = dict[str, Cell]


def table(sheet: Sheet, finding: ProbeFinding, *, indent: int) -> None:
    """Add the table of ``finding``, with a bar for each value of the column that it names.

    A long table shows every so many rows and the last, and says so.
    """
    rows, note = _shown(finding.rows)
    columns = finding.columns
    if not rows or not columns:
        return
    cells = [[cell_text(c.key, row.get(c.key)) for c in columns] for row in rows]
    right = [
        i > 0 and any(_number(row.get(c.key)) is not None for row in rows)
        for i, c in enumerate(columns)
    ]
    heads = [
        Column(c.title, right=r, unit=f" {c.title}" if _is_rate(c.key) else "")
        for c, r in zip(columns, right, strict=True)
    ]
    taken = indent + sum(
        _GAP + max(width_of(sheet.page.plain(text)) for text in (c.title, *(r[i] for r in cells)))
        for i, c in enumerate(columns)
    )
    page = sheet.page
    room = _WIDEST_BAR if page.width is None else min(_WIDEST_BAR, page.width - taken)
    shares = _shares(finding.bars, rows)
    beside = bool(shares) and room >= _NARROWEST_BAR
    bars = [(_bar(share, room, page), "cyan") for share in shares] if beside else []
    if beside:
        heads.append(Column(""))
    lines = [Row((*line, *bars[i : i + 1])) for i, line in enumerate(cells)]
    sheet.table(heads, lines, indent=indent)
    if shares and not beside:
        _chart(sheet, [line[0] for line in cells], shares, indent)
    if note:
        sheet.say(note, indent=indent)


def cell_text(key: str, value: Cell) -> str:
    """Return a cell as people read it: how, the ending of its column's key says."""
    if value is None:
        return DASH
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    if key.endswith("_ns"):
        return latency(value)
    if key.endswith("_share"):
        return percent(value)
    if key == "ratio" or key.endswith("_ratio"):
        return f"{value:.2f} ×"
    if key.endswith("_bytes"):
        return size(round(value))
    if key.endswith("_celsius"):
        return f"{value:.0f} °C"
    return figure(value) if isinstance(value, float) else f"{value}"


def latency(ns: float) -> str:
    """Return the length of a call to three digits: ``412 µs``, ``73.1 ms``, ``1.20 s``."""
    for unit, scale in (("µs", 1e3), ("ms", 1e6)):
        rounded = float(f"{ns / scale:.3g}")
        if rounded < 1000:
            return f"{figure(rounded)} {unit}"
    return f"{figure(ns / 1e9)} s"


def _shown(rows: Sequence[_Drawn]) -> tuple[list[_Drawn], str | None]:
    if len(rows) <= _MOST_ROWS:
        return list(rows), None
    every = -(-len(rows) // (_MOST_ROWS - 1))
    shown = [row for i, row in enumerate(rows) if i % every == 0 or i == len(rows) - 1]
    return shown, f"{len(shown)} of {len(rows)} rows are shown; the document has all."


def _shares(key: str | None, rows: Sequence[_Drawn]) -> list[float | None]:
    """Return each row's value against the largest; null where it has none, and nothing at all
    where there is nothing to draw."""
    if key is None:
        return []
    values = [_number(row.get(key)) for row in rows]
    best = max((v for v in values if v is not None), default=0.0)
    return [None if v is None else max(0.0, v / best) for v in values] if best > 0 else []


def _is_rate(key: str) -> bool:
    """Whether a column's title is the unit of its values: ``inf/s each``."""
    return key == "ips" or key.endswith("_ips")


def _number(value: Cell) -> float | None:
    return None if value is None or isinstance(value, bool | str) else float(value)


def _bar(share: float | None, width: int, page: Page) -> str:
    return "" if share is None else bar(share, width, unicode=page.unicode)


def _chart(sheet: Sheet, names: Sequence[str], shares: Sequence[float | None], indent: int) -> None:
    """Add a bar for each row, beside its name where both fit and below it where not."""
    page = sheet.page
    lead = max(width_of(page.plain(name)) for name in names)
    width = min(_WIDEST_BAR, (page.width or _WIDEST_BAR + lead) - indent - lead - _GAP)
    for name, share in zip(names, shares, strict=True):
        text = page.plain(name)
        if width >= _NARROWEST_BAR:
            pad = " " * (lead - width_of(text) + _GAP)
            sheet.line(f"{text}{pad}", (_bar(share, width, page), "cyan"), indent=indent)
        else:
            sheet.say(text, indent=indent)
            room = max(1, (page.width or _WIDEST_BAR) - indent)
            sheet.line((_bar(share, room, page), "cyan"), indent=indent)
