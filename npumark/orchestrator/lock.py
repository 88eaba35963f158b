"""One measurement at a time on a machine: a second one would slow the first and itself, and so
would an installation, which changes what the first one runs besides.

The operating system's file lock decides and dies with its holder; a JSON file beside it only
names the holder to whoever waits. What a killed holder left behind (workers that still run)
is ended before the next measurement starts.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import psutil
from filelock import FileLock, Timeout

from npumark import paths
from npumark.errors import SetupError
from npumark.orchestrator.containment import kill_marked

_LOCK = "measuring.lock"
_HOLDER = "measuring.json"
_GONE_WITHIN_S, _LOOK_S = 5.0, 0.01
"""So long, and so often, is looked whether what was killed is gone."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Who measures: process number, what it does, since when (UTC), and its workers' marker."""

    pid: int
    command: str
    since: str
    marker: str


class Taken(SetupError):
    """Another one holds the lock."""


@contextmanager
def measuring_with(engines: Path, command: str) -> Iterator[Holder]:
    """Hold the machine's measuring lock and that of the folder of environments, which another
    home may share and change.

    Where that folder takes no files no lock is made in it: nobody can install into it either.
    Raises SetupError as ``measuring`` does.
    """
    with ExitStack() as held:
        holder = held.enter_context(measuring(command))
        if os.path.isdir(engines):  # noqa: PTH112 - Path raises where it may not look
            try:
                held.enter_context(measuring(command, engines))
            except Taken:
                raise
            except SetupError:
                pass
        yield holder


@contextmanager
def measuring(command: str, folder: Path | None = None) -> Iterator[Holder]:
    """Hold the machine's measuring lock; ``command`` is how the holder is shown to others.

    ``folder`` is where the lock lives (the data folder by default). Raises Taken naming the
    holder where another one is at work, SetupError saying why the lock cannot be made.
    """
    place = paths.make(folder or paths.data_dir())
    lock = FileLock(place / _LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise _taken(_read(place / _HOLDER)) from None
    except (OSError, NotImplementedError) as fault:
        cause = fault if isinstance(fault, OSError) else OSError(str(fault))
        raise paths.unwritable(place / _LOCK, cause) from fault
    try:
        _end_leftovers(_read(place / _HOLDER))
        holder = _this_process(command)
        with suppress(OSError):  # without it the lock still holds, only less politely
            (place / _HOLDER).write_text(json.dumps(asdict(holder)), encoding="utf-8")
        try:
            yield holder
        finally:
            with suppress(OSError):
                (place / _HOLDER).unlink()
    finally:
        lock.release()


def at_work(folder: Path | None = None) -> Holder | None:
    """Return who holds the lock in ``folder`` (the data folder by default), null where nobody
    does. Takes no lock and writes nothing: it believes the holder's note while the process that
    wrote it lives."""
    holder = _read((folder or paths.data_dir()) / _HOLDER)
    if holder is None:
        return None
    try:
        alive = _marker(psutil.Process(holder.pid)) == holder.marker
    except (psutil.Error, ValueError, OverflowError):
        return None
    return holder if alive else None


def _this_process(command: str) -> Holder:
    since = datetime.now(UTC).isoformat(timespec="seconds")
    return Holder(os.getpid(), command, since, _marker(psutil.Process()))


def _marker(process: psutil.Process) -> str:
    return f"npumark-{process.pid}-{int(process.create_time() * 1000)}"


def _read(path: Path) -> Holder | None:
    try:
        doc = json.loads(path.read_text(encoding="utf-8"))
        return Holder(int(doc["pid"]), str(doc["command"]), str(doc["since"]), str(doc["marker"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _end_leftovers(previous: Holder | None) -> None:
    """End the workers of a holder that was killed: the lock is ours, so it no longer lives.

    Waits until they are gone, as they would compute beside what is measured next; not for one
    that is stuck in the kernel.
    """
    if previous is None or not previous.marker.startswith("npumark-"):
        return
    left = kill_marked(previous.marker)
    until = time.monotonic() + _GONE_WITHIN_S
    while (left := [pid for pid in left if _runs(pid)]) and time.monotonic() < until:
        time.sleep(_LOOK_S)


def _runs(pid: int) -> bool:
    """Whether a process still computes; one that nobody waited for does not."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def _taken(holder: Holder | None) -> Taken:
    if holder is None:
        return Taken(
            "npumark is at work on this machine already",
            "Wait for it to end, or stop it.",
        )
    return Taken(
        f"npumark is at work on this machine already: `{holder.command}`, "
        f"process {holder.pid}, since {holder.since}",
        "Wait for it to end, or stop it.",
    )
