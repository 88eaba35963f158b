"""What the server's tools judge and count by; the tools themselves run servers, and are run by
hand."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from sqlalchemy import func, select

from npumark.record.canonical import canonical_bytes
from npumark.record.envelope import LogProof, Receipt, ServerSignature, leaf_entry, result_id_of
from npumark.record.signing import InstallKey
from npumark.server import log, tables
from npumark.server.board import Filters, board
from npumark.server.config import ServerConfig
from npumark.server.database import reading
from npumark.server.store import Store
from tests import forge
from tool import server_fill
from tool.server_kill import Acknowledged, faults_of
from tool.server_load import Sent, send_all

# What a killed server must have kept


def entry_of(n: int) -> bytes:
    digest = f"{n:064x}"
    name = result_id_of(f"{n:02x}" * 32)
    return canonical_bytes(
        leaf_entry(
            result_id=name,
            record_sha256=digest,
            payload_sha256=digest,
            key_id="0" * 32,
            received_at=forge.CREATED,
        )
    )


def acknowledged(n: int) -> Acknowledged:
    """Return the ``n``-th record, which got leaf ``n``."""
    digest = f"{n:064x}"
    receipt = Receipt(
        schema="npumark-receipt/1",
        origin=forge.ORIGIN,
        result_id=result_id_of(f"{n:02x}" * 32),
        url=f"https://{forge.ORIGIN}/results/x",
        run_id=f"run-{n}",
        record_sha256=digest,
        payload_sha256=digest,
        key_id="0" * 32,
        received_at=forge.CREATED,
        trust="release",
        attestation="unattested",
        ranked=True,
        not_ranked_because=[],
        log=LogProof(
            index=n, entry=base64.b64encode(entry_of(n)).decode(), checkpoint="", proof=[]
        ),
        signature=ServerSignature(key_id="0" * 32, public_key="0" * 64, signature="0" * 128),
    )
    return Acknowledged(b"record %d" % n, receipt)


THREE = [acknowledged(n) for n in range(3)]
SERVED = {one.receipt.result_id: one.record for one in THREE}
ENTRIES = [entry_of(n) for n in range(3)]
SECOND = THREE[1].receipt.result_id


def test_a_server_that_kept_everything_once_has_no_fault() -> None:
    assert faults_of(THREE, SERVED, ENTRIES) == []


def test_a_lost_record_is_found() -> None:
    left = {name: raw for name, raw in SERVED.items() if name != SECOND}
    assert faults_of(THREE, left, ENTRIES) == [f"{SECOND} is lost"]


def test_a_changed_record_is_found() -> None:
    assert faults_of(THREE, {**SERVED, SECOND: b"record 1."}, ENTRIES) == [f"{SECOND} was changed"]


def test_a_doubled_record_is_found() -> None:
    assert faults_of(THREE, SERVED, [*ENTRIES, ENTRIES[1]]) == [
        f"the payload {1:064x}"[:28] + "… has 2 leaves"
    ]


def test_a_leaf_that_the_log_lost_is_found() -> None:
    assert faults_of(THREE, SERVED, ENTRIES[:2]) == [
        f"leaf 2 is not that of {THREE[2].receipt.result_id}"
    ]


def test_a_leaf_that_two_receipts_are_for_is_found() -> None:
    proof = THREE[1].receipt.log.model_copy(update={"index": 0})
    other = replace(THREE[1], receipt=THREE[1].receipt.model_copy(update={"log": proof}))
    assert faults_of([THREE[0], other, THREE[2]], SERVED, ENTRIES) == [
        f"leaf 0 is not that of {SECOND}",
        "2 receipts are for leaf 0",
    ]


def test_a_leaf_of_a_record_that_nobody_sent_is_found() -> None:
    assert faults_of(THREE, SERVED, [*ENTRIES, entry_of(3)]) == [
        "4 records have a leaf, 3 were acknowledged"
    ]


# What a load came to


def test_percentiles_are_of_all_requests() -> None:
    sent = Sent(took=[n / 1000 for n in range(200, 0, -1)])
    sent.statuses[201] = 200
    told = sent.figures()
    assert told["statuses"] == {"201": 200}
    assert (told["p50_ms"], told["p99_ms"], told["longest_ms"]) == (101.0, 199.0, 200.0)


class Handler(BaseHTTPRequestHandler):
    """Answers ``/close`` and ends the connection; anything else with its body."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(404 if self.path == "/close" else 200)
        self.send_header("Content-Length", str(len(body)))
        if self.path == "/close":
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_request(self, *_: object, **__: object) -> None:
        """Say nothing of it."""


@pytest.fixture
def url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_each_request_is_sent_once_also_over_connections_that_end(url: str) -> None:
    requests = [("GET", "/close" if n % 3 == 0 else "/", b"%d" % n) for n in range(12)]
    sent = send_all(url, requests, 3, keep=lambda status, body: (status, body))
    assert sent.statuses == {200: 8, 404: 4}
    assert sorted(int(body) for _, body in sent.kept) == list(range(12))
    assert len(sent.took) == 12


# A full database


@pytest.fixture
def config(tmp_path: Path) -> ServerConfig:
    return ServerConfig(
        database_url=f"sqlite:///{tmp_path / 'server.sqlite'}",
        origin=forge.ORIGIN,
        url=f"https://{forge.ORIGIN}",
        key=InstallKey(b"\x07" * 32),
    )


def test_a_filled_database_is_what_the_pages_read(
    config: ServerConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_fill, "CPUS", server_fill.CPUS[:1])
    monkeypatch.setattr(server_fill, "CARDS", (None,))
    monkeypatch.setattr(server_fill, "SYSTEMS", server_fill.SYSTEMS[:1])
    store = Store(config)
    try:
        store.migrate()
        shown = server_fill.fill(config, 60, bodies=10)
        assert len(set(shown)) == 10
        assert all(store.record_bytes(name) for name in shown)
        with reading(store.engine) as connection:
            assert log.head(connection).size == 60
            assert connection.scalar(select(func.count()).select_from(tables.results)) == 60
            held = connection.scalar(select(func.count()).select_from(tables.figures))
            assert connection.scalar(select(func.sum(tables.facets.c.figures))) == held
            runs = connection.scalar(select(func.sum(tables.processors.c.runs)))
            assert runs == connection.scalar(
                select(func.count(tables.figures.c.result_id.distinct()))
            )
            everything = board(connection, Filters(everything=True), "tops", None, 100)
            ranked = board(connection, Filters(), "tops", None, 100)
        assert everything.total == len(everything.lines) == 60
        assert 0 < ranked.total < 60
    finally:
        store.close()
