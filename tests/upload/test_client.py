"""HTTP: what is tried again, how long is waited, and where nothing is ever sent."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import httpx
import pytest

from npumark.errors import NetworkError, SetupError
from npumark.upload.address import parse_address
from npumark.upload.client import ATTEMPTS, MOST_BYTES, Client, Shell, retry_after, tls_context
from tests import forge

NOW = forge.NOW.timestamp()
URL = "https://results.example/base"


class Line:
    """A server that answers what it is told to, one answer after another, the last for ever."""

    def __init__(self, *answers: httpx.Response | Exception, draw: float = 1.0) -> None:
        self._answers = list(answers)
        self.asked: list[httpx.Request] = []
        self.slept: list[float] = []
        shell = Shell(now=lambda: NOW, sleep=self.slept.append, draw=lambda: draw, environ={})
        transport = httpx.MockTransport(self._answer)
        self.client = Client(parse_address(URL), shell=shell, transport=transport)

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return httpx.Response(answer.status_code, content=answer.content, headers=answer.headers)


OK = httpx.Response(200, content=b"{}")


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
def test_what_passes_is_tried_again(status: int) -> None:
    line = Line(httpx.Response(status), OK)
    assert line.client.get("/x").status == 200
    assert len(line.asked) == 2


@pytest.mark.parametrize("status", [200, 201, 400, 401, 403, 404, 409, 410, 413, 415, 422, 501])
def test_what_does_not_pass_is_not(status: int) -> None:
    line = Line(httpx.Response(status))
    assert line.client.post("/x", b"{}").status == status
    assert (len(line.asked), line.slept) == (1, [])


@pytest.mark.parametrize(
    "fault",
    [httpx.ConnectError("refused"), httpx.ReadTimeout("slow"), httpx.RemoteProtocolError("cut")],
)
def test_a_lost_connection_is_tried_again(fault: Exception) -> None:
    line = Line(fault, fault, OK)
    assert line.client.post("/x", b"{}").ok
    assert line.slept == [1.0, 2.0]


def test_waits_double_up_to_a_bound_and_then_it_gives_up() -> None:
    line = Line(httpx.ConnectError("refused"))
    with pytest.raises(NetworkError, match="refused") as gone:
        line.client.get("/x")
    assert line.slept == [1.0, 2.0, 4.0, 8.0, 16.0]
    assert len(line.asked) == ATTEMPTS
    assert "stays queued" in (gone.value.hint or "")


def test_a_port_that_nobody_listens_on_is_told_in_words() -> None:
    refused = httpx.ConnectError("[Errno 111] Connection refused")
    refused.__cause__ = ConnectionRefusedError(111, "Connection refused")
    with pytest.raises(NetworkError, match="is the server running") as gone:
        Line(refused).client.get("/x")
    assert "Errno" not in gone.value.message


def test_waits_are_spread_so_that_not_everybody_comes_at_once() -> None:
    line = Line(httpx.ConnectError("refused"), httpx.ConnectError("refused"), OK, draw=0.0)
    line.client.get("/x")
    assert line.slept == [0.5, 1.0]


def test_a_server_that_says_when_is_asked_then() -> None:
    line = Line(httpx.Response(503, headers={"Retry-After": "17"}), OK, draw=0.0)
    line.client.get("/x")
    assert line.slept == [17.0]


def test_a_server_that_says_much_later_is_not_waited_for() -> None:
    line = Line(httpx.Response(429, headers={"Retry-After": "7200"}))
    with pytest.raises(NetworkError) as gone:
        line.client.get("/x")
    assert line.slept == []
    assert "It asks to wait 2.0 hours" in (gone.value.hint or "")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0.0),
        (" 120 ", 120.0),
        ("Tue, 01 Dec 2026 12:01:30 GMT", 90.0),
        ("Tue, 01 Dec 2026 11:00:00 GMT", 0.0),
        ("Tuesday, 01-Dec-26 12:01:30 GMT", 90.0),
        ("soon", None),
        ("-5", None),
        ("1.5", None),
        ("9" * 40, None),
        ("", None),
        (None, None),
    ],
)
def test_retry_after_is_seconds_or_a_date(text: str | None, seconds: float | None) -> None:
    assert retry_after(text, NOW) == seconds


@pytest.mark.parametrize(
    "to", ["https://evil.example/", "http://results.example/base/x", "/elsewhere", "//evil"]
)
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_redirect_is_followed(status: int, to: str) -> None:
    line = Line(httpx.Response(status, headers={"Location": to}))
    with pytest.raises(NetworkError, match="no redirect is followed"):
        line.client.post("/x", b"{}")
    assert len(line.asked) == 1


def test_an_endless_answer_is_cut() -> None:
    line = Line(httpx.Response(200, content=b"x" * (MOST_BYTES + 1)))
    with pytest.raises(NetworkError, match="more than 4 MiB"):
        line.client.get("/x")


def test_an_answer_that_drips_is_given_up() -> None:
    class Drip(httpx.SyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            while True:
                yield b"x"

    hours = count(step=3600)
    slept: list[float] = []
    shell = Shell(sleep=slept.append, clock=lambda: next(hours), environ={})
    transport = httpx.MockTransport(lambda _: httpx.Response(200, stream=Drip()))
    with pytest.raises(NetworkError, match="did not answer in time"):
        Client(parse_address(URL), shell=shell, transport=transport).get("/x")
    assert len(slept) == ATTEMPTS - 1


def test_paths_are_below_the_servers_own() -> None:
    line = Line(OK)
    line.client.post("/api/v1/results", b"{}")
    (request,) = line.asked
    assert str(request.url) == f"{URL}/api/v1/results"
    assert request.headers["content-type"] == "application/json"
    assert request.headers["accept-encoding"] == "identity"


@pytest.mark.parametrize(
    "raw", [b"", b"<html>", b"[]", b'{"error": 1}', b'{"error": {"code": 1, "message": "m"}}']
)
def test_what_is_no_error_of_a_results_server_is_none(raw: bytes) -> None:
    assert Line(httpx.Response(403, content=raw)).client.get("/x").error() is None


def test_an_error_is_read_and_shown_without_what_a_terminal_obeys() -> None:
    raw = b'{"error": {"code": "digest", "message": "a\\u001b[31mb\\nc", "details": {"n": 1}}}'
    error = Line(httpx.Response(422, content=raw)).client.get("/x").error()
    assert error is not None
    assert (error.code, error.message, error.details) == ("digest", "ab c", {"n": 1})


# Proxies and certificates, as the client is built


def _proxied(client: Client) -> set[str]:
    mounts = client._http._mounts
    return {pattern.pattern for pattern, transport in mounts.items() if transport is not None}


@pytest.fixture
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.mark.usefixtures("no_proxies")
def test_a_proxy_is_used_where_a_variable_names_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with Client(parse_address(URL)) as client:
        assert _proxied(client) == set()
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    with Client(parse_address(URL)) as client:
        assert _proxied(client) == {"https://"}


@pytest.mark.usefixtures("no_proxies")
def test_no_proxy_leaves_a_server_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", "results.example")
    with Client(parse_address(URL)) as client:
        request = httpx.URL(URL)
        assert client._http._transport_for_url(request) is client._http._transport


@pytest.mark.usefixtures("no_proxies")
def test_a_server_on_this_computer_is_never_reached_through_a_proxy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.example:3128")
    with Client(parse_address("http://127.0.0.1:8000")) as client:
        assert _proxied(client) == set()


def _authority(folder: Path) -> Path:
    """Write a certificate of an authority of our own."""
    from datetime import timedelta

    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding
    from cryptography.x509.oid import NameOID

    key = Ed25519PrivateKey.generate()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "an authority")])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(forge.NOW)
        .not_valid_after(forge.NOW + timedelta(days=3650))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, None)
    )
    path = folder / "authority.pem"
    path.write_bytes(made.public_bytes(Encoding.PEM))
    return path


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"])
def test_authorities_that_a_variable_names_are_trusted(tmp_path: Path, variable: str) -> None:
    context = tls_context({variable: str(_authority(tmp_path))})
    assert isinstance(context, ssl.SSLContext)
    (trusted,) = context.get_ca_certs()
    assert trusted["subject"] == ((("commonName", "an authority"),),)
    assert context.check_hostname


@pytest.mark.parametrize("variable", ["SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"])
def test_a_folder_of_authorities_is_taken_as_one(tmp_path: Path, variable: str) -> None:
    assert isinstance(tls_context({variable: str(tmp_path)}), ssl.SSLContext)


def test_without_a_variable_the_usual_authorities_are_trusted() -> None:
    assert tls_context({}) is True


@pytest.mark.parametrize("content", [None, b"no certificate"])
def test_authorities_that_cannot_be_read_are_told(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SetupError, match=r"ca\.pem cannot be read") as told:
        tls_context({"SSL_CERT_FILE": str(path)})
    assert "SSL_CERT_FILE" in (told.value.hint or "")
