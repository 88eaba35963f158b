"""Which databases a server takes, how it speaks to them, and the schema that they get."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import text

from npumark.errors import SetupError
from npumark.record.signing import InstallKey
from npumark.server import log, migrations
from npumark.server.config import ServerConfig
from npumark.server.database import make_engine, reading, shown, sqlite_url, writing
from npumark.server.store import Store, open_existing
from npumark.server.tables import metadata
from tests.server.cluster import Cluster
from tests.server.conftest import Clock, config_of

Open = Callable[[ServerConfig], Store]


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "cannot be read"),
        ("server.sqlite", "cannot be read"),
        ("mysql://root@localhost/npumark", "mysql is no kind"),
        ("sqlite://", "names no file"),
        ("sqlite:///:memory:", "names no file"),
        ("postgresql://localhost:port/npumark", "cannot be read"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused_at_once(url: str, said: str) -> None:
    with pytest.raises(SetupError, match=said):
        make_engine(url)


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg"])
def test_every_spelling_of_postgresql_is_psycopg(scheme: str) -> None:
    engine = make_engine(f"{scheme}://me:secret@db.example/npumark")
    assert engine.url.drivername == "postgresql+psycopg"
    assert "secret" not in shown(engine.url)


def refused(url: str) -> SetupError:
    store = Store(config_of(url))
    try:
        with pytest.raises(SetupError) as caught:
            store.open()
    finally:
        store.close()
    assert caught.value.hint
    return caught.value


def test_a_postgresql_that_is_not_there_is_said_without_its_password(tmp_path: Path) -> None:
    caught = refused(f"postgresql://me:secret@/npumark?host={tmp_path}")
    assert "cannot be used" in caught.message
    assert "secret" not in caught.message


def test_a_folder_that_is_missing_is_said(tmp_path: Path) -> None:
    caught = refused(f"sqlite:///{tmp_path}/missing/server.sqlite")
    assert "folder that does not exist" in caught.message


def test_a_database_that_postgresql_lacks_is_said(cluster: Cluster) -> None:
    missing = cluster.database().replace("@/", "@/missing_")
    assert "does not exist" in refused(missing).message


def test_a_file_that_is_no_database_is_said_and_stays(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("remember the milk " * 100)
    assert "not a database" in refused(f"sqlite:///{file}").message
    assert file.read_text().startswith("remember")


def test_the_url_of_a_file_leads_back_to_it(tmp_path: Path) -> None:
    file = tmp_path / "a b?c%41#d.sqlite"
    engine = make_engine(sqlite_url(file))
    with writing(engine) as connection:
        connection.execute(text("CREATE TABLE t (x INTEGER)"))
    engine.dispose()
    assert file.is_file()


def test_sqlite_is_set_up_to_lose_nothing(sqlite: str) -> None:
    engine = make_engine(sqlite)
    with reading(engine) as connection:
        found = {
            name: connection.scalar(text(f"PRAGMA {name}"))
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        }
    engine.dispose()
    full = 2
    assert found == {
        "journal_mode": "wal",
        "synchronous": full,
        "foreign_keys": 1,
        "busy_timeout": 10_000,
    }


def test_a_write_transaction_of_sqlite_holds_the_lock_from_its_start(sqlite: str) -> None:
    engine = make_engine(sqlite)
    with writing(engine) as connection:
        connection.execute(text("CREATE TABLE t (x INTEGER)"))
    other = sqlite3.connect(sqlite.removeprefix("sqlite:///"), timeout=0, isolation_level=None)
    with writing(engine), pytest.raises(sqlite3.OperationalError, match="locked"):
        other.execute("BEGIN IMMEDIATE")
    with reading(engine) as connection:
        connection.execute(text("SELECT * FROM t"))
        other.execute("BEGIN IMMEDIATE")  # a reader keeps no writer waiting
        other.execute("ROLLBACK")
    other.close()
    engine.dispose()


def test_a_body_that_raises_is_rolled_back(database: str) -> None:
    engine = make_engine(database)
    with writing(engine) as connection:
        connection.execute(text("CREATE TABLE t (x INTEGER)"))

    def insert_and_fail() -> None:
        with writing(engine) as connection:
            connection.execute(text("INSERT INTO t VALUES (1)"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        insert_and_fail()
    with reading(engine) as connection:
        assert connection.execute(text("SELECT * FROM t")).all() == []
    engine.dispose()


def test_migrations_make_the_schema_of_the_tables(database: str, opened: Open) -> None:
    store = opened(config_of(database))
    with reading(store.engine) as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []
    assert store.schema_is_current()


def test_a_schema_that_lacks_something_is_seen(sqlite_store: Store) -> None:
    with writing(sqlite_store.engine) as connection:
        connection.execute(text("DROP TABLE cosignatures"))
        context = MigrationContext.configure(connection)
        assert compare_metadata(context, metadata) != []


def test_migrating_again_changes_nothing(store: Store) -> None:
    with reading(store.engine) as connection:
        before = log.head(connection)
    store.migrate()
    with reading(store.engine) as connection:
        assert log.head(connection) == before


def test_servers_that_start_at_once_migrate_one_after_the_other(database: str) -> None:
    stores = [Store(config_of(database), now=Clock()) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(Store.migrate, stores))
    assert all(store.schema_is_current() for store in stores)
    for store in stores:
        store.close()


def test_a_database_without_a_schema_is_not_current(database: str) -> None:
    store = Store(config_of(database))
    assert not store.schema_is_current()
    store.close()


def test_a_database_of_a_newer_version_is_refused(database: str, opened: Open) -> None:
    store = opened(config_of(database))
    with writing(store.engine) as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    assert not store.schema_is_current()
    with pytest.raises(SetupError, match=r"newer npumark .*9999") as caught:
        store.migrate()
    assert caught.value.hint
    with reading(store.engine) as connection:
        assert migrations.revision(connection) == "9999"


def test_a_log_is_not_taken_over_by_another_key(store: Store, opened: Open) -> None:
    other = InstallKey(b"\x08" * 32)
    config = config_of(store.config.database_url, key=other)
    with pytest.raises(SetupError, match="another key"):
        opened(config)
    with writing(store.engine) as connection:
        assert log.adopt_key(connection, other)
        assert not log.adopt_key(connection, other)
    opened(config)


def test_a_log_is_not_taken_over_by_another_server(store: Store, opened: Open) -> None:
    config = config_of(store.config.database_url, origin="else.example")
    with pytest.raises(SetupError, match=r"that of results\.example") as caught:
        opened(config)
    assert "--origin results.example" in str(caught.value.hint)


def test_only_a_database_that_is_there_is_opened_for_admin(sqlite: str, opened: Open) -> None:
    for missing in (sqlite, sqlite.replace("server.sqlite", "missing/server.sqlite")):
        with pytest.raises(SetupError, match="there is no database"):
            open_existing(missing)
    file = Path(sqlite.removeprefix("sqlite:///"))
    assert not file.exists()
    file.touch()
    with pytest.raises(SetupError, match="no database of a results server"):
        open_existing(sqlite)
    opened(config_of(sqlite))
    open_existing(sqlite).dispose()
