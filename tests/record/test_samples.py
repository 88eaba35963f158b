from __future__ import annotations

import json
import math
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npumark.errors import IntegrityError
from npumark.policy import load_policy
from npumark.record import samples
from npumark.record.canonical import payload_sha256
from npumark.record.files import read_record
from npumark.record.model import Record
from npumark.worker import loop_stats


@given(st.lists(st.integers(0, 2**53 - 1), min_size=1, max_size=50))
def test_samples_are_little_endian_int64(durations: list[int]) -> None:
    raw = samples.encode_samples(durations)
    assert raw == np.asarray(durations, dtype="<i8").tobytes()
    assert samples.decode_samples(raw) == durations


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "no whole number"),
        (b"\0" * 12, "no whole number"),
        (b"\xff" * 8, "negative duration"),
    ],
)
def test_what_cannot_be_samples_is_refused(raw: bytes, words: str) -> None:
    with pytest.raises(IntegrityError, match=words):
        samples.decode_samples(raw)


@given(
    st.lists(st.integers(0, 10**12), min_size=1, max_size=30)
    | st.lists(st.integers(0, 99), min_size=999, max_size=1001)
)
def test_latencies_are_those_the_worker_reports(durations: list[int]) -> None:
    support = load_policy().percentiles
    reported = loop_stats.latency(np.asarray(durations, dtype=np.int64), support)
    derived = samples.latency(durations, support)
    for name in type(derived).model_fields:
        assert getattr(derived, name) == getattr(reported, name), name


@given(
    st.lists(st.integers(1, 4 * 10**8), min_size=1, max_size=40)
    | st.lists(st.integers(1, 2**45), min_size=1, max_size=40)
    | st.lists(st.sampled_from([1, 5 * 10**7, 10**8, 10**8 + 1]), min_size=1, max_size=40),
    st.sampled_from([0.1, 0.25, 0.4]),
)
def test_paces_are_those_the_worker_reports(durations: list[int], span_s: float) -> None:
    array = np.asarray(durations, dtype=np.int64)
    assert samples.burst_ips(durations, span_s) == loop_stats.burst_ips(array, span_s)
    assert samples.drift(durations, span_s) == loop_stats.drift(array, span_s)
    assert samples.sustained_ips(durations) == loop_stats.sustained_ips(array)


@given(st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=8))
def test_a_strangers_samples_give_paces_or_none(durations: list[int]) -> None:
    for pace in (
        samples.burst_ips(durations, 0.4),
        samples.drift(durations, 0.25),
        samples.sustained_ips(durations),
    ):
        assert pace is None or math.isfinite(pace)


def test_percentiles_are_null_below_the_sample_that_supports_them() -> None:
    support = load_policy().percentiles
    seen = samples.latency(list(range(1, 100)), support)
    assert (seen.p90, seen.p95, seen.p99, seen.p999) == (90, 95, None, None)
    seen = samples.latency(list(range(1, 1001)), support)
    assert (seen.median, seen.p99, seen.p999, seen.max) == (500, 990, 999, 1000)


def test_a_record_agrees_with_its_samples(
    record: Record, corpus: ModuleType, tmp_path: Path
) -> None:
    (tmp_path / "any-name.i64").write_bytes(samples.encode_samples(corpus.DURATIONS))
    assert samples.check_samples(record, tmp_path) == []


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("iterations", 121, "iterations is 121, the samples are 120"),
        ("timed_ns", 7, "timed_ns is 7, the samples sum to"),
        ("median", 7, "latency_ns.median is 7"),
        ("p90", None, "latency_ns.p90 is None"),
        ("p99", 7, "latency_ns.p99 is 7"),
        ("p999", 7, "latency_ns.p999 is 7, the samples give None"),
        ("min", 0, "latency_ns.min is 0"),
        ("max", 7, "latency_ns.max is 7"),
        ("burst_ips", None, "burst_ips is None"),
        ("drift", 0.5, "drift is 0.5, the samples give"),
        ("sustained_ips", 250.0, "sustained_ips is 250.0"),
    ],
)
def test_a_figure_its_samples_do_not_give_is_named(
    field: str,
    value: float | None,
    words: str,
    document: dict[str, Any],
    corpus: ModuleType,
    tmp_path: Path,
) -> None:
    measured = document["payload"]["entries"][0]["attempts"][0]["measurement"]
    holder = measured if field in measured else measured["latency_ns"]
    holder[field] = value
    document["payload_sha256"] = payload_sha256(document["payload"])
    edited = read_record(json.dumps(document).encode())
    (tmp_path / "a.i64").write_bytes(samples.encode_samples(corpus.DURATIONS))
    faults = samples.check_samples(edited, tmp_path)
    assert len(faults) == 1
    assert words in faults[0]
    assert "ort-cpu · peak-512x2048x8 · int8-u8s8, attempt 1" in faults[0]


def test_missing_and_changed_samples_are_named(
    record: Record, corpus: ModuleType, tmp_path: Path
) -> None:
    assert "missing or changed" in samples.check_samples(record, tmp_path / "nowhere")[0]
    durations = [*corpus.DURATIONS[:-1], 1]
    (tmp_path / "a.i64").write_bytes(samples.encode_samples(durations))
    assert "missing or changed" in samples.check_samples(record, tmp_path)[0]
