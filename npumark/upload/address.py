"""A server's address: the URL that people give, and the name (``Origin``) that it stands for."""

from __future__ import annotations

import hashlib
import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from npumark.errors import UsageError

_PORTS = {"https": 443, "http": 80}
_ORIGIN = re.compile(r"[a-z0-9.:/_-]{1,200}")
_HINT = "Give it as https://results.example, with a port or a path where it has one."


@dataclass(frozen=True, slots=True)
class Address:
    """``url`` has no slash at its end; ``origin`` is it without the scheme and its own port."""

    url: str
    scheme: str
    host: str
    origin: str

    @property
    def loopback(self) -> bool:
        """Whether it is this very computer, which no name server and no network decides."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def slug(self) -> str:
        return slug_of(self.origin)


def slug_of(origin: str) -> str:
    """Return a name for files and folders of a server, different for every origin."""
    readable = re.sub(r"[^a-z0-9.-]+", "_", origin).strip("._")[:60]
    return f"{readable or 'server'}-{hashlib.sha256(origin.encode()).hexdigest()[:8]}"


def parse_address(text: str, *, insecure_http: bool = False) -> Address:
    """Return the address that ``text`` gives. Plain http is for this computer's own servers, or
    for whoever insists. Raises UsageError for anything else than an http or https URL."""
    shown = text.strip()[:100]
    try:
        parts = urlsplit(text.strip())
        host, port = (parts.hostname or "").rstrip("."), parts.port
    except ValueError:
        raise UsageError(f"{shown!r} is not a server's address", _HINT) from None
    if parts.scheme not in _PORTS or not host:
        raise UsageError(f"{shown!r} is not a server's address", _whole(shown))
    if parts.username or parts.password or parts.query or parts.fragment:
        raise UsageError(
            f"a server's address holds no user name, query or fragment, and {shown!r} does", _HINT
        )
    path = parts.path.rstrip("/")
    own_port = "" if port in (None, _PORTS[parts.scheme]) else f":{port}"
    netloc = f"[{host}]" if ":" in host else host
    origin = f"{host}{own_port}{path}"
    if not _ORIGIN.fullmatch(origin):
        raise UsageError(f"{shown!r} holds what no server's name may", _HINT)
    address = Address(f"{parts.scheme}://{netloc}{own_port}{path}", parts.scheme, host, origin)
    if parts.scheme == "http" and not address.loopback and not insecure_http:
        raise UsageError(
            f"{address.url} would be sent to in plain text, which anybody on the way can change",
            f"Use https://{origin}, or insist with --insecure-http.",
        )
    return address


def _whole(text: str) -> str:
    """Return what to give in place of ``text``, an address that may lack its scheme alone."""
    if "://" in text:
        return _HINT
    for scheme in ("https", "http"):
        try:
            address = parse_address(f"{scheme}://{text}")
        except UsageError:
            continue
        if address.loopback == (scheme == "http"):
            return f"Give it with its scheme: {address.url}."
    return _HINT
