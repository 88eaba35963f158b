"""What a server is told at its start; nothing of it is in the database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from npumark.record.signing import BuildKey, InstallKey


@dataclass(frozen=True, slots=True)
class Limits:
    """``body_s`` is how long a body may take to arrive, ``skew_s`` how far a sender's clock may
    be off, ``keys_per_machine`` and ``key_cooldown_s`` those of methodology §8, ``verifying`` how
    many submissions a process verifies at once, ``waiting`` how many may wait for that and
    ``held_bytes`` how many bytes of bodies it holds meanwhile. ``head_s`` is how long a request's
    head may take, ``connections`` how many a process serves at a time."""

    body_bytes: int = 8 << 20
    body_s: float = 20.0
    skew_s: float = 600.0
    keys_per_machine: int = 8
    key_cooldown_s: float = 86_400.0
    verifying: int = 2
    waiting: int = 512
    held_bytes: int = 256 << 20
    head_s: float = 10.0
    connections: int = 1000
    page: int = 50


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """``origin`` names the server in envelopes, receipts and the log (``Origin``); ``url`` is
    where people reach it, without a slash at the end. ``key`` signs receipts and tree heads.
    ``build_keys`` are those of release builds, by key id. ``witnesses`` are verifier keys (C2SP
    signed-note) of those who may co-sign tree heads."""

    database_url: str
    origin: str
    url: str
    key: InstallKey
    build_keys: Mapping[str, BuildKey] = field(default_factory=dict)
    allow_development: bool = False
    limits: Limits = field(default_factory=Limits)
    witnesses: tuple[str, ...] = ()
    data: Path | None = None
