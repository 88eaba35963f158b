"""The connection to the database: SQLite as a file of its own, or PostgreSQL by URL.

Reads run in deferred transactions. A write transaction of SQLite takes the write lock at its start
(``BEGIN IMMEDIATE``), so that it never fails half-way for having read first; one of PostgreSQL
(READ COMMITTED) locks the rows that it decides by. What was committed survives SIGKILL and a power
cut: SQLite flushes its log at every commit (``synchronous = FULL``), PostgreSQL does by itself.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from npumark.errors import SetupError
from npumark.server.refusal import refuse

BUSY_MS: Final = 10_000
"""How long a writer waits for another one before the request is refused as ``busy``."""
CONNECT_S: Final = 10

_log = logging.getLogger("npumark.server")

_WRITES: Final = "npumark_writes"
_URLS: Final = "Use sqlite:///FILE, or postgresql://USER@HOST/DATABASE."
_POSTGRESQL: Final = {"postgresql", "postgres", "postgresql+psycopg"}


def sqlite_url(file: Path) -> str:
    """Return the URL of the database in a file."""
    return URL.create("sqlite", database=str(file.absolute())).render_as_string()


def make_engine(url: str) -> Engine:
    """Return the engine of a database, which is not connected to yet.

    Raises SetupError where the URL cannot be read, is of another kind of database, or names no
    file or database that could keep anything.
    """
    parsed = _parsed(url)
    if parsed.drivername == "sqlite":
        engine = create_engine(parsed, pool_size=8, max_overflow=32, pool_timeout=BUSY_MS / 1000)
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    options = f"-c lock_timeout={BUSY_MS}"
    try:
        return create_engine(
            parsed,
            isolation_level="READ COMMITTED",
            pool_size=8,
            max_overflow=8,
            pool_timeout=BUSY_MS / 1000,
            pool_pre_ping=True,
            connect_args={
                "connect_timeout": CONNECT_S,
                "application_name": "npumark",
                **({} if "options" in parsed.query else {"options": options}),
            },
        )
    except ImportError as fault:
        raise SetupError(
            "PostgreSQL cannot be used: psycopg is not installed here",
            "pip install 'npumark[server]'",
        ) from fault


def check_reachable(engine: Engine) -> None:
    """Connect once. Raises SetupError saying why not: no server, no such database, no permission,
    a file that is no database. A file of SQLite is made here where it is missing, for its owner
    alone; SQLite gives what it writes beside it the same permissions."""
    where = shown(engine.url)
    file = engine.url.database or ""
    if engine.dialect.name == "sqlite" and not Path(file).absolute().parent.is_dir():
        raise SetupError(
            f"the database {file} lies in a folder that does not exist", "Create the folder first."
        )
    if engine.dialect.name == "sqlite":
        with suppress(OSError):  # it is there, or SQLite says below why it cannot be
            Path(file).touch(mode=0o600, exist_ok=False)
    reads = "SELECT count(*) FROM sqlite_master" if engine.dialect.name == "sqlite" else "SELECT 1"
    try:
        with engine.connect() as connection:
            connection.exec_driver_sql(reads)
    except DBAPIError as fault:
        reason = " ".join(str(fault.orig).split())
        if engine.dialect.name == "sqlite":
            hint = "Name a file in a folder that exists and that this user can write to."
        else:
            hint = "Check the URL, that PostgreSQL runs, and that the user may use the database."
        raise SetupError(f"the database {where} cannot be used: {reason}", hint) from fault


def check_usable(url: str) -> None:
    """Connect to a database once and let go of it. Raises SetupError as ``make_engine`` and
    ``check_reachable`` do."""
    engine = make_engine(url)
    try:
        check_reachable(engine)
    finally:
        engine.dispose()


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """A transaction that writes nothing. Raises Refused as ``writing``."""
    with _answering(), engine.connect() as connection, connection.begin():
        yield connection


@contextmanager
def snapshot(engine: Engine) -> Iterator[Connection]:
    """A transaction that writes nothing and sees one state throughout, with PostgreSQL as well."""
    with _answering(), engine.connect() as connection:
        if engine.dialect.name == "postgresql":
            connection.execution_options(isolation_level="REPEATABLE READ")
        with connection.begin():
            yield connection


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """A transaction that is committed when the body ends, and rolled back where it raises.

    Raises Refused (``busy``) where the database is locked for too long, full or gone.
    """
    with _answering():
        opened = engine.connect().execution_options(**{_WRITES: True})
        with opened as connection, connection.begin():
            yield connection


@contextmanager
def _answering() -> Iterator[None]:
    """Keep what the database says that it cannot do in the log, and let the sender come again."""
    try:
        yield
    except (OperationalError, InterfaceError, PoolTimeout) as fault:
        _log.warning("the database does not answer: %s", getattr(fault, "orig", None) or fault)
        raise refuse(
            "busy", "the database does not answer now; send it again later", retry_after_s=5
        ) from fault


def shown(url: URL) -> str:
    """Return a URL without its password."""
    return url.render_as_string(hide_password=True)


def _parsed(url: str) -> URL:
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        raise SetupError("the database's URL cannot be read", _URLS) from None
    if parsed.drivername in _POSTGRESQL:
        return parsed.set(drivername="postgresql+psycopg")
    if parsed.drivername != "sqlite":
        raise SetupError(f"{parsed.drivername} is no kind of database that is known here", _URLS)
    if not parsed.database or parsed.database == ":memory:":
        raise SetupError("the database's URL names no file, and nothing would be kept", _URLS)
    return parsed


def _prepare_sqlite(connection: sqlite3.Connection, _: Any) -> None:
    # The driver begins no transaction of its own; ``_begin_sqlite`` does.
    connection.isolation_level = None
    connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA cache_size = -16384")  # KiB


def _begin_sqlite(connection: Connection) -> None:
    writes = connection.get_execution_options().get(_WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN DEFERRED")
