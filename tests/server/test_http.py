"""A real server over real sockets: good clients, and what comes from others."""

from __future__ import annotations

import gzip
import json
import signal
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from npumark.record.canonical import canonical_bytes
from tests.server.live import JSON, Live, live

SUBMIT = "/api/v1/results"
MOST = 8 << 20


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    home = tmp_path_factory.mktemp("home")
    with live(home, "--allow-development", "--body-seconds", "2") as found:
        found.register()
        yield found


def test_a_record_is_submitted_and_read_back_to_the_byte(server: Live) -> None:
    body = server.submission("read-back")
    made = server.ask("POST", SUBMIT, body)
    assert made.status == 201
    receipt = json.loads(made.body)
    back = server.ask("GET", f"{SUBMIT}/{receipt['result_id']}/record")
    assert back.body == canonical_bytes(json.loads(body)["record"])
    assert back.headers["etag"] == f'"{receipt["record_sha256"]}"'
    assert "content-encoding" not in back.headers


def test_the_same_again_gets_the_first_receipt_to_the_byte(server: Live) -> None:
    body = server.submission("again")
    first, second = (server.ask("POST", SUBMIT, body) for _ in range(2))
    assert (first.status, second.status) == (201, 200)
    assert first.body == second.body


def test_whoever_has_a_record_is_not_sent_it_again(server: Live) -> None:
    receipt = json.loads(server.ask("POST", SUBMIT, server.submission("cached")).body)
    etag = f'"{receipt["record_sha256"]}"'
    with server.connect() as wire:
        wire.head("GET", f"{SUBMIT}/{receipt['result_id']}/record", **{"If-None-Match": etag})
        wire.head("GET", "/healthz", Connection="close")
        raw = wire._read.read()
    assert raw.startswith(b"HTTP/1.1 304")


def test_one_connection_serves_one_request_after_another(server: Live) -> None:
    with server.connect() as wire:
        for _ in range(3):
            wire.head("GET", "/healthz")
            assert wire.answer().status == 200


# What is refused before the body is read


def refused_by_head(server: Live, **headers: str) -> str:
    """Send a head alone; return the code of the answer, after which the connection ends."""
    with server.connect() as wire:
        wire.head("POST", SUBMIT, **headers)
        answer = wire.answer()
        assert answer.headers["connection"] == "close"
        assert wire.ended()
        return answer.code


def test_a_body_that_says_it_is_too_large(server: Live) -> None:
    assert refused_by_head(server, **JSON, **{"Content-Length": str(MOST + 1)}) == "too_large"


def test_a_compressed_body(server: Live) -> None:
    bomb = gzip.compress(b"[" * 1000)
    length = {"Content-Length": str(len(bomb)), "Content-Encoding": "gzip"}
    assert refused_by_head(server, **JSON, **length) == "encoding"


@pytest.mark.parametrize("media", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_a_body_of_another_kind(server: Live, media: str) -> None:
    sent = {"Content-Type": media, "Content-Length": "2"}
    assert refused_by_head(server, **sent) == "media_type"


# What is refused while the body arrives


def test_a_body_without_a_length_is_taken_up_to_the_cap(server: Live) -> None:
    body = server.submission("chunked")
    with server.connect() as wire:
        wire.head("POST", SUBMIT, **JSON, **{"Transfer-Encoding": "chunked"})
        for at in range(0, len(body), 1000):
            wire.chunk(body[at : at + 1000])
        wire.chunk(b"")
        assert wire.answer().status == 201


def test_a_body_without_a_length_and_an_end(server: Live) -> None:
    with server.connect() as wire:
        wire.head("POST", SUBMIT, **JSON, **{"Transfer-Encoding": "chunked"})
        for _ in range(MOST >> 20):
            wire.chunk(b" " * (1 << 20))
        wire.chunk(b" ")
        assert wire.answer().code == "too_large"
        assert wire.ended()


def test_a_body_that_stops_arriving(server: Live) -> None:
    with server.connect() as wire:
        wire.head("POST", SUBMIT, **JSON, **{"Content-Length": "1000"})
        wire.send(b'{"envelope"')
        answer = wire.answer()
        assert (answer.status, answer.code) == (408, "too_slow")
        assert wire.ended()


def test_what_is_no_http(server: Live) -> None:
    with server.connect() as wire:
        wire.send(b"\x16\x03\x01\x02\x00\r\n\r\n")
        assert wire.answer().code == "not_http"
        assert wire.ended()


def test_a_head_without_end(server: Live) -> None:
    with server.connect() as wire:
        wire.send(b"GET / HTTP/1.1\r\nHost: server\r\nX: " + b"a" * (64 << 10))
        assert wire.answer().code == "not_http"


# Others are served meanwhile


def test_a_slow_sender_holds_up_nobody(server: Live) -> None:
    slowly, quickly = server.submission("slow"), server.submission("quick")
    with server.connect() as slow:
        slow.head("POST", SUBMIT, **JSON, **{"Content-Length": str(len(slowly))})
        slow.send(slowly[:100])
        assert server.ask("POST", SUBMIT, quickly).status == 201  # while the other is under way
        slow.send(slowly[100:])
        assert slow.answer().status == 201


def test_a_reader_that_does_not_read_holds_up_nobody(server: Live) -> None:
    with server.connect() as idle:
        for _ in range(20):
            idle.head("GET", "/openapi.json")
        assert server.ask("GET", "/healthz").status == 200


# Hostile bodies


CORPUS = Path(__file__).parent / "corpus"
CODES: dict[str, str] = json.loads((CORPUS / "codes.json").read_text())


def test_every_hostile_body_has_its_code() -> None:
    files = {path.name for path in CORPUS.iterdir()} - {"codes.json"}
    assert files == CODES.keys()


@pytest.mark.parametrize("name", CODES)
def test_a_hostile_body(server: Live, name: str) -> None:
    answer = server.ask("POST", SUBMIT, (CORPUS / name).read_bytes())
    assert answer.code == CODES[name]


@pytest.mark.parametrize("path", ["/api/v1/keys", f"{SUBMIT}/aaaaaaaaaaaaaaaa/withdrawal"])
@pytest.mark.parametrize("body", [b"[" * 10_000, b"{}", b"null", b'{"schema":1}', b"{"])
def test_a_hostile_statement(server: Live, path: str, body: bytes) -> None:
    assert 400 <= server.ask("POST", path, body).status < 500


def test_a_million_keys(server: Live) -> None:
    many = b"{" + b",".join(b'"%x":1' % n for n in range(600_000)) + b"}"
    assert len(many) < MOST
    assert server.ask("POST", SUBMIT, many).code == "too_large"


# Answers


def test_an_error_tells_the_servers_time(server: Live) -> None:
    error = json.loads(server.ask("GET", "/nowhere").body)["error"]
    assert error["code"] == "not_found"
    assert datetime.fromisoformat(error["server_time"]).tzinfo is not None


def test_a_method_that_an_address_does_not_take(server: Live) -> None:
    answer = server.ask("DELETE", SUBMIT)
    assert (answer.status, answer.code) == (405, "method_not_allowed")
    assert answer.headers["allow"] == "GET, POST"


@pytest.mark.parametrize("path", ["/healthz", "/nowhere", "/api/v1/server"])
def test_every_answer_says_what_a_browser_may_do_with_it(server: Live, path: str) -> None:
    headers = server.ask("GET", path).headers
    assert "'unsafe-inline'" not in headers["content-security-policy"]
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert "server" not in headers


def test_text_of_strangers_comes_back_as_json_only(server: Live) -> None:
    answer = server.ask("POST", SUBMIT, b'{"<script>":"\'; DROP TABLE results;--"}')
    assert answer.headers["content-type"] == "application/json"
    assert b"<script>" not in answer.body


def test_the_server_says_what_it_takes(server: Live) -> None:
    told: dict[str, Any] = json.loads(server.ask("GET", "/api/v1/server").body)
    assert told["limits"] == {"body_bytes": MOST, "skew_s": 600}
    assert told["accepts_development"] is True
    assert told["log_key"] in server.said
    assert told["origin"] == f"127.0.0.1:{server.port}"


def test_submissions_are_counted_by_what_became_of_them(server: Live) -> None:
    def count(code: str) -> float:
        text = server.ask("GET", "/metrics").body.decode()
        name = f'npumark_submissions_total{{code="{code}"}} '
        return sum(float(line[len(name) :]) for line in text.splitlines() if line.startswith(name))

    before = count("wrong_form"), count("accepted")
    server.ask("POST", SUBMIT, b"{}")
    server.ask("POST", SUBMIT, server.submission("counted"))
    assert (count("wrong_form"), count("accepted")) == (before[0] + 1, before[1] + 1)


def test_what_strangers_make_up_is_counted_as_one(server: Live) -> None:
    for n in range(3):
        assert server.ask(f"MADE-UP-{n}", f"/made/up/{n}").status == 404
    text = server.ask("GET", "/metrics").body.decode()
    assert 'npumark_requests_total{method="other",route="unknown",status="404"} 3.0' in text
    assert "MADE-UP" not in text


# Its end


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_that_is_told_to_stop_finishes_what_was_begun(
    tmp_path: Path, number: signal.Signals
) -> None:
    with live(tmp_path, "--allow-development") as server:
        server.register()
        body = server.submission("last")
        with server.connect() as wire:
            wire.head("POST", SUBMIT, **JSON, **{"Content-Length": str(len(body))})
            wire.send(body[:-1])
            server.process.send_signal(number)
            wire.send(body[-1:])
            assert wire.answer().status == 201
        assert server.process.wait() == 0
