"""What a results server keeps: one object in front of the database.

Each method is one transaction. Whatever a method has returned for is on the disk.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, Row, text

from npumark.errors import IntegrityError, SetupError
from npumark.record.envelope import Registration, Withdrawal
from npumark.record.model import Payload
from npumark.server import accept, keys, log, migrations, results
from npumark.server.accept import NewResult, Prepared
from npumark.server.committer import Committer
from npumark.server.config import ServerConfig
from npumark.server.database import check_reachable, make_engine, reading, shown, writing
from npumark.server.keys import KeyRow, Registered, machine_digest
from npumark.server.moderation import Moderation
from npumark.server.refusal import Refused, refuse

__all__ = ["KeyRow", "NewResult", "Registered", "Store", "machine_digest", "open_existing"]

_MIGRATING = 0x6E70756D61726B
"""PostgreSQL's advisory lock of a server that migrates."""


def open_existing(url: str) -> Engine:
    """Return the engine of a server's database, for those who look after it.

    Raises SetupError where it cannot be reached, there is none, or it has the schema of another
    npumark: the server itself migrates it when it starts.
    """
    engine = make_engine(url)
    start = "Name the database with --database or its folder with --data; the server makes it."
    file = engine.url.database
    if engine.dialect.name == "sqlite" and not Path(file or "").is_file():
        raise SetupError(f"there is no database {file}", start)
    check_reachable(engine)
    with reading(engine) as connection:
        present = migrations.revision(connection)
    if present is None:
        raise SetupError(f"{shown(engine.url)} is no database of a results server", start)
    if present != migrations.newest():
        raise SetupError(
            f"the database has the schema {present}, and this npumark works with "
            f"{migrations.newest()}",
            "Use the npumark that the server runs with; its start brings the schema up to date.",
        )
    return engine


def origin_in(url: str) -> str | None:
    """Return what the log in a database is called; null where none was begun yet.

    Raises SetupError where the database cannot be used.
    """
    engine = make_engine(url)
    try:
        check_reachable(engine)
        with reading(engine) as connection:
            begun = migrations.revision(connection) is not None
            return log.origin_of(log.head(connection)) if begun else None
    finally:
        engine.dispose()


class Store:
    """``now`` tells the time in UTC seconds since 1970."""

    def __init__(self, config: ServerConfig, *, now: Callable[[], float] = time.time) -> None:
        self.config = config
        self.engine: Engine = make_engine(config.database_url)
        self._now = now
        self.moderation = Moderation(self.engine, now)
        self._committer: Committer[Prepared, bytes] = Committer(self._commit)

    def open(self) -> None:
        """Connect. Raises SetupError where the database cannot be used."""
        check_reachable(self.engine)

    def close(self) -> None:
        """Store what waits, and disconnect."""
        self._committer.close()
        self.engine.dispose()

    def migrate(self) -> None:
        """Make the schema what this version works with, and begin the log where there is none.

        Of servers that start at once, one migrates and the others wait. Raises SetupError where
        a newer npumark made the database, or its log is another's.
        """
        with writing(self.engine) as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(text("SET LOCAL lock_timeout = 0"))
                connection.execute(text(f"SELECT pg_advisory_xact_lock({_MIGRATING})"))
            migrations.upgrade(connection)
            log.begin(connection, self.config)
            log.check_signed_by(connection, self.config)

    def schema_is_current(self) -> bool:
        """Whether the database has the schema of this version. Raises SQLAlchemyError where it
        cannot be reached."""
        with reading(self.engine) as connection:
            return migrations.revision(connection) == migrations.newest()

    def register_key(self, registration: Registration) -> Registered:
        """Make a key known for a machine (methodology §8). Raises Refused."""
        with writing(self.engine) as connection:
            limits = self.config.limits
            return keys.register(connection, registration, limits, self._instant())

    def key(self, key_id: str) -> KeyRow | None:
        """Return a registered key, whether it may be used or not."""
        with reading(self.engine) as connection:
            return keys.find_one(connection, key_id)

    def earlier(self, payload_sha256: str, run_id: str) -> results.Earlier | None:
        """Return what was accepted of that payload or, as another payload, of that run."""
        with reading(self.engine) as connection:
            return results.earlier(connection, payload_sha256, run_id)

    def accept(self, new: NewResult) -> bytes:
        """Store a result; return its receipt once it is on the disk. Raises Refused."""
        return self.accept_soon(new).result()

    def accept_soon(self, new: NewResult) -> Future[bytes]:
        """Return what ``accept`` will; what waits at the same time is stored together."""
        return self._committer.submit(accept.prepare(new))

    def announced(self) -> AbstractContextManager[None]:
        """While the body runs, something more may be accepted any moment: it is waited for."""
        return self._committer.announced()

    def accept_many(self, batch: Sequence[NewResult]) -> list[bytes | Refused]:
        """Store results in one transaction, under one head of the log."""
        return self._commit([accept.prepare(new) for new in batch])

    def record_bytes(self, result_id: str) -> bytes | None:
        """Return a record as it was accepted, to the byte; null: unknown or withdrawn."""
        with reading(self.engine) as connection:
            return results.record_bytes(connection, result_id)

    def payload(self, result_id: str) -> Payload:
        """Return what a stored record says. Raises Refused (withdrawn, record_form)."""
        raw = self.record_bytes(result_id)
        if raw is None:
            raise refuse("withdrawn", "its owner withdrew it")
        try:
            return results.payload_in(raw)
        except IntegrityError as fault:
            raise refuse("record_form", fault.message) from fault

    def result(self, result_id: str) -> Row[Any] | None:
        """Return a result's row, hidden and withdrawn ones too; null: there is none."""
        with reading(self.engine) as connection:
            return results.find(connection, result_id)

    def withdraw(self, withdrawal: Withdrawal) -> int:
        """Delete a result's content for its owner; return when that was done, now or before.
        The signature is the caller's to check. Raises Refused."""
        machine = machine_digest(withdrawal.machine_id)
        with writing(self.engine) as connection:
            known = keys.find_one(connection, withdrawal.key_id)
            keys.check_usable(known, withdrawal.key_id, machine)
            return results.withdraw(connection, withdrawal.result_id, machine, self._instant())

    def _instant(self) -> int:
        return int(self._now())

    def _commit(self, batch: Sequence[Prepared]) -> list[bytes | Refused]:
        with writing(self.engine) as connection:
            return accept.accept_many(connection, batch, self.config, self._instant())
