"""A private PostgreSQL: made in a short path of its own, reached by a Unix socket alone.

Used by the tests and by the tools that measure a server. PostgreSQL refuses to run as root, so
that it runs as the user ``postgres`` there.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg


class NoPostgres(Exception):
    """PostgreSQL's programs are not here, or cannot be run."""


@dataclass(frozen=True)
class Cluster:
    """``binaries`` is the folder of PostgreSQL's programs, ``folder`` that of data and socket."""

    binaries: Path
    folder: Path

    def database(self) -> str:
        """Create an empty database and return its URL."""
        name = f"t{secrets.token_hex(6)}"
        with psycopg.connect(
            host=str(self.folder), user="postgres", dbname="postgres", autocommit=True
        ) as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE template0")
        return f"postgresql://postgres@/{name}?host={self.folder}"

    def run(self, program: str, *arguments: str) -> None:
        """Run one of PostgreSQL's programs. Raises NoPostgres with what it said."""
        user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
        done = subprocess.run(
            [*(user if os.geteuid() == 0 else []), str(self.binaries / program), *arguments],
            capture_output=True,
            text=True,
            check=False,
            cwd=self.folder,
        )
        if done.returncode != 0:
            raise NoPostgres(f"{program} failed: {done.stdout}{done.stderr}")


@contextmanager
def private_cluster(*, durable: bool = False) -> Iterator[Cluster]:
    """Have a PostgreSQL run while the body does. Unless ``durable`` it flushes nothing to the disk.

    Raises NoPostgres where its programs are not installed.
    """
    binaries = _binaries()
    with tempfile.TemporaryDirectory(prefix="npg-", dir="/tmp") as made:
        folder = Path(made)
        if os.geteuid() == 0:
            try:
                owner = pwd.getpwnam("postgres")
            except KeyError:
                raise NoPostgres("there is no user `postgres` to run it as") from None
            os.chown(folder, owner.pw_uid, owner.pw_gid)
        cluster = Cluster(binaries, folder)
        data = str(folder / "data")
        locale = ("--locale=C", "--encoding=UTF8")
        cluster.run("initdb", "-D", data, "-U", "postgres", "-A", "trust", "-N", *locale)
        options = f"-c listen_addresses='' -k {folder} -c max_connections=200"
        if not durable:
            options += " -c fsync=off -c synchronous_commit=off -c full_page_writes=off"
        log = str(folder / "log")
        cluster.run("pg_ctl", "-D", data, "-l", log, "-o", options, "-w", "start")
        try:
            yield cluster
        finally:
            cluster.run("pg_ctl", "-D", data, "-m", "immediate", "-w", "stop")


def _binaries() -> Path:
    found = shutil.which("pg_ctl")
    places = [Path(found).parent] if found else []
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    for place in places:
        if (place / "initdb").exists() and (place / "pg_ctl").exists():
            return place
    raise NoPostgres("PostgreSQL is not installed (apt-get install postgresql)")
