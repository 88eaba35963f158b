"""Databases for the server's tests: an SQLite file, and a PostgreSQL that the tests start."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from npumark.record.signing import InstallKey
from npumark.server.config import ServerConfig
from npumark.server.database import make_engine, writing
from npumark.server.store import Store
from npumark.server.tables import metadata
from tests import forge
from tests.server.cluster import Cluster, NoPostgres, private_cluster

SERVER_KEY = InstallKey(b"\x07" * 32)
NOW = forge.NOW.timestamp()


class Clock:
    """The server's clock, which stands still until it is set."""

    def __init__(self, now: float = NOW) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A PostgreSQL for the whole session; a test gets a database of its own in it."""
    with ExitStack() as ending:
        try:
            made = ending.enter_context(private_cluster())
        except NoPostgres as why:
            pytest.skip(str(why))
        yield made


@pytest.fixture
def sqlite(tmp_path: Path) -> str:
    """The URL of an SQLite database that does not exist yet."""
    return f"sqlite:///{tmp_path / 'server.sqlite'}"


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest) -> str:
    """The URL of an empty database, of either kind."""
    if request.param == "sqlite":
        url: str = request.getfixturevalue("sqlite")
        return url
    made: Cluster = request.getfixturevalue("cluster")
    return made.database()


def config_of(url: str, **over: object) -> ServerConfig:
    """Return the configuration of a test's server."""
    given = {"origin": forge.ORIGIN, "url": f"https://{forge.ORIGIN}", "key": SERVER_KEY, **over}
    return ServerConfig(database_url=url, **given)  # type: ignore[arg-type]


@pytest.fixture
def opened(clock: Clock) -> Iterator[Callable[[ServerConfig], Store]]:
    """Opens stores, and closes them at the end."""
    with ExitStack() as ending:

        def make(config: ServerConfig) -> Store:
            store = Store(config, now=clock)
            ending.callback(store.close)
            store.open()
            store.migrate()
            return store

        yield make


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An SQLite database with the present schema and an empty log."""
    file = tmp_path_factory.mktemp("template") / "server.sqlite"
    _migrate(f"sqlite:///{file}")
    return file


@pytest.fixture(scope="session")
def postgres(cluster: Cluster) -> str:
    """The URL of such a database in PostgreSQL; whoever uses it empties it first."""
    url = cluster.database()
    _migrate(url)
    return url


def _migrate(url: str) -> None:
    store = Store(config_of(url), now=Clock())
    store.migrate()
    store.close()


@pytest.fixture
def sqlite_store(
    sqlite: str, sqlite_template: Path, opened: Callable[[ServerConfig], Store]
) -> Store:
    """A store on an SQLite database without results."""
    shutil.copy(sqlite_template, sqlite.removeprefix("sqlite:///"))
    return opened(config_of(sqlite))


@pytest.fixture
def postgres_store(postgres: str, opened: Callable[[ServerConfig], Store]) -> Store:
    """A store on a PostgreSQL database without results: always the same one, since making one
    takes longer than most tests."""
    engine = make_engine(postgres)
    with writing(engine) as connection:
        for table in reversed(metadata.sorted_tables):
            connection.execute(table.delete())
    engine.dispose()
    return opened(config_of(postgres))


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest) -> Store:
    """A store on a database without results, of either kind."""
    made: Store = request.getfixturevalue(f"{request.param}_store")
    return made
