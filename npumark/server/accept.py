"""Storing what was verified: a result, its leaf in the log and its receipt, in one transaction.

Whoever appends holds the log's head, so that all servers of a database append one after the
other. Submissions that wait together are stored together, under one tree head; everything that
takes time is prepared before.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from sqlalchemy import Connection, insert, or_, select

from npumark.record.canonical import canonical_bytes
from npumark.record.envelope import Envelope, LogProof, Receipt, leaf_entry, result_id_of
from npumark.record.model import Payload
from npumark.record.signing import sign_statement
from npumark.server import keys, log, showing
from npumark.server.answers import instant
from npumark.server.config import ServerConfig
from npumark.server.figures import summary_of
from npumark.server.refusal import Fault, Refused, refuse
from npumark.server.tables import bodies, results

_RUN_ID: Final = re.compile(r"[!-~]{1,128}")


@dataclass(frozen=True, slots=True)
class NewResult:
    """A submission that passed every check. ``record`` are its canonical bytes, ``signatures``
    those within them; ``ranked`` and the rest are the verdict under the rules of that digest."""

    record: bytes
    payload: Payload
    signatures: Mapping[str, Any]
    envelope: Envelope
    trust: Literal["release", "development"]
    ranked: bool
    not_ranked_because: Sequence[str]
    faults: Sequence[Fault]
    rules_sha256: str


@dataclass(frozen=True, slots=True)
class Prepared:
    """A new result with all that can be made of it before the transaction."""

    new: NewResult
    result_id: str
    machine: str
    record_sha256: str
    body: bytes
    summary: dict[str, Any]
    figures: list[dict[str, Any]]


def check_run_id(run_id: str) -> None:
    """Raises Refused (record_form) where it is no name, which the database could not even be
    asked for: PostgreSQL takes no text with a NUL."""
    if not _RUN_ID.fullmatch(run_id):
        raise refuse("record_form", "the run id is empty, too long or no plain text")


def prepare(new: NewResult) -> Prepared:
    """Do what takes time."""
    result_id = result_id_of(new.envelope.payload_sha256)
    return Prepared(
        new=new,
        result_id=result_id,
        machine=keys.machine_digest(new.envelope.machine_id),
        record_sha256=hashlib.sha256(new.record).hexdigest(),
        body=zlib.compress(new.record),
        summary=summary_of(new.payload),
        figures=showing.rows_of(new.payload, result_id=result_id, received_at=0, ranked=new.ranked),
    )


def accept_many(
    connection: Connection, batch: Sequence[Prepared], config: ServerConfig, now: int
) -> list[bytes | Refused]:
    """Store results within a write transaction. Return each one's receipt, or why it is refused:
    its key may no longer be used, or the record or its run were accepted before.

    What the same machine submitted before is answered with its first receipt.
    """
    head = log.head(connection, lock=True)
    earlier = _Earlier.read(connection, batch)
    usable = keys.find(connection, {p.new.envelope.key_id for p in batch})
    fresh: list[Prepared] = []
    answers: list[bytes | Refused | Prepared] = []
    for prepared in batch:
        envelope = prepared.new.envelope
        try:
            row = usable.get(envelope.key_id)
            keys.check_usable(row, envelope.key_id, prepared.machine)
            first = earlier.first_of(prepared)
        except Refused as refused:
            answers.append(refused)
            continue
        if first is None:
            fresh.append(prepared)
            earlier.add(prepared)
        answers.append(prepared if first is None else first)
    receipts = _store(connection, head, fresh, config, now) if fresh else {}
    return [
        receipts[answer.result_id] if isinstance(answer, Prepared) else answer for answer in answers
    ]


class _Earlier:
    """What was accepted before, in the database or in the same batch, by payload and by run."""

    def __init__(self) -> None:
        self._by_payload: dict[str, tuple[str, bytes | Prepared]] = {}
        self._by_run: dict[str, str] = {}

    @classmethod
    def read(cls, connection: Connection, batch: Sequence[Prepared]) -> _Earlier:
        found = cls()
        columns = (results.c.payload_sha256, results.c.run_id, results.c.machine)
        query = select(*columns, results.c.receipt).where(
            or_(
                results.c.payload_sha256.in_({p.new.envelope.payload_sha256 for p in batch}),
                results.c.run_id.in_({p.new.payload.run_id for p in batch}),
            )
        )
        for row in connection.execute(query):
            found._by_payload[row.payload_sha256] = (row.machine, row.receipt)
            found._by_run[row.run_id] = row.payload_sha256
        return found

    def add(self, prepared: Prepared) -> None:
        payload_sha256 = prepared.new.envelope.payload_sha256
        self._by_payload[payload_sha256] = (prepared.machine, prepared)
        self._by_run[prepared.new.payload.run_id] = payload_sha256

    def first_of(self, prepared: Prepared) -> bytes | Prepared | None:
        """Return the first receipt, or the twin in the same batch; null where it is new.
        Raises Refused (replayed, run_already_submitted)."""
        payload_sha256 = prepared.new.envelope.payload_sha256
        if payload_sha256 in self._by_payload:
            machine, first = self._by_payload[payload_sha256]
            if machine != prepared.machine:
                raise refuse("replayed", "another installation submitted this record already")
            return first
        run_id = prepared.new.payload.run_id
        if run_id in self._by_run:
            raise refuse(
                "run_already_submitted",
                "another record of this run was accepted already",
                run_id=run_id,
                payload_sha256=self._by_run[run_id],
            )
        return None


def _store(
    connection: Connection,
    head: log.Head,
    fresh: Sequence[Prepared],
    config: ServerConfig,
    now: int,
) -> dict[str, bytes]:
    """Append, insert and sign; return the receipts by result."""
    entries = [_entry(prepared, now) for prepared in fresh]
    after, proofs = log.append(connection, head, entries, config)
    receipts, rows = {}, []
    for i, prepared in enumerate(fresh):
        proof = log.as_proof(head.size + i, entries[i], after.checkpoint, proofs[i])
        receipt = _receipt(prepared, proof, config, now)
        receipts[prepared.result_id] = receipt
        rows.append({**_row(prepared, head.size + i, now), "receipt": receipt})
    connection.execute(insert(results), rows)
    connection.execute(
        insert(bodies), [{"result_id": p.result_id, "record": p.body} for p in fresh]
    )
    showing.show(connection, [{**row, "received_at": now} for p in fresh for row in p.figures])
    return receipts


def _entry(prepared: Prepared, now: int) -> bytes:
    return canonical_bytes(
        leaf_entry(
            result_id=prepared.result_id,
            record_sha256=prepared.record_sha256,
            payload_sha256=prepared.new.envelope.payload_sha256,
            key_id=prepared.new.envelope.key_id,
            received_at=instant(now),
        )
    )


def _row(prepared: Prepared, leaf_index: int, now: int) -> dict[str, Any]:
    new = prepared.new
    return {
        **prepared.summary,
        "id": prepared.result_id,
        "leaf_index": leaf_index,
        "payload_sha256": new.envelope.payload_sha256,
        "record_sha256": prepared.record_sha256,
        "key_id": new.envelope.key_id,
        "machine": prepared.machine,
        "received_at": now,
        "trust": new.trust,
        "attestation": "unattested",
        "ranked": new.ranked,
        "not_ranked_because": list(new.not_ranked_because),
        "rules_sha256": new.rules_sha256,
        "verified_at": now,
        "faults": [asdict(fault) for fault in new.faults],
    }


def _receipt(prepared: Prepared, proof: LogProof, config: ServerConfig, now: int) -> bytes:
    """Return a receipt's canonical bytes, signed."""
    new = prepared.new
    public = config.key.public
    unsigned = {
        "schema": "npumark-receipt/1",
        "origin": config.origin,
        "result_id": prepared.result_id,
        "url": f"{config.url}/results/{prepared.result_id}",
        "run_id": new.payload.run_id,
        "record_sha256": prepared.record_sha256,
        "payload_sha256": new.envelope.payload_sha256,
        "key_id": new.envelope.key_id,
        "received_at": instant(now),
        "trust": new.trust,
        "attestation": "unattested",
        "ranked": new.ranked,
        "not_ranked_because": list(new.not_ranked_because),
        "log": proof.model_dump(mode="json"),
    }
    signature = {
        "key_id": config.key.key_id,
        "public_key": public.hex(),
        "signature": sign_statement(unsigned, "receipt", config.key),
    }
    whole = Receipt.model_validate({**unsigned, "signature": signature})
    return canonical_bytes(whole.model_dump(mode="json", by_alias=True))
