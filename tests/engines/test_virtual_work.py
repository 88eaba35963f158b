"""Virtual cards that compute: so much per call, where they are told to, with right answers."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npumark.engines import virtual_work
from npumark.engines.base import LoadRequest
from npumark.engines.virtual import Virtual, VirtualSession
from npumark.engines.virtual_script import read_script
from npumark.engines.virtual_work import Work, read_work
from npumark.errors import EngineError, Unsupported
from npumark.pack.manifest import TensorSpec

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="binds threads on Linux")


@pytest.fixture
def unbound() -> Iterator[list[int]]:
    """The CPUs of this thread, which it gets back."""
    before = os.sched_getaffinity(0)
    yield sorted(before)
    os.sched_setaffinity(0, before)


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The length of each piece that is hashed."""
    seen: list[int] = []

    class Counted:
        def __init__(self) -> None:
            self._real = real()

        def update(self, block: bytes) -> None:
            seen.append(len(block))
            self._real.update(block)

        def digest(self) -> bytes:
            return self._real.digest()

    real = hashlib.sha256
    monkeypatch.setattr(virtual_work.hashlib, "sha256", Counted)
    return seen


def script(folder: Path, work: Any, **more: Any) -> Path:
    path = folder / "script.json"
    card = {"id": "virtual-dgpu", "work": work, **more.pop("card", {})}
    path.write_text(json.dumps({"engines": [card], "clock": "real", **more}))
    return path


def load(path: Path) -> VirtualSession:
    graph = path.with_name("graph")
    graph.write_bytes(b"a graph")
    spec = (TensorSpec("x", "float32", (2, 3)),)
    session = Virtual().load(
        LoadRequest(
            engine_id="virtual-dgpu",
            workload_id="peak-2x3x1",
            graph=graph,
            encoding="fp32",
            format="FP32",
            inputs=spec,
            outputs=spec,
            threads=1,
            options={"script": str(path)},
            cache_dir=None,
        )
    )
    assert isinstance(session, VirtualSession)
    return session


def test_a_call_does_its_rounds_and_answers(tmp_path: Path, rounds: list[int]) -> None:
    session = load(script(tmp_path, {"core": None, "rounds": 7}))
    samples = [(np.full((2, 3), n, "f4"),) for n in (1, 2)]
    session.learn(samples, [np.stack([np.full((2, 3), n, "f4") for n in (10, 20)])])
    rounds.clear()
    session.inputs()[0][...] = samples[1][0]
    session.step()()
    assert rounds == [1 << 14] * 7
    assert session.outputs()[0].tolist() == [[20.0] * 3] * 2
    assert session.observed().details["rounds"] == 7


def test_attempt_factors_multiply_the_work(tmp_path: Path) -> None:
    path = script(tmp_path, {"rounds": 10}, card={"attempt_factors": {"*/*": [1, 2.5, 0.001]}})
    seen = [load(path).observed().details["rounds"] for _ in range(3)]
    assert seen == [10, 25, 1]


@linux
def test_loading_binds_to_the_core_and_reads_it_back(tmp_path: Path, unbound: list[int]) -> None:
    session = load(script(tmp_path, {"core": unbound[-1], "rounds": 1}))
    assert os.sched_getaffinity(0) == {unbound[-1]}
    assert session.observed().details["cpus"] == [unbound[-1]]


@linux
def test_work_of_no_core_stays_where_it_was_started(tmp_path: Path, unbound: list[int]) -> None:
    session = load(script(tmp_path, {"core": None, "rounds": 1}))
    assert session.observed().details["cpus"] == unbound


@linux
def test_a_core_that_is_not_allowed_is_named(unbound: list[int]) -> None:
    with pytest.raises(EngineError, match=f"core {unbound[-1] + 1} is not among those"):
        Work(1, unbound[-1] + 1).bind()
    assert sorted(os.sched_getaffinity(0)) == unbound


def test_a_system_that_cannot_bind_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_setaffinity", raising=False)
    with pytest.raises(EngineError, match="need Linux"):
        Work(1, 0).bind()
    Work(1).bind()


def test_work_on_a_fake_clock_is_refused(tmp_path: Path) -> None:
    path = script(tmp_path, {"rounds": 1}, clock="fake")
    with pytest.raises(EngineError, match="needs the real clock"):
        read_script(path)


@pytest.mark.parametrize(
    "work",
    [
        {},
        {"rounds": 0},
        {"rounds": 1.5},
        {"rounds": True},
        {"rounds": 1, "core": -1},
        {"rounds": 1, "core": "0"},
        {"rounds": 1, "seconds": 2},
    ],
)
def test_work_that_is_none_is_refused(work: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        read_work(work)


def test_a_fault_waits_for_its_time_and_comes_at_the_next_call(tmp_path: Path) -> None:
    path = tmp_path / "script.json"
    fault = {"do": "unsupported", "after_s": 0.0025}
    card = {"id": "virtual-dgpu", "latency_us": {"*/*": 1000}, "faults": [fault]}
    path.write_text(json.dumps({"engines": [card]}))
    session = load(path)
    session.learn([(np.ones((2, 3), "f4"),)], [np.ones((1, 2, 3), "f4")])
    session.inputs()[0][...] = 1
    call = session.step()
    for _ in range(3):
        call()
    with pytest.raises(Unsupported):
        call()
    assert session.clock_ns() == 3_000_000
