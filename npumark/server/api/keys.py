"""Making an installation's key known."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool

from npumark.record.envelope import Hex32, Instant, Registration
from npumark.server.answers import BODY_FAULTS, documented, instant, takes
from npumark.server.document import read
from npumark.server.sender import check_registration, statement_of

router = APIRouter(prefix="/api/v1", tags=["keys"])

MOST_BYTES = 16 << 10
"""Of a body that is one statement."""


class Registered(BaseModel):
    """``replaces``: the key that made room, where the machine had as many as it may."""

    key_id: Hex32
    registered_at: Instant
    replaces: Hex32 | None


@router.post(
    "/keys",
    status_code=201,
    response_model=Registered,
    responses={
        200: {"model": Registered, "description": "It was registered before"},
        **documented(
            *BODY_FAULTS,
            "wrong_origin",
            "clock_skew",
            "bad_envelope_signature",
            "key_of_another_machine",
            "key_refused",
            "machine_refused",
            "too_many_keys",
        ),
    },
    openapi_extra=takes(Registration),
)
async def register(request: Request, response: Response) -> Registered:
    """Register a key for a machine; it is signed with that key, so that nobody registers another's.

    A machine may have a few keys; after a cool-down, one more replaces the oldest.
    """
    state = request.app.state
    async with state.bodies.of(request, MOST_BYTES) as body:
        registration = statement_of(Registration, read(body))
    check_registration(registration, state.config, state.now())
    made = await run_in_threadpool(state.store.register_key, registration)
    if not made.new:
        response.status_code = 200
    return Registered(
        key_id=made.key_id, registered_at=instant(made.registered_at), replaces=made.replaces
    )
