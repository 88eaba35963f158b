from __future__ import annotations

from pathlib import Path

import pytest

from npumark.cli import complete
from npumark.orchestrator.environments import MARK
from npumark.pack.manifest import load_manifest


def test_variants_are_those_of_the_pack_and_those_that_engines_derive() -> None:
    packed = {v.id for w in load_manifest().workloads.values() for v in w.variants}
    assert set(complete.variants("")) == {*packed, "bf16"}
    assert complete.variants("bf") == ["bf16"]


def test_engines_and_environments_are_those_of_the_catalogue() -> None:
    assert {"ort-cpu", "openvino-npu", "ort-qnn-npu"} <= set(complete.engines(""))
    assert complete.engines("ort-qn") == ["ort-qnn-npu"]
    assert complete.environments("qn") == ["qnn"]
    assert complete.environments("no-such") == []


def test_only_what_can_be_installed_here_is_completed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("npumark.engines.platforms.here", lambda: "linux-x86_64")
    assert "cuda" in complete.environments("")
    assert complete.environments("directml") == []
    monkeypatch.setattr("npumark.engines.platforms.here", lambda: "windows-amd64")
    assert complete.environments("directml") == ["directml"]


def test_only_what_is_installed_is_completed_for_removal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NPUMARK_ENGINES", str(tmp_path / "engines"))
    assert complete.installed("") == []
    for name in ("qnn", "users-own", ".making-ggml.1"):
        (tmp_path / "engines" / name).mkdir(parents=True)
    (tmp_path / "engines" / "qnn" / MARK).touch()
    assert complete.installed("") == ["qnn"]
    assert complete.installed("m") == []
