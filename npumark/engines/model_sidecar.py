"""The sidecar of a compiled model: a document beside it that names every byte of its files.

It is written whole, by renaming, and read only where it is exactly what was written: a document
that was edited, cut or made by another version is none.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from npumark.worker.protocol import Stamp

SCHEMA = "npumark-compiled/1"
SIDECAR = "sidecar.json"
MODELS = "models-"
"""How the name of a folder of models begins."""


class Link(Exception):
    """Something in a models folder is neither a plain file nor a folder."""


@dataclass(frozen=True, slots=True)
class Sidecar:
    """What a compiled model was sealed with.

    ``entry`` is the name of its folder and ``models`` that of the folder in it that counts.
    ``settings`` are what it was compiled with and ``facts`` what compiling told, JSON values.
    ``files`` maps each file, relative to the entry's folder, to its size and sha256.
    """

    entry: str
    models: str
    settings: Mapping[str, Any]
    facts: Mapping[str, Any]
    files: Mapping[str, list[Any]]

    def write(self, folder: Path) -> None:
        """Put it into ``folder``, whole or not at all. Raises OSError."""
        document = {
            "schema": SCHEMA,
            "entry": self.entry,
            "models": self.models,
            "settings": as_json(self.settings),
            "facts": as_json(self.facts),
            "files": dict(self.files),
        }
        document["sha256"] = _digest(document)
        temporary = folder / f"{SIDECAR}.{secrets.token_hex(8)}.tmp"
        try:
            with temporary.open("wb") as stream:
                stream.write(_text(document))
                stream.flush()
                os.fsync(stream.fileno())
            temporary.replace(folder / SIDECAR)
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)


def read_sidecar(path: Path) -> Sidecar:
    """Return a sidecar. Raises OSError where it cannot be read, and ValueError, KeyError,
    TypeError, AttributeError or RecursionError where it is not what was written."""
    if not stat.S_ISREG(path.lstat().st_mode):
        raise Link("its sidecar is a link, or no file")
    raw = path.read_bytes()
    document: dict[str, Any] = json.loads(raw)
    same = raw == _text(document)
    said = document.pop("sha256")
    if not same or said != _digest(document) or document.pop("schema") != SCHEMA:
        raise ValueError("not a sidecar of this version")
    return Sidecar(**document)


def stamps_of(models: Path, base: Path) -> dict[str, Stamp]:
    """Return the stamp of every file under ``models`` by its path relative to ``base``, and that
    of the sidecar in ``base`` where there are both. Raises OSError, and Link for what is none."""
    found: dict[str, Stamp] = {}
    _walk(models, base, found)
    if found and os.path.lexists(base / SIDECAR):
        found[SIDECAR] = _stamp(base / SIDECAR)
    return found


def hashes_of(base: Path, stamps: Mapping[str, Stamp]) -> dict[str, list[Any]]:
    """Return size and sha256 of each stamped file but the sidecar. Raises OSError."""
    found: dict[str, list[Any]] = {}
    for name, stamp in stamps.items():
        if name != SIDECAR:
            with (base / name).open("rb") as stream:
                found[name] = [stamp[0], hashlib.file_digest(stream, "sha256").hexdigest()]
    return found


def as_json(value: Mapping[str, Any]) -> Any:
    """Return ``value`` as JSON reads it back, so that what was written compares equal."""
    return json.loads(json.dumps(value, sort_keys=True, default=str))


def _walk(folder: Path, base: Path, found: dict[str, Stamp]) -> None:
    """Add the stamps of all files under ``folder``, following no link."""
    if folder.is_symlink():
        raise Link("a link lies where its files should be")
    for entry in sorted(os.scandir(folder), key=lambda e: e.name):
        path = Path(entry.path)
        if entry.is_dir(follow_symlinks=False):
            _walk(path, base, found)
        elif entry.is_file(follow_symlinks=False):
            found[path.relative_to(base).as_posix()] = _stamp(path)
        else:
            raise Link(f"{entry.name} is a link, or no file")


def _stamp(path: Path) -> Stamp:
    facts = path.lstat()
    return facts.st_size, facts.st_mtime_ns, facts.st_ino


def _text(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, sort_keys=True).encode()


def _digest(document: Mapping[str, Any]) -> str:
    return hashlib.sha256(_text(document)).hexdigest()
