"""The board: which figures a filter shows, in which order, page by page.

Pages are cut by key, never by number, so that the next page follows the one that was seen while
results arrive. Only figures of one series stand in one board (methodology §10).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from sqlalchemy import Connection, case, select

from npumark.plain import one_line
from npumark.server.board_lines import (
    MOST_COUNTED,
    Line,
    Sort,
    Within,
    count_lines,
    read_lines,
)
from npumark.server.cursor import Cursor
from npumark.server.facets import ENGINE, FORMAT, ROLE, RUN
from npumark.server.tables import facets, processors, results

MOST_FOUND = 20
"""Processors, or results, that a search goes on with."""

_ID = re.compile(r"[a-z2-7]{4,16}")


class Series(NamedTuple):
    """What may be ranked together."""

    score_version: str
    suite: str
    edition: str


@dataclass(frozen=True, slots=True)
class Filters:
    """What a board shows; empty: not filtered by. ``q`` is part of a processor's name, or the
    beginning of a result's id. ``everything`` shows what is not ranked as well."""

    role: str = ""
    runtime: str = ""
    format: str = ""
    os: str = ""
    score_version: str = ""
    suite: str = ""
    edition: str = ""
    q: str = ""
    everything: bool = False


class Facet(NamedTuple):
    """A row of ``facets``."""

    id: int
    series: Series
    os: str
    role: str
    runtime: str
    format: str
    level: int
    ranked: bool
    figures: int


@dataclass(frozen=True, slots=True)
class Choices:
    """What each filter can be set to in a series, and every series that there is."""

    roles: tuple[str, ...]
    runtimes: tuple[str, ...]
    formats: tuple[str, ...]
    systems: tuple[str, ...]
    series: tuple[Series, ...]


@dataclass(frozen=True, slots=True)
class Board:
    """A page of the board. ``total`` is exact unless ``more``: then it is how far was counted.
    ``series`` is null where the server holds nothing yet."""

    lines: tuple[Line, ...]
    total: int
    more: bool
    previous: str | None
    next: str | None
    series: Series | None
    choices: Choices


def board(
    connection: Connection, filters: Filters, sort: Sort, cursor: str | None, limit: int
) -> Board:
    """Return a page of at most ``limit`` lines. Raises Refused for a cursor of another order."""
    place = Cursor.read(cursor, sort) if cursor else None
    known = read_facets(connection)
    series = chosen_series(known, filters)
    mine = [f for f in known if f.series == series]
    shown = [f for f in mine if _fits(f, filters)]
    within = Within(tuple(f.id for f in shown))
    total = sum(f.figures for f in shown)
    if filters.q:
        within = _searched(connection, within, filters.q)
        total = count_lines(connection, within)
    found = read_lines(connection, within, sort, place, limit + 1)
    lines, before, after = _cut(found, place, limit)
    return Board(
        lines=tuple(_unnumbered(lines) if filters.everything or sort == "newest" else lines),
        total=min(total, MOST_COUNTED) if filters.q else total,
        more=bool(filters.q) and total > MOST_COUNTED,
        previous=_cursor(lines[0], sort, backwards=True) if lines and before else None,
        next=_cursor(lines[-1], sort, backwards=False) if lines and after else None,
        series=series,
        choices=_choices(mine, {f.series for f in known}),
    )


def read_facets(connection: Connection) -> list[Facet]:
    """Return every facet that has figures."""
    of = facets.c
    series = (of.score_version, of.suite, of.edition)
    others = (of.os, of.role, of.runtime, of.format, of.level, of.ranked, of.figures)
    rows = connection.execute(select(of.id, *series, *others).where(of.figures > 0))
    return [Facet(row[0], Series(*row[1:4]), *row[4:]) for row in rows]


def chosen_series(known: Iterable[Facet], filters: Filters) -> Series | None:
    """Return the series that ``filters`` ask for: where several fit, the newest score version,
    and of that the series with the most figures. Null where none fits."""
    sizes: Counter[Series] = Counter()
    for facet in known:
        sizes[facet.series] += facet.figures
    fitting = [
        s
        for s in sizes
        if filters.score_version in ("", s.score_version)
        and filters.suite in ("", s.suite)
        and filters.edition in ("", s.edition)
    ]
    return max(fitting, key=lambda s: (_version(s.score_version), sizes[s], s), default=None)


def best_level(filters: Filters) -> int:
    """Return what a line stands for: the run where nothing is filtered by, otherwise the best of
    what the filter names: role, engine or format."""
    if filters.format:
        return FORMAT
    if filters.runtime:
        return ENGINE
    return ROLE if filters.role else RUN


def _fits(facet: Facet, filters: Filters) -> bool:
    return (
        (facet.ranked or filters.everything)
        and facet.level >= best_level(filters)
        and filters.role in ("", facet.role)
        and filters.runtime in ("", facet.runtime)
        and filters.format in ("", facet.format)
        and filters.os in ("", facet.os)
    )


def _searched(connection: Connection, within: Within, q: str) -> Within:
    """Return ``within`` narrowed to processors whose name holds ``q``, those whose name begins
    with it first, then those with the most runs; or else to results whose id begins with it."""
    folded = one_line(q).casefold()
    begins = case((processors.c.folded.startswith(folded, autoescape=True), 0), else_=1)
    named = connection.execute(
        select(processors.c.id)
        .where(processors.c.folded.contains(folded, autoescape=True))
        .order_by(begins, processors.c.runs.desc(), processors.c.id)
        .limit(MOST_FOUND)
    ).scalars()
    found = tuple(named)
    if found or not _ID.fullmatch(folded):
        return replace(within, processors=found)
    last = folded.ljust(16, "z")
    ids = connection.execute(
        select(results.c.id).where(results.c.id.between(folded, last)).limit(MOST_FOUND)
    ).scalars()
    return replace(within, results=tuple(ids))


def _cut(found: Sequence[Line], place: Cursor | None, limit: int) -> tuple[list[Line], bool, bool]:
    """Return the lines of a page, numbered, and whether there are lines before and after it.

    ``found`` holds one line more than the page where there is one in the reading's direction.
    """
    more = len(found) > limit
    if place is None:
        return _numbered(found[:limit], 1), False, more
    if not place.backwards:
        return _numbered(found[:limit], place.position + 1), True, more
    kept = found[-limit:]
    # Before the first line nothing is left, whatever arrived since the cursor was made.
    first = place.position - len(kept) if more else 1
    return _numbered(kept, max(1, first)), more, True


def _numbered(lines: Iterable[Line], first: int) -> list[Line]:
    return [line._replace(position=at) for at, line in enumerate(lines, first)]


def _unnumbered(lines: Iterable[Line]) -> list[Line]:
    return [line._replace(position=None) for line in lines]


def _cursor(line: Line, sort: Sort, *, backwards: bool) -> str:
    value = {"tops": line.tops, "delivered": line.delivered, "newest": line.received_at}[sort]
    assert value is not None, "only what has a value is in its order"
    return Cursor(sort, value, line.figure_id, line.position or 1, backwards).write()


_ROLES = ("CPU", "iGPU", "dGPU", "NPU")


def _choices(mine: Sequence[Facet], series: Iterable[Series]) -> Choices:
    def seen(of: Iterable[str]) -> tuple[str, ...]:
        return tuple(sorted(set(of)))

    roles = {f.role for f in mine}
    return Choices(
        roles=tuple(role for role in _ROLES if role in roles),
        runtimes=seen(f.runtime for f in mine),
        formats=seen(f.format for f in mine),
        systems=seen(f.os for f in mine),
        series=tuple(sorted(series, reverse=True)),
    )


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"[0-9]{1,9}", text))
