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
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import psutil

from npumark.record.canonical import canonical_bytes
from npumark.record.model import Payload
from npumark.record.signing import InstallKey, sign_statement
from npumark.server.config import ServerConfig
from npumark.server.settings import Settings, config_of
from tests import forge
from tests.server.cluster import Cluster, private_cluster

_READY_WITHIN_S = 60.0


@dataclass(slots=True)
class Served:
    """``url`` is where it listens. ``process`` is the one that was started; workers are its
    children."""

    kind: Literal["sqlite", "postgresql"]
    folder: Path
    database_url: str
    workers: int
    process: subprocess.Popen[bytes]
    url: str
    origin: str

    def processes(self) -> list[psutil.Process]:
        """Return the processes of the server that live, the first one among them."""
        first = psutil.Process(self.process.pid)
        return [first, *first.children(recursive=True)]

    def config(self) -> ServerConfig:
        """Return the configuration that the server runs with."""
        place = {"data": str(self.folder), "database": self.database_url}
        return config_of(Settings(url=self.url, allow_development=True, **place))

    def kill(self) -> None:
        """End every process of the server at once, as a power cut would (SIGKILL)."""
        for process in self.processes():
            with suppress(psutil.Error):
                process.kill()
        self.process.wait()

    def check(self) -> dict[str, Any]:
        """Return what ``npumark serve admin check`` says of log and results."""
        command = [*NPUMARK, "serve", "admin", "check", "--json", *self._place()]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"the check failed ({done.returncode}):\n{done.stdout}{done.stderr}")
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def _place(self) -> list[str]:
        return ["--database", self.database_url, "--data", str(self.folder)]

    def start(self, port: int = 0) -> None:
        """Start the server (again), on ``port`` or any that is free, and wait until it answers."""
        ready = self.folder / "ready.json"
        ready.unlink(missing_ok=True)
        command = [*NPUMARK, "serve", "--port", str(port), "--workers", str(self.workers)]
        command += ["--allow-development", "--ready-file", str(ready), *self._place()]
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
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


NPUMARK = (sys.executable, "-m", "npumark")


@contextmanager
def serving(*, postgres: bool, workers: int) -> Iterator[Served]:
    """Have a server answer while the body runs, and everything of it gone afterwards."""
    with ExitStack() as ending:
        folder = Path(ending.enter_context(tempfile.TemporaryDirectory(prefix="npumark-server-")))
        url = f"sqlite:///{folder / 'server.sqlite'}"
        if postgres:
            cluster: Cluster = ending.enter_context(private_cluster(durable=True))
            url = cluster.database()
        os.environ["NPUMARK_HOME"] = str(folder / "home")
        kind: Literal["sqlite", "postgresql"] = "postgresql" if postgres else "sqlite"
        served = Served(kind, folder, url, workers, None, "", "")  # type: ignore[arg-type]
        served.start()
        try:
            yield served
        finally:
            with suppress(psutil.Error):
                served.kill()
