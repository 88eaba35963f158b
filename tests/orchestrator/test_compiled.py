"""Compiled models take no more than their share of a disk, and last as long as they are used."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from npumark.engines.model_sidecar import SIDECAR
from npumark.orchestrator.compiled import CompiledModels, clear, prune, root
from npumark.orchestrator.supervisor import Outcome
from npumark.score.planned import Planned
from npumark.worker.protocol import Result, Status

DAY = 24 * 3600
NOW = 1_000 * DAY


def model(folder: Path, name: str, size: int, days_ago: float, *, used: bool = True) -> Path:
    """Leave a compiled model of ``size`` bytes that was last used so long ago."""
    made = folder / name
    (made / "models-1").mkdir(parents=True)
    (made / "models-1" / "a.blob").write_bytes(bytes(size))
    marked = made / "used" if used else made
    if used:
        marked.touch()
    when = NOW - days_ago * DAY
    os.utime(marked, (when, when))
    return made


def left(folder: Path) -> set[str]:
    return {p.name for p in folder.iterdir()}


def prune_to(folder: Path, *keep: Path, max_bytes: int = 1000) -> int:
    return prune(folder, keep, now_s=NOW, max_bytes=max_bytes, max_age_s=60 * DAY)


def test_models_lie_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NPUMARK_HOME", str(tmp_path))
    assert root() == tmp_path / "cache" / "compiled"
    assert prune(root()) == 0
    assert not root().exists()


def test_what_no_run_used_for_long_goes(tmp_path: Path) -> None:
    model(tmp_path, "old", 10, 61)
    model(tmp_path, "unmarked", 10, 61, used=False)
    model(tmp_path, "new", 10, 59)
    assert prune_to(tmp_path) == 20
    assert left(tmp_path) == {"new"}


def test_beyond_the_bound_those_used_longest_ago_go(tmp_path: Path) -> None:
    for days, name in enumerate(("a", "b", "c", "d")):
        model(tmp_path, name, 400, days)
    assert prune_to(tmp_path) == 800
    assert left(tmp_path) == {"a", "b"}


def test_one_that_is_too_large_does_not_take_smaller_ones_with_it(tmp_path: Path) -> None:
    model(tmp_path, "large", 900, 1)
    model(tmp_path, "small", 200, 2)
    model(tmp_path, "new", 200, 0)
    prune_to(tmp_path)
    assert left(tmp_path) == {"new", "small"}


def test_what_the_run_needs_stays_and_counts(tmp_path: Path) -> None:
    kept = model(tmp_path, "kept", 900, 90)
    model(tmp_path, "other", 200, 1)
    assert prune_to(tmp_path, kept) == 200
    assert left(tmp_path) == {"kept"}


def test_strays_go_and_links_are_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "mine").write_text("stays")
    folder = tmp_path / "compiled"
    folder.mkdir()
    (folder / "link").symlink_to(outside, target_is_directory=True)
    (folder / "stray").write_text("x")
    model(folder, "a", 10, 0)
    assert clear(folder) == 11
    assert left(folder) == set()
    assert (outside / "mine").read_text() == "stays"


@pytest.mark.parametrize(("status", "stays"), [("crashed", False), ("interrupted", True)])
def test_what_a_preparation_that_failed_has_sealed_is_found_by_no_attempt(
    tmp_path: Path, status: Status, stays: bool
) -> None:
    """A worker compiles, seals the model, and its first call raises: it answers, and crashed."""
    folder = tmp_path / "entry"

    class Jobs:
        def cache_dir(self, planned: Planned) -> Path:
            return folder

        def prepare(self, planned: Planned, stamps: object, cache: object) -> str:
            return "a job"

    def work(job: object) -> Outcome:
        folder.mkdir()
        (folder / SIDECAR).write_text("{}")
        return Outcome(status, "it fails", Result(status, "it fails"), 0, 0, 1, "")

    planned = Planned("e", "w", "fp16", "fp16", "FP16", "peak", "peak")
    made = CompiledModels(Jobs()).prepare(planned, {}, work)  # type: ignore[arg-type]
    assert (made.status, made.state) == (status, None)
    assert (folder / SIDECAR).exists() is stays
