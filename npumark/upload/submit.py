"""Sending what is queued, so that each upload arrives once, and withdrawing what arrived.

An upload is sent until there is a receipt for the very bytes that were sent, signed by the server
whose key is known and proving that they are in its log.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from npumark.errors import IntegrityError, NetworkError, NpumarkError, UsageError
from npumark.record.canonical import canonical_bytes
from npumark.record.envelope import Receipt
from npumark.record.signing import InstallKey
from npumark.transparency.receipt import check_receipt
from npumark.upload.client import STAYS, Error
from npumark.upload.item import Item, Refusal
from npumark.upload.prepare import Prepared, resigned
from npumark.upload.queue import Queue
from npumark.upload.session import Session, instant


@dataclass(slots=True)
class Outcome:
    """What became of each upload, the oldest first, a sentence for each that is damaged, how far
    this computer's clock is behind the server's (null: not known), and what ended it early (null:
    nothing)."""

    items: list[Item] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    skew_s: float | None = None
    fault: NpumarkError | None = None


def deliver(
    queue: Queue,
    session: Session,
    prepared: Prepared | None,
    key: InstallKey,
    now: float,
) -> Outcome:
    """Queue a run, where there is one, and send all that waits; nobody else does meanwhile.

    Raises SetupError where another process is at it, or the queue cannot be written.
    """
    with queue.held():
        if prepared is not None:
            enqueue(queue, prepared, key, now)
        return send_all(queue, session)


def enqueue(queue: Queue, prepared: Prepared, key: InstallKey, now: float) -> Item:
    """Put a run into the queue, which is held, and return its upload.

    One that is ``there`` stays as it is. One that was refused is tried anew, as it is derived now.
    """
    run_id = prepared.upload.run_id
    if (kept := there(queue, run_id)) is not None:
        return kept
    if (refused := queue.of_run(run_id)) is not None:
        queue.remove(refused)
    return queue.add(prepared.signed(key), instant(now))


def there(queue: Queue, run_id: str) -> Item | None:
    """Return the upload of a run that waits or was sent; null where it is to be derived.

    Raises UsageError where it was withdrawn: no server takes it again.
    """
    item = queue.of_run(run_id)
    if item is not None and item.status == "withdrawn":
        raise UsageError(
            f"you withdrew run {run_id}, and what was withdrawn is not taken again",
            "Measure again to submit a result.",
        )
    return None if item is None or item.status == "refused" else item


def send_all(queue: Queue, session: Session) -> Outcome:
    """Send every upload that waits in a queue, which is held, the oldest first.

    What is damaged is set aside first. A refusal ends nothing; a server that cannot be reached or
    believed ends it all, and the rest waits.
    """
    done = Outcome(damaged=queue.set_damaged_aside())
    waiting, _ = queue.items()
    try:
        for item in waiting:
            if item.status == "queued":
                done.items.append(_send(item, session))
    except NpumarkError as fault:
        done.fault = fault
        if isinstance(fault, NetworkError):
            for item in queue.items()[0]:
                if item.status == "queued":
                    item.with_state(unreached_at=instant(session.now()))
    done.skew_s = session.skew_s
    return done


def withdraw(item: Item, session: Session) -> Item:
    """Withdraw a result that was sent; one that is withdrawn already stays so.

    Raises UsageError where it was not sent, IntegrityError where the server refuses.
    """
    if item.status == "withdrawn":
        return item
    result_id = item.state.result_id
    if item.receipt is None:
        raise UsageError(
            f"run {item.state.run_id} was not sent, as far as is known here",
            "`npumark submit` sends it; --discard takes it out of the queue.",
        )

    def body(key: InstallKey) -> bytes:
        return canonical_bytes(
            session.stated("withdrawal", key, key_id=key.key_id, result_id=result_id)
        )

    try:
        _, error = session.post(f"/api/v1/results/{result_id}/withdrawal", body)
    except (NetworkError, IntegrityError) as fault:
        hint = (fault.hint or "").replace(STAYS, "A withdrawal is not queued: ask for it again.")
        raise type(fault)(fault.message, hint) from fault
    if error is not None and error.code != "withdrawn":
        raise IntegrityError(
            f"{session.origin} does not withdraw {result_id}: {error.message} ({error.code})",
            "Ask whoever runs the server.",
        )
    return item.with_state(withdrawn_at=instant(session.now()))


def discard(item: Item, queue: Queue) -> None:
    """Take an upload out of the queue. Raises UsageError where it arrived, or may have."""
    if item.status == "withdrawn":
        raise UsageError(
            f"{item.state.result_id} was sent, and withdrawn at {item.state.withdrawn_at}",
            "Nothing of it waits, and its receipt is the proof that it was there.",
        )
    if item.status == "sent":
        raise UsageError(
            f"{item.state.result_id} was sent, and its receipt is the proof of that",
            f"`npumark submit --withdraw {item.state.run_id}` deletes it from the server for good.",
        )
    if item.status == "queued" and item.state.tried_at is not None:
        raise UsageError(
            f"{item.state.result_id} was tried at {item.state.tried_at} and may have arrived",
            "`npumark submit` completes it; --withdraw deletes it from the server afterwards.",
        )
    queue.remove(item)


def submission(envelope: Mapping[str, Any], record: bytes) -> bytes:
    """Return the canonical body that sends a record, whose bytes are canonical already."""
    return b'{"envelope":' + canonical_bytes(dict(envelope)) + b',"record":' + record + b"}"


def _send(item: Item, session: Session) -> Item:
    most, size = session.most_bytes(), item.size()
    if size > most:
        # Such a body would be cut off on its way, which cannot be told from a lost connection.
        said = f"the record has {size} bytes, and the server takes {most}"
        return _refused(item, session, Error("too_large", said, {"bytes": size, "most": most}))
    item = item.with_state(tried_at=instant(session.now()))
    answer, error = session.post("/api/v1/results", lambda key: _body(item, session, key))
    if error is not None:
        return _refused(item, session, error)
    return _received(item, answer.body, session)


def _refused(item: Item, session: Session, error: Error) -> Item:
    refusal = Refusal(
        code=error.code, message=error.message, details=error.details, at=instant(session.now())
    )
    return item.with_state(refused=refusal)


def _body(item: Item, session: Session, key: InstallKey) -> bytes:
    """Return what sends an upload, signed by ``key``. The record is signed anew where another key
    did it, and kept so."""
    record = item.signed_by(key.key_id)
    if record is None:
        record = item.keep_record(resigned(item.record(), key))
    digest = item.state.payload_sha256
    fields = {"key_id": key.key_id, "payload_sha256": digest, "attestation": None}
    return submission(session.stated("submission", key, **fields), record)


def _received(item: Item, raw: bytes, session: Session) -> Item:
    """Check the receipt and keep it. Raises IntegrityError, keeping what came instead."""
    try:
        receipt = _checked(item, raw, session)
    except IntegrityError as fault:
        kept = item.keep_bad_receipt(raw)
        raise IntegrityError(
            f"{session.origin} gives no good receipt for run {item.state.run_id}: {fault.message}",
            f"It is kept as {kept}. Ask whoever runs the server. {STAYS}",
        ) from None
    return item.with_receipt(raw, receipt)


def _checked(item: Item, raw: bytes, session: Session) -> Receipt:
    server = session.server()
    try:
        receipt = Receipt.model_validate_json(raw)
    except ValidationError as fault:
        where = ".".join(map(str, fault.errors()[0]["loc"])) or "the whole"
        raise IntegrityError(f"it is not of the form of a receipt ({where})") from None
    for what, said, due in (
        ("server", receipt.origin, server.origin),
        ("run", receipt.run_id, item.state.run_id),
        ("result", receipt.result_id, item.state.result_id),
    ):
        if said != due:
            raise IntegrityError(f"it is of the {what} {said[:60]}, and not of {due}")
    sent = item.signed_by(receipt.key_id)
    if sent is None:
        raise IntegrityError(f"it names the key {receipt.key_id}, which did not sign what was sent")
    if not receipt.url.startswith(("https://", "http://")) or not receipt.url.isprintable():
        raise IntegrityError("it links to what is no web page")
    key = server.key_of(receipt)  # a first receipt comes back as it was signed then
    assert key is not None  # a session's server was reached
    check_receipt(receipt, json.loads(sent), key)
    return receipt
