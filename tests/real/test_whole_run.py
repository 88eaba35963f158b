"""A whole run of an engine that lives in an environment of its own: what its record says of it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from npumark.orchestrator.environments import standing
from npumark.pack.manifest import load_manifest
from npumark.policy import load_policy
from npumark.record.files import read_record
from npumark.score.recompute import recompute

CHAIN = "peak-16x256x3"


@pytest.fixture
def npumark(
    tmp_path: Path, engine_environment: Callable[[str], str]
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a caller of the command line with a home of its own, beside the installed engines."""
    folder = Path(engine_environment("ggml")).parents[2]

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "npumark", *words],
            env={
                **os.environ,
                "NPUMARK_HOME": str(tmp_path / "home"),
                "NPUMARK_ENGINES": str(folder),
            },
            capture_output=True,
            text=True,
            check=False,
        )

    return call


def test_a_record_holds_the_environment_that_was_measured(
    npumark: Callable[..., subprocess.CompletedProcess[str]],
    tmp_path: Path,
    engine_environment: Callable[[str], str],
) -> None:
    out = tmp_path / "record.json"
    # fmt: off
    done = npumark(
        "run", "--quick", "--engine", "ort-ggml-cpu", "--workload", CHAIN, "--variant", "fp32",
        "--skip-preconditions", "--out", str(out),
    )
    # fmt: on
    assert done.returncode == 0, done.stderr
    payload = read_record(out).payload
    assert recompute(payload, load_manifest(), load_policy()) == []
    (engine,) = payload.engines
    whole = standing("ggml", Path(engine_environment("ggml")).parents[2]).installed
    assert whole is not None
    assert engine.environment is not None
    assert engine.environment.name == "ggml"
    assert engine.environment.packages == whole.packages
    assert engine.environment.sha256 == whole.sha256
    (entry,) = payload.entries
    assert entry.status == "ok", entry.why
    observed = entry.attempts[0].observed
    assert observed is not None
    # What ran is the environment's runtime, not the one beside npumark.
    assert observed.version == engine.environment.packages["onnxruntime"]
    assert str(whole.folder) not in out.read_text(encoding="utf-8")
