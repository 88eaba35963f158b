"""Figures on and off the board, with the processors that they are of.

``processors.runs`` counts the shown results with a figure of that processor. Callers hold the
log's head (``log.head`` with its lock), so that writers of figures come one after the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, func, insert, select, tuple_, update

from npumark.record.model import Payload
from npumark.server import facets
from npumark.server.figures import Device, figures_of
from npumark.server.tables import figures, processors


def rows_of(
    payload: Payload, *, result_id: str, received_at: int, ranked: bool
) -> list[dict[str, Any]]:
    """Return the rows that ``show`` takes of a result."""
    of = {"result_id": result_id, "received_at": received_at, "ranked": ranked}
    return [{**row, **of} for row in figures_of(payload)]


def show(connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    """Put figures on the board, of any number of results that have none there."""
    if not rows:
        return
    ids = _processors(connection, {row["device"] for row in rows})
    facets.put(connection, [{**row, "processor_id": ids[row["device"]]} for row in rows])
    of = {(row["result_id"], ids[row["device"]]) for row in rows}
    _count(connection, Counter(processor for _, processor in of))


def unshow(connection: Connection, result_ids: Sequence[str]) -> None:
    """Take results' figures off the board; those that have none are no fault."""
    runs = func.count(figures.c.result_id.distinct())
    query = select(figures.c.processor_id, runs).where(figures.c.result_id.in_(result_ids))
    held = connection.execute(query.group_by(figures.c.processor_id)).all()
    facets.drop(connection, result_ids)
    _count(connection, {processor: -runs for processor, runs in held})


def _processors(connection: Connection, devices: Collection[Device]) -> dict[Device, int]:
    """Return the ids of devices; those that were never seen get one."""
    known = _known(connection, devices)
    new = sorted((d for d in devices if d not in known), key=lambda d: (d.role, d.name))
    if not new:
        return known
    taken = {d.slug for d in new}
    used = set(connection.scalars(select(processors.c.slug).where(processors.c.slug.in_(taken))))
    for device in new:
        slug = device.own_slug if device.slug in used else device.slug
        used.add(slug)
        values = {"slug": slug, "name": device.name, "folded": device.folded, "runs": 0}
        connection.execute(insert(processors).values(role=device.role, **values))
    return known | _known(connection, new)


def _known(connection: Connection, devices: Collection[Device]) -> dict[Device, int]:
    key = tuple_(processors.c.role, processors.c.name)
    query = select(processors.c.id, processors.c.role, processors.c.name)
    rows = connection.execute(query.where(key.in_([(d.role, d.name) for d in devices])))
    return {Device(row.role, row.name): row.id for row in rows}


def _count(connection: Connection, more: Mapping[int, int]) -> None:
    if more:
        connection.execute(
            update(processors)
            .where(processors.c.id == bindparam("processor"))
            .values(runs=processors.c.runs + bindparam("more")),
            [{"processor": processor, "more": n} for processor, n in more.items()],
        )
