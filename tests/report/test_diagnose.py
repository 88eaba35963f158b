"""The report of a diagnostics document: every page shows every figure, and nothing is computed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from npumark.diagnose.document import Diagnostics, Document, seal
from npumark.report.catalog import Catalog
from npumark.report.diagnose import render
from npumark.report.diagnose_table import cell_text, latency
from npumark.report.page import Page, width_of

WIDE = Page()
PAGES = [
    pytest.param(WIDE, id="a file"),
    pytest.param(Page(width=100), id="100 columns"),
    pytest.param(Page(width=60), id="60 columns"),
    pytest.param(Page(width=32), id="32 columns"),
    pytest.param(Page(width=80, unicode=False), id="ASCII"),
    pytest.param(Page(width=80, colour=True), id="colour"),
]


def finding(**over: Any) -> dict[str, Any]:
    made = {
        "probe": "contention",
        "title": "Contention",
        "status": "ok",
        "why": None,
        "columns": [
            {"key": "beside", "title": "beside it"},
            {"key": "ips", "title": "inf/s"},
            {"key": "kept_share", "title": "of alone"},
            {"key": "median_ns", "title": "median latency"},
        ],
        "rows": [
            {"beside": "nothing", "ips": 412.0, "kept_share": 1.0, "median_ns": 2_431_000},
            {"beside": "busy CPUs", "ips": 198.0, "kept_share": 0.4806, "median_ns": 5_120_000},
            {"beside": "busy memory", "ips": None, "kept_share": None, "median_ns": None},
        ],
        "bars": "ips",
        "ratios": [{"name": "cpu_kept", "value": 0.4806, "of": "beside busy CPUs ÷ probe_ips"}],
        "finding": "It keeps 48 % of its pace with every CPU busy.",
        "advice": "Give it CPUs of its own.",
        "steps": [],
    }
    return made | over


def target(**over: Any) -> dict[str, Any]:
    made = {
        "engine": "ort-cpu",
        "processor": "cpu",
        "role": "CPU",
        "runtime": "ort",
        "version": "1.32.0",
        "compiles": False,
        "cores": 2,
        "workload": "resnet50",
        "variant": "int8-u8s8",
        "format": "INT8",
        "chosen": "last benchmark",
        "chosen_from": "20261201T120000Z-abcdef",
        "chosen_why": None,
        "candidates": [],
        "status": "ok",
        "why": None,
        "probe_ips": 412.0,
        "py_ips": None,
        "latency_ns": {
            "median": 2_431_000,
            "p90": None,
            "p95": None,
            "p99": None,
            "p999": None,
            "min": 2_400_000,
            "max": 2_500_000,
        },
        "single": None,
        "findings": [finding()],
    }
    return made | over


def document(*targets: dict[str, Any], **over: Any) -> Document:
    made = {
        "schema": "npumark-diagnostics/1",
        "id": "20261201T130000Z-123456",
        "created": "2026-12-01T13:00:00Z",
        "finished": "2026-12-01T13:04:00Z",
        "complete": True,
        "comparable": False,
        "tool": {"version": "0", "python": "3.11.7", "packages": {}},
        "machine": {},
        "processors": [
            {"id": "cpu", "role": "CPU", "name": "AMD EPYC", "number": 1, "details": {}}
        ],
        "environment": {"checks": {}, "noisy": False, "skipped": False, "facts": {}},
        "suite": {
            "name": "npumark",
            "version": "1",
            "edition": "seeded",
            "basis": "3.2",
            "manifest_sha256": "0" * 64,
            "verified": True,
            "why_not": None,
        },
        "policy_sha256": "0" * 64,
        "rules": {},
        "deep": True,
        "probes": ["contention"],
        "argv": [],
        "targets": list(targets or [target()]),
    }
    return seal(Diagnostics.model_validate(made | over))


def show(page: Page = WIDE, **over: Any) -> str:
    return render(document(target(**over)), page)


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


@pytest.mark.parametrize("page", PAGES)
def test_every_page_shows_every_figure_and_sentence(page: Page) -> None:
    text = plain(render(document(), page, catalog=Catalog({"resnet50": "ResNet-50"})))
    words = " ".join(text.split())
    for told in (
        "Diagnosed: 1 engine on 1 workload",
        "ort-cpu",
        "ResNet-50",
        "INT8 (int8-u8s8)",
        "AMD EPYC",
        "412 inf/s",
        "2.43 ms",
        "5.12 ms",
        "48 %",
        "It keeps 48 % of its pace with every CPU busy.",
        "Give it CPUs of its own.",
        "never feed a score",
    ):
        assert told in words, told
    if page.width is not None:
        assert max(width_of(line) for line in text.splitlines()) <= page.width
    assert page.unicode or text.isascii()
    assert all(line == line.rstrip() for line in text.splitlines())


@pytest.mark.parametrize("page", PAGES)
def test_bars_are_as_long_as_their_values(page: Page) -> None:
    mark = "█" if page.unicode else "#"
    text = plain(show(page))
    full, half = sorted(line.count(mark) for line in text.splitlines() if mark in line)[::-1]
    assert half == pytest.approx(full * 198 / 412, abs=1)


def test_a_value_that_was_not_measured_is_a_dash_and_has_no_bar() -> None:
    (line,) = (line for line in show().splitlines() if "busy memory" in line)
    assert line.split() == ["busy", "memory", "—", "—", "—"]


def test_on_a_narrow_page_a_rate_keeps_its_unit() -> None:
    assert "198 inf/s" in show(Page(width=32))
    assert "198 inf/s" not in show(WIDE)


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("median_ns", 950, "0.950 µs"),
        ("median_ns", 412_345, "412 µs"),
        ("median_ns", 73_123_456, "73.1 ms"),
        ("p95_ns", 1_204_000_000, "1.20 s"),
        ("kept_share", 0.9312, "93 %"),
        ("gain_ratio", 5.468, "5.47 ×"),
        ("hottest_celsius", 71.25, "71 °C"),
        ("buffer_bytes", 67108864, "67.1 MB"),
        ("cpu_mhz", 2445.428, "2,445"),
        ("ips", 13.6012, "13.6"),
        ("calls", 30, "30"),
        ("bound", True, "yes"),
        ("bound", False, "no"),
        ("why", "no room", "no room"),
        ("ips", None, "—"),
    ],
)
def test_a_columns_key_says_how_its_values_read(key: str, value: Any, text: str) -> None:
    assert cell_text(key, value) == text


def test_latencies_change_their_unit_where_three_digits_do() -> None:
    assert [latency(ns) for ns in (999_499, 999_500)] == ["999 µs", "1.00 ms"]


def test_a_long_table_shows_some_rows_and_the_last_and_says_so() -> None:
    rows = [{"beside": f"{10 * i} s", "ips": 100.0 + i} for i in range(30)]
    columns = [{"key": "beside", "title": "from"}, {"key": "ips", "title": "inf/s"}]
    text = show(findings=[finding(rows=rows, columns=columns)])
    shown = re.findall(r"^ +(\d+ s)  ", text, re.M)
    assert shown == [f"{s} s" for s in (*range(0, 280, 30), 290)]
    assert "11 of 30 rows are shown; the document has all." in text


@pytest.mark.parametrize(
    ("status", "said"),
    [
        pytest.param("failed", "Contention: failed: the worker died: SIGSEGV", id="failed"),
        pytest.param(
            "not_applicable",
            "Contention: not applicable: the worker died: SIGSEGV",
            id="not applicable",
        ),
    ],
)
def test_a_probe_without_a_finding_says_why(status: str, said: str) -> None:
    bare = {"rows": [], "columns": [], "bars": None, "ratios": [], "finding": None, "advice": None}
    text = show(findings=[finding(status=status, why="the worker died: SIGSEGV", **bare)])
    assert said in text


def test_a_target_that_could_not_be_diagnosed_says_why_and_what_was_tried() -> None:
    tried = {"variant": "fp32", "format": "FP32", "status": "crashed", "ips": None, "why": "SIGBUS"}
    text = show(
        variant=None,
        format=None,
        chosen="measured here",
        chosen_from=None,
        chosen_why="no earlier benchmark has it",
        candidates=[tried],
        status="skipped",
        why="no variant passes",
        probe_ips=None,
        latency_ns=None,
        findings=[],
    )
    assert "ort-cpu · resnet50\n" in text
    assert "Not diagnosed (skipped): no variant passes" in text
    assert "Variants were measured now: no earlier benchmark has it." in text
    assert "- fp32: SIGBUS" in text


def test_where_the_variant_is_known_from_is_told() -> None:
    assert "in the last benchmark (run 20261201T120000Z-abcdef)." in show()
    rated = [
        {"variant": v, "format": "INT8", "status": "ok", "ips": 1.0, "why": None} for v in "ab"
    ]
    text = show(chosen="measured here", chosen_from=None, chosen_why="why", candidates=rated)
    assert "The fastest of 2 passing variants, measured now: why." in text


def test_what_was_left_out_is_told_where_deep_was_not_asked_for() -> None:
    assert "Not probed:" not in render(document(), WIDE)
    text = render(document(deep=False), WIDE)
    (line,) = (line for line in text.splitlines() if line.startswith("Not probed:"))
    assert "sustained load" in line
    assert "contention" not in line  # it was asked for by name
    assert line.endswith("`npumark diagnose --deep` does.")


def test_the_machines_state_is_told() -> None:
    check = {"value": "battery", "why": None, "violation": True}
    noisy = {"checks": {"power_source": check}, "noisy": True, "skipped": False, "facts": {}}
    assert "Noisy: something besides the probes" in render(document(environment=noisy), WIDE)
    skipped = {"checks": {}, "noisy": False, "skipped": True, "facts": {}}
    assert "was not looked at" in render(document(environment=skipped), WIDE)


def test_a_run_that_was_stopped_says_so() -> None:
    assert "Stopped before its end" in render(document(complete=False), WIDE)
    assert "Stopped before its end" not in render(document(), WIDE)


def test_where_the_document_lies_is_told_whole(tmp_path: Path) -> None:
    where = tmp_path / ("a" * 60) / "diagnostics.json"
    text = render(document(), Page(width=60), where=where)
    assert f"Document:\n{where}\n" in text


def test_nothing_that_a_terminal_would_obey_comes_through() -> None:
    text = show(why="\x1b[2Jgone\r", status="crashed", probe_ips=None, engine="ort\x1b]0;x\x07")
    assert "\x1b" not in text
    assert "\r" not in text
    assert "\x07" not in text
