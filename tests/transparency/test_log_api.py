"""What a server publishes of its log is what C2SP tlog-tiles says, and enough to check it all."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy import Engine

from npumark.record.signing import InstallKey
from npumark.server import log
from npumark.server.answers import add_handlers
from npumark.server.api.log import router
from npumark.server.body import Bodies
from npumark.server.config import Limits, ServerConfig
from npumark.server.database import make_engine, reading, sqlite_url, writing
from npumark.server.tables import metadata
from npumark.transparency.checkpoint import Checkpoint, open_checkpoint
from npumark.transparency.merkle import (
    EMPTY_ROOT,
    Node,
    leaf_hash,
    root_of,
    verify_consistency,
)
from npumark.transparency.note import (
    COSIGNATURE,
    Signature,
    cosign,
    open_note,
    parse_verifier_key,
    sign,
    verifier_key,
)
from npumark.transparency.tiles import Tile, decode_bundle, hashes_in, node_of

NOW = 1_800_000_000.0
KEY, WITNESS, STRANGER = (InstallKey(bytes([n]) * 32) for n in (31, 32, 33))
ORIGIN = "results.example"
LOG_KEY = parse_verifier_key(verifier_key(ORIGIN, KEY.public))
WITNESS_KEY = parse_verifier_key(verifier_key("witness.example/w1", WITNESS.public, COSIGNATURE))
FOREVER = "public, max-age=31536000, immutable"
TEXT = {"Content-Type": "text/plain; charset=utf-8"}
SIZE = 600


class Server:
    def __init__(self, file: Path) -> None:
        self.config = ServerConfig(
            database_url=sqlite_url(file),
            origin=ORIGIN,
            url=f"https://{ORIGIN}",
            key=KEY,
            witnesses=(str(WITNESS_KEY),),
        )
        self.engine: Engine = make_engine(self.config.database_url)
        metadata.create_all(self.engine)
        with writing(self.engine) as connection:
            log.begin(connection, self.config)
        app = FastAPI()
        app.state.store = SimpleNamespace(engine=self.engine)
        app.state.config = self.config
        app.state.bodies = Bodies(replace(Limits(), body_bytes=1 << 20))
        app.state.now = lambda: NOW
        add_handlers(app, lambda: NOW)
        app.include_router(router)
        self.app = app

    def append(self, *counts: int) -> list[str]:
        """Append leaves, as many as each of ``counts`` says under one head; return the heads."""
        notes = []
        with writing(self.engine) as connection:
            for count in counts:
                head = log.head(connection, lock=True)
                new = [b"leaf %d" % i for i in range(head.size, head.size + count)]
                notes.append(log.append(connection, head, new, self.config)[0].checkpoint)
        return notes

    def ask(self, *requests: httpx.Request) -> list[httpx.Response]:
        async def asked() -> list[httpx.Response]:
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(transport=transport) as client:
                return [await client.send(request) for request in requests]

        return asyncio.run(asked())

    def get(self, *paths: str) -> list[httpx.Response]:
        return self.ask(*(httpx.Request("GET", f"https://{ORIGIN}{path}") for path in paths))

    def checkpoint(self) -> str:
        return self.get("/log/checkpoint")[0].text

    def head(self) -> Checkpoint:
        return open_checkpoint(self.checkpoint(), LOG_KEY)

    def read(self, *tiles: Tile) -> dict[Tile, bytes]:
        answers = self.get(*(f"/log/{tile.path}" for tile in tiles))
        assert {answer.status_code for answer in answers} <= {200}
        return {tile: answer.content for tile, answer in zip(tiles, answers, strict=True)}

    def node(self, size: int) -> Node:
        """Ask the tiles of the tree of ``size`` leaves, and no others."""
        wanted = [Tile(0, n) for n in range(size // 256)]
        wanted += [Tile(0, size // 256, size % 256)] if size % 256 else []
        wanted += [Tile(1, 0, size // 256)] if size >= 256 else []
        held = self.read(*wanted)
        return node_of(lambda tile: hashes_in(held[tile]), size)


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose log has 600 leaves, appended one by one and in batches."""
    server = Server(tmp_path_factory.mktemp("log") / "log.sqlite")
    server.append(*[1] * 5, 250, 1, 1, 300, 43)
    yield server
    server.engine.dispose()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path / "log.sqlite")
    yield made
    made.engine.dispose()


def test_the_root_of_every_checkpoint_is_rebuilt_from_static_tiles_alone(server: Server) -> None:
    notes = server.append(*[1] * SIZE)
    heads = [open_checkpoint(note, LOG_KEY) for note in notes]
    assert [head.size for head in heads] == list(range(1, SIZE + 1))
    partial = [Tile(0, n // 256, n % 256) for n in range(1, SIZE + 1) if n % 256]
    held = server.read(*partial, Tile(0, 0), Tile(0, 1), Tile(1, 0, 1), Tile(1, 0, 2))
    for head in heads:
        node = node_of(lambda tile: hashes_in(held[tile]), head.size)
        assert root_of(head.size, node) == head.root
    assert server.head() == heads[-1]


def test_the_head_of_a_log_without_leaves(server: Server) -> None:
    assert server.head() == Checkpoint(ORIGIN, 0, EMPTY_ROOT)
    assert server.get("/log/tile/0/000.p/1")[0].status_code == 404


def test_a_checkpoint_is_text_that_nobody_keeps(grown: Server) -> None:
    (answer,) = grown.get("/log/checkpoint")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["cache-control"] == "no-cache"


@pytest.mark.parametrize("path", ["0/001", "0/002.p/88", "1/000.p/2", "entries/002.p/88"])
def test_tiles_are_bytes_that_never_change(grown: Server, path: str) -> None:
    (answer,) = grown.get(f"/log/tile/{path}")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["cache-control"] == FOREVER


def test_bundles_hold_the_entries_of_their_tile(grown: Server) -> None:
    for n, width in ((0, 256), (1, 256), (2, 88), (2, 1)):
        bundle, tile = Tile(None, n, width), Tile(0, n, width)
        held = grown.read(bundle, tile)
        entries = decode_bundle(held[bundle])
        assert entries == [b"leaf %d" % i for i in range(n * 256, n * 256 + width)]
        assert list(map(leaf_hash, entries)) == hashes_in(held[tile])


@pytest.mark.parametrize(
    "path",
    [
        "0/002",
        "0/002.p/89",
        "0/003.p/1",
        "1/000",
        "1/000.p/3",
        "2/000.p/1",
        "63/000.p/1",
        "entries/002",
        "entries/002.p/89",
        "entries/x999/x999/x999/x999/x999/999",
        "0/000.p/256",
        "0/0",
        "0/x000/000",
        "64/000",
        "0",
        "",
        "x",
        "0/000/",
        "entries",
        "0/%00",
        "0/%2e%2e/checkpoint",
    ],
)
def test_where_there_is_no_tile(grown: Server, path: str) -> None:
    (answer,) = grown.get(f"/log/tile/{path}")
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "not_found"
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(("m", "n"), [(0, 5), (5, 5), (1, 600), (256, 600), (255, 513), (599, 600)])
def test_the_proof_that_the_log_grew(grown: Server, m: int, n: int) -> None:
    (answer,) = grown.get(f"/api/v1/log/consistency?from={m}&to={n}")
    proof = [base64.b64decode(text) for text in answer.json()["proof"]]
    roots = [root_of(size, grown.node(size)) for size in (m, n)]
    assert verify_consistency(m, n, roots[0], roots[1], proof)


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("from=2&to=1", 422, "wrong_form"),
        ("from=1&to=601", 404, "not_found"),
        ("from=-1&to=5", 422, "wrong_form"),
        ("from=1&to=9007199254740992", 422, "wrong_form"),
        ("from=1", 422, "wrong_form"),
        ("from=x&to=5", 422, "wrong_form"),
    ],
)
def test_no_proof_of_what_never_was(grown: Server, query: str, status: int, code: str) -> None:
    (answer,) = grown.get(f"/api/v1/log/consistency?{query}")
    assert answer.status_code == status
    assert answer.json()["error"]["code"] == code


def witnessed(server: Server, key: InstallKey = WITNESS) -> str:
    """Return the present head as a note that a witness signed too."""
    note = server.checkpoint()
    return note + str(cosign(server.head().encode(), WITNESS_KEY.name, key, int(NOW)))


def send(server: Server, note: str | bytes, headers: dict[str, str] = TEXT) -> tuple[int, Any]:
    raw = note.encode() if isinstance(note, str) else note
    url = f"https://{ORIGIN}/log/cosignatures"
    (answer,) = server.ask(httpx.Request("POST", url, content=raw, headers=headers))
    body = answer.json()
    return answer.status_code, body["error"]["code"] if "error" in body else body


def test_a_witness_signs_the_head_that_is_published(server: Server) -> None:
    server.append(3)
    kept = (200, {"size": 3, "witnesses": [WITNESS_KEY.name]})
    assert send(server, witnessed(server)) == kept
    note = server.checkpoint()
    both = open_note(note, [LOG_KEY, WITNESS_KEY])
    assert [s.name for s in both.signatures] == [ORIGIN, WITNESS_KEY.name]
    assert send(server, note) == kept
    assert server.checkpoint() == note


def test_a_later_head_is_without_the_witness_until_it_signs(server: Server) -> None:
    server.append(3)
    old = witnessed(server)
    server.append(1)
    assert send(server, old) == (200, {"size": 3, "witnesses": [WITNESS_KEY.name]})
    with pytest.raises(ValueError, match="no key that is trusted"):
        open_note(server.checkpoint(), [WITNESS_KEY])


def test_nobody_else_signs(server: Server) -> None:
    server.append(3)
    plain = server.checkpoint()
    stranger = str(cosign(server.head().encode(), "stranger.example", STRANGER, int(NOW)))
    value = cosign(server.head().encode(), "stranger.example", STRANGER, int(NOW)).value
    forged = str(Signature(WITNESS_KEY.name, WITNESS_KEY.key_id, value))
    other = Checkpoint(ORIGIN, 3, bytes(32)).encode()
    foreign = Checkpoint("other.example", 3, server.head().root).encode()
    beyond = Checkpoint(ORIGIN, 4, server.head().root).encode()
    witness = WITNESS_KEY.name
    told = {
        "plain": send(server, plain),
        "stranger": send(server, plain + stranger),
        "forged": send(server, plain + forged),
        "root": send(server, f"{other}\n{cosign(other, witness, WITNESS, 1)}"),
        "origin": send(server, f"{foreign}\n{cosign(foreign, witness, WITNESS, 1)}"),
        "size": send(server, f"{beyond}\n{cosign(beyond, witness, WITNESS, 1)}"),
    }
    assert told == {
        "plain": (401, "bad_signature"),
        "stranger": (401, "bad_signature"),
        "forged": (401, "bad_signature"),
        "root": (422, "digest"),
        "origin": (403, "wrong_origin"),
        "size": (422, "digest"),
    }
    with reading(server.engine) as connection:
        assert log.checkpoint(connection) == plain


@pytest.mark.parametrize(
    "raw", [b"", b"\xff\xfe", b"x" * 1000, sign("two\nlines\n", ORIGIN, KEY).encode(), b"\n\n\n"]
)
def test_what_is_no_signed_head(server: Server, raw: bytes) -> None:
    assert send(server, raw) == (422, "wrong_form")


def test_a_body_of_another_kind_or_size(server: Server) -> None:
    assert send(server, b"{}", {"Content-Type": "application/json"}) == (415, "media_type")
    assert send(server, b"x" * (300 << 10)) == (413, "too_large")
