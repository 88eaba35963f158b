"""One upload on disk: the bytes that are sent, what is known of them, and the server's receipt."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from npumark.errors import IntegrityError
from npumark.record.canonical import canonical_bytes, payload_sha256, strict_loads
from npumark.record.envelope import Hex64, Instant, Receipt, ResultId, result_id_of
from npumark.record.files import write_atomically

Status = Literal["queued", "sent", "refused", "withdrawn"]

RECEIPT: Final = "receipt.json"
BAD_RECEIPT: Final = "receipt-refused.json"
_STATE: Final = "state.json"


class _Form(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Refusal(_Form):
    """Why the server took an upload not: ``refusal.CODES`` of the server, and when it said so."""

    code: str
    message: str
    details: dict[str, Any]
    at: Instant


class State(_Form):
    """What is known of an upload beside its bytes. ``tried_at`` is when it was last about to be
    sent: from then on it may have arrived. ``unreached_at`` is when there was last no server to
    send it to. Null: not so far."""

    schema_: Literal["npumark-upload/1"] = Field(alias="schema")
    run_id: Annotated[str, Field(max_length=200)]
    result_id: ResultId
    payload_sha256: Hex64
    label: str | None
    queued_at: Instant
    tried_at: Instant | None = None
    unreached_at: Instant | None = None
    refused: Refusal | None = None
    withdrawn_at: Instant | None = None

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


@dataclass(frozen=True)
class Item:
    """One upload. ``label`` is its headline, null where it has none."""

    folder: Path
    state: State
    receipt: Receipt | None

    @property
    def slug(self) -> str:
        """The name of the server's folder, as ``Address.slug``."""
        return self.folder.parent.name

    @property
    def status(self) -> Status:
        if self.state.withdrawn_at is not None:
            return "withdrawn"
        if self.receipt is not None:
            return "sent"
        return "refused" if self.state.refused is not None else "queued"

    def record(self) -> dict[str, Any]:
        """Return the record that is sent, as the first of its keys signed it."""
        return _record(min(self.folder.glob("record-*.json")))

    def size(self) -> int:
        """Return how many bytes the record has."""
        return min(self.folder.glob("record-*.json")).stat().st_size

    def signed_by(self, key_id: str) -> bytes | None:
        """Return the record's bytes as that key signed them, null where it did not."""
        try:
            return _record_path(self.folder, key_id).read_bytes()
        except FileNotFoundError:
            return None

    def keep_record(self, record: Mapping[str, Any]) -> bytes:
        """Keep the record as one more key signed it; return its bytes."""
        key_id = record["signatures"]["install"]["key_id"]
        raw = canonical_bytes(dict(record))
        write_atomically(_record_path(self.folder, key_id), raw, force=True)
        return raw

    def with_state(self, **fields: Any) -> Item:
        """Write fields of the state and return the item as it then is."""
        state = self.state.model_copy(update=fields)
        raw = json.dumps(state.model_dump(mode="json", by_alias=True), indent=1).encode()
        write_atomically(self.folder / _STATE, raw + b"\n", force=True)
        return replace(self, state=state)

    def with_receipt(self, raw: bytes, receipt: Receipt) -> Item:
        """Keep the receipt, byte for byte: from here on the upload counts as sent."""
        write_atomically(self.folder / RECEIPT, raw, force=True)
        return replace(self, receipt=receipt)

    def keep_bad_receipt(self, raw: bytes) -> Path:
        """Keep what a server sent in place of a receipt; return where."""
        path = self.folder / BAD_RECEIPT
        write_atomically(path, raw, force=True)
        return path


def read_item(folder: Path) -> Item:
    """Return the upload in ``folder``, its record unread. Raises IntegrityError naming it where
    its state or its receipt is missing, damaged, or another's."""
    state = read_state(folder)
    try:
        receipt = Receipt.model_validate_json((folder / RECEIPT).read_bytes())
    except FileNotFoundError:
        return Item(folder, state, None)
    except (OSError, ValidationError):
        raise _damaged(folder, "its receipt cannot be read") from None
    if receipt.payload_sha256 != state.payload_sha256:
        raise _damaged(folder, "its receipt is another upload's")
    return Item(folder, state, receipt)


def check_record(folder: Path) -> None:
    """Raise IntegrityError where an upload's state cannot be read, or its record is not what was
    signed."""
    state = read_state(folder)
    records = list(folder.glob("record-*.json"))
    if not records:
        raise _damaged(folder, "its record is missing")
    for path in records:
        if _record(path)["payload_sha256"] != state.payload_sha256:
            raise _damaged(folder, "its record is another upload's")


def read_state(folder: Path) -> State:
    """Return what is known of an upload. Raises IntegrityError where that cannot be read, or is
    another's."""
    try:
        state = State.model_validate_json((folder / _STATE).read_bytes())
    except (OSError, ValidationError):
        raise _damaged(folder, "its state cannot be read") from None
    if state.result_id != folder.name or result_id_of(state.payload_sha256) != folder.name:
        raise _damaged(folder, "its state is another upload's")
    return state


def _record(path: Path) -> dict[str, Any]:
    try:
        record = strict_loads(path.read_bytes(), what=str(path))
        digest = payload_sha256(record["payload"])
        key_id = record["signatures"]["install"]["key_id"]
    except (OSError, IntegrityError, LookupError, TypeError):
        raise _damaged(path.parent, "its record cannot be read") from None
    if digest != record["payload_sha256"] or path.name != _record_path(path.parent, key_id).name:
        raise _damaged(path.parent, "its record was changed")
    found: dict[str, Any] = record
    return found


def _record_path(folder: Path, key_id: str) -> Path:
    return folder / f"record-{key_id}.json"


def _damaged(folder: Path, what: str) -> IntegrityError:
    return IntegrityError(
        f"the upload {folder.name} is damaged: {what}",
        "Submit its run again; `npumark history` lists the runs.",
    )
