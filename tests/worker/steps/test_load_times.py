from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


def run(tiny: Any, folder: Path, *, cold: bool, cache: bool = True) -> Any:
    return tiny.run(
        kind="diagnose",
        probe={"kind": "load_times", "cold": cold},
        samples_path=str(folder / "kept"),
        cache_dir=str(folder / "entry") if cache else "",
        options={"script": str(tiny.root / "script.json"), "cache": True},
    )


@pytest.fixture
def compiling(tiny: Any) -> Any:
    tiny.script(compiles={"bytes": 4096})
    return tiny


def test_a_warm_load_finds_what_the_load_before_it_compiled(compiling: Any, tmp_path: Path) -> None:
    for state in ("built", "reused", "reused"):
        result = run(compiling, tmp_path, cold=False)
        assert (result.status, result.why) == ("ok", None)
        facts = result.probed.facts
        assert (facts["cache"], facts["cache_why"]) == (state, None)
        assert facts["load_ns"] > 0
        assert facts["first_call_ns"] == 1_000_000


def test_a_cold_load_compiles_and_leaves_the_kept_model_alone(
    compiling: Any, tmp_path: Path
) -> None:
    run(compiling, tmp_path, cold=False)
    before = sorted(str(p) for p in (tmp_path / "entry").rglob("*"))
    assert run(compiling, tmp_path, cold=True).probed.facts["cache"] == "built"
    assert sorted(str(p) for p in (tmp_path / "entry").rglob("*")) == before
    assert run(compiling, tmp_path, cold=False).probed.facts["cache"] == "reused"


def test_nothing_stays_of_the_folder_of_a_cold_load(compiling: Any, tmp_path: Path) -> None:
    assert run(compiling, tmp_path, cold=True).status == "ok"
    assert list((tmp_path / "kept").iterdir()) == []


def test_an_engine_that_keeps_nothing_says_so(tiny: Any, tmp_path: Path) -> None:
    assert run(tiny, tmp_path, cold=False, cache=False).probed.facts["cache"] is None


def test_a_cold_folder_that_cannot_be_made_is_named(compiling: Any, tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("a file")
    result = run(compiling, tmp_path, cold=True)
    assert result.status == "crashed"
    assert result.why.startswith("there is no empty folder to compile into")
