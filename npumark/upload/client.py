"""HTTP to a results server: patient with what passes, deaf to what would lead elsewhere.

Proxies and certificates come from the usual variables (``HTTPS_PROXY``, ``NO_PROXY``,
``SSL_CERT_FILE``, ``SSL_CERT_DIR``, ``REQUESTS_CA_BUNDLE``). No redirect is followed: what is
signed for one server goes to no other. An answer is never read beyond a bound.
"""

from __future__ import annotations

import json
import os
import random
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final, Self

import httpx

from npumark import __version__
from npumark.errors import NetworkError, SetupError
from npumark.plain import one_line
from npumark.upload.address import Address

TIMEOUT: Final = httpx.Timeout(60.0, connect=15.0)
LONGEST_ANSWER_S: Final = 300.0
"""For a whole answer: one that comes byte by byte is never late by the timeout of a read."""
ATTEMPTS: Final = 6
FIRST_WAIT_S: Final = 1.0
LONGEST_WAIT_S: Final = 60.0
PATIENCE_S: Final = 300.0
"""A server that asks for a longer wait is not waited for: what is queued is sent another time."""
MOST_BYTES: Final = 4 << 20
STAYS: Final = "What is queued stays queued; `npumark submit` sends it."
PASSING: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Answers that another attempt may change."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server answered. ``retry_after_s`` is what it asks to wait, null where it does not."""

    status: int
    body: bytes
    retry_after_s: float | None

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    def document(self) -> Any:
        """Return the body as JSON, null where it is none."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None

    def error(self) -> Error | None:
        """Return what a results server says of a refusal; null where something else answered."""
        document = self.document()
        told = document.get("error") if isinstance(document, dict) else None
        if not isinstance(told, dict):
            return None
        code, message, details = told.get("code"), told.get("message"), told.get("details")
        if not isinstance(code, str) or not isinstance(message, str):
            return None
        server_time = told.get("server_time")
        return Error(
            one_line(code)[:60],
            one_line(message)[:500],
            details if isinstance(details, dict) else {},
            server_time if isinstance(server_time, str) else None,
        )


@dataclass(frozen=True, slots=True)
class Error:
    """The error body of the server's API. ``server_time`` is an ``Instant``."""

    code: str
    message: str
    details: dict[str, Any] = field(default_factory=dict)
    server_time: str | None = None


@dataclass(frozen=True, slots=True)
class Shell:
    """What a client needs of the world: ``now`` in UTC seconds, ``draw`` in [0, 1)."""

    now: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    draw: Callable[[], float] = random.random
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    tell: Callable[[str], None] = lambda _: None


class Client:
    """Requests to one server. ``transport`` replaces the network."""

    def __init__(
        self,
        address: Address,
        *,
        shell: Shell | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.address = address
        self._shell = shell or Shell()
        self._http = httpx.Client(
            headers={"User-Agent": f"npumark/{__version__}", "Accept-Encoding": "identity"},
            timeout=TIMEOUT,
            follow_redirects=False,
            # A proxy is no way to this computer itself.
            trust_env=not address.loopback,
            verify=tls_context(self._shell.environ),
            transport=transport,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def get(self, path: str) -> Answer:
        """Return the answer to a GET. Raises NetworkError as ``post`` does."""
        return self._patiently("GET", path, None)

    def post(self, path: str, body: bytes) -> Answer:
        """Return the answer to a POST of JSON: any that is final, a refusal as well.

        Raises NetworkError where no answer came, or only such that pass, however often it was
        tried; and for a redirect.
        """
        return self._patiently("POST", path, body)

    def _patiently(self, method: str, path: str, body: bytes | None) -> Answer:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                answer = self._once(method, path, body)
            except httpx.TransportError as fault:
                why, asked = _reason(fault), None
            else:
                if answer.status not in PASSING or _is_final(answer):
                    return answer
                why, asked = _told(answer), answer.retry_after_s
            if attempt == ATTEMPTS or (asked is not None and asked > PATIENCE_S):
                break
            wait = self._wait(attempt, asked)
            self._shell.tell(f"{self.address.origin}: {why}; again in {wait:.0f} s")
            self._shell.sleep(wait)
        hint = STAYS
        if asked is not None and asked > PATIENCE_S:
            hint = f"It asks to wait {_span(asked)}. {hint}"
        raise NetworkError(f"{self.address.url} cannot be used: {why}", hint)

    def _wait(self, attempt: int, asked: float | None) -> float:
        """Return how long to wait before another attempt: what the server asks, or twice as long
        each time, up to a bound; and up to half of it less, so that not everybody comes at once."""
        longest = min(FIRST_WAIT_S * float(2 ** (attempt - 1)), LONGEST_WAIT_S)
        if asked is not None:
            return asked + self._shell.draw() * FIRST_WAIT_S
        return longest * (0.5 + self._shell.draw() / 2)

    def _once(self, method: str, path: str, body: bytes | None) -> Answer:
        headers = {} if body is None else {"Content-Type": "application/json"}
        url, began = self.address.url + path, self._shell.clock()
        with self._http.stream(method, url, content=body, headers=headers) as response:
            if response.is_redirect:
                to = one_line(response.headers.get("Location", "nowhere"))[:200]
                raise NetworkError(
                    f"{self.address.url} sends on to {to}, and no redirect is followed",
                    "Give the server's own address with --server.",
                )
            raw = bytearray()
            for part in response.iter_bytes():
                raw += part
                if self._shell.clock() - began > LONGEST_ANSWER_S:
                    raise httpx.ReadTimeout("the answer does not end")
                if len(raw) > MOST_BYTES:
                    raise NetworkError(
                        f"{self.address.url} answers with more than {MOST_BYTES >> 20} MiB",
                        "That is no results server; check the address.",
                    )
            asked = retry_after(response.headers.get("Retry-After"), self._shell.now())
            return Answer(response.status_code, bytes(raw), asked)


def retry_after(text: str | None, now: float) -> float | None:
    """Return the seconds that a ``Retry-After`` asks to wait (RFC 9110 §10.2.3: a number of
    seconds, or a date); null where there is none, or it is neither."""
    if text is None:
        return None
    text = text.strip()
    if text.isascii() and text.isdecimal() and len(text) <= 9:
        return float(text)
    try:
        at = parsedate_to_datetime(text)
    except ValueError:
        return None
    at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    return max(0.0, (at - datetime.fromtimestamp(now, UTC)).total_seconds())


def tls_context(environ: Mapping[str, str]) -> ssl.SSLContext | bool:
    """Return what certificates are checked against: the authorities that a variable names, or
    True for the usual ones. Raises SetupError where the named ones cannot be read."""
    file, folder = environ.get("SSL_CERT_FILE"), environ.get("SSL_CERT_DIR")
    bundle = environ.get("REQUESTS_CA_BUNDLE")
    if bundle and not file and not folder:
        file, folder = (None, bundle) if os.path.isdir(bundle) else (bundle, None)  # noqa: PTH112
    if not file and not folder:
        return True
    try:
        return ssl.create_default_context(cafile=file or None, capath=folder or None)
    except OSError as fault:  # an SSLError is one
        raise SetupError(
            f"the certificates in {file or folder} cannot be read: {fault.strerror or fault}",
            "Correct SSL_CERT_FILE, SSL_CERT_DIR or REQUESTS_CA_BUNDLE, or unset it.",
        ) from None


def _is_final(answer: Answer) -> bool:
    """Whether waiting would not help: a machine with all its keys waits for a day."""
    told = answer.error()
    return told is not None and told.code == "too_many_keys"


def _told(answer: Answer) -> str:
    told = answer.error()
    said = f": {told.message}" if told else ""
    return f"it answers {answer.status}{said}"


def _reason(fault: httpx.TransportError) -> str:
    if isinstance(fault, httpx.TimeoutException):
        return "it did not answer in time"
    cause: BaseException | None = fault
    while cause is not None and not isinstance(cause, OSError):
        cause = cause.__cause__ or cause.__context__
    if isinstance(cause, ConnectionRefusedError):
        return "nothing answers there; is the server running?"
    if isinstance(cause, socket.gaierror):
        return "no computer of that name is known"
    said = cause.strerror if cause is not None and cause.strerror else str(fault)
    return one_line(said)[:200] or type(fault).__name__


def _span(seconds: float) -> str:
    return f"{seconds / 3600:.1f} hours" if seconds >= 5400 else f"{seconds / 60:.0f} minutes"
