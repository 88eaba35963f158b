"""Where packs live: space, permissions, two at once, interruptions."""

from __future__ import annotations

import dataclasses
import errno
import itertools
import os
import threading
from pathlib import Path
from typing import Any, NamedTuple

import filelock
import pytest

from npumark.errors import SetupError
from npumark.pack import materialize, recipes, store, verify
from npumark.pack.manifest import Manifest
from npumark.pack.progress import Progress, silent

WEIGHTS = "peak-16x256x3/fp32.weights"


class Usage(NamedTuple):
    total: int
    used: int
    free: int


def test_a_pack_lives_under_home_by_suite_and_hash(manifest: Manifest, home: Path) -> None:
    root = store.pack_root(manifest)
    assert root == home / "cache" / "pack" / f"npumark-open-{manifest.sha256[:16]}"
    assert not root.exists()


@pytest.mark.parametrize("name", ["../../etc", "/etc", "..", "", "a\\b", "x" * 300])
def test_a_suite_name_cannot_lead_elsewhere(manifest: Manifest, name: str) -> None:
    foreign = dataclasses.replace(manifest, suite={"name": name})
    root = store.pack_root(foreign)
    assert root.parent == store.packs_root()
    assert len(root.name) < 100


def test_too_little_space_is_said_before_anything_is_written(
    manifest: Manifest, tiny: tuple[str, ...], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store.shutil, "disk_usage", lambda _: Usage(1, 1, store.SPACE_MARGIN))
    with pytest.raises(SetupError, match=r"are missing") as caught:
        materialize.materialize(manifest, tiny)
    need = sum(manifest.files[path].size for path in tiny)
    assert f"{need / 1e6:.0f} MB are missing" in caught.value.message
    assert str(home) in caught.value.message
    assert not store.pack_root(manifest).exists()


LARGE = "peak-8192x4096x4"


@pytest.mark.parametrize("variant", ["fp32", "int8-u8s8"])
def test_the_large_chain_is_refused_before_anything_is_written(
    manifest: Manifest, variant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = manifest.workloads[LARGE].files(variant)
    free = 100_000_000
    monkeypatch.setattr(store.shutil, "disk_usage", lambda _: Usage(1, 1, free))
    need = sum(manifest.files[path].size for path in set(wanted)) + store.SPACE_MARGIN
    with pytest.raises(SetupError, match="the disk has 100 MB left") as caught:
        verify.ensure(manifest, wanted, memory=1 << 40)
    assert f"{(need - free) / 1e6:.0f} MB are missing" in caught.value.message
    assert caught.value.exit_code == 2
    assert not store.pack_root(manifest).exists()


def test_too_little_memory_for_the_large_chain_is_said_before_anything_is_written(
    manifest: Manifest,
) -> None:
    wanted = manifest.workloads[LARGE].files("int8-u8s8")
    references = recipes.working_bytes(manifest.files[f"{LARGE}/references.f16"])
    beside = recipes.working_bytes(manifest.files[f"{LARGE}/inputs.f32"])
    # Measured: 1.23 GB and 0.34 GB.
    assert 1.23e9 < references < 1.4e9
    assert 0.34e9 < beside < 0.45e9
    with pytest.raises(SetupError, match=r"making .*references.f16 needs") as caught:
        verify.ensure(manifest, wanted, memory=references + beside - 1)
    assert "--workload" in str(caught.value.hint)
    assert not store.pack_root(manifest).exists()


@pytest.mark.parametrize("memory", [None, 1 << 40])
def test_memory_that_suffices_or_is_not_known_stops_nothing(
    manifest: Manifest, tiny: tuple[str, ...], memory: int | None
) -> None:
    assert verify.ensure(manifest, tiny, memory=memory).verified


def test_memory_is_not_asked_for_where_nothing_is_missing(
    manifest: Manifest, root: Path, tiny: tuple[str, ...]
) -> None:
    assert verify.ensure(manifest, tiny, memory=0).verified


def test_every_file_of_the_pack_has_a_bound_on_its_making(manifest: Manifest) -> None:
    made = [file for file in manifest.files.values() if file.origin != "shipped"]
    assert made
    assert all(recipes.working_bytes(file) > 0 for file in made)


def test_space_is_not_asked_for_where_nothing_is_missing(
    manifest: Manifest, root: Path, tiny: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store.shutil, "disk_usage", lambda _: Usage(1, 1, 0))
    assert verify.ensure(manifest, tiny).verified


@pytest.mark.parametrize(
    ("code", "words"), [(errno.ENOSPC, "no space"), (errno.EROFS, "read-only")]
)
def test_a_disk_that_fills_or_refuses_midway_leaves_nothing(
    manifest: Manifest,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    code: int,
    words: str,
) -> None:
    def fail(_: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(store.os, "fsync", fail)
    with pytest.raises(SetupError, match=words):
        materialize.materialize(manifest, [WEIGHTS])
    assert [p for p in store.pack_root(manifest).rglob("*") if p.is_file()] == []


def test_a_read_only_pack_that_is_whole_can_be_read(
    manifest: Manifest, root: Path, tiny: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("nothing may be written")

    monkeypatch.setattr(store, "locked", refuse)
    monkeypatch.setattr(store, "write_file", refuse)
    assert verify.ensure(manifest, tiny).verified


def test_a_read_only_cache_with_work_to_do_is_said_clearly(
    manifest: Manifest, tiny: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr("npumark.paths.tempfile.NamedTemporaryFile", refuse)
    with pytest.raises(SetupError, match="read-only file system") as caught:
        verify.ensure(manifest, tiny)
    assert caught.value.hint
    assert "NPUMARK_HOME" in caught.value.hint


def test_two_at_once_make_each_file_once(
    manifest: Manifest, tiny: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    plain = recipes.make

    def counted(file: Any, source: Any, out: Any) -> None:
        made.append(file.path)
        plain(file, source, out)

    monkeypatch.setattr(recipes, "make", counted)
    faults: list[BaseException] = []

    def work() -> None:
        try:
            materialize.materialize(manifest, tiny)
        except BaseException as fault:  # noqa: BLE001 - handed to the main thread
            faults.append(fault)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults
    assert sorted(made) == sorted(tiny)
    assert verify.verify_files(manifest, store.pack_root(manifest), tiny)


def test_the_holder_is_named_while_waiting_and_when_giving_up(
    manifest: Manifest, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_POLL_S", 0.001)
    root = store.pack_root(manifest)
    root.parent.mkdir(parents=True)
    heard: list[Progress] = []
    clock = itertools.count(0.0, 10.0)
    with (
        store.locked(root, silent),
        pytest.raises(SetupError, match=f"process {os.getpid()}"),
        store.locked(root, heard.append, wait_s=30, clock=lambda: next(clock)),
    ):
        pass
    assert heard
    assert all(p.stage == "wait" and f"process {os.getpid()}" in (p.note or "") for p in heard)
    with store.locked(root, heard.append):
        pass  # free again


def test_a_holder_without_a_name_still_holds(
    manifest: Manifest, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_POLL_S", 0.001)
    root = store.pack_root(manifest)
    root.parent.mkdir(parents=True)
    with (
        filelock.FileLock(root.parent / f"{root.name}.lock"),
        pytest.raises(SetupError, match="another npumark has held"),
        store.locked(root, silent, wait_s=0),
    ):
        pass


def test_leftovers_of_a_killed_writer_are_swept(
    manifest: Manifest, root: Path, tiny: tuple[str, ...]
) -> None:
    left = root / "peak-16x256x3" / ".fp32.weights.abc.tmp"
    left.write_bytes(b"half")
    (root / WEIGHTS).unlink()
    materialize.materialize(manifest, tiny)
    assert not left.exists()


def test_an_interrupt_stops_the_writers_and_leaves_no_half_file(
    manifest: Manifest, home: Path, tiny: tuple[str, ...]
) -> None:
    def interrupt(progress: Progress) -> None:
        if progress.stage == "write":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        materialize.materialize(manifest, tiny, interrupt)
    assert not list(home.rglob("*.tmp"))
    materialize.materialize(manifest, tiny)


def test_progress_ends_at_its_total(manifest: Manifest, tiny: tuple[str, ...]) -> None:
    heard: list[Progress] = []
    materialize.materialize(manifest, tiny, heard.append)
    writes = [p for p in heard if p.stage == "write"]
    assert writes[-1].done == writes[-1].total == sum(manifest.files[p].size for p in tiny)
    assert [p.done for p in writes] == sorted(p.done for p in writes)


def test_only_what_is_missing_is_made(
    manifest: Manifest, root: Path, tiny: tuple[str, ...]
) -> None:
    before = {path: (root / path).stat().st_mtime_ns for path in tiny}
    (root / WEIGHTS).unlink()
    materialize.materialize(manifest, tiny)
    after = {path: (root / path).stat().st_mtime_ns for path in tiny}
    assert {path for path in tiny if before[path] != after[path]} == {WEIGHTS}


def test_the_large_and_extra_tiers_come_only_when_asked_for(manifest: Manifest) -> None:
    usual = {path.partition("/")[0] for path in materialize.default_paths(manifest)}
    tiers = {manifest.workloads[w].tier for w in usual if w in manifest.workloads}
    assert {"peak-512x2048x8", "peak-2048x2048x4"} <= usual
    assert tiers <= {"peak", "scored"}


def test_removing_a_pack_frees_it(manifest: Manifest, root: Path, tiny: tuple[str, ...]) -> None:
    assert store.packs() == (root,)
    assert store.remove(root, silent) == sum(manifest.files[path].size for path in tiny)
    assert store.packs() == ()
    assert store.remove(root, silent) == 0
