"""Submitting a record, withdrawing it, and reading back exactly what was accepted."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool

from npumark.record.envelope import (
    Envelope,
    Instant,
    LogProof,
    Receipt,
    ResultId,
    Withdrawal,
)
from npumark.record.model import Record
from npumark.server import log
from npumark.server.answers import BODY_FAULTS, JSON, documented, instant, takes
from npumark.server.api.keys import MOST_BYTES
from npumark.server.database import reading
from npumark.server.document import read
from npumark.server.refusal import CODES, Refused, refuse
from npumark.server.sender import check_signed, statement_of

router = APIRouter(prefix="/api/v1", tags=["results"])

Id = Annotated[ResultId, Path(alias="id", description="A result's name.")]

SENDER_FAULTS = (
    "wrong_origin",
    "clock_skew",
    "unknown_key",
    "key_of_another_machine",
    "key_refused",
    "machine_refused",
    "bad_envelope_signature",
)
_FIRST_OF_RECORD = list(CODES).index("digest")
RECORD_FAULTS = tuple(list(CODES)[_FIRST_OF_RECORD:])
"""What may be wrong with a record itself."""


class Submission(BaseModel):
    envelope: Envelope
    record: Record


class Withdrawn(BaseModel):
    result_id: ResultId
    withdrawn_at: Instant


class Proof(BaseModel):
    log: LogProof


@router.post(
    "/results",
    status_code=201,
    response_model=Receipt,
    responses={
        200: {"model": Receipt, "description": "It was accepted before: the first receipt"},
        **documented(*BODY_FAULTS, *SENDER_FAULTS, *RECORD_FAULTS),
    },
    openapi_extra=takes(Submission),
)
async def submit(request: Request) -> Response:
    """Submit a record in an envelope: the RFC 8785 form of both, to the byte.

    Everything in it is recomputed. The answer is a signed receipt with a proof that the record
    is in the log; sending the same again brings the first receipt.
    """
    state = request.app.state
    try:
        state.desk.check_room()
        async with state.bodies.of(request) as body:
            status, receipt = await state.desk.take(body)
    except Refused as fault:
        state.metrics.submissions.labels(fault.fault.code).inc()
        raise
    state.metrics.submissions.labels("accepted" if status == 201 else "again").inc()
    return Response(receipt, status, media_type=JSON)


@router.post(
    "/results/{id}/withdrawal",
    responses=documented(*BODY_FAULTS, *SENDER_FAULTS, "not_the_owner", "not_found", "withdrawn"),
    openapi_extra=takes(Withdrawal),
)
async def withdraw(request: Request, result_id: Id) -> Withdrawn:
    """Withdraw a result: its content is deleted, its leaf stays in the log."""
    state = request.app.state
    async with state.bodies.of(request, MOST_BYTES) as body:
        withdrawal = statement_of(Withdrawal, read(body))
    if withdrawal.result_id != result_id:
        raise refuse("wrong_form", "it withdraws another result", field="result_id", faults=1)
    await run_in_threadpool(check_signed, withdrawal, state.store, state.config, state.now())
    at = await run_in_threadpool(state.store.withdraw, withdrawal)
    return Withdrawn(result_id=result_id, withdrawn_at=instant(at))


@router.get(
    "/results/{id}/record",
    response_model=Record,
    responses={
        304: {"description": "The sender has it: its ETag is the record's sha256"},
        **documented("not_found", "withdrawn", "wrong_form"),
    },
)
def record(request: Request, result_id: Id) -> Response:
    """Return the bytes that were accepted, unchanged: the record's RFC 8785 form."""
    store = request.app.state.store
    row = shown(store.result(result_id))
    headers = {
        "ETag": f'"{row.record_sha256}"',
        # The bytes never change, but they may be withdrawn: a cache has to ask.
        "Cache-Control": "public, max-age=300, must-revalidate",
        "Content-Disposition": f'inline; filename="npumark-{result_id}.json"',
    }
    if _has(request, headers["ETag"]):
        return Response(status_code=304, headers=headers)
    raw = store.record_bytes(result_id)
    if raw is None:  # withdrawn since
        raise refuse("withdrawn", "its owner withdrew it")
    return Response(raw, 200, headers, JSON)


@router.get(
    "/results/{id}/receipt",
    response_model=Receipt,
    responses=documented("not_found", "wrong_form"),
)
def receipt(request: Request, result_id: Id) -> Response:
    """Return the receipt that was given when the result was accepted, to the byte; of a withdrawn
    one as well. `npumark verify RECORD --receipt FILE` checks it."""
    row = _logged(request, result_id)
    name = f'attachment; filename="npumark-{result_id}.receipt.json"'
    return Response(row.receipt, 200, {"Content-Disposition": name}, JSON)


@router.get("/results/{id}/proof", responses=documented("not_found", "wrong_form"))
def proof(request: Request, result_id: Id) -> Proof:
    """Return a proof that the result is in the log as it is now; of a withdrawn one as well."""
    store = request.app.state.store
    row = _logged(request, result_id)
    with reading(store.engine) as connection:
        head, index = log.head(connection), row.leaf_index
        entry = log.leaf(connection, index)
        assert entry is not None
        # The head of this very size: what witnesses add to it is at /log/checkpoint.
        path = log.inclusion(connection, index, head.size)
        return Proof(log=log.as_proof(index, entry, head.checkpoint, path))


def shown(row: Any) -> Any:
    """Return the row of a result that may be shown. Raises Refused (not_found, withdrawn)."""
    if row is None or row.hidden_at is not None:
        raise refuse("not_found", "there is no such result")
    if row.withdrawn_at is not None:
        raise refuse("withdrawn", "its owner withdrew it", since=instant(row.withdrawn_at))
    return row


def _logged(request: Request, result_id: str) -> Any:
    """Return the row of a result that was ever accepted. Raises Refused (not_found)."""
    row = request.app.state.store.result(result_id)
    if row is None:
        raise refuse("not_found", "there is no such result", id=result_id)
    return row


def _has(request: Request, etag: str) -> bool:
    sent = request.headers.get("if-none-match", "")
    return any(tag.strip() in (etag, f"W/{etag}", "*") for tag in sent.split(","))
