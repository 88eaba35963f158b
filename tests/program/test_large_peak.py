"""The large-batch peak over the whole command line, with npumark's own pack and a virtual GPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from npumark.cli.app import main
from npumark.pack import store
from npumark.pack.manifest import load_manifest

LARGE = "peak-8192x4096x4"


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NPUMARK_HOME", str(tmp_path / "home"))
    gpu = {
        "id": "virtual-dgpu",
        "variants": ["fp32", "fp16", "int8-u8s8"],
        "processor": {"key": "0000:01:00.0", "role": "dGPU", "name": "Virtual GPU"},
        "latency_us": {"*/*": 4000},
    }
    cpu = {
        "id": "virtual-cpu",
        "variants": ["fp16"],
        "processor": {"key": "cpu", "role": "CPU", "name": "Virtual CPU"},
        "latency_us": {"*/*": 4000},
    }
    path = tmp_path / "engines.json"
    path.write_text(json.dumps({"engines": [gpu, cpu]}))
    return path


def _bytes(variant: str) -> int:
    manifest = load_manifest()
    return sum(manifest.files[f].size for f in set(manifest.workloads[LARGE].files(variant)))


def test_a_dry_run_shows_it_and_its_bytes_and_makes_nothing(
    script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["run", "--dry-run", "--virtual", str(script)]
    assert main(words) == 0
    text = capsys.readouterr().out
    assert f"Large-batch peak\n  {LARGE}\n    virtual-dgpu  fp32, fp16, int8-u8s8\n" in text
    assert main([*words, "--json"]) == 0
    whole = json.loads(capsys.readouterr().out)
    assert main([*words, "--json", "-e", "virtual-cpu"]) == 0
    without = json.loads(capsys.readouterr().out)
    assert {p["engine"] for p in whole["plan"] if p["tier"] == "large"} == {"virtual-dgpu"}
    assert not any(p["tier"] == "large" for p in without["plan"])
    assert whole["missing_bytes"] - without["missing_bytes"] > _bytes("fp32")
    assert not store.pack_root(load_manifest()).exists()


def test_named_it_is_planned_on_a_cpu_with_what_it_reads(
    script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["run", "--dry-run", "--json", "--virtual", str(script), "-e", "virtual-cpu"]
    assert main([*words, "-w", LARGE]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(p["engine"], p["workload"]) for p in found["plan"]] == [("virtual-cpu", LARGE)]
    assert found["estimate"]["pack_bytes"] == found["missing_bytes"] == _bytes("fp16")


def test_asked_for_where_no_gpu_is_it_says_so(
    script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["run", "--dry-run", "--large-peak", "--virtual", str(script), "-e", "virtual-cpu"]
    assert main(words) == 0
    said = capsys.readouterr()
    why = "no engine that was asked for is on a GPU"
    assert f"the large-batch peak is left out: {why}" in said.err
    assert f"Left out\n  The large-batch peak: {why}\n" in said.out
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["large_peak_left_out"] == why
