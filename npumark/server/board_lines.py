"""Lines of the board, read in order from the figures of any number of facets.

One statement takes the first figures of each facet from an index and merges them: its cost is
bounded by the number of facets and the square of that of lines, whatever the server holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Literal, NamedTuple

from sqlalchemy import (
    BigInteger,
    BindParameter,
    Column,
    Connection,
    FromClause,
    Integer,
    Select,
    Subquery,
    bindparam,
    func,
    literal,
    select,
    true,
    tuple_,
)

from npumark.server.cursor import Cursor
from npumark.server.tables import facets, figures, processors, results

Sort = Literal["tops", "delivered", "newest"]
SORTS: Final[Mapping[Sort, Column[Any]]] = {
    "tops": figures.c.tops,
    "delivered": figures.c.delivered,
    "newest": figures.c.received_at,
}
MOST_COUNTED = 10_000
"""How far figures of some processors are counted."""


@dataclass(frozen=True, slots=True)
class Within:
    """Which figures: of facets, and of some processors or results only where those are given."""

    facets: tuple[int, ...]
    processors: tuple[int, ...] | None = None
    results: tuple[str, ...] | None = None

    @property
    def by(self) -> _By:
        """What the figures are looked up by."""
        if self.results is not None:
            return "results"
        return "facets" if self.processors is None else "processors"

    @property
    def empty(self) -> bool:
        return not self.facets or self.processors == () or self.results == ()

    def values(self) -> dict[str, Any]:
        """Return the values of the statements' lists."""
        return {"facets": self.facets, self.by: getattr(self, self.by)}


class Line(NamedTuple):
    """A figure on the board, with its result and its processor. ``position`` is its rank, null
    where what is not ranked may stand beside it. ``delivered`` is null where it is not complete
    and stable; ``received_at`` is in UTC seconds since 1970."""

    position: int | None
    figure_id: int
    result_id: str
    tops: float
    unstable: bool
    delivered: float | None
    received_at: int
    engine: str
    label: str
    workload: str
    score_version: str
    suite: str
    edition: str
    os: str
    role: str
    runtime: str
    format: str
    ranked: bool
    processor: str
    slug: str
    created: str
    trust: str
    attestation: str
    quick: bool
    comparable: bool
    not_ranked_because: tuple[str, ...]


_FIGURE = (
    figures.c.id,
    figures.c.result_id,
    figures.c.tops,
    figures.c.unstable,
    figures.c.delivered,
    figures.c.received_at,
    figures.c.engine,
    figures.c.label,
    figures.c.workload,
)
_OF_FACET = tuple(
    facets.c[name]
    for name in ("score_version", "suite", "edition", "os", "role", "runtime", "format", "ranked")
)
_OF_RESULT = tuple(
    results.c[name]
    for name in ("created", "trust", "attestation", "quick", "comparable", "not_ranked_because")
)


def read_lines(
    connection: Connection, within: Within, sort: Sort, cursor: Cursor | None, most: int
) -> list[Line]:
    """Return at most ``most`` lines after ``cursor`` (before it where that looks backwards, the
    nearest ones), the greatest or newest first. Their positions are null."""
    if within.empty:
        return []
    way: _Way = "first" if cursor is None else "before" if cursor.backwards else "after"
    statement = _statement(connection.dialect.name, within.by, sort, way)
    values = {**within.values(), "most": most}
    if cursor is not None:
        values |= {"value": cursor.value, "figure": cursor.figure_id}
    return [_line(row) for row in connection.execute(statement, values).mappings()]


def count_lines(connection: Connection, within: Within) -> int:
    """Return how many figures of some processors or results there are; more than
    ``MOST_COUNTED`` count as one more than that."""
    if within.empty:
        return 0
    counted: int = connection.execute(_counting(within.by), within.values()).scalar_one()
    return counted


# Statements are made once for each form, and get their values when they are executed: making
# one takes longer than the database needs for it.
_FACETS: Final[BindParameter[Any]] = bindparam("facets", expanding=True)
_PROCESSORS: Final[BindParameter[Any]] = bindparam("processors", expanding=True)
_RESULTS: Final[BindParameter[Any]] = bindparam("results", expanding=True)
_MOST: Final[BindParameter[Any]] = bindparam("most", type_=Integer)

_By = Literal["facets", "processors", "results"]
_Way = Literal["first", "after", "before"]


@cache
def _counting(by: _By) -> Select[Any]:
    wanted = select(literal(1)).select_from(figures).where(*_all_within(by))
    return select(func.count()).select_from(wanted.limit(MOST_COUNTED + 1).subquery())


@cache
def _statement(dialect: str, by: _By, sort: Sort, way: _Way) -> Select[Any]:
    """Return the statement that reads lines."""
    order = _Order(sort, way)
    if by == "results":
        own = select(figures.c.id).where(*_all_within(by), *order.cut())
        page = own.order_by(*order.of(figures)).limit(_MOST)
    else:
        page = _merged(dialect, by, order)
    chosen = page.subquery("page")
    joined: FromClause = (
        chosen.join(figures, figures.c.id == chosen.c.id)
        .join(facets, facets.c.id == figures.c.facet_id)
        .join(processors, processors.c.id == figures.c.processor_id)
        .join(results, results.c.id == figures.c.result_id)
    )
    shown = (processors.c.name.label("processor"), processors.c.slug, *_OF_RESULT)
    statement = select(*_FIGURE, *_OF_FACET, *shown).select_from(joined)
    return statement.order_by(*_Order(sort, "first").of(figures))


@dataclass(frozen=True, slots=True)
class _Order:
    """An order of figures and where in it to begin. Backwards it is read from its other end."""

    sort: Sort
    way: _Way

    def of(self, table: FromClause) -> tuple[Any, Any]:
        """Return what to sort ``table`` by, which has the columns of figures."""
        value, key = table.c[SORTS[self.sort].name], table.c.id
        if self.way == "before":
            return value.asc(), key.asc()
        return value.desc(), key.desc()

    def cut(self) -> list[Any]:
        """Return what keeps a figure within the order, and beyond the cursor."""
        column = SORTS[self.sort]
        # Only what has a complete and stable figure is in that order.
        found: list[Any] = [column.is_not(None)] if column.nullable else []
        if self.way == "first":
            return found
        key = tuple_(column, figures.c.id)
        edge = tuple_(bindparam("value", type_=column.type), bindparam("figure", type_=BigInteger))
        return [*found, key > edge if self.way == "before" else key < edge]


def _merged(dialect: str, by: _By, order: _Order) -> Select[Any]:
    """Return the ids of the first figures of each facet (and processor), merged and cut again."""
    leads = _leads(by, order)
    each = _of_lead(leads, by)
    value = SORTS[order.sort]
    if dialect == "postgresql":
        top = select(figures.c.id, value).where(*each, *order.cut()).order_by(*order.of(figures))
        found: FromClause = top.limit(_MOST).correlate(leads).lateral("found")
        joined = leads.join(found, true())
    else:
        # SQLite has no LATERAL, and evaluates this subquery once for each lead.
        ids = select(figures.c.id).where(*each, *order.cut()).order_by(*order.of(figures))
        found = figures.alias("found")
        joined = leads.join(found, found.c.id.in_(ids.limit(_MOST).correlate(leads)))
    return select(found.c.id).select_from(joined).order_by(*order.of(found)).limit(_MOST)


def _leads(by: _By, order: _Order) -> Subquery:
    """Return the facets (and processors) that can have one of the first figures: of more than
    there are figures wanted, those whose own first figure comes first."""
    wanted = facets.c.id.in_(_FACETS)
    if by == "facets":
        every = select(facets.c.id.label("facet")).where(wanted).subquery("every")
    else:
        of_role = processors.c.role == facets.c.role
        every = (
            select(facets.c.id.label("facet"), processors.c.id.label("processor"))
            .select_from(facets.join(processors, of_role))
            .where(wanted, processors.c.id.in_(_PROCESSORS))
            .subquery("every")
        )
    own = select(figures.c.id).where(*_of_lead(every, by), *order.cut())
    first = own.order_by(*order.of(figures)).limit(1).correlate(every).scalar_subquery()
    heads = select(every, first.label("first")).subquery("heads")
    head = figures.alias("head")
    return (
        select(*(column for column in heads.c if column.name != "first"))
        .select_from(heads.join(head, head.c.id == heads.c.first))
        .order_by(*order.of(head))
        .limit(_MOST)
        .subquery("leads")
    )


def _of_lead(leads: FromClause, by: _By) -> list[Any]:
    """Return what ties a figure to its lead."""
    found = [figures.c.facet_id == leads.c.facet]
    if by == "processors":
        found.append(figures.c.processor_id == leads.c.processor)
    return found


def _all_within(by: _By) -> list[Any]:
    found = [figures.c.facet_id.in_(_FACETS)]
    if by == "processors":
        found.append(figures.c.processor_id.in_(_PROCESSORS))
    if by == "results":
        found.append(figures.c.result_id.in_(_RESULTS))
    return found


def _line(row: Mapping[Any, Any]) -> Line:
    fields = {name: value for name, value in row.items() if name != "id"}
    because = tuple(fields.pop("not_ranked_because"))
    return Line(position=None, figure_id=row["id"], not_ranked_because=because, **fields)
