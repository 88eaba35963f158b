"""A results server of its own for a tool: a real process, on SQLite or a private PostgreSQL."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil

from npumark.paths import HOME_VARIABLE
from npumark.record.canonical import canonical_bytes
from npumark.record.model import Payload
from npumark.record.signing import InstallKey, sign_statement
from npumark.server.config import ServerConfig
from npumark.server.settings import Settings, config_of
from tests import forge
from tests.server.cluster import Cluster, private_cluster

NPUMARK = (sys.executable, "-m", "npumark")

_READY_WITHIN_S = 60.0


@dataclass(slots=True)
class Served:
    """``url`` is where it listens, once it was started. ``cluster`` is null for SQLite."""

    folder: Path
    database_url: str
    workers: int
    cluster: Cluster | None
    url: str = ""
    origin: str = ""
    process: subprocess.Popen[bytes] = field(init=False)

    @property
    def kind(self) -> str:
        return "sqlite" if self.cluster is None else "postgresql"

    def processes(self) -> list[psutil.Process]:
        """Return the processes of the server that live, the first one among them."""
        first = psutil.Process(self.process.pid)
        return [first, *first.children(recursive=True)]

    def config(self) -> ServerConfig:
        """Return the configuration that the server runs with."""
        return config_of(
            Settings(
                data=str(self.folder),
                url=self.url,
                database=self.database_url,
                allow_development=True,
            )
        )

    def database_processes(self) -> list[psutil.Process]:
        """Return the processes of its private PostgreSQL; none for SQLite."""
        if self.cluster is None:
            return []
        pid = int((self.cluster.folder / "data" / "postmaster.pid").read_text().split()[0])
        first = psutil.Process(pid)
        return [first, *first.children(recursive=True)]

    def kill(self, processes: Sequence[psutil.Process] | None = None) -> None:
        """End every process of the server at once (SIGKILL): ``processes``, where they are known
        beforehand, as finding them takes a while."""
        processes = self.processes() if processes is None else processes
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.wait()
        psutil.wait_procs(list(processes))

    def check(self) -> dict[str, Any]:
        """Return what ``npumark serve admin check`` says of log and results: no ``faults``, and
        how many there are."""
        command = [*NPUMARK, "serve", "admin", "check", "--json", *self._place()]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=self._environment()
        )
        if done.returncode not in (0, 5):
            raise SystemExit(f"the check ended with {done.returncode}:\n{done.stderr}")
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def _place(self) -> list[str]:
        return ["--database", self.database_url, "--data", str(self.folder)]

    def _environment(self) -> dict[str, str]:
        return {**os.environ, HOME_VARIABLE: str(self.folder / "home")}

    def start(self, port: int = 0) -> None:
        """Start the server (again), on ``port`` or any that is free, and wait until it answers."""
        ready = self.folder / "ready.json"
        ready.unlink(missing_ok=True)
        command = [*NPUMARK, "serve", "--port", str(port), "--workers", str(self.workers)]
        command += ["--allow-development", "--ready-file", str(ready), *self._place()]
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, env=self._environment()
            )
        until = time.monotonic() + _READY_WITHIN_S
        while not ready.exists():
            if self.process.poll() is not None or time.monotonic() > until:
                said = (self.folder / "server.log").read_text(errors="replace")
                raise SystemExit(f"the server did not start:\n{said[-2000:]}")
            time.sleep(0.05)
        told = json.loads(ready.read_text())
        self.url, self.origin = told["url"], told["origin"]


class Sender:
    """An installation on a machine of its own, numbered ``n``, that sends to one server."""

    def __init__(self, origin: str, n: int) -> None:
        self.origin = origin
        self.key = InstallKey(os.urandom(32))
        self.machine_id = hashlib.sha256(f"machine {n}".encode()).hexdigest()

    def registration(self) -> bytes:
        """Return the body that makes the key known."""
        statement = {
            "schema": "npumark-registration/1",
            "origin": self.origin,
            "machine_id": self.machine_id,
            "public_key": self.key.public.hex(),
            "signed_at": forge.stamp(datetime.now(UTC)),
        }
        signature = sign_statement(statement, "registration", self.key)
        return canonical_bytes({**statement, "signature": signature})

    def submission(self, base: Payload) -> bytes:
        """Return the body of a submission of a run like ``base``, under a name of its own."""
        now = datetime.now(UTC)
        created = forge.stamp(now - timedelta(days=1))
        payload = forge.vary(base, run_id=f"run-{secrets.token_hex(8)}", created=created)
        record = forge.forge_record(payload, self.key, None)
        return forge.forge_submission(
            record, origin=self.origin, machine_id=self.machine_id, install=self.key, now=now
        )


@contextmanager
def serving(*, postgres: bool, workers: int) -> Iterator[Served]:
    """Have a server answer while the body runs, and everything of it gone afterwards."""
    with ExitStack() as ending:
        folder = Path(ending.enter_context(tempfile.TemporaryDirectory(prefix="npumark-server-")))
        url, cluster = f"sqlite:///{folder / 'server.sqlite'}", None
        if postgres:
            cluster = ending.enter_context(private_cluster(durable=True))
            url = cluster.database()
        served = Served(folder, url, workers, cluster)
        served.start()
        try:
            yield served
        finally:
            with suppress(psutil.Error):
                served.kill()
