"""The compiled models of a run: made before an engine's first attempt, known to load, bounded.

An engine that compiles is prepared, untimed, so that attempt 1 loads the way every later one
does. One worker compiles (or finds what an earlier run left) and a second, fresh one loads what
was compiled: a model on which that process dies, falls silent or answers otherwise is thrown
away, and the entry runs without one. A model that an earlier run left and that a worker fails
with is compiled again, once. Where compiling itself kills its worker, or outlasts its deadline,
the entry is not prepared again in this run: its attempts run without a kept model and say why.
Nothing here ever moves work to another processor.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from npumark import paths
from npumark.engines.model_sidecar import SIDECAR
from npumark.orchestrator.jobs import JobMaker
from npumark.orchestrator.journal import Key
from npumark.orchestrator.supervisor import Outcome
from npumark.score.planned import Planned
from npumark.worker.protocol import CacheState, Job, Stamp, Status

MAX_BYTES = 20_000_000_000
"""What all compiled models together may take: those used longest ago go first."""

MAX_AGE_S = 60 * 24 * 3600
"""A model that no run has used for so long is made again when one does."""

_USED = "used"

_COMPILES_FOR = ("os", "os_version", "kernel", "cpu_model", "cpu_stepping", "isa")
"""What of the computer a compiled model may depend on: its processor's instructions, and the
system that brings drivers and, on some, the runtime itself."""

Work = Callable[[Job], Outcome]


def root() -> Path:
    """Return the folder of every compiled model; nothing is created."""
    return paths.cache_dir() / "compiled"


def host_facts(machine: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of ``machine`` (machine.identity) a compiled model may depend on."""
    return {name: machine.get(name) for name in _COMPILES_FOR}


@dataclass(frozen=True, slots=True)
class Made:
    """What preparing an entry came to.

    ``status`` and ``why`` are those of the worker that decided. ``state`` is what attempts will
    find (worker.protocol.CacheUse), null where the engine keeps none or none was reached.
    ``compile_ns`` and ``first_call_ns`` are of the worker that compiled, ``load_ns`` of the one
    that loaded a model that was there.
    """

    status: Status
    why: str | None
    state: CacheState | None = None
    compile_ns: int | None = None
    first_call_ns: int | None = None
    load_ns: int | None = None
    bytes: int | None = None


@dataclass(slots=True)
class CompiledModels:
    """Which entries have a compiled model that is known to load, with its files' stamps.

    An entry that is not in ``_ready`` must be prepared before its next attempt; null there says
    that it runs without a compiled model.
    """

    jobs: JobMaker
    _ready: dict[Key, dict[str, Stamp] | None] = field(default_factory=dict)

    def wants(self, planned: Planned) -> bool:
        """Say whether the entry must be prepared before its next attempt."""
        return self.jobs.compiles(planned) and planned.key not in self._ready

    def kept(self, planned: Planned) -> bool:
        """Say whether a model of the entry was left here, by an earlier run or by this one."""
        return os.path.lexists(self.jobs.cache_dir(planned) / SIDECAR)

    def stamps(self, planned: Planned) -> Mapping[str, Stamp] | None:
        """Return the stamps of the entry's model for its next job; null: it keeps none."""
        return self._ready.get(planned.key)

    def attempted(self, planned: Planned, outcome: Outcome) -> None:
        """Take in how an attempt ended. A model that it died with, or had to make again, is to
        be seen to load before it is relied on once more."""
        stamps = self._ready.get(planned.key)
        if stamps is None:
            return
        result = outcome.result
        if result is None or (result.cache is not None and result.cache.state != "reused"):
            del self._ready[planned.key]
        elif result.cache is not None:
            self._ready[planned.key] = dict(result.cache_stamps)

    def prepare(self, planned: Planned, stamps: Mapping[str, Stamp], work: Work) -> Made:
        """Prepare an entry; ``work`` runs a worker, ``stamps`` are those of the pack's files.

        Afterwards the entry can be attempted, whatever came of it: where its graph does not
        compile, attempt 1 says so itself.
        """
        folder = self.jobs.cache_dir(planned)
        there = self.kept(planned)
        first = work(self.jobs.prepare(planned, stamps, {}))
        if there and _broken(first):
            died = first.why or "its answers are other ones than when it was compiled"
            first = work(self.jobs.prepare(planned, stamps, {}, rebuild=True))
            made = _made(first)
            if made.state == "built":
                made = _with(made, "rebuilt", died)
        else:
            made = _made(first)
        if first.result is None and first.status != "interrupted":
            self._give_up(planned)
            return made
        if first.status == "crashed":
            # It may have been sealed before the first call failed: no attempt is to find it.
            shutil.rmtree(folder, ignore_errors=True)
        self._ready[planned.key] = dict(first.result.cache_stamps) if first.result else {}
        if made.state in ("built", "rebuilt"):
            second = work(self.jobs.prepare(planned, stamps, {}))
            made = self._verified(planned, made, second)
        elif made.state == "unkept":
            self._ready[planned.key] = None
        if made.state in ("built", "rebuilt", "reused"):
            with suppress(OSError):
                (folder / _USED).touch()
        return made

    def _verified(self, planned: Planned, made: Made, second: Outcome) -> Made:
        """Return ``made`` with how long the model took to load afresh, or unkept with the reason
        why it cannot be relied on."""
        result = second.result
        loaded = second.status == "ok" and result is not None and result.cache is not None
        if not loaded:
            why = f"it was compiled and does not load: {second.why or second.status}"
        elif result is None or result.cache is None or result.cache.state != "reused":
            told = result.cache.why if result and result.cache else None
            why = f"it was compiled and is not loaded again: {told or 'the runtime compiles anew'}"
        elif result.prepared is not None and result.prepared.same_answers is False:
            why = "loaded again it answers otherwise than when it was compiled"
        else:
            self._ready[planned.key] = dict(result.cache_stamps)
            load_ns = result.prepared.load_ns if result.prepared else None
            return Made(
                made.status,
                made.why,
                made.state,
                made.compile_ns,
                made.first_call_ns,
                load_ns,
                made.bytes,
            )
        if second.status != "interrupted":
            self._give_up(planned)
        return _with(made, "unkept", why)

    def _give_up(self, planned: Planned) -> None:
        """Run the entry without a compiled model from here on, and prepare it no more."""
        self._ready[planned.key] = None
        shutil.rmtree(self.jobs.cache_dir(planned), ignore_errors=True)


def _broken(outcome: Outcome) -> bool:
    """Say whether a worker failed with what it found, in whatever way, or answered otherwise than
    the one that compiled it."""
    if outcome.status in ("interrupted", "pack_error"):
        return False
    result = outcome.result
    if result is None or outcome.status != "ok":
        return True
    return result.prepared is not None and result.prepared.same_answers is False


def _made(outcome: Outcome) -> Made:
    result = outcome.result
    if result is None or result.cache is None:
        return Made(outcome.status, outcome.why)
    use, took = result.cache, result.prepared
    fresh = use.state in ("built", "rebuilt")
    return Made(
        status=outcome.status,
        why=use.why if outcome.status == "ok" else outcome.why,
        state=use.state,
        compile_ns=use.compile_ns,
        first_call_ns=took.first_call_ns if took and fresh else None,
        load_ns=took.load_ns if took and use.state == "reused" else None,
        bytes=use.bytes,
    )


def _with(made: Made, state: CacheState, why: str) -> Made:
    kept = state != "unkept"
    return Made(
        made.status,
        why[:300],
        state,
        made.compile_ns,
        made.first_call_ns,
        None,
        made.bytes if kept else None,
    )


def prune(
    folder: Path,
    keep: Iterable[Path] = (),
    *,
    now_s: float | None = None,
    max_bytes: int = MAX_BYTES,
    max_age_s: float = MAX_AGE_S,
) -> int:
    """Remove the compiled models that were used longest ago until the rest fit their bounds.

    Those in ``keep`` stay. Call it under the measuring lock. Returns the bytes freed; what
    cannot be removed stays, and is tried again by the next run.
    """
    now = time.time() if now_s is None else now_s
    kept = set(keep)
    found = sorted(((_last_use(p), p, _size(p)) for p in _entries(folder)), reverse=True)
    held = sum(size for _, path, size in found if path in kept)
    freed = 0
    for used, path, size in found:
        if path in kept:
            continue
        if now - used <= max_age_s and held + size <= max_bytes:
            held += size
            continue
        freed += _remove(path, size)
    return freed


def clear(folder: Path) -> int:
    """Remove every compiled model under ``folder``; return the bytes freed."""
    return sum(_remove(path, _size(path)) for path in _entries(folder))


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _last_use(path: Path) -> float:
    for place in (path / _USED, path):
        with suppress(OSError):
            return place.lstat().st_mtime
    return 0.0


def _size(path: Path) -> int:
    """Return the bytes of the plain files at or under ``path``; links are not followed."""
    total = 0
    if path.is_symlink():
        return 0
    if path.is_file():
        with suppress(OSError):
            total = path.stat().st_size
    for place, _, names in os.walk(path):
        for name in names:
            with suppress(OSError):
                total += (Path(place) / name).lstat().st_size
    return total


def _remove(path: Path, size: int) -> int:
    try:
        if path.is_symlink() or path.is_file():
            path.unlink()
        else:
            shutil.rmtree(path)
    except OSError:
        return size - _size(path)
    return size
