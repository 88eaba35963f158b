"""What travels between an installation and a results server, beside the record itself.

Each is a JSON object in RFC 8785 form with a ``signature`` over itself without that field. An
envelope names the server that it is meant for, the machine and the instant, so that a captured
one is worth nothing elsewhere or later; none of it is in the public leaf.
"""

from __future__ import annotations

import base64
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Hex32 = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
Hex64 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Hex128 = Annotated[str, Field(pattern=r"^[0-9a-f]{128}$")]
Origin = Annotated[str, Field(pattern=r"^[a-z0-9.:/_-]{1,200}$")]
"""A server's name: host, port where it is not the scheme's own, and path; no scheme."""
Instant = Annotated[str, Field(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$")]
ResultId = Annotated[str, Field(pattern=r"^[0-9a-z]{16}$")]


class Signed(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    def statement(self) -> dict[str, Any]:
        """Return what the signature covers."""
        return self.model_dump(mode="json", by_alias=True, exclude={"signature"})


class Envelope(Signed):
    """A submission's: purpose ``submission``, signed with the installation's key ``key_id``."""

    schema_: Literal["npumark-envelope/1"] = Field(alias="schema")
    origin: Origin
    machine_id: Hex64
    key_id: Hex32
    payload_sha256: Hex64
    sent_at: Instant
    attestation: dict[str, Any] | None
    signature: Hex128


class Registration(Signed):
    """Makes a key known for a machine: purpose ``registration``, signed with that key."""

    schema_: Literal["npumark-registration/1"] = Field(alias="schema")
    origin: Origin
    machine_id: Hex64
    public_key: Hex64
    signed_at: Instant
    signature: Hex128


class Withdrawal(Signed):
    """Takes a result off the pages: purpose ``withdrawal``, signed with a key of its machine."""

    schema_: Literal["npumark-withdrawal/1"] = Field(alias="schema")
    origin: Origin
    machine_id: Hex64
    key_id: Hex32
    result_id: ResultId
    signed_at: Instant
    signature: Hex128


class LogProof(BaseModel):
    """That a leaf is in the log: ``entry`` its bytes and ``proof`` the hashes beside its path to
    the root (RFC 9162 §2.1.3.1), base64; ``checkpoint`` a signed note (C2SP tlog-checkpoint)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    index: Annotated[int, Field(ge=0, le=2**53 - 1)]
    entry: str
    checkpoint: str
    proof: list[str]


class ServerSignature(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    key_id: Hex32
    public_key: Hex64
    signature: Hex128


class Receipt(Signed):
    """A server's answer to an accepted record, purpose ``receipt``; ``ranked`` and its reasons
    are as of ``received_at``."""

    schema_: Literal["npumark-receipt/1"] = Field(alias="schema")
    origin: Origin
    result_id: ResultId
    url: str
    run_id: str
    record_sha256: Hex64
    payload_sha256: Hex64
    key_id: Hex32
    received_at: Instant
    trust: Literal["release", "development"]
    attestation: Literal["unattested"]
    ranked: bool
    not_ranked_because: list[str]
    log: LogProof
    signature: ServerSignature


LEAF_SCHEMA = "npumark-leaf/1"


def result_id_of(payload_sha256: str) -> str:
    """Return the name of a result: the first 80 bits of its payload's digest (hexadecimal), in the
    base 32 of RFC 4648 §6, lower case."""
    return base64.b32encode(bytes.fromhex(payload_sha256)[:10]).decode().lower()


def leaf_entry(
    *, result_id: str, record_sha256: str, payload_sha256: str, key_id: str, received_at: str
) -> dict[str, str]:
    """Return the statement whose canonical bytes are a leaf of the transparency log: hashes and
    names only, so that it stays when its result is withdrawn."""
    return {
        "schema": LEAF_SCHEMA,
        "result_id": result_id,
        "record_sha256": record_sha256,
        "payload_sha256": payload_sha256,
        "key_id": key_id,
        "received_at": received_at,
    }
