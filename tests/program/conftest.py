"""A whole run in seconds: a pack of a few kilobytes, scripted engines, a policy without waits."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npumark.orchestrator.events import Event
from npumark.orchestrator.measuring import Measuring
from npumark.orchestrator.request import RunRequest
from npumark.orchestrator.resume import request_to_json
from npumark.orchestrator.run import Outcome, execute
from npumark.pack import store
from npumark.pack.manifest import load_manifest
from npumark.policy import DATA, Policy, parse_policy
from npumark.record.files import read_record
from npumark.record.model import Payload
from npumark.score.recompute import recompute

ROOT = Path(__file__).parents[2]
DRIVE = Path(__file__).with_name("drive.py")
ROWS, WIDTH, SAMPLES = 4, 8, 3
ENCODINGS = {"fp32": "FP32", "int8-u8s8": "INT8"}

QUICK_RULES = {
    "spacing_s": "0.0",
    "idle_window_s": "0.0",
    "quick_idle_window_s": "0.0",
    # Fake time passes within the worker's real life, which a record must show.
    "timing.loop_s": "0.05",
    "quick_loop_s": "0.05",
    "attempt_deadline_s": "60.0",
    "kill_grace_s": "1.0",
    # Whether the test machine is idle is not what these tests are about.
    "max_busy": "1.0",
}


@dataclass
class Bench:
    """A home of its own with a pack in it; ``run`` carries a request out."""

    home: Path
    manifest: Path
    rules: dict[str, str] = field(default_factory=lambda: dict(QUICK_RULES))
    events: list[Event] = field(default_factory=list)

    @property
    def policy_path(self) -> Path:
        text = (DATA / "policy.toml").read_text()
        for name, value in self.rules.items():
            section, _, key = name.rpartition(".")
            line = rf"(?m)^{key} = [^#\n]*"
            if section:
                line = rf"(?ms)(^\[{section}\]\n(?:(?!^\[).)*?^){key} = [^#\n]*"
            kept = r"\g<1>" if section else ""
            text, count = re.subn(line, rf"{kept}{key} = {value} ", text)
            assert count == 1, name
        path = self.home / "policy.toml"
        path.write_text(text)
        return path

    @property
    def policy(self) -> Policy:
        return parse_policy(self.policy_path.read_bytes())

    def script(self, *cards: dict[str, Any], **more: Any) -> Path:
        path = self.home / "script.json"
        path.write_text(json.dumps({"engines": list(cards), **more}))
        return path

    def request(self, *cards: dict[str, Any], **fields: Any) -> RunRequest:
        return RunRequest(
            **{
                "quick": True,
                "manifest": self.manifest,
                "virtual": self.script(*(cards or (card(),))),
                **fields,
            }
        )

    def run(self, *cards: dict[str, Any], **fields: Any) -> Outcome:
        self.events.clear()
        return execute(self.request(*cards, **fields), self.events.append, policy=self.policy)

    def start(self, *cards: dict[str, Any], **fields: Any) -> subprocess.Popen[str]:
        """Start a run in a process of its own; it prints a line per event."""
        request = self.home / "request.json"
        request.write_text(json.dumps(request_to_json(self.request(*cards, **fields))))
        return self.start_file(request)

    def resume_in_process(self) -> subprocess.Popen[str]:
        request = self.home / "resume.json"
        request.write_text(json.dumps(request_to_json(RunRequest(resume="last"))))
        return self.start_file(request)

    def start_file(self, request: Path) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, str(DRIVE), str(request), str(self.policy_path)],
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )

    def check(self, path: Path) -> Payload:
        """Return a record's payload after recomputing it: read strictly, to the last bit."""
        payload = read_record(path).payload
        assert recompute(payload, load_manifest(self.manifest), self.policy) == []
        return payload

    def runs(self) -> list[Path]:
        return sorted((self.home / "data" / "runs").glob("[!.]*"))


def wait_for(process: subprocess.Popen[str], line: str) -> list[str]:
    """Read the process's lines up to the first that starts with ``line``; return them."""
    assert process.stdout is not None
    seen = []
    for text in process.stdout:
        seen.append(text.strip())
        if seen[-1].startswith(line):
            return seen
    pytest.fail(f"{line!r} never came: {seen}")


def card(name: str = "virtual-cpu", **fields: Any) -> dict[str, Any]:
    """Return an engine on the CPU that is right and takes 4 ms a call, INT8 half of that."""
    return {
        "id": name,
        "variants": list(ENCODINGS),
        "latency_us": {"*/int8-*": 2_000, "*/*": 4_000},
        **fields,
    }


@pytest.fixture
def make_card() -> Callable[..., dict[str, Any]]:
    return card


@pytest.fixture
def await_line() -> Callable[[subprocess.Popen[str], str], list[str]]:
    return wait_for


@pytest.fixture
def whole_bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setenv("NPUMARK_HOME", str(tmp_path / "home"))
    return make_bench(tmp_path / "home")


@pytest.fixture
def bench(whole_bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A bench whose runs in this process leave out the worker that measures the harness."""

    def overhead(run: Measuring) -> None:
        run.book.harness = {"overhead_ns": None, "why": "not measured in this test"}

    monkeypatch.setattr(Measuring, "overhead", overhead)
    return whole_bench


def make_bench(home: Path) -> Bench:
    """Make a home, which NPUMARK_HOME must name, and the pack in it: the same one in each."""
    home.mkdir()
    manifest = home / "manifest.json"
    contents: dict[str, bytes] = {}
    workloads = [
        _workload("peak-4x8x1", "peak", "peak", contents),
        _workload("tiny-net", "network", "scored", contents),
    ]
    files = [
        {
            "path": path,
            "size": len(raw),
            "sha256": hashlib.sha256(raw).hexdigest(),
            "origin": "shipped",
        }
        for path, raw in contents.items()
    ]
    suite = {"name": "tiny", "version": "1", "edition": "seeded", "basis": "tests"}
    manifest.write_text(json.dumps({"suite": suite, "files": files, "workloads": workloads}))
    root = store.pack_root(load_manifest(manifest))
    for path, raw in contents.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(raw)
    return Bench(home, manifest)


def _workload(name: str, kind: str, tier: str, contents: dict[str, bytes]) -> dict[str, Any]:
    draw = np.random.default_rng(len(contents))
    x = draw.standard_normal((SAMPLES, ROWS, WIDTH)).astype("<f2")
    contents[f"{name}/x.bin"] = x.tobytes()
    contents[f"{name}/y.bin"] = np.maximum(x, 0).astype("<f2").tobytes()
    spec = {"dtype": "float32", "shape": [ROWS, WIDTH]}
    stored = {"dtype": "float16", "shape": [SAMPLES, ROWS, WIDTH]}
    variants = []
    for encoding, family in ENCODINGS.items():
        graph = f"{name}/{encoding}.onnx"
        contents[graph] = graph.encode()
        variants.append(
            {
                "id": encoding,
                "format": family,
                "encoding": encoding,
                "graph": graph,
                "files": [graph],
                "inputs": [{"name": "x", **spec}],
                "outputs": [{"name": "y", **spec}],
                "validated": True,
                "division": "standard",
            }
        )
    gate = {"basis": "test", "bounds": {"snr_db": 20.0}}
    return {
        "id": name,
        "kind": kind,
        "tier": tier,
        "task": "chain",
        "title": name,
        "macs": 10**9,
        "params": WIDTH * WIDTH,
        "eval": {
            "n": SAMPLES,
            "canonical": 0,
            "inputs": [{"name": "x", "file": f"{name}/x.bin", **stored}],
            "references": [{"name": "y", "file": f"{name}/y.bin", **stored}],
        },
        "gates": {"standard": gate, "strict": {"basis": "test", "bounds": {"snr_db": 40.0}}},
        "variants": variants,
    }
