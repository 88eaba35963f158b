"""A third party's engine: installed as its users would, found, measured and verified."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "tests" / "sample_plugin"


@pytest.fixture(scope="module")
def interpreter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an environment that holds npumark and, installed by pip, the sample plug-in."""
    place = tmp_path_factory.mktemp("plugin")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place / "env"], check=True)
    python = place / "env" / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    ask = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    site = Path(subprocess.run(ask, check=True, capture_output=True, text=True).stdout.strip())
    # What npumark itself needs is shared with the interpreter that runs the tests.
    shared = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), str(ROOT)}
    (site / "shared.pth").write_text("\n".join(sorted(shared)) + "\n")
    source = shutil.copytree(SAMPLE, place / "source")
    install = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-index"]
    subprocess.run(
        [*install, "--no-deps", "--no-build-isolation", source], check=True, capture_output=True
    )
    return python


def npumark(interpreter: Path, home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "NPUMARK_HOME": str(home)}
    command = [interpreter, "-m", "npumark", *words]
    return subprocess.run(command, capture_output=True, text=True, env=env, check=False)


def engines(interpreter: Path, home: Path) -> dict[str, Any]:
    done = npumark(interpreter, home, "engines", "--json")
    assert done.returncode == 0, done.stderr
    return {e["id"]: e for e in json.loads(done.stdout)["engines"]}


def test_an_installed_plugin_is_listed_beside_the_built_in_engines(
    interpreter: Path, tmp_path: Path
) -> None:
    found = engines(interpreter, tmp_path)
    assert found["numpy-cpu"]["available"]
    assert found["numpy-cpu"]["runtime_title"] == "NumPy"
    assert found["numpy-cpu"]["package"] == "npumark-sample-engine 1.0"
    assert found["ort-cpu"]["package"] is None
    assert found["ort-cpu"]["available"]


def test_it_is_measured_by_the_same_rules_and_its_record_verifies(
    interpreter: Path, tmp_path: Path
) -> None:
    done = npumark(
        interpreter,
        tmp_path,
        *("run", "--quick", "--skip-preconditions", "--json"),
        *("--engine", "numpy-cpu", "--workload", "peak-16x256x3"),
    )
    assert done.returncode == 0, done.stderr
    payload = json.loads(done.stdout)["payload"]
    assert payload["engines"][0]["package"] == "npumark-sample-engine 1.0"
    assert "third_party" in payload["not_comparable_because"]
    assert "third_party" in payload["warnings"]
    (entry,) = payload["entries"]
    assert entry["label"] == "FP32 (third party)"
    assert (entry["engine"], entry["variant"], entry["status"]) == ("numpy-cpu", "fp32", "ok")
    assert entry["figure"]["tops"] > 0
    assert entry["gates"]["standard"]["passed"]
    assert entry["gates"]["standard"]["measures"]["snr_db"] > 70  # the reference is kept in FP16
    assert entry["attempts"][0]["observed"]["threads"] is None  # not told, so not guessed
    checked = npumark(interpreter, tmp_path, "verify", "last")
    assert checked.returncode == 0, checked.stderr


def test_what_it_cannot_run_is_said_to_be_unsupported(interpreter: Path, tmp_path: Path) -> None:
    done = npumark(
        interpreter,
        tmp_path,
        *("run", "--quick", "--skip-preconditions", "--json"),
        *("--engine", "numpy-cpu", "--workload", "granite_embedding_30m"),
    )
    (entry,) = json.loads(done.stdout)["payload"]["entries"]
    assert entry["status"] == "unsupported"
    assert entry["why"] == "NumPy has no operators for networks"
    assert entry["figure"] is None
