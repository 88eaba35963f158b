"""Fills a results server's database with synthetic runs, to be looked at and not to be verified.

A few forged records are accepted as the server would. Every further run is a copy of one of them
under another name, with other rates and another instant, on one of many processors of the same
kind. The log has a leaf for each.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, Table, func, insert, select, update

from npumark.record.canonical import canonical_bytes, strict_loads
from npumark.record.envelope import Envelope, Registration, result_id_of
from npumark.record.model import Payload
from npumark.server import log, tables
from npumark.server.accept import NewResult
from npumark.server.config import ServerConfig
from npumark.server.store import Store
from tests import forge
from tool.server_under_test import Sender

CPUS: Final = ("AMD Ryzen 9 7950X", "Intel Core Ultra 7 258V", "AMD EPYC 9654")
CARDS: Final = (None, "NVIDIA GeForce RTX 4090", "NVIDIA L40S")
SYSTEMS: Final = ("Ubuntu 24.04.3 LTS", "Windows 11 Pro", "Ubuntu 24.04.3 LTS")
VARIANTS: Final = 80
"""Processors that each of these stands for; a few of them have most of the runs."""

Row = dict[str, Any]

_CHUNK: Final = 5_000
_MACHINES: Final = 200_000
_YEAR_S: Final = 365 * 86_400
_ID: Final = "abcdefghijklmnopqrstuvwxyz234567"


def fill(config: ServerConfig, runs: int, *, bodies: int = 20_000, seed: int = 1) -> list[str]:
    """Fill an empty, migrated database up to ``runs`` results; return the ids of those that have
    a record to show, the last ``bodies``."""
    draw = random.Random(seed)
    store = Store(config)
    store.open()
    try:
        originals = _accept_originals(store, config)
        shown: list[str] = []
        with store.engine.begin() as connection:
            copies = _Copies(connection, originals, draw, bodies_from=runs - bodies)
            indexes = [i for t in (tables.results, tables.figures) for i in t.indexes]
            for index in indexes:
                index.drop(connection)
        for start in range(len(originals), runs, _CHUNK):
            numbers = range(start, min(start + _CHUNK, runs))
            with store.engine.begin() as connection:
                ids = copies.write(connection, numbers)
                head = log.head(connection, lock=True)
                # Nobody reads these leaves: their entries are the results' names alone.
                log.append(connection, head, [name.encode() for name in ids], config)
            shown += ids[max(0, runs - bodies - numbers.start) :]
        with store.engine.begin() as connection:
            for index in indexes:
                index.create(connection)
            _count(connection)
        _settle(store)
        return shown
    finally:
        store.close()


@dataclass(frozen=True)
class _Template:
    """The rows of an accepted result."""

    result: Row
    figures: list[Row]
    body: Row


class _Copies:
    """Copies of accepted results: rows that differ in what a page shows."""

    def __init__(
        self,
        connection: Connection,
        originals: Sequence[str],
        draw: random.Random,
        bodies_from: int,
    ) -> None:
        self._draw = draw
        self._bodies_from = bodies_from
        self._now = int(time.time())
        self._variants = _make_variants(connection)
        self._templates = [_template(connection, result_id) for result_id in originals]

    def write(self, connection: Connection, numbers: range) -> list[str]:
        """Insert results of these numbers; return their ids."""
        results: list[Row] = []
        figures: list[Row] = []
        bodies: list[Row] = []
        for number in numbers:
            template = self._draw.choice(self._templates)
            result = self._result(template.result, number)
            results.append(result)
            figures += self._figures(template.figures, result)
            if number >= self._bodies_from:
                bodies.append({**template.body, "result_id": result["id"]})
        for table, rows in (
            (tables.results, results),
            (tables.figures, figures),
            (tables.bodies, bodies),
        ):
            _insert(connection, table, rows)
        return [row["id"] for row in results]

    def _result(self, original: Row, number: int) -> Row:
        draw = self._draw
        return {
            **original,
            "id": "".join(draw.choices(_ID, k=16)),
            "leaf_index": number,
            "run_id": f"synthetic-{number}",
            "payload_sha256": f"{draw.getrandbits(256):064x}",
            "record_sha256": f"{draw.getrandbits(256):064x}",
            "machine": f"{draw.randrange(_MACHINES):064x}",
            "received_at": self._now - draw.randrange(_YEAR_S),
        }

    def _figures(self, originals: Sequence[Row], result: Row) -> Iterator[Row]:
        speed = self._draw.lognormvariate(0.0, 0.15)
        variant = min(int(self._draw.expovariate(0.1)), VARIANTS - 1)
        for figure in originals:
            delivered = figure["delivered"]
            yield {
                **figure,
                "result_id": result["id"],
                "processor_id": self._variants[figure["processor_id"]][variant],
                "tops": figure["tops"] * speed,
                "delivered": None if delivered is None else delivered * speed,
                "received_at": result["received_at"],
            }


def _template(connection: Connection, result_id: str) -> _Template:
    (result,) = _rows(connection, tables.results, "id", result_id)
    (body,) = _rows(connection, tables.bodies, "result_id", result_id)
    figures = _rows(connection, tables.figures, "result_id", result_id)
    for figure in figures:
        del figure["id"]
    return _Template(result, figures, body)


def _rows(connection: Connection, table: Table, column: str, value: str) -> list[Row]:
    found = connection.execute(select(table).where(table.c[column] == value)).mappings()
    return [dict(row) for row in found]


def _make_variants(connection: Connection) -> dict[int, list[int]]:
    """Return more processors for each that there is, itself the first."""
    found = {}
    for row in connection.execute(select(tables.processors)).all():
        variants = [
            {
                "slug": f"{row.slug}-v{n}",
                "name": f"{row.name} v{n}",
                "folded": f"{row.folded} v{n}",
                "role": row.role,
            }
            for n in range(2, VARIANTS + 1)
        ]
        made = insert(tables.processors).returning(tables.processors.c.id)
        found[row.id] = [row.id, *connection.scalars(made, variants)]
    return found


def _insert(connection: Connection, table: Table, rows: list[Row]) -> None:
    """Insert as fast as the driver can."""
    if not rows:
        return
    values = [[_plain(value) for value in row.values()] for row in rows]
    into = f"{table.name} ({', '.join(rows[0])})"
    driver: Any = connection.connection.driver_connection
    if connection.dialect.name == "postgresql":
        with driver.cursor() as cursor, cursor.copy(f"COPY {into} FROM STDIN") as copy:
            for row in values:
                copy.write_row(row)
    else:
        marks = ", ".join("?" * len(rows[0]))
        driver.executemany(f"INSERT INTO {into} VALUES ({marks})", values)


def _plain(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, list) else value


def _count(connection: Connection) -> None:
    """Bring the counters in line with the rows."""
    facet = select(func.count()).where(tables.figures.c.facet_id == tables.facets.c.id)
    connection.execute(update(tables.facets).values(figures=facet.scalar_subquery()))
    of = tables.figures.c.processor_id == tables.processors.c.id
    runs = select(func.count(tables.figures.c.result_id.distinct())).where(of)
    connection.execute(update(tables.processors).values(runs=runs.scalar_subquery()))


def _settle(store: Store) -> None:
    """Do at once what the database would do by itself in the time that so many runs take."""
    postgres = store.engine.dialect.name == "postgresql"
    with store.engine.connect() as connection:
        driver: Any = connection.connection.driver_connection
        if postgres:
            driver.autocommit = True
        driver.execute("VACUUM ANALYZE" if postgres else "PRAGMA wal_checkpoint(TRUNCATE)")
        if postgres:
            driver.autocommit = False


def _accept_originals(store: Store, config: ServerConfig) -> list[str]:
    sender = Sender(config.origin, 0)
    registration = strict_loads(sender.registration())
    store.register_key(Registration.model_validate(registration))
    accepted = []
    for quick in (False, True):
        for cpu in CPUS:
            for card, system in zip(CARDS, SYSTEMS, strict=True):
                payload = forge.forge_payload(
                    quick=quick, cpu=cpu, cards=1 if card else 0, card=card or forge.CARD
                )
                machine = {**payload.machine, "os": system}
                named = payload.model_copy(update={"machine": machine})
                accepted.append(_accept(store, sender, named))
    return accepted


def _accept(store: Store, sender: Sender, payload: Payload) -> str:
    """Have a run accepted as if it had been verified; return its id. Quick ones are not ranked."""
    document = strict_loads(sender.submission(payload))
    quick = payload.plan.quick
    store.accept(
        NewResult(
            record=canonical_bytes(document["record"]),
            payload=Payload.model_validate(document["record"]["payload"]),
            signatures=document["record"]["signatures"],
            envelope=Envelope.model_validate(document["envelope"]),
            trust="release",
            ranked=not quick,
            not_ranked_because=["quick"] if quick else [],
            faults=(),
            rules_sha256="0" * 64,
        )
    )
    return result_id_of(document["envelope"]["payload_sha256"])
