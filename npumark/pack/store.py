"""Where a pack lives, and how its files come to be there whole or not at all.

``<cache>/pack/<suite name>-<first 16 of the manifest's sha256>/``: another manifest is another
folder, so that no two packs ever mix.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

import filelock

from npumark import paths
from npumark.errors import PackError, SetupError
from npumark.pack.inspection import Stamp, inside, stamp_of
from npumark.pack.manifest import Manifest, PackFile
from npumark.pack.progress import Listener, Progress

SPACE_MARGIN = 64 << 20
"""Bytes to leave free beside what is written: folders, the lock, a run's own journal."""

LOCK_WAIT_S = 900.0
"""Longer than any pack takes to make; then the holder is named and the run stops."""

_POLL_S = 0.25
_TEMPORARY = ".tmp"
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


def packs_root() -> Path:
    """Return the folder that holds every pack."""
    return paths.cache_dir() / "pack"


def pack_root(manifest: Manifest) -> Path:
    """Return the folder of one manifest's pack; nothing is created."""
    name = _UNSAFE.sub("-", manifest.suite.get("name", "")).strip(".-") or "unnamed"
    return packs_root() / f"{name[:64]}-{manifest.sha256[:16]}"


def packs() -> tuple[Path, ...]:
    """Return the folder of every pack that is there, whatever version made it."""
    root = packs_root()
    return tuple(sorted(p for p in root.iterdir() if p.is_dir())) if root.is_dir() else ()


def check_space(root: Path, missing: int) -> None:
    """Raise SetupError unless ``missing`` bytes and a margin fit where ``root`` is or will be."""
    if not missing:
        return
    place = root
    while not place.exists() and place != place.parent:
        place = place.parent
    free = shutil.disk_usage(place).free
    short = missing + SPACE_MARGIN - free
    if short > 0:
        raise SetupError(
            f"{root} needs {_mb(missing + SPACE_MARGIN)} and the disk has {_mb(free)} left: "
            f"{_mb(short)} are missing",
            f"Free some space, or set {paths.HOME_VARIABLE} to a folder on another disk.",
        )


def check_memory(needed: int, free: int | None, path: str) -> None:
    """Raise SetupError unless ``needed`` bytes of memory are free to make ``path`` and what is
    made beside it; a machine that does not state its free memory is trusted."""
    if free is None or needed <= free:
        return
    raise SetupError(
        f"making {path} needs {_mb(needed)} of memory and {_mb(free)} are free",
        "Close programs that hold much memory, or name what is to be measured with --workload.",
    )


@contextlib.contextmanager
def locked(
    root: Path,
    listener: Listener,
    *,
    wait_s: float = LOCK_WAIT_S,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[None]:
    """Hold the pack's lock; while another process does, say which one and wait.

    Raises SetupError naming the holder after ``wait_s`` seconds, or where the lock file
    cannot be made. The lock goes when its process does, however that ends.
    """
    paths.make(root.parent)
    holder = root.parent / f"{root.name}.holder.json"
    lock = filelock.FileLock(root.parent / f"{root.name}.lock")
    deadline = clock() + wait_s
    while True:
        try:
            lock.acquire(timeout=_POLL_S, poll_interval=_POLL_S / 5)
            break
        except filelock.Timeout:
            who = _holder(holder)
            note = f"waiting for {who}, which is preparing the same pack"
            listener(Progress("wait", 0, 0, note=note))
            if clock() >= deadline:
                raise SetupError(
                    f"{who} has held the pack {root.name} for {wait_s:.0f} s",
                    "Let it finish or end it, then try again.",
                ) from None
        except OSError as fault:
            raise paths.unwritable(root.parent, fault) from fault
    try:
        with contextlib.suppress(OSError):  # it only serves the message of who waits
            holder.write_text(json.dumps({"pid": os.getpid()}))
        yield
    finally:
        with contextlib.suppress(OSError):
            holder.unlink(missing_ok=True)
        lock.release()


@dataclass(frozen=True, slots=True)
class Written:
    """A file as written: ``matches`` says whether size and sha256 are the manifest's."""

    stamp: Stamp
    sha256: str
    matches: bool


def write_file(
    root: Path,
    file: PackFile,
    make: Callable[[BinaryIO], None],
    *,
    keep_other: bool,
    count: Callable[[int], None],
    stop: threading.Event,
) -> Written:
    """Write one pack file: beside its place, hashed on the way, synced, then moved there.

    Where the bytes are not the manifest's, the file is put in place only if ``keep_other``.
    Raises PackError where its place is a link out of the pack or ``make`` yields more bytes
    than the manifest allows, SetupError where it cannot be written, Stopped once ``stop`` is
    set; none of them leaves anything behind.
    """
    target = root / file.path
    if not inside(root, Path(file.path).parent.as_posix()):
        raise PackError(
            f"the folder of {file.path} is a link that leads out of the pack",
            f"Remove {target.parent}.",
            path=file.path,
        )
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(
            dir=target.parent, prefix=f".{target.name}.", suffix=_TEMPORARY
        )
    except OSError as fault:
        raise paths.unwritable(target.parent, fault) from fault
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as out:
            sink = _Sink(out, target.parent, file, count, stop, unlimited=keep_other)
            make(cast("BinaryIO", sink))
            out.flush()
            os.fsync(out.fileno())
        written = sink.digest.hexdigest()
        matches = written == file.sha256 and sink.size == file.size
        stamp = stamp_of(temporary.stat())
        if matches or keep_other:
            temporary.replace(target)
            _sync_folder(target.parent)
        return Written(stamp, written, matches)
    except OSError as fault:
        raise paths.unwritable(target.parent, fault) from fault
    finally:
        temporary.unlink(missing_ok=True)


class Stopped(Exception):
    """Another file's writer failed or the user interrupted: this one need not finish."""


class _Sink:
    """The binary stream a recipe writes to: counts, hashes, and refuses to run over."""

    def __init__(
        self,
        out: BinaryIO,
        folder: Path,
        file: PackFile,
        count: Callable[[int], None],
        stop: threading.Event,
        *,
        unlimited: bool,
    ) -> None:
        self._out = out
        self._folder = folder
        self._file = file
        self._count = count
        self._stop = stop
        self._unlimited = unlimited
        self.size = 0
        self.digest = hashlib.sha256()

    def write(self, block: bytes | memoryview) -> int:
        if self._stop.is_set():
            raise Stopped
        view = memoryview(block).cast("B")
        self.size += len(view)
        if self.size > self._file.size and not self._unlimited:
            raise PackError(
                f"{self._file.path} comes out longer than the manifest's {self._file.size} bytes",
                "Reinstall npumark to restore what it is made from.",
                path=self._file.path,
            )
        self.digest.update(view)
        try:
            self._out.write(view)
        except OSError as fault:
            raise paths.unwritable(self._folder, fault) from fault
        self._count(len(view))
        return len(view)


def remove(root: Path, listener: Listener) -> int:
    """Delete a pack's folder, under its lock; return the bytes that were freed."""
    if not root.is_symlink() and not root.exists():
        return 0
    with locked(root, listener):
        if root.is_symlink():
            root.unlink()
            return 0
        freed = size_of(root)
        try:
            shutil.rmtree(root)
        except OSError as fault:
            raise paths.unwritable(root, fault) from fault
        return freed


def sweep(root: Path) -> None:
    """Delete what a killed writer left half done; only under the lock."""
    for left in root.rglob(f".*{_TEMPORARY}"):
        left.unlink(missing_ok=True)


def size_of(root: Path) -> int:
    """Return the bytes of every plain file under ``root``, links not followed."""
    total = 0
    for folder, _, names in os.walk(root):
        for name in names:
            with contextlib.suppress(OSError):
                total += (Path(folder) / name).lstat().st_size
    return total


def _holder(holder: Path) -> str:
    try:
        return f"another npumark (process {int(json.loads(holder.read_text())['pid'])})"
    except (OSError, ValueError, KeyError, TypeError):
        return "another npumark"


def _sync_folder(folder: Path) -> None:
    """Make a rename last through a power cut; only POSIX systems can and need to."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _mb(count: int) -> str:
    return f"{count / 1e6:.0f} MB"
