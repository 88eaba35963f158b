"""What ``npumark serve`` was told, and the configuration that follows: files are read and, at a
first start, made. Worker processes are handed the settings and read the same files again."""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from npumark.errors import IntegrityError, SetupError, UsageError
from npumark.paths import make
from npumark.record.key_file import read_key, write_key
from npumark.record.signing import BuildKey, InstallKey
from npumark.server.config import Limits, ServerConfig
from npumark.server.database import sqlite_url
from npumark.transparency.note import parse_verifier_key

VARIABLE: Final = "NPUMARK_SERVE_SETTINGS"
"""Where worker processes find the settings, as JSON."""

_SECRET: Final = re.compile(r"[0-9a-f]{64}")
_ORIGIN: Final = re.compile(r"[a-z0-9.:/_-]{1,200}")
_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Settings:
    """``data`` is the server's folder; database and key lie in it unless named. ``url`` is where
    people reach the server, ``origin`` what it is called (of the URL, where null)."""

    data: str
    url: str
    origin: str | None = None
    database: str | None = None
    key: str | None = None
    build_keys: str | None = None
    allow_development: bool = False
    witnesses: tuple[str, ...] = ()
    body_s: float = Limits().body_s

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Settings:
        fields = json.loads(text)
        return cls(**{**fields, "witnesses": tuple(fields["witnesses"])})


def config_of(settings: Settings) -> ServerConfig:
    """Return the configuration that the settings name; makes the data folder and the key.

    Raises UsageError for a URL, an origin or a witness that is none, SetupError where a file
    cannot be read or made, IntegrityError where one holds no keys.
    """
    data = data_folder(settings.data)
    origin = settings.origin or origin_of(settings.url)
    if not _ORIGIN.fullmatch(origin):
        raise UsageError(
            f"{origin!r} cannot name a server",
            "Use lower-case letters, digits and any of . : / _ - , as in results.example.org",
        )
    for witness in settings.witnesses:
        try:
            parse_verifier_key(witness)
        except ValueError as fault:
            raise UsageError(
                f"the witness {witness[:80]!r} is no verifier key: {fault}",
                "Give the line that the witness publishes: name+8 digits+base64.",
            ) from None
    build_keys = _build_keys(Path(settings.build_keys)) if settings.build_keys else []
    return ServerConfig(
        database_url=settings.database or sqlite_url(data / "server.sqlite"),
        origin=origin,
        url=settings.url.rstrip("/"),
        key=server_key(Path(settings.key) if settings.key else data / "server.key"),
        build_keys={key.key_id: key for key in build_keys},
        allow_development=settings.allow_development,
        limits=Limits(body_s=settings.body_s, head_s=min(Limits().head_s, settings.body_s)),
        witnesses=settings.witnesses,
        data=data,
    )


def data_folder(named: str) -> Path:
    """Return the server's folder, which is made where it is missing. Raises SetupError where it
    cannot be written to."""
    try:
        return make(Path(named))
    except SetupError as fault:
        hint = "Let the server's user write to it, or name another folder with --data."
        raise SetupError(fault.message, hint) from fault


def origin_of(url: str) -> str:
    """Return what a server at ``url`` is called: host, port unless it is the scheme's own, path.

    Raises UsageError where it is no URL of a server.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in _PORTS or not parts.hostname or parts.query or parts.fragment:
        raise UsageError(
            f"{url!r} is no address of a server", "Write it as in https://results.example.org"
        )
    shown = "" if port in (None, _PORTS[parts.scheme]) else f":{port}"
    return f"{parts.hostname}{shown}{parts.path.rstrip('/')}"


def server_key(path: Path) -> InstallKey:
    """Return the key in a file, which is made (readable by its owner only) where it is missing.

    Raises SetupError where it cannot be read or made, or others may read it; IntegrityError where
    it holds no key.
    """
    if not path.exists():
        write_key(path, InstallKey(os.urandom(32)))
    try:
        return read_key(path)
    except SetupError as fault:
        hint = f"Let the server's user alone read it: chmod 600 '{path}'"
        raise SetupError(fault.message, hint) from fault
    except IntegrityError as fault:
        hint = "Put the backup of the key there: with another one it would be another log."
        raise IntegrityError(fault.message, hint) from fault


def _build_keys(path: Path) -> list[BuildKey]:
    """Return the keys of release builds in a file: one a line, 64 hexadecimal digits; what follows
    a # is a remark."""
    keys = []
    for number, line in enumerate(_text(path).splitlines(), 1):
        secret = line.partition("#")[0].strip()
        if not secret:
            continue
        if not _SECRET.fullmatch(secret):
            raise IntegrityError(
                f"line {number} of {path} is no build key: 64 hexadecimal digits are due",
                "One key a line; what follows a # is a remark.",
            )
        keys.append(BuildKey(bytes.fromhex(secret)))
    return keys


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as fault:
        why = fault.strerror if isinstance(fault, OSError) else "it is no text"
        raise SetupError(
            f"{path} cannot be read: {why}", "Name a file that this user can read."
        ) from fault
