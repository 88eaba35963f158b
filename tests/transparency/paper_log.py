"""A log in memory that publishes what C2SP tlog-tiles asks for, and lies where a test lets it."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import httpx

from npumark.record.canonical import canonical_bytes, payload_sha256
from npumark.record.envelope import LogProof, Receipt, ServerSignature, leaf_entry
from npumark.record.signing import InstallKey, sign_record, sign_statement
from npumark.transparency.checkpoint import Checkpoint
from npumark.transparency.merkle import Node, inclusion_proof, leaf_hash, node_hash, root_of
from npumark.transparency.note import sign, verifier_key
from npumark.transparency.tiles import encode_bundle, parse_tile_path

SERVER, OTHER_SERVER, INSTALL = (InstallKey(bytes([n]) * 32) for n in (21, 22, 23))
ORIGIN = "results.example"


class PaperLog:
    """``shown`` is the size that the log says it has; ``lies`` are paths with other contents."""

    def __init__(
        self, entries: Sequence[bytes], key: InstallKey = SERVER, origin: str = ORIGIN
    ) -> None:
        self.entries = list(entries)
        self.key = key
        self.origin = origin
        self.shown = len(self.entries)
        self.lies: dict[str, httpx.Response] = {}
        self.asked: list[str] = []

    @property
    def vkey(self) -> str:
        return verifier_key(self.origin, self.key.public)

    @property
    def node(self) -> Node:
        known: dict[tuple[int, int], bytes] = {}

        def node(level: int, index: int) -> bytes:
            if (level, index) not in known:
                known[level, index] = (
                    node_hash(node(level - 1, 2 * index), node(level - 1, 2 * index + 1))
                    if level
                    else leaf_hash(self.entries[index])
                )
            return known[level, index]

        return node

    def head(self, size: int | None = None) -> Checkpoint:
        size = self.shown if size is None else size
        return Checkpoint(self.origin, size, root_of(size, self.node))

    def note(self, size: int | None = None) -> str:
        return sign(self.head(size).encode(), self.origin, self.key)

    def proof(self, index: int, size: int | None = None) -> LogProof:
        size = self.shown if size is None else size
        return LogProof(
            index=index,
            entry=base64.b64encode(self.entries[index]).decode(),
            checkpoint=self.note(size),
            proof=[base64.b64encode(h).decode() for h in inclusion_proof(index, size, self.node)],
        )

    def file(self, path: str) -> bytes | None:
        """Return what is published at a path below ``/log/``, None where there is nothing."""
        if path == "checkpoint":
            return self.note().encode()
        tile = parse_tile_path(path)
        level = tile.level or 0
        first = tile.index * 256
        if first + tile.width > self.shown >> 8 * level:
            return None
        if tile.level is None:
            return encode_bundle(self.entries[first : first + tile.width])
        return b"".join(self.node(8 * level, first + i) for i in range(tile.width))

    def transport(self) -> httpx.MockTransport:
        def answer(request: httpx.Request) -> httpx.Response:
            path = request.url.path.removeprefix("/log/")
            self.asked.append(path)
            if path in self.lies:
                return self.lies[path]
            content = self.file(path)
            return httpx.Response(404) if content is None else httpx.Response(200, content=content)

        return httpx.MockTransport(answer)


def sent_record(run_id: str = "20261201-000000-000001") -> dict[str, Any]:
    """Return a record as it travels; its payload is small, and nobody recomputes it here."""
    payload = {"run_id": run_id, "score": None}
    digest = payload_sha256(payload)
    signatures = sign_record(digest, INSTALL, None)
    return {"payload": payload, "payload_sha256": digest, "signatures": signatures}


def accepted(
    log: PaperLog, record: dict[str, Any], *, at: int | None = None, size: int | None = None
) -> Receipt:
    """Let ``log`` accept a record as its next leaf (or in the place of leaf ``at``) and return the
    receipt, whose proof is under the head of ``size`` leaves, the newest by itself."""
    digest: str = record["payload_sha256"]
    stated = {
        "result_id": base64.b32encode(bytes.fromhex(digest)[:10]).decode().lower(),
        "record_sha256": payload_sha256(record),
        "payload_sha256": digest,
        "key_id": record["signatures"]["install"]["key_id"],
        "received_at": "2026-12-01T00:00:00Z",
    }
    entry = canonical_bytes(leaf_entry(**stated))
    if at is None:
        log.entries.append(entry)
        log.shown = len(log.entries)
        at = log.shown - 1
    else:
        log.entries[at] = entry
    receipt = Receipt.model_validate(
        {
            **stated,
            "schema": "npumark-receipt/1",
            "origin": log.origin,
            "url": f"https://{log.origin}/results/{stated['result_id']}",
            "run_id": record["payload"]["run_id"],
            "trust": "development",
            "attestation": "unattested",
            "ranked": False,
            "not_ranked_because": ["development_build"],
            "log": log.proof(at, size),
            "signature": ServerSignature(
                key_id=log.key.key_id, public_key=log.key.public.hex(), signature="0" * 128
            ),
        }
    )
    return signed(receipt, log.key)


def signed(receipt: Receipt, key: InstallKey) -> Receipt:
    """Return ``receipt`` signed (again) with ``key``."""
    made = ServerSignature(
        key_id=key.key_id,
        public_key=key.public.hex(),
        signature=sign_statement(receipt.statement(), "receipt", key),
    )
    return receipt.model_copy(update={"signature": made})
