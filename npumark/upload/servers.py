"""The servers that results were sent to: their keys as first seen, and what their user agreed to.

    servers/<slug>.json   {"schema", "url", "origin", "public_key", "log_key", "consent", "used_at",
                           "former"}

Keys are null until the server was reached for the first time. From then on a server with another
key is another server, until somebody says otherwise; what it signed before that still holds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from npumark import paths
from npumark.errors import IntegrityError, SetupError
from npumark.record.envelope import Hex64, Instant, Origin, Receipt
from npumark.record.files import write_atomically
from npumark.record.signing import key_id_of
from npumark.transparency.note import verifier_key
from npumark.upload.address import Address, slug_of

SCHEMA: Final = "npumark-server/1"
CONSENT: Final = 1
"""Which list of what is sent (``listing``) is agreed to. A later one that holds more counts on."""


class ServerInfo(BaseModel):
    """What ``GET /api/v1/server`` answers, as far as a sender needs it."""

    class Limits(BaseModel):
        body_bytes: Annotated[int, Field(gt=0)]
        skew_s: Annotated[float, Field(ge=0, allow_inf_nan=False)]

    model_config = ConfigDict(frozen=True)

    origin: Origin
    url: str
    version: str
    time: Instant
    log_key: Annotated[str, Field(max_length=1000)]
    public_key: Hex64
    limits: Limits
    accepts_development: bool


@dataclass(frozen=True, slots=True)
class FormerKey:
    """A key that a server had, and the server's time when another was trusted in its place."""

    public_key: Hex64
    replaced_at: Instant


@dataclass(frozen=True, slots=True)
class KnownServer:
    """``consent`` is the list that was agreed to, null where none was; ``used_at`` UTC seconds."""

    url: str
    origin: str
    public_key: str | None = None
    log_key: str | None = None
    consent: int | None = None
    used_at: float = 0.0
    former: tuple[FormerKey, ...] = ()

    @property
    def agreed(self) -> bool:
        return self.consent is not None and self.consent >= CONSENT

    def had(self, public_key: str) -> FormerKey | None:
        """Return the former key of that public half; null where it is none, or is in use again."""
        if public_key == self.public_key:
            return None
        return next((key for key in self.former if key.public_key == public_key), None)

    def key_of(self, receipt: Receipt) -> str | None:
        """Return the key that a receipt of this server has to be signed with: the one that it has,
        or the one that the receipt states where the server had that before."""
        stated = receipt.signature.public_key
        return stated if self.had(stated) else self.public_key


def known(address: Address) -> KnownServer:
    """Return what is remembered of a server; a new one's keys are null.

    Raises IntegrityError where the file that remembers it cannot be read: its key would be taken
    on trust once more.
    """
    found = _read(_path(address.slug), address.origin)
    return (
        KnownServer(address.url, address.origin)
        if found is None
        else replace(found, url=address.url)
    )


def remember(address: Address, server: KnownServer) -> None:
    """Write what is known of a server. Raises SetupError where that cannot be."""
    document = {"schema": SCHEMA, **asdict(server)}
    paths.make(_folder())
    raw = json.dumps(document, indent=1).encode() + b"\n"
    write_atomically(_path(address.slug), raw, force=True)


def last_used() -> KnownServer | None:
    """Return the server that was used last, null where none is remembered."""
    return max(_readable(), key=lambda server: server.used_at, default=None)


def url_of(slug: str) -> str | None:
    """Return the address of the server whose folder has that name; null where none that can be
    read is remembered."""
    try:
        found = _decode(_path(slug).read_bytes())
    except OSError:
        return None
    return found.url if found else None


def of_origin(origin: str) -> KnownServer | None:
    """Return the server of that name whose key is remembered; null where none is.

    Raises IntegrityError where the file that remembers it cannot be read, as ``known`` does.
    """
    found = next((s for s in _readable() if s.origin == origin and s.public_key), None)
    if found is None:
        _read(_path(slug_of(origin)), origin)  # which raises where its file is damaged
    return found


def pinned(
    server: KnownServer, told: ServerInfo, address: Address, *, trust_new_key: bool = False
) -> KnownServer:
    """Return the server with the keys that it has, after holding them to those of the first time.

    Raises IntegrityError where they differ and ``trust_new_key`` is not given, where the log's
    key is not the server's, and where the server calls itself what its address does not.
    """
    if told.origin != address.origin and not address.loopback:
        raise IntegrityError(
            f"the server at {address.url} calls itself {told.origin}: what is signed for it could "
            "be passed on there",
            f"Use https://{told.origin} if that is the server you mean.",
        )
    if told.log_key != verifier_key(told.origin, bytes.fromhex(told.public_key)):
        raise IntegrityError(
            f"{address.origin} states a key of its log that is not its own",
            "Ask whoever runs the server.",
        )
    first = server.public_key
    if first is not None and not trust_new_key and told.public_key != first:
        raise IntegrityError(
            f"{address.origin} has the key {_short(told.public_key)}, and had {_short(first)} "
            "before: it is another server, or somebody is between",
            "Ask whoever runs it; a key that was exchanged is accepted with --trust-new-key. A log "
            "that began anew with it is another history, of which earlier receipts prove nothing.",
        )
    if first is not None and not trust_new_key and told.origin != server.origin:
        raise IntegrityError(
            f"{address.url} calls itself {told.origin}, and was {server.origin} before",
            "Ask whoever runs it; it is accepted anew with --trust-new-key.",
        )
    former = server.former
    if told.origin != server.origin:
        former = ()  # keys of another name
    elif first is not None and told.public_key != first:
        former = (*former, FormerKey(first, told.time))
    return replace(
        server,
        origin=told.origin,
        public_key=told.public_key,
        log_key=told.log_key,
        former=former,
    )


def _short(public_key: str) -> str:
    return key_id_of(bytes.fromhex(public_key))


def _read(path: Path, origin: str) -> KnownServer | None:
    """Return what a file remembers, null where there is none. Raises IntegrityError where it is
    damaged, SetupError where it cannot be read."""
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as fault:
        raise SetupError(
            f"{path}, which holds the key of {origin}, cannot be read: {fault.strerror or fault}",
            "Make it readable for this user.",
        ) from fault
    if (found := _decode(raw)) is None:
        raise IntegrityError(
            f"{path}, which holds the key of {origin}, is damaged",
            "Restore it, or remove it to trust the server anew.",
        )
    return found


def _folder() -> Path:
    return paths.data_dir() / "servers"


def _path(slug: str) -> Path:
    return _folder() / f"{slug}.json"


def _readable() -> Iterator[KnownServer]:
    """Yield every server that is remembered and can be read."""
    for path in sorted(_folder().glob("*.json")):
        try:
            found = _decode(path.read_bytes())
        except OSError:
            continue
        if found is not None:
            yield found


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    schema_: Annotated[Literal["npumark-server/1"], Field(alias="schema")]
    url: str
    origin: Origin
    public_key: Hex64 | None
    log_key: str | None
    consent: int | None
    used_at: float
    former: tuple[FormerKey, ...] = ()


def _decode(raw: bytes) -> KnownServer | None:
    try:
        read = _File.model_validate_json(raw)
    except ValidationError:
        return None
    fields = dict(read)
    del fields["schema_"]
    return KnownServer(**fields)
