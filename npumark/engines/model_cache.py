"""One entry's compiled model on disk, believed only while its bytes are those it was left with.

The folder's name says what the model depends on (contents, runtime, driver, device, options;
orchestrator.jobs). In it lie::

    sidecar.json     which models folder is valid, the sha256 of each file in it, and facts
    models-<random>/ the runtime's own files: written by one process, never moved

A models folder counts from the moment its sidecar is renamed into place, so two processes that
compile at once leave the work of one of them, whole. The rules, for every runtime:

- The files are hashed once per run: their stamps travel with the jobs, and files whose stamps
  hold are not hashed again.
- What is changed, missing, added, a link, of another entry or of other settings, or what the
  runtime does not take, is thrown away and compiled again, once.
- Where a compiled model cannot be kept (a full disk, a folder that is read-only, a runtime that
  cannot write it) the entry runs without one, and says so.
- Nothing here is ever a reason to run elsewhere.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import stat
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from npumark.engines.base import CacheMemo, LoadRequest
from npumark.errors import EngineError, Unsupported, WrongDevice
from npumark.worker.protocol import CacheState, CacheUse, Stamp

_T = TypeVar("_T")

SCHEMA = "npumark-compiled/1"
SIDECAR = "sidecar.json"
_MODELS = "models-"
_ABANDONED_S = 24 * 3600
"""A folder without a sidecar may be another process's work in progress; after a day it is not."""


@dataclass(frozen=True, slots=True)
class Recipe(Generic[_T]):
    """How one runtime compiles and loads.

    ``load`` makes the session from a models folder: of the compiled model in it, or compiling
    into it where that is how the runtime does it; of the graph itself where it is given None.
    ``compile`` fills an empty folder before ``load`` sees it, and returns facts that only
    compiling tells; absent for a runtime whose ``load`` compiles. ``reused`` says whether a
    session came from a compiled model, where the runtime can tell; a filled folder of which
    nothing was reused was refused. ``free`` lets go of a session that is not wanted.
    """

    load: Callable[[Path | None], _T]
    compile: Callable[[Path], Mapping[str, Any]] | None = None
    reused: Callable[[_T], bool | None] | None = None
    free: Callable[[_T], object] = lambda _: None


class ModelCache:
    """The compiled model under ``folder``.

    ``settings`` are what the engine compiles with (JSON values): a model made with others, or
    sealed for another folder, is not believed.
    """

    def __init__(
        self,
        folder: Path,
        memo: CacheMemo | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self._folder = folder
        self._memo = CacheMemo() if memo is None else memo
        self._settings = dict(settings or {})
        self._models: Path | None = None
        self.facts: dict[str, Any] = {}
        self.use: CacheUse | None = None

    def open(self, recipe: Recipe[_T]) -> _T:
        """Return a session of the verified model, compiled first where there is none.

        Raises what the runtime raises where the graph itself cannot be compiled or loaded.
        """
        why = self._fault()
        if why is None:
            try:
                made = recipe.load(self._models)
            except (Unsupported, WrongDevice):
                raise
            except Exception as fault:  # noqa: BLE001 - whatever it is, the model is made anew
                why = f"the runtime refused it: {_one_line(fault)}"
            else:
                if recipe.reused is None or recipe.reused(made) is not False:
                    self._sweep()
                    self._used("reused", None, None)
                    return made
                recipe.free(made)
                del made
                why = "the runtime did not take it"
        return self._build(recipe, "" if why == _NONE else why)

    @property
    def reused(self) -> bool:
        """Whether the session that was opened came from a compiled model that was there."""
        return self.use is not None and self.use.state == "reused"

    def settle(self) -> None:
        """Seal again what the runtime added to its files while the session lived, or at its end.

        Call it once the session is closed; the worker does it for every engine as it ends.
        """
        if self._models is None or self.use is None or self.use.state == "unkept":
            return
        try:
            if self._stamps() != self._memo.stamps:
                self._seal()
        except (OSError, _Link) as fault:
            # The old sidecar no longer fits: the next process compiles again.
            print(f"the compiled model cannot be sealed: {fault}", file=sys.stderr)

    def verified(self) -> Path | None:
        """Return the folder of the verified model, for another session of the same process that
        is to make none itself; None where there is none."""
        return self._models if self._fault() is None else None

    def intact(self) -> bool:
        """Say whether the folder holds exactly the files, byte for byte, that were sealed."""
        return self._fault() is None

    def discard(self) -> None:
        """Throw the compiled model away. Raises OSError where it cannot be."""
        sealed = self._folder / SIDECAR
        if self._folder.is_symlink() or (self._folder.exists() and not self._folder.is_dir()):
            self._folder.unlink()
        if sealed.is_symlink() or sealed.exists():
            sealed.unlink()
        self._sweep()
        if self._models is not None:
            _remove(self._models)
        self._models = None
        self._memo.stamps.clear()

    def _sweep(self) -> None:
        """Remove what processes that died while compiling, or lost their sidecar, left behind."""
        with suppress(OSError):
            for path in self._folder.iterdir():
                if path.name.startswith((_MODELS, f"{SIDECAR}.")) and path != self._models:
                    _remove_abandoned(path)

    def _build(self, recipe: Recipe[_T], why: str) -> _T:
        began = time.perf_counter_ns()
        try:
            self.discard()
            self._models = self._folder / f"{_MODELS}{secrets.token_hex(8)}"
            self._models.mkdir(parents=True)
        except OSError as fault:
            return self._unkept(recipe, _cannot(fault))
        try:
            if recipe.compile is not None:
                self.facts = dict(recipe.compile(self._models))
                compiled = time.perf_counter_ns()
                made = recipe.load(self._models)
            else:
                made = recipe.load(self._models)
                compiled = time.perf_counter_ns()
        except (Unsupported, WrongDevice):
            self._abandon()
            raise
        except Exception as fault:  # noqa: BLE001 - the graph may still run without a cache
            self._abandon()
            try:
                return self._unkept(recipe, f"the runtime cannot keep it: {_one_line(fault)}")
            except Exception:  # noqa: BLE001 - then the graph is at fault: the first reason counts
                raise fault from None
        try:
            if not self._stamps():
                self._abandon()
                self._used("unkept", None, "the runtime wrote no compiled model")
                return made
            self._seal()
        except (OSError, _Link) as fault:
            self._abandon()
            self._used("unkept", None, _cannot(fault))
            return made
        self._used("rebuilt" if why else "built", compiled - began, why or None)
        return made

    def _unkept(self, recipe: Recipe[_T], why: str) -> _T:
        made = recipe.load(None)
        self._models = None
        self._used("unkept", None, why)
        return made

    def _abandon(self) -> None:
        with suppress(OSError):
            self.discard()
        self._models = None
        self._memo.stamps.clear()

    def _used(self, state: CacheState, compile_ns: int | None, why: str | None) -> None:
        size = sum(stamp[0] for name, stamp in self._memo.stamps.items() if name != SIDECAR)
        self.use = CacheUse(
            state=state,
            why=None if why is None else why[:300],
            compile_ns=compile_ns,
            bytes=size if state != "unkept" else None,
        )
        if self._memo.use is None:
            self._memo.use, self._memo.settle = self.use, self.settle
        self._memo.facts = dict(self.facts)

    def _fault(self) -> str | None:
        """Return why the folder's model is not believed, ``_NONE`` where there is none."""
        self._models = None
        try:
            if not os.path.lexists(self._folder / SIDECAR):
                return _NONE
            if self._folder.is_symlink() or not _is_plain(self._folder / SIDECAR):
                return "its sidecar is a link, or no file"
            sealed = read_sidecar(self._folder / SIDECAR)
            models = self._folder / sealed["models"]
            if models.parent != self._folder or not sealed["models"].startswith(_MODELS):
                return "its sidecar names a place outside its folder"
            self._models = models
            if sealed["entry"] != self._folder.name:
                return "it was compiled for another entry"
            if sealed["settings"] != _plain(self._settings):
                return "it was compiled with other settings"
            stamps = self._stamps()
            if set(stamps) - {SIDECAR} != set(sealed["files"]):
                return "a file of it was added or lost"
            if stamps != self._memo.stamps:
                found = self._hashes(stamps)
                if found != sealed["files"]:
                    changed = sorted(n for n in found if found[n] != sealed["files"].get(n))
                    return f"{changed[0].partition('/')[2]} is not what was compiled"
                if self._stamps() != stamps:
                    return "it changed while it was read"
                self._memo.stamps.clear()
                self._memo.stamps.update(stamps)
            self.facts = dict(sealed["facts"])
        except _Link as fault:
            return str(fault)
        except OSError as fault:
            return f"it cannot be read: {fault.strerror or fault}"
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return "its sidecar is damaged"
        return None

    def _stamps(self) -> dict[str, Stamp]:
        """Return the stamp of every file of the model, and of the sidecar where there is one."""
        if self._models is None:
            return {}
        found: dict[str, Stamp] = {}
        _walk(self._models, self._folder, found)
        if found and os.path.lexists(self._folder / SIDECAR):
            found[SIDECAR] = _stamp(self._folder / SIDECAR)
        return found

    def _hashes(self, stamps: Mapping[str, Stamp]) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = {}
        for name, stamp in stamps.items():
            if name != SIDECAR:
                with (self._folder / name).open("rb") as stream:
                    found[name] = [stamp[0], hashlib.file_digest(stream, "sha256").hexdigest()]
        return found

    def _seal(self) -> None:
        if self._models is None:
            raise EngineError("there is no compiled model to seal")
        stamps = self._stamps()
        document = {
            "schema": SCHEMA,
            "entry": self._folder.name,
            "models": self._models.name,
            "settings": _plain(self._settings),
            "facts": _plain(self.facts),
            "files": self._hashes(stamps),
        }
        document["sha256"] = _digest(document)
        temporary = self._folder / f"{SIDECAR}.{secrets.token_hex(8)}.tmp"
        try:
            with temporary.open("wb") as stream:
                stream.write(_text(document))
                stream.flush()
                os.fsync(stream.fileno())
            temporary.replace(self._folder / SIDECAR)
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
        self._memo.stamps.clear()
        self._memo.stamps.update(self._stamps())


def model_cache(request: LoadRequest, settings: Mapping[str, Any]) -> ModelCache | None:
    """Return the cache of a request's compiled model; None where it keeps none."""
    if request.cache_dir is None or not request.options.get("cache"):
        return None
    return ModelCache(request.cache_dir, request.cache_memo, settings)


_NONE = "none"


class _Link(Exception):
    """Something in a models folder is neither a plain file nor a folder."""


def _walk(folder: Path, base: Path, found: dict[str, Stamp]) -> None:
    """Add the stamps of all files under ``folder``, following no link."""
    if folder.is_symlink():
        raise _Link("a link lies where its files should be")
    for entry in sorted(os.scandir(folder), key=lambda e: e.name):
        path = Path(entry.path)
        if entry.is_dir(follow_symlinks=False):
            _walk(path, base, found)
        elif entry.is_file(follow_symlinks=False):
            found[path.relative_to(base).as_posix()] = _stamp(path)
        else:
            raise _Link(f"{entry.name} is a link, or no file")


def _cannot(fault: Exception) -> str:
    return f"it cannot be written: {getattr(fault, 'strerror', None) or fault}"


def _stamp(path: Path) -> Stamp:
    facts = path.lstat()
    return facts.st_size, facts.st_mtime_ns, facts.st_ino


def _is_plain(path: Path) -> bool:
    return stat.S_ISREG(path.lstat().st_mode)


def read_sidecar(path: Path) -> dict[str, Any]:
    """Return a sidecar's document. Raises ValueError where it is not what was written."""
    raw = path.read_bytes()
    document: dict[str, Any] = json.loads(raw)
    same = raw == _text(document)
    said = document.pop("sha256")
    if not same or said != _digest(document) or document["schema"] != SCHEMA:
        raise ValueError("not a sidecar of this version")
    return document


def _text(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, sort_keys=True).encode()


def _digest(document: Mapping[str, Any]) -> str:
    return hashlib.sha256(_text(document)).hexdigest()


def _plain(value: Mapping[str, Any]) -> Any:
    """Return ``value`` as JSON reads it back, so that what was written compares equal."""
    return json.loads(json.dumps(value, sort_keys=True, default=str))


def _remove(path: Path) -> None:
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.exists():
        shutil.rmtree(path)


def _remove_abandoned(path: Path) -> None:
    with suppress(OSError):
        if time.time() - path.lstat().st_mtime > _ABANDONED_S:
            _remove(path)


def _one_line(fault: BaseException) -> str:
    return " ".join(str(fault).split())[:200] or type(fault).__name__
