"""Figures on the board, and how many there are of what.

A facet is one combination of all that the board filters by. A filter is then a set of facets,
each of whose figures lie in order in an index, and a total is a sum over facets: both cost the
same whether a server holds a hundred runs or a million.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Connection, Table, bindparam, delete, func, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite

from npumark.engines.catalogue import PROVIDERS
from npumark.server.tables import facets, figures

RUN, ROLE, ENGINE, FORMAT = 3, 2, 1, 0
"""What a figure stands for (``facets.level``): the whole run, the best of its role, of its
engine, or no more than a format on an engine. Each includes those below it."""

ELSE: Final = "other"
"""The runtime or format of a figure whose own is none that this version knows: what a record
says freely must not make facets without end."""

_KEY = ("score_version", "suite", "edition", "os", "role", "runtime", "format", "level", "ranked")
_RUNTIMES = frozenset(row.runtime_title for row in PROVIDERS)
_FORMATS = frozenset({"FP32", "FP16", "BF16", "INT8", "W8", "INT4", "W4", "LUT4", "BFP16", "FP8"})
_SYSTEMS = frozenset({"linux", "windows", "macos", "android", "ios"})


def put(connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert figures and count them. A row holds the columns of ``figures`` but ``id`` and
    ``facet_id``, and those of its facet but ``id`` and ``figures``; of any number of results."""
    if not rows:
        return
    keys = [_key(row) for row in rows]
    ids = _count_up(connection, Counter(keys))
    own = [c.name for c in figures.columns if c.name not in ("id", "facet_id")]
    connection.execute(
        insert(figures),
        [
            {**{name: row[name] for name in own}, "facet_id": ids[key]}
            for row, key in zip(rows, keys, strict=True)
        ],
    )


def drop(connection: Connection, result_ids: Sequence[str]) -> None:
    """Delete the figures of results, and count them down; those that have none are no fault."""
    of = figures.c.result_id.in_(result_ids)
    gone = connection.execute(
        select(figures.c.facet_id, func.count()).where(of).group_by(figures.c.facet_id)
    ).all()
    if not gone:
        return
    connection.execute(delete(figures).where(of))
    connection.execute(
        update(facets)
        .where(facets.c.id == bindparam("facet"))
        .values(figures=facets.c.figures - bindparam("fewer")),
        [{"facet": facet, "fewer": fewer} for facet, fewer in sorted(gone)],
    )


def _key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    known = {"runtime": _RUNTIMES, "format": _FORMATS, "os": _SYSTEMS}
    return tuple(
        row[name] if name not in known or row[name] in known[name] else ELSE for name in _KEY
    )


def _count_up(
    connection: Connection, more: Mapping[tuple[Any, ...], int]
) -> dict[tuple[Any, ...], int]:
    """Add to facets' counts, making those that are new; return their ids."""
    # In one order everywhere, so that two writers never wait for each other's rows.
    values = [dict(zip(_KEY, key, strict=True), figures=more[key]) for key in sorted(more)]
    statement = _inserting(connection, facets).values(values)
    statement = statement.on_conflict_do_update(
        index_elements=[facets.c[name] for name in _KEY],
        set_={"figures": facets.c.figures + statement.excluded.figures},
    )
    rows = connection.execute(
        statement.returning(facets.c.id, *(facets.c[name] for name in _KEY))
    ).all()
    return {tuple(row[1:]): row[0] for row in rows}


def _inserting(connection: Connection, table: Table) -> Any:
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    return dialect.insert(table)
