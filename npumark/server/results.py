"""Stored results: reading them, and taking them off the pages and back."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError
from sqlalchemy import Connection, Row, bindparam, delete, or_, select, update

from npumark.errors import IntegrityError
from npumark.record.model import Payload, Record
from npumark.server import log, showing
from npumark.server.refusal import refuse
from npumark.server.tables import bodies, results


@dataclass(frozen=True, slots=True)
class Earlier:
    """What was accepted before: the digests of its payload and of its machine, its receipt, and
    when it was withdrawn (UTC seconds, null where it was not)."""

    payload_sha256: str
    machine: str
    receipt: bytes
    withdrawn_at: int | None


# Made once: it is asked for every submission.
_EARLIER: Final = select(
    results.c.payload_sha256, results.c.machine, results.c.receipt, results.c.withdrawn_at
).where(
    or_(
        results.c.payload_sha256 == bindparam("payload_sha256"),
        results.c.run_id == bindparam("run_id"),
    )
)


def earlier(connection: Connection, payload_sha256: str, run_id: str) -> Earlier | None:
    """Return what was accepted of a payload (hexadecimal digest) or, as another payload, of its
    run; null where nothing was."""
    given = {"payload_sha256": payload_sha256, "run_id": run_id}
    row = connection.execute(_EARLIER, given).first()
    return None if row is None else Earlier(*row)


def find(connection: Connection, result_id: str) -> Row[Any] | None:
    """Return the row of a result, all columns of ``results``; hidden and withdrawn ones too."""
    return connection.execute(select(results).where(results.c.id == result_id)).first()


def record_bytes(connection: Connection, result_id: str) -> bytes | None:
    """Return a record's bytes as they were accepted; null where there is no such result, or it
    was withdrawn."""
    query = select(bodies.c.record).where(bodies.c.result_id == result_id)
    packed = connection.scalar(query)
    return None if packed is None else zlib.decompress(packed)


def payload_in(record: bytes) -> Payload:
    """Return the payload of a stored record. Raises IntegrityError where this version does not
    read records of its form."""
    try:
        return Record.model_validate_json(record).payload
    except ValidationError as fault:
        raise IntegrityError(
            "this version does not read records of its form", "The npumark that accepted it does."
        ) from fault


def withdraw(connection: Connection, result_id: str, machine: str, now: int) -> int:
    """Delete a result's content for the machine (its digest) that submitted it; its leaf and its
    receipt stay. Return when it was withdrawn, now or before.

    Raises Refused (not_found, not_the_owner).
    """
    log.head(connection, lock=True)
    row = find(connection, result_id)
    if row is None:
        raise refuse("not_found", "there is no such result", id=result_id)
    if row.machine != machine:
        raise refuse("not_the_owner", "another machine submitted this result", id=result_id)
    if row.withdrawn_at is not None:
        return int(row.withdrawn_at)
    showing.unshow(connection, [result_id])
    connection.execute(delete(bodies).where(bodies.c.result_id == result_id))
    _set(connection, result_id, withdrawn_at=now, label=None, tops=None, faults=[])
    return now


def hide(connection: Connection, result_ids: Sequence[str], why: str, now: int) -> None:
    """Take results off the pages; what they hold stays."""
    log.head(connection, lock=True)
    showing.unshow(connection, result_ids)
    of = results.c.id.in_(result_ids)
    connection.execute(update(results).where(of).values(hidden_at=now, hidden_why=why))


def unhide(connection: Connection, result_id: str) -> None:
    """Show a hidden result again; one that is shown stays so. Raises IntegrityError, and it stays
    hidden, where this version does not read its record."""
    log.head(connection, lock=True)
    row = find(connection, result_id)
    if row is not None and row.hidden_at is not None:
        _set(connection, result_id, hidden_at=None, hidden_why=None)
        if (raw := record_bytes(connection, result_id)) is not None:
            of = {"result_id": row.id, "received_at": row.received_at, "ranked": row.ranked}
            showing.show(connection, showing.rows_of(payload_in(raw), **of))


def _set(connection: Connection, result_id: str, **values: Any) -> None:
    connection.execute(update(results).where(results.c.id == result_id).values(values))
