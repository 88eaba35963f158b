"""Compiling is shown apart from loading, for the engines that compile and no others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from npumark.record.model import Record
from npumark.report.page import Page, width_of
from npumark.report.terminal import render

Make = Callable[..., Record]
WORKLOAD, VARIANT = "peak-512x2048x8", "int8-u8s8"


def prepared(state: str | None, **over: Any) -> dict[str, Any]:
    return {
        "engine": "ort-cpu",
        "workload": WORKLOAD,
        "variant": VARIANT,
        "before": 1,
        "status": "ok",
        "why": None,
        "state": state,
        "compile_ns": None,
        "first_call_ns": None,
        "load_ns": None,
        "bytes": None,
        "started_ns": 0,
        "wall_ns": 1,
        **over,
    }


def measured(load_ns: int) -> dict[str, Any]:
    counts = ("iterations", "timed_ns", "first_call_ns", "warmup_calls", "import_ns", "verify_ns")
    spans = ("warmup_ns", "loop_ns", "accuracy_ns", "placement_ns", "timer_overhead_ns")
    unknown = ("burst_ips", "drift", "sustained_ips", "peak_rss_bytes", "accuracy_why")
    latency = dict.fromkeys(("median", "min", "max"), 1)
    check = {"iterations": [], "passed": True, "bit_identical": True, "min_snr_db": None}
    return {
        **dict.fromkeys((*counts, *spans), 1),
        **dict.fromkeys((*unknown, "samples_sha256"), None),
        "ips": 1.0,
        "load_ns": load_ns,
        "latency_ns": latency | dict.fromkeys(("p90", "p95", "p99", "p999"), None),
        "warmup_steady": True,
        "measures": {},
        "timed_check": check | {"nondeterministic": False},
        "loaded_from_cache": True,
    }


def attempt(n: int, state: str, load_ns: int, **cache: Any) -> dict[str, Any]:
    told = {"state": state, "why": None, "compile_ns": None, "bytes": 9, **cache}
    return {
        "n": n,
        "status": "ok",
        "why": None,
        "started_ns": n,
        "wall_ns": 3,
        "seed": 1,
        "pid_exit": 0,
        "observed": None,
        "placement": None,
        "measurement": measured(load_ns),
        "log_tail": None,
        "cache": told,
    }


def section(text: str) -> str:
    """Return the section of compiled models as one line of single spaces; empty without one."""
    if "Compiled models" not in text:
        return ""
    return " ".join(text.split("Compiled models")[1].split("Where the time went")[0].split())


@pytest.fixture
def shown(make_record: Make, make_entry: Any) -> Callable[..., str]:
    def show(made: list[dict[str, Any]], attempts: list[dict[str, Any]], width: int = 100) -> str:
        entry = make_entry("ort-cpu", WORKLOAD, VARIANT, 0.8, attempts=attempts)
        record = make_record(entries=[entry], prepared=made)
        text = render(record, Page(width))
        assert all(width_of(line) <= width for line in text.splitlines())
        return text

    return show


def test_a_run_that_compiled_nothing_says_nothing(make_record: Make) -> None:
    assert section(render(make_record(), Page(100))) == ""


def test_compiling_and_loading_are_two_numbers(shown: Callable[..., str]) -> None:
    made = prepared("built", compile_ns=12 * 10**9, bytes=254_800)
    runs = [attempt(n, "reused", load) for n, load in enumerate((90, 36, 30), 1)]
    for run in runs:
        run["measurement"]["load_ns"] *= 10**6
    text = section(shown([made], runs))
    assert f"{WORKLOAD} · {VARIANT} 12 s 36 ms 254.8 kB compiled in this run" in text
    assert "Neither is part of a score." in text


def test_an_attempt_that_compiled_says_why_and_its_load_is_not_one(
    shown: Callable[..., str],
) -> None:
    again = attempt(2, "rebuilt", 9 * 10**9, compile_ns=9 * 10**9, why="a.bin was changed")
    runs = [attempt(1, "reused", 40 * 10**6), again]
    text = section(shown([prepared("reused", bytes=9)], runs))
    assert "9.0 s 40 ms 9 B kept from an earlier run" in text
    assert "attempt 2: a.bin was changed" in text


def test_a_resumed_run_compiled_what_it_finds(shown: Callable[..., str]) -> None:
    made = [prepared("built", compile_ns=10**9, bytes=9), prepared("reused", before=2, bytes=9)]
    assert "compiled in this run" in section(shown(made, []))


def test_a_model_that_is_not_kept_says_why(shown: Callable[..., str]) -> None:
    why = "it was compiled and does not load: the worker died: SIGSEGV"
    text = section(shown([prepared("unkept", compile_ns=10**9, why=why)], []))
    assert "1.0 s — — none kept" in text
    assert why in text


def test_a_preparation_that_failed_is_said(shown: Callable[..., str]) -> None:
    failed = prepared(None, status="timeout", why="it did not finish in 600 s")
    text = section(shown([failed], []))
    assert "not prepared it did not finish in 600 s" in text


def test_a_narrow_page_says_the_same(shown: Callable[..., str]) -> None:
    made = prepared("built", compile_ns=12 * 10**9, bytes=254_800)
    runs = [attempt(1, "reused", 36 * 10**6)]
    narrow = section(shown([made], runs, 40))
    for word in ("compiling 12 s", "loading 36 ms", "compiled in this run"):
        assert word in narrow
