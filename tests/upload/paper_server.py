"""A results server in memory, and a computer that submits to it by a clock that tests set."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import httpx

from npumark.record.canonical import canonical_bytes, strict_loads
from npumark.record.envelope import Envelope, Receipt, Registration, Withdrawal
from npumark.record.files import seal
from npumark.record.model import Record
from npumark.record.signing import InstallKey, key_id_of, sign_record, statement_holds
from npumark.upload.address import parse_address
from npumark.upload.client import Client, Shell
from npumark.upload.item import Item
from npumark.upload.prepare import Keys, Prepared, prepare
from npumark.upload.queue import Queue
from npumark.upload.session import Session, instant
from npumark.upload.submit import Outcome, deliver
from tests import forge
from tests.transparency.paper_log import ORIGIN, PaperLog, accepted

NOW = forge.NOW.timestamp()
URL = f"https://{ORIGIN}"
FIRST_KEY, SECOND_KEY = (InstallKey(bytes([n]) * 32) for n in (31, 32))

Override = Callable[[httpx.Request], httpx.Response]
"""Answers a request, or raises what a transport raises."""


class PaperServer:
    """A results server in memory: its rules of keys, clocks and replays, and a real log.

    ``overrides`` answer the next requests to a path in place of the rules; ``changed`` changes
    each receipt before it is sent.
    """

    def __init__(self) -> None:
        self.log = PaperLog([])
        self.origin = ORIGIN
        self.clock = NOW
        self.keys: dict[str, str] = {}
        self.refused_keys: set[str] = set()
        self.most_keys = 8
        self.receipts: dict[str, tuple[str, bytes]] = {}
        self.refusing: dict[str, tuple[int, str]] = {}
        self.withdrawn: dict[str, str] = {}
        self.overrides: dict[str, list[Override]] = {}
        self.asked: list[str] = []
        self.changed: Callable[[bytes], bytes] = lambda raw: raw

    def answer(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        self.asked.append(f"{request.method} {path}")
        if self.overrides.get(path):
            return self.overrides[path].pop(0)(request)
        return self.by_rule(request)

    def by_rule(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        if path == "/api/v1/server":
            return httpx.Response(200, json=self.about())
        body = strict_loads(request.content)
        assert canonical_bytes(body) == request.content
        if path == "/api/v1/keys":
            return self._register(Registration.model_validate(body))
        if path == "/api/v1/results":
            return self._take(body)
        return self._withdraw(Withdrawal.model_validate(body))

    def about(self) -> dict[str, Any]:
        return {
            "origin": self.origin,
            "url": URL,
            "version": "1",
            "time": instant(self.clock),
            "log_key": self.log.vkey,
            "public_key": self.log.key.public.hex(),
            "limits": {"body_bytes": 8 << 20, "skew_s": 600.0},
            "score_versions": ["3.2"],
            "manifest_sha256": [],
            "accepts_development": True,
        }

    def refuse(self, status: int, code: str, **headers: str) -> httpx.Response:
        error = {
            "code": code,
            "message": f"it is {code}",
            "details": {"n": 1},
            "server_time": instant(self.clock),
        }
        return httpx.Response(status, json={"error": error}, headers=headers)

    def _stranger(self, statement: Any, at: str, purpose: Any) -> httpx.Response | None:
        if statement.origin != self.origin:
            return self.refuse(403, "wrong_origin")
        if abs(forge._instant(at).timestamp() - self.clock) > 600:
            return self.refuse(403, "clock_skew")
        public = getattr(statement, "public_key", None) or self.keys.get(statement.key_id)
        if public is None:
            return self.refuse(403, "unknown_key")
        assert statement_holds(statement.statement(), purpose, public, statement.signature)
        if public in self.refused_keys:
            return self.refuse(403, "key_refused")
        return None

    def _register(self, stated: Registration) -> httpx.Response:
        if (refusal := self._stranger(stated, stated.signed_at, "registration")) is not None:
            return refusal
        if len(self.keys) >= self.most_keys:
            return self.refuse(429, "too_many_keys", **{"Retry-After": "7200"})
        key_id = key_id_of(bytes.fromhex(stated.public_key))
        self.keys[key_id] = stated.public_key
        return httpx.Response(201, json={"key_id": key_id, "replaces": None})

    def _take(self, body: dict[str, Any]) -> httpx.Response:
        envelope, record = Envelope.model_validate(body["envelope"]), body["record"]
        if (refusal := self._stranger(envelope, envelope.sent_at, "submission")) is not None:
            return refusal
        run_id, digest = record["payload"]["run_id"], record["payload_sha256"]
        assert record["signatures"]["install"]["key_id"] == envelope.key_id
        assert Record.model_validate(record).payload_sha256 == digest
        if run_id in self.refusing:
            return self.refuse(*self.refusing[run_id])
        if digest in self.receipts:
            return httpx.Response(200, content=self.changed(self.receipts[digest][1]))
        receipt = canonical_bytes(accepted(self.log, record).model_dump(by_alias=True))
        self.receipts[digest] = (run_id, receipt)
        return httpx.Response(201, content=self.changed(receipt))

    def _withdraw(self, stated: Withdrawal) -> httpx.Response:
        if (refusal := self._stranger(stated, stated.signed_at, "withdrawal")) is not None:
            return refusal
        at = self.withdrawn.setdefault(stated.result_id, instant(self.clock))
        return httpx.Response(200, json={"result_id": stated.result_id, "withdrawn_at": at})


@dataclass
class Desk:
    """A computer that submits to a server on paper. ``slept`` are the waits, ``told`` what its
    user was told."""

    server: PaperServer = field(default_factory=PaperServer)
    clock: float = NOW
    key: InstallKey = FIRST_KEY
    slept: list[float] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    rotations: int = 0

    @property
    def queue(self) -> Queue:
        return Queue(parse_address(URL).slug)

    @property
    def shell(self) -> Shell:
        return Shell(
            now=lambda: self.clock,
            sleep=self.slept.append,
            draw=lambda: 1.0,
            environ={},
            tell=self.told.append,
        )

    @property
    def keys(self) -> Keys:
        def rotate() -> InstallKey:
            self.key = SECOND_KEY
            self.rotations += 1
            return self.key

        return Keys(lambda: self.key, rotate, lambda: None, lambda: forge.MACHINE_ID)

    def client(self, transport: httpx.BaseTransport | None = None) -> Client:
        own = httpx.MockTransport(self.server.answer)
        return Client(parse_address(URL), shell=self.shell, transport=transport or own)

    def session(self, **options: Any) -> Session:
        return Session(self.client(), self.keys, self.shell, **options)

    def submit(self, *runs: str, **options: Any) -> Outcome:
        """Queue these runs, each a second after the one before, and send all that waits."""
        for run in runs[:-1]:
            with self.queue.held():
                self.enqueue(run)
            self.clock += 1
            self.server.clock += 1
        prepared = made(runs[-1]) if runs else None
        return deliver(self.queue, self.session(**options), prepared, self.key, self.clock)

    def enqueue(self, run: str) -> Item:
        return self.queue.add(made(run).signed(self.key), instant(self.clock))

    def statuses(self) -> dict[str, str]:
        return {item.state.run_id: item.status for item in self.queue.items()[0]}


def local_record(run: str, **how: Any) -> Record:
    """Return the record of a run as this computer keeps it."""
    payload = forge.vary(forge.forge_payload(small=True, **how), run_id=run)
    record = seal(payload)
    signatures = sign_record(record.payload_sha256, FIRST_KEY, None)
    return Record.model_validate({**record.model_dump(), "signatures": signatures})


@cache
def made(run: str) -> Prepared:
    """Return a run made ready to be sent."""
    return prepare(local_record(run), None)


def receipt_of(item: Item) -> Receipt:
    assert item.receipt is not None
    return item.receipt


def edited(change: Callable[[dict[str, Any]], Any]) -> Callable[[bytes], bytes]:
    """Return what changes a receipt's document and leaves its signature as it was."""

    def edit(raw: bytes) -> bytes:
        document = json.loads(raw)
        change(document)
        return canonical_bytes(document)

    return edit
