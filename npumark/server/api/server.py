"""What a server says of itself, which is what a client asks first."""

from __future__ import annotations

from fastapi import APIRouter, Request
from pydantic import BaseModel

import npumark
from npumark.record.envelope import Hex64, Instant, Origin
from npumark.server.answers import instant
from npumark.transparency.note import verifier_key

router = APIRouter(prefix="/api/v1", tags=["server"])


class ServerLimits(BaseModel):
    """``body_bytes``: of a submission. ``skew_s``: by how much a sender's clock may be off."""

    body_bytes: int
    skew_s: float


class ServerInfo(BaseModel):
    """``log_key`` is the log's verifier key (C2SP signed-note); ``public_key`` is the same
    key, which signs receipts. ``manifest_sha256`` are the packs whose runs are taken."""

    origin: Origin
    url: str
    version: str
    time: Instant
    log_key: str
    public_key: Hex64
    limits: ServerLimits
    score_versions: list[str]
    manifest_sha256: list[Hex64]
    accepts_development: bool


@router.get("/server")
async def server(request: Request) -> ServerInfo:
    """What this server is called, takes and signs with, and what time it has."""
    state = request.app.state
    config, rules = state.config, state.rules
    return ServerInfo(
        origin=config.origin,
        url=config.url,
        version=npumark.__version__,
        time=instant(state.now()),
        log_key=verifier_key(config.origin, config.key.public),
        public_key=config.key.public.hex(),
        limits=ServerLimits(body_bytes=config.limits.body_bytes, skew_s=config.limits.skew_s),
        score_versions=list(rules.score_versions),
        manifest_sha256=[rules.pinned_sha256],
        accepts_development=config.allow_development,
    )
