"""Joining the parts of the manifest, and the check that nothing drifted."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from npumark.pack.manifest import parse_manifest
from npumark.policy import DATA
from tool import build_pack


def _part(path: str = "a/x", sha256: str = "0" * 64, workload: str = "") -> dict[str, object]:
    files = [{"path": path, "size": 1, "sha256": sha256, "origin": "shipped"}]
    workloads = [{"id": workload, "variants": [{"id": "fp32"}]}] if workload else []
    return {"files": files, "workloads": workloads}


def _added(workload: str, *ids: str) -> dict[str, object]:
    return {"files": [], "variants": {workload: [{"id": name} for name in ids]}}


def test_files_are_sorted_and_shared_ones_kept_once() -> None:
    doc = json.loads(build_pack.merged([_part("b/y"), _part("a/x"), _part("a/x")]))
    assert [f["path"] for f in doc["files"]] == ["a/x", "b/y"]
    assert doc["suite"]["name"] == "npumark-open"


def test_parts_that_disagree_are_refused() -> None:
    with pytest.raises(ValueError, match="disagree about a/x"):
        build_pack.merged([_part(), _part(sha256="1" * 64)])
    with pytest.raises(ValueError, match="define w"):
        build_pack.merged([_part(workload="w"), _part(workload="w")])


def test_a_part_adds_variants_behind_those_before_it() -> None:
    part = _part(workload="w")
    doc = json.loads(build_pack.merged([part, _added("w", "b", "a"), _added("w", "c")]))
    assert [v["id"] for v in doc["workloads"][0]["variants"]] == ["fp32", "b", "a", "c"]
    assert part["workloads"] == [{"id": "w", "variants": [{"id": "fp32"}]}], "a part is left alone"


def test_a_variant_twice_or_of_no_workload_is_refused() -> None:
    with pytest.raises(ValueError, match="define w/fp32"):
        build_pack.merged([_part(workload="w"), _added("w", "fp32")])
    with pytest.raises(ValueError, match="define w/a"):
        build_pack.merged([_part(workload="w"), _added("w", "a", "a")])
    with pytest.raises(ValueError, match="adds variants to v, which none"):
        build_pack.merged([_part(workload="w"), _added("v", "a")])


def test_a_stale_or_missing_shipped_file_is_named(tmp_path: Path) -> None:
    raw = build_pack.merged([_part()])
    assert build_pack.stale_shipped(raw, tmp_path) == ["a/x"]
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x").write_text("other")
    assert build_pack.stale_shipped(raw, tmp_path) == ["a/x"]


def test_every_shipped_file_is_in_the_manifest() -> None:
    listed = set(parse_manifest((DATA / "manifest.json").read_bytes()).files)
    found = {
        p.relative_to(DATA / "pack").as_posix() for p in (DATA / "pack").rglob("*") if p.is_file()
    }
    assert found <= listed


def test_unknown_arguments_are_refused() -> None:
    with pytest.raises(SystemExit):
        build_pack.main(["merge", "--wrong"])


@pytest.mark.parametrize("part", build_pack.FORMATS)
def test_every_part_has_what_builds_it(part: str) -> None:
    assert find_spec(f"workloads.{part}_build") is not None
    assert build_pack.part_path(part).is_file()
