"""One entry's compiled model on disk, believed only while its bytes are those it was left with.

The folder's name says what the model depends on (contents, runtime, driver, device, options;
orchestrator.jobs). In it lie::

    sidecar.json     which models folder is valid, and what its files are (model_sidecar)
    models-<random>/ the runtime's own files: written by one process, never moved

A models folder counts from the moment its sidecar is renamed into place, so two processes that
compile at once leave the work of one of them, whole. The rules, for every runtime:

- The files are hashed once per run: their stamps travel with the jobs, and files whose stamps
  hold are not hashed again.
- What is changed, missing, added, a link, of another entry or of other settings, or what the
  runtime does not take, is thrown away and compiled again, once.
- What a runtime adds to its files while a session lives is sealed with them at its end. A file
  that was sealed and is another one then was not written by the runtime, but for the few that
  its recipe names: the model is thrown away.
- Where a compiled model cannot be kept (a full disk, a folder that is read-only, a runtime that
  cannot write it) the entry runs without one, and says so.
- Nothing here is ever a reason to run elsewhere.
"""

from __future__ import annotations

import fnmatch
import os
import secrets
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from npumark.engines.base import CacheMemo, LoadRequest
from npumark.engines.model_sidecar import (
    MODELS,
    SIDECAR,
    Link,
    Sidecar,
    as_json,
    hashes_of,
    read_sidecar,
    stamps_of,
)
from npumark.errors import EngineError, Unsupported, WrongDevice
from npumark.worker.protocol import CacheState, CacheUse, Stamp

_T = TypeVar("_T")
_Known = tuple[dict[str, Stamp], dict[str, list[Any]]]

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

    ``adds`` says whether the runtime may write further files while the session lives, and
    ``rewrites`` are patterns of the names of those that it writes again each time.
    """

    load: Callable[[Path | None], _T]
    compile: Callable[[Path], Mapping[str, Any]] | None = None
    reused: Callable[[_T], bool | None] | None = None
    free: Callable[[_T], object] = lambda _: None
    adds: bool = True
    rewrites: tuple[str, ...] = ()


class ModelCache:
    """The compiled model under ``folder``.

    ``settings`` are what the engine compiles with (JSON values): a model made with others, or
    sealed for another folder, is not believed. ``alone`` promises that no other process uses the
    folder meanwhile: what lies there and is not the model goes at once.
    """

    def __init__(
        self,
        folder: Path,
        memo: CacheMemo | None = None,
        settings: Mapping[str, Any] | None = None,
        *,
        alone: bool = False,
    ) -> None:
        self._folder = folder
        self._alone = alone
        self._memo = CacheMemo() if memo is None else memo
        self._settings = dict(settings or {})
        self._models: Path | None = None
        self._sealed: Mapping[str, list[Any]] = {}
        self._adds, self._rewrites = True, tuple[str, ...]()
        self.facts: dict[str, Any] = {}
        self.use: CacheUse | None = None

    def open(self, recipe: Recipe[_T]) -> _T:
        """Return a session of the verified model, compiled first where there is none.

        Whatever a compiled model is refused with, it is compiled again: what it says then is of
        the file and not of the graph. Raises what the runtime raises where the graph itself
        cannot be compiled or loaded.
        """
        self._adds, self._rewrites = recipe.adds, recipe.rewrites
        why = self._fault()
        if why is None:
            try:
                made = recipe.load(self._models)
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
        """Seal what the runtime added to its files while the session lived, or at its end; throw
        the model away where it is no longer what was sealed.

        Call it once the session is closed; the worker does it for every engine as it ends.
        """
        if self._models is None or self.use is None or self.use.state == "unkept":
            return
        try:
            stamps = self._stamps()
            if stamps == self._memo.stamps:
                return
            if not self._is_ours():
                return  # another process sealed its own model meanwhile, which counts
            found = hashes_of(self._folder, stamps)
            why = self._spoilt(found)
            if why is None:
                self._seal((stamps, found))
                return
        except Link as fault:
            why = str(fault)
        except OSError as fault:
            # The old sidecar no longer fits: the next process compiles again.
            print(f"the compiled model cannot be sealed: {fault}", file=sys.stderr)
            return
        print(f"the compiled model is thrown away: {why}", file=sys.stderr)
        self._abandon()

    def _is_ours(self) -> bool:
        """Say whether the sidecar names our models folder, or nothing that can be read."""
        try:
            named = read_sidecar(self._folder / SIDECAR).models
        except (Link, OSError, *_DAMAGED):
            return True
        return self._models is not None and named == self._models.name

    def _spoilt(self, found: Mapping[str, list[Any]]) -> str | None:
        """Return why files that a session leaves cannot be sealed, or null."""
        for name in sorted({*found, *self._sealed}):
            plain = name.partition("/")[2]
            if name not in self._sealed:
                if not self._adds:
                    return f"{plain} was added while it was in use"
            elif found.get(name) != self._sealed[name] and not any(
                fnmatch.fnmatchcase(plain, pattern) for pattern in self._rewrites
            ):
                return f"{plain} was changed while it was in use"
        return None

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
        self._models, self._sealed = None, {}
        self._memo.stamps.clear()

    def _sweep(self) -> None:
        """Remove what processes that died while compiling, or lost their sidecar, left behind."""
        with suppress(OSError):
            for path in self._folder.iterdir():
                if path.name.startswith((MODELS, f"{SIDECAR}.")) and path != self._models:
                    self._remove_abandoned(path)

    def _build(self, recipe: Recipe[_T], why: str) -> _T:
        began = time.perf_counter_ns()
        self.facts = {}
        try:
            self.discard()
            self._models = self._folder / f"{MODELS}{secrets.token_hex(8)}"
            self._models.mkdir(parents=True)
        except OSError as fault:
            return self._unkept(recipe, _cannot(fault))
        compiled: int | None = None
        try:
            if recipe.compile is not None:
                self.facts = dict(recipe.compile(self._models))
                compiled = time.perf_counter_ns()
            made = recipe.load(self._models)
        except Exception as fault:
            self._abandon()
            if compiled is None and isinstance(fault, (Unsupported, WrongDevice)):
                raise  # it is said of the graph itself
            try:
                # The graph may still run without a compiled model.
                return self._unkept(recipe, f"the runtime cannot keep it: {_one_line(fault)}")
            except Exception:
                if compiled is not None:
                    raise
                raise fault from None  # the graph is at fault: the first reason counts
        took = (compiled or time.perf_counter_ns()) - began
        try:
            if not self._stamps():
                self._abandon()
                self._used("unkept", None, "the runtime wrote no compiled model")
                return made
            self._seal()
        except (OSError, Link) as fault:
            self._abandon()
            self._used("unkept", None, _cannot(fault))
            return made
        self._used("rebuilt" if why else "built", took, why or None)
        return made

    def _unkept(self, recipe: Recipe[_T], why: str) -> _T:
        made = recipe.load(None)
        self._models, self.facts = None, {}
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
            if self._folder.is_symlink():
                return "its folder is a link"
            sealed = read_sidecar(self._folder / SIDECAR)
            models = self._folder / sealed.models
            if models.parent != self._folder or not sealed.models.startswith(MODELS):
                return "its sidecar names a place outside its folder"
            self._models = models
            if sealed.entry != self._folder.name:
                return "it was compiled for another entry"
            if sealed.settings != as_json(self._settings):
                return "it was compiled with other settings"
            stamps = self._stamps()
            if set(stamps) - {SIDECAR} != set(sealed.files):
                return "a file of it was added or lost"
            if stamps != self._memo.stamps:
                found = hashes_of(self._folder, stamps)
                if found != sealed.files:
                    changed = sorted(n for n in found if found[n] != sealed.files.get(n))
                    return f"{changed[0].partition('/')[2]} is not what was compiled"
                if self._stamps() != stamps:
                    return "it changed while it was read"
                self._memo.stamps.clear()
                self._memo.stamps.update(stamps)
            self._sealed = dict(sealed.files)
            self.facts = dict(sealed.facts)
        except Link as fault:
            return str(fault)
        except OSError as fault:
            return f"it cannot be read: {fault.strerror or fault}"
        except _DAMAGED:
            return "its sidecar is damaged"
        return None

    def _stamps(self) -> dict[str, Stamp]:
        """Return the stamp of every file of the model, and of the sidecar where there is one."""
        return {} if self._models is None else stamps_of(self._models, self._folder)

    def _seal(self, known: _Known | None = None) -> None:
        """Say that the model is what lies there; ``known`` are its files' stamps and hashes where
        they were looked at before."""
        if self._models is None:
            raise EngineError("there is no compiled model to seal")
        stamps = self._stamps() if known is None else known[0]
        self._sealed = hashes_of(self._folder, stamps) if known is None else known[1]
        Sidecar(
            entry=self._folder.name,
            models=self._models.name,
            settings=self._settings,
            facts=self.facts,
            files=self._sealed,
        ).write(self._folder)
        # Those of before: what changes between hashing and now is to be hashed again.
        self._memo.stamps.clear()
        self._memo.stamps.update(stamps | {SIDECAR: self._stamps()[SIDECAR]})

    def _remove_abandoned(self, path: Path) -> None:
        with suppress(OSError):
            if self._alone or time.time() - path.lstat().st_mtime > _ABANDONED_S:
                _remove(path)


def model_cache(request: LoadRequest, settings: Mapping[str, Any]) -> ModelCache | None:
    """Return the cache of a request's compiled model; None where it keeps none.

    An entry is prepared under the measuring lock, so that its folder is this worker's alone.
    """
    if request.cache_dir is None or not request.options.get("cache"):
        return None
    alone = request.preparing
    return ModelCache(request.cache_dir, request.cache_memo, settings, alone=alone)


_NONE = "none"
_DAMAGED = (ValueError, KeyError, TypeError, AttributeError, RecursionError)
"""What reading a sidecar raises where it is not what was written."""


def _cannot(fault: Exception) -> str:
    return f"it cannot be written: {getattr(fault, 'strerror', None) or fault}"


def _remove(path: Path) -> None:
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.exists():
        shutil.rmtree(path)


def _one_line(fault: BaseException) -> str:
    return " ".join(str(fault).split())[:200] or type(fault).__name__
