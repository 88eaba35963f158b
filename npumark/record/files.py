"""Records on disk: sealed with their digest, written whole or not at all, read with suspicion."""

from __future__ import annotations

import json
import os
import re
import secrets
import stat
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from npumark.errors import IntegrityError, SetupError, UsageError
from npumark.paths import unwritable
from npumark.record.canonical import payload_sha256, strict_loads
from npumark.record.form import misfit
from npumark.record.model import MAX_RECORD_BYTES, SCHEMA, Payload, Record
from npumark.record.signatures import SCHEME as SIGNATURE_SCHEME
from npumark.record.signatures import Signatures

_OTHER_TEXT = re.compile(rb"\s*[!-Z\\^-z|}~]")
"""How a file begins that holds neither a JSON object nor a list: other text."""


def seal(payload: Payload, signatures: dict[str, Any] | None = None) -> Record:
    """Return the record of ``payload`` with its digest, and with ``signatures`` over that digest
    (``signing.sign_record``).

    Raises IntegrityError where a value has no canonical form (NaN, an integer beyond 2**53, no
    JSON type at all).
    """
    # Plain Python values: the "json" mode would turn a NaN in silence into null.
    digest = payload_sha256(payload.model_dump(by_alias=True))
    signed = None if signatures is None else Signatures.model_validate(signatures)
    return Record(payload=payload, payload_sha256=digest, signatures=signed)


def encode(record: Record) -> bytes:
    """Return the record as the JSON text that goes to disk and to ``--json``: indented UTF-8.

    The layout is for people; the digest is over the canonical bytes, which have none.
    Raises IntegrityError where the record is larger than a reader accepts.
    """
    document = record.model_dump(by_alias=True)
    text = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False)
    raw = text.encode() + b"\n"
    if len(raw) > MAX_RECORD_BYTES:
        raise IntegrityError(
            f"the record is larger than {MAX_RECORD_BYTES >> 20} MiB and no reader would take it"
        )
    return raw


def check_output(path: Path, *, force: bool = False) -> None:
    """Say before anything is measured that a record could not be written to ``path``.

    Raises UsageError where it exists and ``force`` is not given, or is no regular file;
    SetupError where its folder is missing or nothing can be created in it.
    """
    _check_target(path, force=force)
    folder = path.absolute().parent
    if not folder.is_dir():
        raise SetupError(f"the folder {folder} does not exist", hint="Create it first.")
    trial = folder / f".{path.name}.{secrets.token_hex(4)}.tmp"
    try:
        trial.touch(exist_ok=False)
        trial.unlink()
    except OSError as fault:
        raise unwritable(path, fault) from fault


def write_record(path: Path, record: Record, *, force: bool = False) -> None:
    """Write ``record`` to ``path`` so that a reader sees the old file, the new one or neither.

    Without ``force`` an existing file stays as it is. Raises as ``check_output``.
    """
    write_atomically(path, encode(record), force=force)


def write_atomically(path: Path, raw: bytes, *, force: bool = False, mode: int = 0o666) -> None:
    """Write ``raw`` to ``path`` through a temporary neighbour, flushed to the disk itself.

    ``mode`` is the file's from its first byte on, less what the umask takes away.
    """
    _check_target(path, force=force)
    target = path.absolute()
    trial = target.parent / f".{target.name}.{secrets.token_hex(4)}.tmp"
    try:
        trial.touch(mode, exist_ok=False)
        with trial.open("r+b") as out:
            out.write(raw)
            out.flush()
            os.fsync(out.fileno())
        if force:
            trial.replace(target)
        else:
            _place_new(trial, target)
        sync_folder(target.parent)
    except FileExistsError:
        raise _exists(path) from None
    except OSError as fault:
        raise unwritable(path, fault) from fault
    finally:
        trial.unlink(missing_ok=True)


def read_record(source: Path | bytes, *, edited_too: bool = False) -> Record:
    """Return the record in a file, a run's folder, or bytes.

    With ``edited_too`` one whose digest does not hold is returned as well, to be looked into.

    Raises UsageError where there is no such file, and IntegrityError, in one sentence that
    names the field, where it is not strict JSON, not a record of this version, or where its
    payload is not the one its digest was made from. A record of another form whose digest holds
    is said to come from another version of npumark, not to be damaged.
    """
    if isinstance(source, bytes):
        return _decode(source, "the record", edited_too=edited_too)
    whole = os.path.isdir(source)  # noqa: PTH112 - Path raises where it may not look
    path = source / "record.json" if whole else source
    try:
        # Never more than a reader accepts, whatever the file's size claims to be.
        with path.open("rb") as file:
            raw = file.read(MAX_RECORD_BYTES + 1)
    except FileNotFoundError:
        raise UsageError(
            f"there is no record at {path}", hint="`npumark history` lists the saved runs."
        ) from None
    except OSError as fault:
        raise UsageError(
            f"{path} cannot be read: {fault.strerror}", "`npumark history` lists the saved runs."
        ) from fault
    if _OTHER_TEXT.match(raw):
        raise IntegrityError(
            f"{path} is not an npumark record: it does not begin as a JSON object",
            hint="`npumark history` lists the saved runs.",
        )
    return _decode(raw, f"the record {path}", edited_too=edited_too)


def _decode(raw: bytes, what: str, *, edited_too: bool) -> Record:
    document = strict_loads(raw, what=what)
    if not isinstance(document, dict) or not isinstance(document.get("payload"), dict):
        raise IntegrityError(
            f"{what} is not an npumark record: it has no payload",
            "`npumark history` lists the saved runs.",
        )
    schema = document["payload"].get("schema")
    if schema != SCHEMA:
        raise IntegrityError(
            f"{what} has the schema {json.dumps(schema)[:60]}; this version reads {SCHEMA}",
            hint="Use the npumark version that wrote it.",
        )
    _check_scheme(document.get("signatures"), what)
    try:
        record = Record.model_validate(document, strict=True)
    except ValidationError as fault:
        raise misfit(what, SCHEMA, fault, document) from None
    digest = payload_sha256(document["payload"])
    if digest != record.payload_sha256 and not edited_too:
        raise IntegrityError(
            f"{what} was changed after it was written: its payload has the sha256 "
            f"{digest[:16]}…, and the record states {record.payload_sha256[:16]}…",
            hint="Use an unedited copy; the run's own folder keeps one.",
        )
    return record


def _check_scheme(signatures: Any, what: str) -> None:
    """Refuse signatures of another scheme, whose form is another as well."""
    scheme = signatures.get("scheme") if isinstance(signatures, dict) else None
    if isinstance(scheme, str) and scheme != SIGNATURE_SCHEME:
        raise IntegrityError(
            f"{what} is signed by the scheme {json.dumps(scheme)[:60]}; this version checks "
            f"{SIGNATURE_SCHEME}",
            hint="Use the npumark version that signed it.",
        )


def _check_target(path: Path, *, force: bool) -> None:
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return
    except OSError as fault:
        raise unwritable(path, fault) from fault
    if not stat.S_ISREG(mode):
        raise UsageError(f"{path} is not a regular file", hint="Name a file for the record.")
    if not force:
        raise _exists(path)


def _place_new(trial: Path, target: Path) -> None:
    """Give ``trial`` its final name unless that is taken (a hard link never overwrites)."""
    try:
        os.link(trial, target)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        if target.exists():
            raise FileExistsError from None
        trial.replace(target)


def sync_folder(folder: Path) -> None:
    """Flush the folder's own entry; only POSIX systems can open a folder for that."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _exists(path: Path) -> UsageError:
    return UsageError(f"{path} exists", hint="Choose another name, or overwrite with --force.")
