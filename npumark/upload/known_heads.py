"""The last head of each log that this computer saw: what a server cannot make it forget."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from npumark import paths
from npumark.errors import IntegrityError
from npumark.record.canonical import canonical_bytes, strict_loads
from npumark.record.envelope import Origin
from npumark.record.files import write_atomically
from npumark.transparency.checkpoint import Checkpoint, open_checkpoint
from npumark.transparency.note import MAX_NOTE, parse_verifier_key
from npumark.upload.address import slug_of


class _Known(BaseModel):
    """``checkpoint`` is the signed note, ``log_key`` the vkey that it was signed with."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    origin: Origin
    log_key: str
    checkpoint: str


def of(origin: str) -> Checkpoint | None:
    """Return the last head that was seen of the log ``origin``; null where none was.

    Raises IntegrityError where what is kept cannot be read: it is never taken for nothing.
    """
    place = place_of(origin)
    try:
        with place.open("rb") as file:
            raw = file.read(2 * MAX_NOTE)  # a note, and what is beside it
    except FileNotFoundError:
        return None
    except OSError as fault:
        raise _unreadable(place, str(fault.strerror or fault)) from fault
    try:
        known = _Known.model_validate(strict_loads(raw, what=str(place)))
        return open_checkpoint(known.checkpoint, parse_verifier_key(known.log_key))
    except (IntegrityError, ValidationError, ValueError) as fault:
        raise _unreadable(place, "it was damaged or edited") from fault


def remember(note: str, vkey: str) -> None:
    """Keep the head of a signed note that was found consistent with the one that is known; one
    that is older is not kept. Raises SetupError where nothing can be written."""
    head = open_checkpoint(note, parse_verifier_key(vkey))
    known = of(head.origin)
    if known is not None and known.size >= head.size:
        return
    kept = _Known(origin=head.origin, log_key=vkey, checkpoint=note)
    paths.make(_folder())
    write_atomically(place_of(head.origin), canonical_bytes(kept.model_dump()) + b"\n", force=True)


def place_of(origin: str) -> Path:
    """Return the file that the last head of the log ``origin`` is kept in."""
    return _folder() / f"{slug_of(origin)}.json"


def keep_evidence(note: str, head: Checkpoint) -> Path:
    """Keep the signed note of a head that contradicts another, and return its file."""
    name = f"{slug_of(head.origin)}-{head.size}-{head.root.hex()[:16]}.note"
    place = paths.make(_folder()) / name
    write_atomically(place, note.encode(), force=True)
    return place


def _folder() -> Path:
    return paths.data_dir() / "logs"


def _unreadable(place: Path, why: str) -> IntegrityError:
    return IntegrityError(
        f"the head of the log that was seen last, {place}, cannot be read: {why}",
        "Restore it from a backup; without it a log that was rewritten since cannot be noticed. "
        "Remove it to begin anew.",
    )
