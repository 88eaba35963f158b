"""A real server process, and connections to it that do what no client should."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

from npumark.record.signing import InstallKey, sign_statement
from tests import forge

PATIENCE_S = 30.0
"""After which a test gives up; nothing is asserted about it."""


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def code(self) -> str:
        error = json.loads(self.body)["error"]
        assert error.keys() == {"code", "message", "details", "server_time"}
        return str(error["code"])


@dataclass
class Live:
    """A server that listens. ``said`` is the line that it printed."""

    process: subprocess.Popen[str]
    said: str
    told: dict[str, Any]
    sender: InstallKey = field(default_factory=lambda: InstallKey(os.urandom(32)))

    @property
    def port(self) -> int:
        return int(self.told["listens"].rpartition(":")[2])

    def connect(self) -> Wire:
        return Wire(socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S))

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
        """Send one request on a connection of its own, as a good client does."""
        with self.connect() as wire:
            sent = {} if body is None else {"Content-Length": str(len(body)), **JSON}
            wire.head(method, path, **{**sent, **headers})
            wire.send(body or b"")
            return wire.answer()

    def register(self) -> None:
        statement = {
            "schema": "npumark-registration/1",
            "origin": self.told["origin"],
            "machine_id": forge.MACHINE_ID,
            "public_key": self.sender.public.hex(),
            "signed_at": forge.stamp(datetime.now(UTC)),
        }
        signed = {
            **statement,
            "signature": sign_statement(statement, "registration", self.sender),
        }
        answer = self.ask(
            "POST",
            "/api/v1/keys",
            json.dumps(signed, sort_keys=True, separators=(",", ":")).encode(),
        )
        assert answer.status in (200, 201), answer.body

    def submission(self, run_id: str) -> bytes:
        """Return the body of a submission that this server accepts."""
        now = datetime.now(UTC)
        payload = forge.vary(_SMALL, run_id=run_id, created=forge.stamp(now - timedelta(days=1)))
        record = forge.forge_record(payload, self.sender, None)
        return forge.forge_submission(
            record, origin=self.told["origin"], install=self.sender, now=now
        )


_SMALL = forge.forge_payload(small=True)
JSON = {"Content-Type": "application/json"}


class Wire:
    """One connection, byte by byte."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._read = connection.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._read.close()
        self._socket.close()

    def send(self, raw: bytes) -> None:
        self._socket.sendall(raw)

    def head(self, method: str, path: str, **headers: str) -> None:
        lines = [f"{method} {path} HTTP/1.1", "Host: server"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self.send("\r\n".join([*lines, "", ""]).encode())

    def chunk(self, raw: bytes) -> None:
        self.send(f"{len(raw):x}\r\n".encode() + raw + b"\r\n")

    def answer(self) -> Answer:
        """Return the next answer, once all of it is there."""
        status = int(self._read.readline().split()[1])
        headers = {}
        while line := self._read.readline().strip():
            name, _, value = line.decode().partition(":")
            headers[name.lower()] = value.strip()
        return Answer(status, headers, self._read.read(int(headers["content-length"])))

    def ended(self) -> bool:
        """Wait for what comes next; whether it is the end of the connection."""
        return self._read.read(1) == b""


@contextmanager
def live(home: Path, *options: str) -> Iterator[Live]:
    """Have ``npumark serve`` run on a free port while the body runs."""
    ready = home / "ready.json"
    ready.unlink(missing_ok=True)
    command = [sys.executable, "-m", "npumark", "serve", "--port", "0"]
    process = subprocess.Popen(
        [*command, "--ready-file", str(ready), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "NPUMARK_HOME": str(home)},
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        said = process.stdout.readline()
        assert said, process.stderr.read()
        yield Live(process, said, json.loads(ready.read_text()))
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE_S)
