"""What a submission has to pass, cheap checks first, before it is stored and logged.

Each refusal has a code of ``refusal.CODES``. A check trusts what the checks before it have shown
and nothing else: an envelope whose signature was not checked yet is a stranger's word.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Any, Final, Literal

from pydantic import ValidationError

from npumark.errors import IntegrityError
from npumark.record.canonical import canonical_bytes
from npumark.record.envelope import Envelope
from npumark.record.model import Payload, Record
from npumark.record.signatures import Signatures
from npumark.record.signing import build_holds, check_install
from npumark.server.accept import NewResult, check_run_id
from npumark.server.answers import instant, misfit
from npumark.server.config import ServerConfig
from npumark.server.document import read
from npumark.server.keys import KeyRow
from npumark.server.plausibility import Verdict, judge
from npumark.server.refusal import Refused, refuse
from npumark.server.rules import Rules
from npumark.server.sender import check_signed, statement_of
from npumark.server.store import Store

Trust = Literal["release", "development"]

_TOLD: Final = 50
"""Reasons that one answer lists at most."""


def take(
    body: bytes, store: Store, config: ServerConfig, rules: Rules, now: float
) -> tuple[int, bytes]:
    """Check a submission and store it. Return 201 and its receipt, or 200 and the first receipt
    where it was accepted before. Raises Refused; ``now`` is UTC seconds since 1970."""
    checked = verify(body, store, config, rules, now)
    if isinstance(checked, bytes):
        return 200, checked
    return 201, store.accept(checked)


def verify(
    body: bytes, store: Store, config: ServerConfig, rules: Rules, now: float
) -> NewResult | bytes:
    """Return what is to be stored, or the receipt of the same submission's first acceptance.

    Reads the database and writes nothing. Raises Refused, as ``take``.
    """
    stated_envelope, stated_record = _parts(read(body))
    envelope = statement_of(Envelope, stated_envelope)
    key = check_signed(envelope, store, config, now)
    record, signatures = _record(stated_record)
    payload = record.payload
    record_raw, payload_raw = _cut(body, stated_envelope, stated_record)
    digest = hashlib.sha256(payload_raw).hexdigest()
    _check_integrity(digest, record, signatures, envelope)
    if envelope.machine_id.encode() in record_raw:
        raise refuse("private_data", "the record holds the machine's id, which is not public")
    check_run_id(payload.run_id)
    trust = _trust(digest, signatures, config)
    if (receipt := _accepted_before(digest, payload, key, store)) is not None:
        return receipt
    verdict = judge(payload, rules=rules, now=datetime.fromtimestamp(now, UTC))
    if verdict.refusals:
        raise _implausible(verdict)
    reasons = [*verdict.not_ranked_because, *["development_build"] * (trust == "development")]
    return NewResult(
        record=record_raw,
        payload=payload,
        signatures=stated_record["signatures"],
        envelope=envelope,
        trust=trust,
        ranked=not reasons,
        not_ranked_because=reasons,
        faults=[],
        rules_sha256=rules.sha256,
    )


def _parts(document: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the envelope and the record of a submission."""
    if not isinstance(document, dict) or document.keys() != {"envelope", "record"}:
        raise refuse("wrong_form", "a submission has an envelope and a record", field="", faults=1)
    record = document["record"]
    if not isinstance(record, dict) or record.keys() != Record.model_fields.keys():
        raise refuse(
            "record_form",
            "a record has a payload, its sha256 and signatures",
            field="record",
            faults=1,
        )
    return document["envelope"], record


def _record(stated: dict[str, Any]) -> tuple[Record, Signatures]:
    try:
        record = Record.model_validate(stated, strict=True)
    except ValidationError as fault:
        raise misfit("record_form", fault, "record") from None
    if record.signatures is None:
        raise refuse("bad_signature", "the record is not signed")
    return record, record.signatures


def _cut(body: bytes, envelope: dict[str, Any], record: dict[str, Any]) -> tuple[bytes, bytes]:
    """Return the canonical bytes of the record and of its payload, cut from a canonical body."""
    before = b'{"envelope":' + canonical_bytes(envelope) + b',"record":'
    rest = {name: record[name] for name in ("payload_sha256", "signatures")}
    after = b"," + canonical_bytes(rest)[1:]
    whole = body[len(before) : -1]
    return whole, whole[len(b'{"payload":') : -len(after)]


def _check_integrity(
    digest: str, record: Record, signatures: Signatures, envelope: Envelope
) -> None:
    if not digest == record.payload_sha256 == envelope.payload_sha256:
        raise refuse(
            "digest",
            "the payload's sha256 is not the one that is stated",
            computed=digest,
            record=record.payload_sha256,
            envelope=envelope.payload_sha256,
        )
    try:
        check_install(digest, signatures.model_dump())
    except IntegrityError as fault:
        raise refuse("bad_signature", fault.message) from None
    if signatures.install.key_id != envelope.key_id:
        raise refuse(
            "key_mismatch",
            "the record was signed by another key than its envelope",
            record=signatures.install.key_id,
            envelope=envelope.key_id,
        )


def _trust(digest: str, signatures: Signatures, config: ServerConfig) -> Trust:
    """Return what kind of build made the record."""
    build = signatures.build
    if build is None:
        if not config.allow_development:
            raise refuse(
                "development_build", "a development build made it, and this server takes none"
            )
        return "development"
    key = config.build_keys.get(build.key_id)
    if key is None:
        raise refuse(
            "unknown_build_key", "the build key is unknown or retired here", key_id=build.key_id
        )
    if not build_holds(digest, build.hmac, key):
        raise refuse("bad_build_signature", "the build's signature does not hold")
    return "release"


def _accepted_before(digest: str, payload: Payload, key: KeyRow, store: Store) -> bytes | None:
    """Return the receipt of this very record where its own machine submitted it before."""
    before = store.earlier(digest, payload.run_id)
    if before is None:
        return None
    if before.payload_sha256 != digest:
        raise refuse(
            "run_already_submitted",
            "another record of this run was accepted already",
            run_id=payload.run_id,
            payload_sha256=before.payload_sha256,
        )
    if before.machine != key.machine:
        raise refuse("replayed", "another installation submitted this record already")
    if before.withdrawn_at is not None:
        since = instant(before.withdrawn_at)
        raise refuse("withdrawn", "its owner withdrew this record", since=since)
    return before.receipt


def _implausible(verdict: Verdict) -> Refused:
    first, *_ = verdict.refusals
    told = [
        {"code": f.code, "message": f.message, "details": f.details}
        for f in verdict.refusals[:_TOLD]
    ]
    more = {"all": told, "faults": len(verdict.refusals)}
    return refuse(first.code, first.message, **{**first.details, **more})
