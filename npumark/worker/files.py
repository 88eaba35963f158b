"""Check the files of a job before anything reads them: size, then sha256, once while unchanged."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

from npumark.errors import PackError
from npumark.worker.protocol import FileCheck

Stamp = tuple[int, int, int]


def stamp_of(path: Path) -> Stamp:
    """Return [size, mtime_ns, inode]: what tells that a file is still the one that was hashed."""
    facts = path.stat()
    return facts.st_size, facts.st_mtime_ns, facts.st_ino


def check_files(root: Path, files: Iterable[FileCheck]) -> dict[str, Stamp]:
    """Check each file under ``root``; return the stamps of those that had to be hashed.

    Raises PackError, naming the file, where one is missing, lies outside the pack, has another
    size or other bytes, or changes while it is read.
    """
    hashed = {}
    base = root.resolve()
    for file in files:
        path = root / file.path
        try:
            if not path.resolve().is_relative_to(base):
                raise PackError(f"{file.path} points outside the pack", path=file.path)
            stamp = stamp_of(path)
            if file.stamp is not None and tuple(file.stamp) == stamp:
                continue
            if stamp[0] != file.size:
                raise PackError(
                    f"{file.path} has {stamp[0]} bytes, not {file.size}", path=file.path
                )
            with path.open("rb") as stream:
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
                after = os.fstat(stream.fileno())
        except OSError as fault:
            raise PackError(
                f"{file.path} cannot be read: {fault.strerror}", path=file.path
            ) from fault
        if digest != file.sha256:
            raise PackError(f"{file.path} is not what the manifest pins", path=file.path)
        if (after.st_size, after.st_mtime_ns) != stamp[:2]:
            raise PackError(f"{file.path} changed while it was read", path=file.path)
        hashed[file.path] = stamp
    return hashed


def require_checked(needed: Iterable[str], files: Iterable[FileCheck]) -> None:
    """Raise PackError where a file that the job reads is not among those it checks."""
    checked = {file.path for file in files}
    for path in needed:
        if path not in checked:
            raise PackError(f"the job reads {path} without checking it", path=path)
