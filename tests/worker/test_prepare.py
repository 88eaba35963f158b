"""Before the first attempt: compile, load, call once, compare what two processes answered."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npumark.engines.model_sidecar import SIDECAR
from npumark.worker.__main__ import _encode, carry_out
from npumark.worker.prepare import ANSWERS, agree
from npumark.worker.protocol import Job, decode_job, decode_result


@pytest.fixture
def job(tiny: Any) -> Job:
    """Return a job that prepares the tiny chain on an engine that compiles."""
    tiny.script(compiles={"bytes": 64})
    made: Job = tiny.job()
    return replace(
        made,
        kind="prepare",
        timing=None,
        options={**made.options, "cache": True},
        cache_dir=str(tiny.root / "compiled" / "entry"),
    )


def folder(job: Job) -> Path:
    return Path(job.cache_dir)


def test_the_first_compiles_and_the_second_loads_and_compares(job: Job) -> None:
    first, second, third = (carry_out(job, 0) for _ in range(3))
    assert [r.status for r in (first, second, third)] == ["ok"] * 3
    assert first.cache is not None
    assert second.cache is not None
    assert (first.cache.state, second.cache.state) == ("built", "reused")
    assert first.cache.compile_ns is not None
    assert [r.prepared and r.prepared.same_answers for r in (first, second, third)] == [
        None,
        True,
        None,
    ]
    assert not (folder(job) / ANSWERS).exists()
    assert second.cache_stamps == first.cache_stamps
    assert set(second.cache_stamps) > {SIDECAR}
    assert first.measurement is None
    assert set(first.stamps) == {"graph.onnx", "x.bin", "y.bin"}


def test_what_it_says_survives_the_way_back(job: Job) -> None:
    result = carry_out(decode_job(job.encode()), 0)
    assert decode_result(_encode(result)) == result


def test_other_answers_are_told(job: Job) -> None:
    carry_out(job, 0)
    with (folder(job) / ANSWERS).open("wb") as stream:
        np.savez(stream, np.ones((4, 8), np.float32))
    told = carry_out(job, 0)
    assert told.prepared is not None
    assert told.prepared.same_answers is False


@pytest.mark.parametrize("raw", [b"", b"PK\x03\x04 not a whole archive", b"\x93NUMPY"])
def test_answers_that_cannot_be_read_say_nothing(job: Job, raw: bytes) -> None:
    carry_out(job, 0)
    (folder(job) / ANSWERS).write_bytes(raw)
    told = carry_out(job, 0)
    assert told.status == "ok"
    assert told.prepared is not None
    assert told.prepared.same_answers is None


def test_a_model_is_thrown_away_where_the_job_says_so(job: Job) -> None:
    carry_out(job, 0)
    told = carry_out(replace(job, rebuild=True), 0)
    assert told.cache is not None
    assert told.cache.state == "built"
    assert len(list(folder(job).glob("models-*"))) == 1


def test_what_a_damaged_sidecar_named_goes_when_the_job_says_so(job: Job) -> None:
    carry_out(job, 0)
    (folder(job) / SIDECAR).write_text("{}")
    assert carry_out(replace(job, rebuild=True), 0).status == "ok"
    assert len(list(folder(job).glob("models-*"))) == 1


def test_an_engine_without_a_cache_is_called_all_the_same(tiny: Any) -> None:
    tiny.script()
    told = carry_out(replace(tiny.job(), kind="prepare"), 0)
    assert (told.status, told.cache, told.cache_stamps) == ("ok", None, {})
    assert told.prepared is not None
    assert told.prepared.same_answers is None


def test_a_damaged_pack_is_seen_before_anything_is_compiled(job: Job, tiny: Any) -> None:
    (tiny.root / "graph.onnx").write_bytes(b"A graph")
    assert carry_out(job, 0).status == "pack_error"
    assert not folder(job).exists()


def test_a_job_without_a_workload_is_refused(job: Job) -> None:
    told = carry_out(replace(job, workload=None), 0)
    assert told.status == "crashed"
    assert "lacks its workload" in (told.why or "")


RIGHT = [np.linspace(-1, 1, 64, dtype=np.float32)]


@pytest.mark.parametrize(
    ("after", "same"),
    [
        (RIGHT, True),
        ([RIGHT[0] * np.float32(1.001)], True),
        ([RIGHT[0] * np.float32(1.2)], False),
        ([-RIGHT[0]], False),
        ([np.zeros_like(RIGHT[0])], False),
        ([np.full_like(RIGHT[0], np.nan)], False),
        ([np.full_like(RIGHT[0], np.inf)], False),
        ([RIGHT[0].astype(np.float64)], False),
        ([RIGHT[0][:32]], False),
        ([*RIGHT, *RIGHT], False),
        ([], False),
    ],
)
def test_agreement(after: list[Any], same: bool) -> None:
    assert agree(RIGHT, after) is same


def test_zeros_agree_with_zeros_alone() -> None:
    zeros = [np.zeros(4, np.float32)]
    assert agree(zeros, [np.zeros(4, np.float32)])
    assert not agree(zeros, [np.full(4, 1e-3, np.float32)])


def _with(*at: tuple[int, float]) -> list[Any]:
    """Return the right answers with some numbers replaced."""
    made = RIGHT[0].copy()
    for place, value in at:
        made[place] = value
    return [made]


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        (_with((3, NAN)), _with((3, NAN)), True),
        (_with((3, NAN)), _with((3, NAN), (5, RIGHT[0][5] * 1.001)), True),
        (_with((3, INF), (9, -INF)), _with((3, INF), (9, -INF)), True),
        ([np.full(4, NAN, np.float16)], [np.full(4, NAN, np.float16)], True),
        (_with((3, NAN)), _with((4, NAN)), False),
        (_with((3, NAN)), RIGHT, False),
        (_with((3, NAN)), _with((3, INF)), False),
        (_with((3, INF)), _with((3, -INF)), False),
        (_with((3, NAN)), [-_with((3, NAN))[0]], False),
        ([np.arange(64)], [np.arange(64)], True),
        ([np.arange(64)], [np.arange(64)[::-1].copy()], False),
    ],
)
def test_agreement_of_what_is_no_number(before: list[Any], after: list[Any], same: bool) -> None:
    assert agree(before, after) is same
