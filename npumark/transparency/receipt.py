"""A server's receipt, checked against the bytes that were sent to it and without asking it."""

from __future__ import annotations

import hashlib
from typing import Any, Final

from npumark.errors import IntegrityError
from npumark.record.canonical import canonical_bytes
from npumark.record.envelope import Receipt, leaf_entry
from npumark.record.signing import key_id_of, statement_holds
from npumark.transparency.checkpoint import Checkpoint
from npumark.transparency.note import decoded, verifier_key
from npumark.transparency.proof import ASK, check_log_proof

_OTHER_KEY: Final = (
    "Ask whoever runs the server; a key that was exchanged is accepted by `npumark submit "
    "--trust-new-key`."
)
_OTHER_RECORD: Final = "Name the receipt of this record's own upload with --receipt."


def log_key_of(receipt: Receipt) -> str:
    """Return the vkey of the log that a receipt speaks of: the key that signed the receipt, under
    the server's origin."""
    return verifier_key(receipt.origin, bytes.fromhex(receipt.signature.public_key))


def check_receipt(receipt: Receipt, record: dict[str, Any], public_key: str) -> Checkpoint:
    """Return the log's head under which the server of ``public_key`` (hexadecimal) took ``record``:
    payload, digest and signatures as they were sent.

    Raises IntegrityError, with a sentence for each, where another key signed the receipt, its
    signature does not hold, it is for other bytes, its leaf says something else than it does, or
    the log does not prove that leaf.
    """
    signed = receipt.signature
    if signed.public_key != public_key:
        raise IntegrityError(
            f"the receipt is signed with the key {key_id_of(bytes.fromhex(signed.public_key))}, "
            f"and {receipt.origin} has {key_id_of(bytes.fromhex(public_key))}",
            _OTHER_KEY,
        )
    if signed.key_id != key_id_of(bytes.fromhex(public_key)):
        raise IntegrityError("the receipt calls its key by another key's name", ASK)
    if not statement_holds(receipt.statement(), "receipt", public_key, signed.signature):
        raise IntegrityError("the server's signature of the receipt does not hold", ASK)
    sent = hashlib.sha256(canonical_bytes(record)).hexdigest()
    if sent != receipt.record_sha256 or record.get("payload_sha256") != receipt.payload_sha256:
        raise IntegrityError(
            f"the receipt is for the record of sha256 {receipt.record_sha256[:16]}…, and this one "
            f"has {sent[:16]}…",
            _OTHER_RECORD,
        )
    signer = record["signatures"]["install"]["key_id"]
    if signer != receipt.key_id:
        raise IntegrityError(
            f"the receipt says that the key {receipt.key_id} sent the record, and {signer} did",
            ASK,
        )
    due = leaf_entry(
        result_id=receipt.result_id,
        record_sha256=receipt.record_sha256,
        payload_sha256=receipt.payload_sha256,
        key_id=receipt.key_id,
        received_at=receipt.received_at,
    )
    head = check_log_proof(receipt.log, log_key_of(receipt))
    if decoded(receipt.log.entry) != canonical_bytes(due):
        raise IntegrityError(
            f"leaf {receipt.log.index} of the log says something else than the receipt",
            ASK,
        )
    return head
