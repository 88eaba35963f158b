"""The transparency log as files (C2SP tlog-tiles), the proof that it grew, and its witnesses."""

from __future__ import annotations

import base64
from typing import Annotated, Final

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict
from starlette.concurrency import run_in_threadpool
from starlette.responses import PlainTextResponse, Response

from npumark.server import log
from npumark.server.answers import documented
from npumark.server.database import reading, writing
from npumark.server.refusal import refuse
from npumark.transparency.checkpoint import MAX_SIZE
from npumark.transparency.note import MAX_NOTE
from npumark.transparency.tiles import parse_tile_path

router = APIRouter(tags=["log"])

_FOREVER: Final = {"Cache-Control": "public, max-age=31536000, immutable"}
"""Of tiles and bundles, partial ones too: what is at a path never changes."""
_FRESH: Final = {"Cache-Control": "no-cache"}
_BYTES: Final = "application/octet-stream"
_TEXT: Final = "text/plain"
_NOTE: Final = {"type": "string", "maxLength": MAX_NOTE}


class Consistency(BaseModel):
    """Hashes of RFC 9162 §2.1.4, base64."""

    model_config = ConfigDict(extra="forbid")

    proof: list[str]


class Cosigned(BaseModel):
    """``size`` is that of the tree head, ``witnesses`` are those whose signatures are kept now."""

    model_config = ConfigDict(extra="forbid")

    size: int
    witnesses: list[str]


@router.get("/log/checkpoint", response_class=PlainTextResponse)
def checkpoint(request: Request) -> Response:
    """The log's head: a signed note with the signatures of the log and of its witnesses."""
    with reading(request.app.state.store.engine) as conn:
        return PlainTextResponse(log.checkpoint(conn), headers=_FRESH)


@router.get(
    "/log/tile/{path:path}",
    response_class=Response,
    responses={200: {"content": {_BYTES: {}}}, **documented("not_found")},
)
def tile(request: Request, path: str) -> Response:
    """A tile of hashes (`<level>/<index>`) or a bundle of entries (`entries/<index>`), whole or of
    a width that the log has reached (`….p/<width>`)."""
    try:
        named = parse_tile_path(f"tile/{path}")
    except ValueError:
        raise refuse("not_found", "this is no path of a tile") from None
    with reading(request.app.state.store.engine) as conn:
        if named.level is None:
            content = log.bundle(conn, named.index, named.width)
        else:
            content = log.tile(conn, named.level, named.index, named.width)
    if content is None:
        raise refuse("not_found", "the log has not grown to this tile")
    return Response(content, media_type=_BYTES, headers=_FOREVER)


@router.get("/api/v1/log/consistency", responses=documented("not_found", "wrong_form"))
def consistency(
    request: Request,
    from_: Annotated[int, Query(alias="from", ge=0, le=MAX_SIZE)],
    to: Annotated[int, Query(ge=0, le=MAX_SIZE)],
) -> Consistency:
    """The proof that the log of `to` leaves begins with that of `from` leaves."""
    if from_ > to:
        raise refuse(
            "wrong_form", "`from` is the smaller of two sizes", **{"from": from_, "to": to}
        )
    with reading(request.app.state.store.engine) as conn:
        size = log.head(conn).size
        if to > size:
            raise refuse("not_found", "the log has not grown to this size", to=to, size=size)
        proof = log.consistency(conn, from_, to)
    return Consistency(proof=[base64.b64encode(h).decode() for h in proof])


@router.post(
    "/log/cosignatures",
    responses=documented(
        *("media_type", "encoding", "too_large", "too_slow", "busy", "wrong_form"),
        "wrong_origin",
        "digest",
        "bad_signature",
    ),
    openapi_extra={"requestBody": {"required": True, "content": {_TEXT: {"schema": _NOTE}}}},
)
async def cosign(request: Request) -> Cosigned:
    """Add what a witness of this server signed (C2SP tlog-cosignature): one of the log's heads as a
    signed note. The checkpoint carries the signatures as long as it has that size."""
    state = request.app.state
    async with state.bodies.of(request, MAX_NOTE, _TEXT) as body:
        try:
            note = body.decode()
        except UnicodeDecodeError:
            raise refuse("wrong_form", "the note is not UTF-8 text") from None

    def add() -> tuple[int, list[str]]:
        with writing(state.store.engine) as conn:
            return log.add_cosignature(conn, note, state.config, state.now())

    size, witnesses = await run_in_threadpool(add)
    return Cosigned(size=size, witnesses=witnesses)
