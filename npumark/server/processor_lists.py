"""Processors: which there are, how their machines differ, and how their engines compare."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, Select, select

from npumark.plain import one_line
from npumark.score import stats
from npumark.server.board import Filters, Series, chosen_series, read_facets
from npumark.server.facets import ROLE
from npumark.server.tables import facets, figures, processors, results

NEWEST = 2_000
"""How many figures of a processor its page is made of, the newest."""
LISTED = 200
"""How many processors a list shows, those with the most runs."""

_SLUG = re.compile(r"[a-z0-9-]{1,120}")


@dataclass(frozen=True, slots=True)
class ProcessorLine:
    slug: str
    name: str
    role: str
    runs: int


@dataclass(frozen=True, slots=True)
class ProcessorList:
    """``more``: there are processors that are not in it."""

    lines: tuple[ProcessorLine, ...]
    more: bool


@dataclass(frozen=True, slots=True)
class EngineLine:
    """The median of a runtime's peaks in a format (TOPS), over ``machines`` machines."""

    runtime: str
    format: str
    tops: float
    machines: int
    delivered: float | None
    share: float


@dataclass(frozen=True, slots=True)
class ProcessorPage:
    """``peaks`` holds for each machine the median of its best peaks on this processor (TOPS),
    greatest first; ``newest`` results, newest first. ``cut``: only the newest were read."""

    name: str
    slug: str
    role: str
    series: Series | None
    others: tuple[Series, ...]
    peaks: tuple[float, ...]
    median: float | None
    runs: int
    cut: bool
    engines: tuple[EngineLine, ...]
    newest: tuple[tuple[str, int, float, str], ...]


def processor_list(connection: Connection, q: str) -> ProcessorList:
    """Return the processors whose name holds ``q``, those with the most runs first."""
    folded = one_line(q).casefold()
    columns = (processors.c.slug, processors.c.name, processors.c.role, processors.c.runs)
    rows = connection.execute(
        select(*columns)
        .where(processors.c.folded.contains(folded, autoescape=True), processors.c.runs > 0)
        .order_by(processors.c.runs.desc(), processors.c.folded, processors.c.id)
        .limit(LISTED + 1)
    ).all()
    return ProcessorList(tuple(ProcessorLine(*row) for row in rows[:LISTED]), len(rows) > LISTED)


def processor_page(connection: Connection, slug: str, filters: Filters) -> ProcessorPage | None:
    """Return the page of a processor in a series, null where there is none of that name.

    Ranked results count alone: what is not comparable says nothing of a processor.
    """
    if not _SLUG.fullmatch(slug):
        return None
    row = connection.execute(select(processors).where(processors.c.slug == slug)).one_or_none()
    if row is None:
        return None
    known = [f for f in read_facets(connection) if f.role == row.role and f.ranked]
    series = chosen_series(known, filters)
    mine = [f for f in known if f.series == series]
    rows = connection.execute(
        newest_statement(row.id, [f.id for f in mine if f.level >= ROLE])
    ).all()
    each = connection.execute(newest_statement(row.id, [f.id for f in mine])).all()
    machines: dict[str, list[float]] = defaultdict(list)
    for found in rows:
        machines[found.machine].append(found.tops)
    peaks = sorted((stats.median(values) for values in machines.values()), reverse=True)
    return ProcessorPage(
        name=row.name,
        slug=row.slug,
        role=row.role,
        series=series,
        others=tuple(sorted({f.series for f in known} - {series}, reverse=True)),
        peaks=tuple(peaks),
        median=stats.median(peaks) if peaks else None,
        runs=len(rows),
        cut=len(rows) == NEWEST or len(each) == NEWEST,
        engines=tuple(_engines(each)),
        newest=tuple((r.result_id, r.received_at, r.tops, r.label) for r in rows[:20]),
    )


def newest_statement(processor: int, facet_ids: Collection[int]) -> Select[Any]:
    """Return the statement for a processor's newest figures of some facets; its plan is looked
    at by tests."""
    chosen = (
        select(figures.c.id)
        .where(figures.c.processor_id == processor, figures.c.facet_id.in_(facet_ids))
        .order_by(figures.c.received_at.desc())
        .limit(NEWEST)
        .subquery("chosen")
    )
    joined = (
        chosen.join(figures, figures.c.id == chosen.c.id)
        .join(results, results.c.id == figures.c.result_id)
        .join(facets, facets.c.id == figures.c.facet_id)
    )
    return (
        select(
            figures.c.result_id,
            figures.c.received_at,
            figures.c.tops,
            figures.c.label,
            figures.c.delivered,
            facets.c.runtime,
            facets.c.format,
            results.c.machine,
        )
        .select_from(joined)
        .order_by(figures.c.received_at.desc(), figures.c.id.desc())
    )


def _engines(rows: Iterable[Row[Any]]) -> list[EngineLine]:
    """Return the median of each runtime and format over machines, the greatest first."""
    peaks: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    reached: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        key = (row.runtime, row.format)
        peaks[key][row.machine].append(row.tops)
        if row.delivered is not None:
            reached[key][row.machine].append(row.delivered)
    medians = {key: _over_machines(found) for key, found in peaks.items()}
    best = max(medians.values(), default=1.0) or 1.0
    lines = [
        EngineLine(
            runtime=runtime,
            format=number_format,
            tops=tops,
            machines=len(peaks[runtime, number_format]),
            delivered=_over_machines(reached[runtime, number_format])
            if reached[runtime, number_format]
            else None,
            share=tops / best,
        )
        for (runtime, number_format), tops in medians.items()
    ]
    return sorted(lines, key=lambda line: line.tops, reverse=True)


def _over_machines(values: Mapping[str, Sequence[float]]) -> float:
    """Return the median over machines of each one's own median: no machine counts twice."""
    return stats.median([stats.median(own) for own in values.values()])
