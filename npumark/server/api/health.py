"""Whether a server is up, whether it can work, and what it counts."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel
from sqlalchemy.exc import SQLAlchemyError

from npumark.server import log
from npumark.server.answers import documented
from npumark.server.database import reading
from npumark.server.metrics import MEDIA_TYPE
from npumark.server.refusal import refuse

router = APIRouter(tags=["health"])


class Health(BaseModel):
    status: Literal["ok"] = "ok"


@router.get("/healthz")
async def healthz() -> Health:
    """Whether the process answers."""
    return Health()


@router.get("/readyz", responses=documented("busy"))
def readyz(request: Request) -> Health:
    """Whether the database is reachable and has the schema that this version works with."""
    try:
        current = request.app.state.store.schema_is_current()
    except SQLAlchemyError:
        raise refuse("busy", "the database is not reachable", retry_after_s=5) from None
    if not current:
        raise refuse("busy", "the database has another version's schema", retry_after_s=60)
    return Health()


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
def metrics(request: Request) -> Response:
    """What the server counts, in Prometheus's text format."""
    state = request.app.state
    with reading(state.store.engine) as connection:
        size = log.head(connection).size
    return Response(state.metrics.text(size), media_type=MEDIA_TYPE)
