"""What a pack on disk really is: every file hashed, every difference named.

Each file is opened without following a link out of the pack, hashed whole, and stamped with
what the file system said of it before and after; a file that changes meanwhile is a fault.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from npumark.errors import PackError
from npumark.pack.manifest import Manifest, PackFile
from npumark.pack.progress import Listener, Meter, silent

Stamp = tuple[int, int, int]
"""Size, mtime in nanoseconds and inode: while they hold, a hashed file is not hashed again."""

FaultKind = Literal[
    "missing", "truncated", "longer", "changed", "swapped", "link", "unreadable", "unstable"
]

THREADS = 2
"""Hashing two files at a time reaches what a laptop's storage gives."""

_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a file is not what the manifest says; ``text`` names it and says what is wrong.

    ``stamp`` is there where the file could be read whole, whatever it holds.
    """

    path: str
    kind: FaultKind
    text: str
    stamp: Stamp | None = None


@dataclass(frozen=True, slots=True)
class Inspection:
    """``stamps`` of the files that match, ``faults`` of those that do not, by path."""

    stamps: dict[str, Stamp]
    faults: dict[str, Fault]


def inspect(
    manifest: Manifest, root: Path, paths: Iterable[str], listener: Listener = silent
) -> Inspection:
    """Hash the files at ``paths`` under ``root`` and compare them with the manifest.

    Raises PackError where the manifest has no such path.
    """
    files = [known(manifest, path) for path in dict.fromkeys(paths)]
    by_hash = {file.sha256: file.path for file in manifest.files.values()}
    meter = Meter("verify", sum(file.size for file in files), listener)
    with ThreadPoolExecutor(THREADS) as pool:
        try:
            found = list(pool.map(lambda file: _look(file, root, by_hash, meter), files))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    stamps: dict[str, Stamp] = {}
    faults: dict[str, Fault] = {}
    for file, result in zip(files, found, strict=True):
        if isinstance(result, Fault):
            faults[file.path] = result
        else:
            stamps[file.path] = result
    return Inspection(stamps, faults)


def known(manifest: Manifest, path: str) -> PackFile:
    """Return the manifest's file at ``path``. Raises PackError where there is none."""
    try:
        return manifest.files[path]
    except KeyError:
        raise PackError(f"the manifest has no file {path!r}", path=path) from None


def extra_files(manifest: Manifest, root: Path) -> tuple[str, ...]:
    """Return what lies under ``root`` and is in no manifest, sorted; never followed, only named."""
    found = []
    for folder, folders, names in os.walk(root):
        here = Path(folder)
        links = [name for name in folders if (here / name).is_symlink()]
        found += [(here / name).relative_to(root).as_posix() for name in (*names, *links)]
    return tuple(sorted(set(found) - set(manifest.files)))


def stamp_of(status: os.stat_result) -> Stamp:
    return (status.st_size, status.st_mtime_ns, status.st_ino)


def inside(root: Path, path: str) -> bool:
    """Say whether ``path`` stays within ``root`` once every link in it has been followed."""
    return (root / path).resolve().is_relative_to(root.resolve())


def _look(file: PackFile, root: Path, by_hash: Mapping[str, str], meter: Meter) -> Stamp | Fault:
    target = root / file.path
    try:
        if not inside(root, file.path):
            return Fault(file.path, "link", f"{file.path} is a link that leads out of the pack")
        if not stat.S_ISREG(target.stat().st_mode):  # opening a pipe would wait for ever
            return Fault(file.path, "unreadable", f"{file.path} is not a plain file")
        with target.open("rb") as opened:
            before = os.fstat(opened.fileno())
            digest = hashlib.sha256()
            while block := opened.read(_BLOCK):
                digest.update(block)
                meter.add(len(block), file.path)
            after = os.fstat(opened.fileno())
    except FileNotFoundError:
        return Fault(file.path, "missing", f"{file.path} is missing")
    except OSError as fault:
        reason = fault.strerror or str(fault)
        return Fault(file.path, "unreadable", f"{file.path} cannot be read: {reason}")
    stamp = stamp_of(after)
    if stamp_of(before) != stamp:
        return Fault(file.path, "unstable", f"{file.path} changed while it was being read")
    return _judge(file, digest.hexdigest(), stamp, by_hash)


def _judge(file: PackFile, digest: str, stamp: Stamp, by_hash: Mapping[str, str]) -> Stamp | Fault:
    size = stamp[0]
    if digest == file.sha256 and size == file.size:
        return stamp
    kind: FaultKind = "changed"
    what = f"has other bytes than its sha256 {file.sha256[:12]}… allows"
    if digest in by_hash:
        kind, what = "swapped", f"holds the contents of {by_hash[digest]}"
    elif size < file.size:
        kind, what = "truncated", f"is cut short: {size} of {file.size} bytes"
    elif size > file.size:
        kind, what = "longer", f"is too long: {size} bytes, not {file.size}"
    return Fault(file.path, kind, f"{file.path} {what}", stamp)
