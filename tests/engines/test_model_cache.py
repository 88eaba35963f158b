"""A compiled model is believed while it is what was sealed, and made again, once, where not."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from npumark.engines.base import CacheMemo
from npumark.engines.model_cache import ModelCache, Recipe
from npumark.engines.model_sidecar import SIDECAR, hashes_of
from npumark.errors import EngineError, Unsupported, WrongDevice

MODEL = b"a compiled model"
BLOB = "a.blob"
AS_ROOT = sys.platform != "win32" and os.geteuid() == 0


@dataclass
class Runtime:
    """Compiles into a folder and loads from it; ``refusals`` fail as often as they say."""

    refusals: int = 0
    refusal: Exception = field(default_factory=lambda: RuntimeError("cannot import\nthe model"))
    writes: bool = True
    compiled: int = 0
    loads: list[str] = field(default_factory=list)
    freed: int = 0
    deaf: bool = False
    full: bool = False

    def recipe(self, **more: Any) -> Recipe[bytes]:
        return Recipe(self.load, **{"compile": self.compile, **more})

    def compile(self, folder: Path) -> Mapping[str, Any]:
        if self.full:
            raise OSError(28, "No space left on device")
        self.compiled += 1
        if self.writes:
            (folder / BLOB).write_bytes(MODEL)
            (folder / "more").mkdir()
            (folder / "more" / "b.bin").write_bytes(b"weights!" * 2)
        return {"partitions": 2}

    def load(self, folder: Path | None) -> bytes:
        self.loads.append("graph" if folder is None else "model")
        if folder is None:
            return b"the graph"
        if self.refusals:
            self.refusals -= 1
            raise self.refusal
        return (folder / BLOB).read_bytes() if self.writes else b""

    def lazy(self, folder: Path | None) -> bytes:
        """Load the way of a runtime that compiles while it loads."""
        if folder is not None and not (folder / BLOB).exists():
            self.compiled += 1
            (folder / BLOB).write_bytes(MODEL)
        return self.load(folder)


def state(cache: ModelCache) -> str:
    assert cache.use is not None
    return cache.use.state


def sealed(folder: Path) -> Runtime:
    """Leave a compiled model in ``folder``."""
    runtime = Runtime()
    cache = ModelCache(folder, settings={"threads": 2})
    assert cache.open(runtime.recipe()) == MODEL
    assert state(cache) == "built"
    return runtime


def reopened(folder: Path, runtime: Runtime | None = None) -> tuple[ModelCache, Runtime]:
    runtime = runtime or Runtime()
    cache = ModelCache(folder, settings={"threads": 2})
    assert cache.open(runtime.recipe()) == MODEL
    return cache, runtime


def blob_of(folder: Path) -> Path:
    (found,) = folder.glob(f"models-*/{BLOB}")
    return found


def test_a_sealed_model_is_used_again_with_what_compiling_told(tmp_path: Path) -> None:
    sealed(tmp_path / "e")
    for _ in range(2):
        cache, runtime = reopened(tmp_path / "e")
        assert (runtime.compiled, runtime.loads, state(cache)) == (0, ["model"], "reused")
        assert cache.facts == {"partitions": 2}
        assert cache.use is not None
        assert cache.use.bytes == len(MODEL) + 16
        assert cache.use.compile_ns is None


def test_compiling_is_timed_apart_from_loading(tmp_path: Path) -> None:
    cache = ModelCache(tmp_path / "e")
    cache.open(Runtime().recipe())
    assert cache.use is not None
    assert cache.use.compile_ns is not None
    assert cache.use.compile_ns > 0
    assert cache.use.why is None


def _swap(folder: Path) -> None:
    one, two = blob_of(folder), blob_of(folder).with_name("more") / "b.bin"
    first, second = one.read_bytes(), two.read_bytes()
    assert len(first) == len(second)
    one.write_bytes(second)
    two.write_bytes(first)


def _link_out(folder: Path) -> None:
    blob = blob_of(folder)
    outside = folder.parent / "outside"
    outside.write_bytes(blob.read_bytes())
    blob.unlink()
    blob.symlink_to(outside)


def _link_folder(folder: Path) -> None:
    models = blob_of(folder).parent
    moved = models.rename(folder.parent / "elsewhere")
    models.symlink_to(moved, target_is_directory=True)


def _other_entry(folder: Path) -> None:
    other = folder.with_name("other")
    sealed(other)
    shutil.rmtree(folder)
    shutil.copytree(other, folder)


def _other_version(folder: Path) -> None:
    text = (folder / SIDECAR).read_text()
    (folder / SIDECAR).write_text(text.replace("npumark-compiled/1", "npumark-compiled/0"))


def _outside(folder: Path) -> None:
    text = (folder / SIDECAR).read_text()
    name = blob_of(folder).parent.name
    (folder / SIDECAR).write_text(text.replace(f'"{name}"', '"../models-x"'))


DAMAGE: dict[str, Callable[[Path], object]] = {
    "a byte changed": lambda f: blob_of(f).write_bytes(MODEL.replace(b"a", b"A", 1)),
    "truncated": lambda f: blob_of(f).write_bytes(MODEL[:-1]),
    "emptied": lambda f: blob_of(f).write_bytes(b""),
    "removed": lambda f: blob_of(f).unlink(),
    "a file added": lambda f: blob_of(f).with_name("b.blob").write_bytes(b""),
    "two files of one size swapped": _swap,
    "a link out": _link_out,
    "the folder a link out": _link_folder,
    "of another entry": _other_entry,
    "its folder lost": lambda f: shutil.rmtree(blob_of(f).parent),
    "its sidecar garbled": lambda f: (f / SIDECAR).write_text("["),
    "its sidecar a list": lambda f: (f / SIDECAR).write_text("[]"),
    "its sidecar not text": lambda f: (f / SIDECAR).write_bytes(b"\xff\xfe\x00"),
    "its sidecar deep": lambda f: (f / SIDECAR).write_text("[" * 100_000),
    "its sidecar of another version": _other_version,
    "its sidecar names another place": _outside,
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_compiles_again_once_and_says_why(tmp_path: Path, damage: str) -> None:
    folder = tmp_path / "e"
    sealed(folder)
    DAMAGE[damage](folder)
    cache, runtime = reopened(folder)
    assert (runtime.compiled, runtime.loads, state(cache)) == (1, ["model"], "rebuilt")
    assert cache.use is not None
    assert cache.use.why
    again, runtime = reopened(folder)
    assert (runtime.compiled, state(again)) == (0, "reused")


def test_a_lost_sidecar_compiles_again(tmp_path: Path) -> None:
    sealed(tmp_path / "e")
    (tmp_path / "e" / SIDECAR).unlink()
    cache, runtime = reopened(tmp_path / "e")
    assert (runtime.compiled, state(cache)) == (1, "built")


def test_other_settings_compile_again(tmp_path: Path) -> None:
    sealed(tmp_path / "e")
    runtime = Runtime()
    cache = ModelCache(tmp_path / "e", settings={"threads": 3})
    cache.open(runtime.recipe())
    assert (runtime.compiled, state(cache)) == (1, "rebuilt")


def test_every_byte_of_a_sidecar_counts(tmp_path: Path) -> None:
    folder = tmp_path / "e"
    sealed(folder)
    good = (folder / SIDECAR).read_bytes()
    for place in range(len(good)):
        bad = bytearray(good)
        bad[place] ^= 0x29 if good[place : place + 1] == b" " else 0x01  # a tab for a blank
        (folder / SIDECAR).write_bytes(bad)
        assert not ModelCache(folder, settings={"threads": 2}).intact(), place
    (folder / SIDECAR).write_bytes(good)
    assert ModelCache(folder, settings={"threads": 2}).intact()


def test_files_whose_stamps_hold_are_hashed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "e"
    memo = CacheMemo()
    ModelCache(folder, memo).open(Runtime().recipe())
    hashed: list[str] = []
    hashes = hashes_of

    def counting(base: Path, stamps: Mapping[str, Any]) -> dict[str, list[Any]]:
        hashed.extend(stamps)
        return hashes(base, stamps)

    monkeypatch.setattr("npumark.engines.model_cache.hashes_of", counting)
    carried = CacheMemo(dict(memo.stamps))
    ModelCache(folder, carried).open(Runtime().recipe())
    assert hashed == []
    fresh = CacheMemo()
    ModelCache(folder, fresh).open(Runtime().recipe())
    assert len(hashed) == 3
    assert fresh.stamps == memo.stamps
    os.utime(blob_of(folder), ns=(1, 1))
    ModelCache(folder, carried).open(Runtime().recipe())
    assert len(hashed) == 6


def test_the_first_session_is_what_is_told(tmp_path: Path) -> None:
    memo = CacheMemo()
    for _ in range(2):
        ModelCache(tmp_path / "e", memo).open(Runtime().recipe())
    assert memo.use is not None
    assert memo.use.state == "built"


def test_a_model_that_the_runtime_refuses_is_compiled_again_once(tmp_path: Path) -> None:
    sealed(tmp_path / "e")
    cache, runtime = reopened(tmp_path / "e", Runtime(refusals=1))
    assert (runtime.compiled, runtime.loads, state(cache)) == (1, ["model"] * 2, "rebuilt")
    assert cache.use is not None
    assert cache.use.why == "the runtime refused it: cannot import the model"


def test_a_model_that_was_not_taken_is_compiled_again_once(tmp_path: Path) -> None:
    sealed(tmp_path / "e")
    runtime, answers = Runtime(), [False, True]

    def free(_: bytes) -> None:
        runtime.freed += 1

    cache = ModelCache(tmp_path / "e", settings={"threads": 2})
    cache.open(runtime.recipe(reused=lambda _: answers.pop(0), free=free))
    assert (runtime.compiled, runtime.freed, state(cache)) == (1, 1, "rebuilt")
    assert answers == [True]


def test_a_runtime_that_compiles_while_it_loads(tmp_path: Path) -> None:
    runtime = Runtime()
    recipe = Recipe(runtime.lazy)
    first = ModelCache(tmp_path / "e")
    assert first.open(recipe) == MODEL
    again = ModelCache(tmp_path / "e")
    assert again.open(recipe) == MODEL
    assert (runtime.compiled, state(first), state(again)) == (1, "built", "reused")
    assert first.use is not None
    assert first.use.compile_ns is not None


def test_what_a_runtime_adds_while_it_runs_is_sealed_at_the_end(tmp_path: Path) -> None:
    folder = tmp_path / "e"
    sealed(folder)
    cache, _ = reopened(folder)
    blob_of(folder).with_name("kernels.bin").write_bytes(b"more")
    cache.settle()
    again, runtime = reopened(folder)
    assert (runtime.compiled, state(again)) == (0, "reused")
    again.settle()
    # Without that, another's file is damage.
    blob_of(folder).with_name("kernels.bin").write_bytes(b"less")
    assert state(reopened(folder)[0]) == "rebuilt"


def used(folder: Path, **more: Any) -> ModelCache:
    """Return the cache of a session that lives: its model was there and was loaded."""
    cache = ModelCache(folder, settings={"threads": 2})
    assert cache.open(Runtime().recipe(**more)) == MODEL
    assert state(cache) == "reused"
    return cache


DURING: dict[str, Callable[[Path], object]] = {
    "a byte changed": DAMAGE["a byte changed"],
    "truncated": DAMAGE["truncated"],
    "two files of one size swapped": _swap,
    "a link out": _link_out,
    "a file lost": lambda f: blob_of(f).unlink(),
}


@pytest.mark.parametrize("damage", DURING)
def test_what_is_damaged_while_it_is_in_use_is_never_sealed(tmp_path: Path, damage: str) -> None:
    folder = tmp_path / "e"
    sealed(folder)
    cache = used(folder)
    DURING[damage](folder)
    cache.settle()
    assert list(folder.iterdir()) == []
    again, runtime = reopened(folder)
    assert (runtime.compiled, state(again)) == (1, "built")


def test_what_is_damaged_after_it_was_compiled_is_never_sealed(tmp_path: Path) -> None:
    """In the very session that compiled it: a child of the runtime that wrote on, or a disk."""
    folder = tmp_path / "e"
    cache = ModelCache(folder, settings={"threads": 2})
    cache.open(Runtime().recipe())
    DAMAGE["a byte changed"](folder)
    cache.settle()
    assert state(reopened(folder)[0]) == "built"


def test_every_byte_of_a_model_in_use_counts(tmp_path: Path) -> None:
    folder = tmp_path / "e"
    for place in range(len(MODEL)):
        sealed(folder)
        cache = used(folder)
        bad = bytearray(MODEL)
        bad[place] ^= 0x01
        blob_of(folder).write_bytes(bad)
        cache.settle()
        assert not ModelCache(folder, settings={"threads": 2}).intact(), place
        assert list(folder.iterdir()) == []


def test_the_files_that_a_runtime_writes_again_are_sealed_anew_and_no_others(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "e"
    sealed(folder)
    rewrites = ("*/b.bin",)
    cache = used(folder, rewrites=rewrites)
    (blob_of(folder).with_name("more") / "b.bin").write_bytes(b"kernels, timed")
    cache.settle()
    cache = used(folder, rewrites=rewrites)
    DAMAGE["a byte changed"](folder)
    cache.settle()
    assert list(folder.iterdir()) == []


def test_nothing_is_added_to_a_model_that_is_whole_when_it_is_compiled(tmp_path: Path) -> None:
    folder = tmp_path / "e"
    sealed(folder)
    cache = used(folder, adds=False)
    blob_of(folder).with_name("kernels.bin").write_bytes(b"more")
    cache.settle()
    assert list(folder.iterdir()) == []


def test_a_sidecar_changed_while_its_model_is_in_use_is_written_again(tmp_path: Path) -> None:
    folder = tmp_path / "e"
    sealed(folder)
    good = (folder / SIDECAR).read_bytes()
    cache = used(folder)
    (folder / SIDECAR).write_bytes(b"{")
    cache.settle()
    assert (folder / SIDECAR).read_bytes() == good


def test_a_model_that_another_process_sealed_meanwhile_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "e"
    sealed(folder)
    cache = used(folder)
    other = ModelCache(folder, settings={"threads": 3})
    other.open(Runtime().recipe())
    cache.settle()
    assert ModelCache(folder, settings={"threads": 3}).intact()


REFUSALS = (
    RuntimeError("cannot import it"),
    EngineError("it is not compatible"),
    Unsupported("no kernel for the node of a compiled model"),
    WrongDevice("nothing takes the node of a compiled model"),
    MemoryError(),
)


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda fault: type(fault).__name__)
def test_whatever_a_compiled_model_is_refused_with_it_is_compiled_again_once(
    tmp_path: Path, refusal: Exception
) -> None:
    sealed(tmp_path / "e")
    cache, runtime = reopened(tmp_path / "e", Runtime(refusals=1, refusal=refusal))
    assert (runtime.compiled, runtime.loads, state(cache)) == (1, ["model"] * 2, "rebuilt")
    cache, runtime = reopened(tmp_path / "e")
    assert (runtime.compiled, state(cache)) == (0, "reused")


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda fault: type(fault).__name__)
def test_one_that_is_refused_as_it_was_compiled_runs_from_the_graph(
    tmp_path: Path, refusal: Exception
) -> None:
    sealed(tmp_path / "e")
    runtime = Runtime(refusals=9, refusal=refusal)
    cache = ModelCache(tmp_path / "e", settings={"threads": 2})
    assert cache.open(runtime.recipe()) == b"the graph"
    assert (runtime.compiled, runtime.loads) == (1, ["model", "model", "graph"])
    assert (state(cache), cache.facts) == ("unkept", {})
    assert list((tmp_path / "e").iterdir()) == []


@pytest.mark.parametrize("kind", [Unsupported, WrongDevice])
def test_what_compiling_itself_is_refused_with_is_said(
    tmp_path: Path, kind: type[EngineError]
) -> None:
    def refuse(folder: Path | None) -> Any:
        del folder
        raise kind("of the graph")

    runtime = Runtime()
    for recipe in (Recipe(runtime.load, compile=refuse), Recipe(refuse)):
        with pytest.raises(kind, match="of the graph"):
            ModelCache(tmp_path / "e").open(recipe)
        assert runtime.loads == []
        assert list((tmp_path / "e").iterdir()) == []


def test_a_graph_that_compiles_and_loads_nowhere_fails_with_its_own_reason(tmp_path: Path) -> None:
    def load(folder: Path | None) -> bytes:
        raise WrongDevice("from the graph" if folder is None else "from the model")

    with pytest.raises(WrongDevice, match="from the graph"):
        ModelCache(tmp_path / "e").open(Recipe(load, compile=Runtime().compile))
    assert list((tmp_path / "e").iterdir()) == []


def test_a_graph_that_does_not_compile_fails_with_its_first_reason(tmp_path: Path) -> None:
    def load(folder: Path | None) -> bytes:
        raise RuntimeError("from the graph" if folder is None else "from the cache")

    with pytest.raises(RuntimeError, match="from the cache"):
        ModelCache(tmp_path / "e").open(Recipe(load))
    assert list((tmp_path / "e").iterdir()) == []


@pytest.mark.parametrize(
    ("runtime", "why"),
    [
        (Runtime(writes=False), "the runtime wrote no compiled model"),
        (Runtime(refusals=9), "the runtime cannot keep it: cannot import the model"),
        (Runtime(full=True), "the runtime cannot keep it: [Errno 28] No space left on device"),
    ],
)
def test_what_cannot_be_kept_runs_from_the_graph_and_says_so(
    tmp_path: Path, runtime: Runtime, why: str
) -> None:
    cache = ModelCache(tmp_path / "e")
    made = cache.open(runtime.recipe())
    assert made == (b"the graph" if runtime.writes else b"")
    assert (state(cache), cache.reused) == ("unkept", False)
    assert cache.use is not None
    assert (cache.use.why, cache.use.bytes) == (why, None)
    assert list((tmp_path / "e").iterdir()) == []
    cache.settle()
    assert list((tmp_path / "e").iterdir()) == []


def test_a_full_disk_when_sealing_keeps_the_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    cache = ModelCache(tmp_path / "e")
    assert cache.open(Runtime().recipe()) == MODEL
    assert cache.use is not None
    assert cache.use.why == "it cannot be written: No space left on device"
    assert list((tmp_path / "e").iterdir()) == []


def test_a_place_that_cannot_be_a_folder_runs_from_the_graph(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    cache = ModelCache(tmp_path / "file" / "e")
    assert cache.open(Runtime().recipe()) == b"the graph"
    assert state(cache) == "unkept"


@pytest.mark.skipif(AS_ROOT or sys.platform == "win32", reason="permissions do not bind this user")
def test_a_read_only_folder_still_loads_what_is_in_it(tmp_path: Path) -> None:
    folder = tmp_path / "e"
    sealed(folder)
    folder.chmod(0o500)
    try:
        assert state(reopened(folder)[0]) == "reused"
        blob_of(folder).write_bytes(b"damaged")
        cache = ModelCache(folder, settings={"threads": 2})
        assert cache.open(Runtime().recipe()) == b"the graph"
        assert state(cache) == "unkept"
    finally:
        folder.chmod(0o700)


def test_two_that_compile_at_once_leave_the_work_of_one_whole(tmp_path: Path) -> None:
    folder = tmp_path / "e"
    inner = Runtime()

    def compile_twice(models: Path) -> Mapping[str, Any]:
        told = outer.compile(models)
        reopened(folder, inner)  # another process, from start to end, in between
        return told

    outer = Runtime()
    cache = ModelCache(folder, settings={"threads": 2})
    assert cache.open(outer.recipe(compile=compile_twice)) == MODEL
    assert (outer.compiled, inner.compiled) == (1, 1)
    last, runtime = reopened(folder)
    assert (runtime.compiled, state(last)) == (0, "reused")


def test_what_a_killed_compiler_left_goes_after_a_day(tmp_path: Path) -> None:
    folder = tmp_path / "e"
    (folder / "models-old").mkdir(parents=True)
    (folder / "models-new").mkdir()
    os.utime(folder / "models-old", (0, 0))
    sealed(folder)
    assert sorted(p.name for p in folder.glob("models-[no]*")) == ["models-new"]


@pytest.mark.parametrize("text", ["{}", "", "[" * 100_000])
def test_a_damaged_sidecar_leaves_no_models_folder_behind(tmp_path: Path, text: str) -> None:
    folder = tmp_path / "e"
    sealed(folder)
    (folder / "models-of-a-killed-worker").mkdir()
    (folder / SIDECAR).write_text(text)
    cache = ModelCache(folder, settings={"threads": 2}, alone=True)
    assert cache.open(Runtime().recipe()) == MODEL
    assert len(list(folder.glob("models-*"))) == 1
    # One that shares the folder leaves what may be another's work.
    (folder / SIDECAR).write_text(text)
    assert ModelCache(folder).open(Runtime().recipe()) == MODEL
    assert len(list(folder.glob("models-*"))) == 2
