"""Reports in the format of AMD's Ryzen AI Software documentation, "Operator Assignment Report": the
counts are those of its example and of its installation test."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from npumark.engines import vitisai_report
from npumark.engines.vitisai_report import (
    NAME,
    VARIABLE,
    Part,
    VitisReport,
    asked,
    from_fact,
    parse_report,
    read_report,
    to_fact,
)
from npumark.errors import EngineError


def entry(name: str, number: Any, *kinds: str) -> dict[str, Any]:
    return {"name": name, "nodeNum": number, "supportedOpType": list(kinds)}


DOCUMENTED = {
    "deviceStat": [
        entry("all", 400, "::Add", "::Conv", "::DequantizeLinear", "::QuantizeLinear"),
        entry("VITIS_EP_CPU", 2, "::DequantizeLinear", "::QuantizeLinear"),
        entry("NPU", 398, "::Add", "::Conv"),
    ],
    "nodeStat": [],
}


def write(folder: Path, text: str) -> Path:
    path = folder / "model" / NAME
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_the_documented_report_is_read_wherever_the_cache_folder_holds_it(tmp_path: Path) -> None:
    write(tmp_path, json.dumps(DOCUMENTED))
    report = read_report(tmp_path)
    assert report.parts == {
        "NPU": Part(398, frozenset({"Add", "Conv"})),
        "VITIS_EP_CPU": Part(2, frozenset({"DequantizeLinear", "QuantizeLinear"})),
    }
    assert (report.total, report.on_npu) == (400, 398)
    assert report.counts() == "NPU 398, VITIS_EP_CPU 2"


@pytest.mark.parametrize("name", ["DPU", "IPU", "NPU", "VAIML"])
def test_every_name_that_the_npu_has_had_is_known(name: str) -> None:
    report = parse_report({"deviceStat": [entry("all", 9), entry(name, 9, "Conv:")]})
    assert report.on_npu == 9
    assert report.parts[name].kinds == {"Conv"}


def test_a_device_that_was_given_nothing_is_left_out() -> None:
    report = parse_report({"deviceStat": [entry("all", 3), entry("CPU", 3), entry("NPU", 0)]})
    assert (set(report.parts), report.on_npu) == ({"CPU"}, 0)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        "null",
        '{"deviceStat": 7}',
        '{"deviceStat": [7]}',
        '{"deviceStat": [{"name": "all"}]}',
        json.dumps({"deviceStat": [entry("NPU", 4)]}),
        json.dumps({"deviceStat": [entry("all", "4"), entry("NPU", "4")]}),
        json.dumps({"deviceStat": [entry("all", -4), entry("NPU", -4)]}),
        json.dumps({"deviceStat": [entry("all", True), entry("NPU", True)]}),
        json.dumps({"deviceStat": [entry("all", 4), entry("NPU", 2), entry("NPU", 2)]}),
        "[" * 100_000,
    ],
)
def test_nonsense_is_a_reason_and_no_report(tmp_path: Path, text: str) -> None:
    write(tmp_path, text)
    with pytest.raises(EngineError, match="Vitis AI's report cannot be read"):
        read_report(tmp_path)


def test_bytes_that_are_no_text_are_a_reason(tmp_path: Path) -> None:
    write(tmp_path, "").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(EngineError, match="cannot be read"):
        read_report(tmp_path)


def test_counts_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(EngineError, match="counts 10 operators but places 9"):
        parse_report({"deviceStat": [entry("all", 10), entry("NPU", 9)]})


def test_no_report_two_or_a_huge_one_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(EngineError, match="wrote no report"):
            read_report(folder)
    written = write(tmp_path, json.dumps(DOCUMENTED))
    monkeypatch.setattr(vitisai_report, "MAX_BYTES", 10)
    with pytest.raises(EngineError, match="too large"):
        read_report(tmp_path)
    (tmp_path / NAME).write_text(written.read_text())
    with pytest.raises(EngineError, match="2 reports"):
        read_report(tmp_path)


def test_a_fact_holds_what_the_report_said_or_why_there_is_none(tmp_path: Path) -> None:
    missing = json.loads(json.dumps(to_fact(tmp_path)))
    with pytest.raises(EngineError, match="wrote no report"):
        from_fact(missing)
    write(tmp_path, json.dumps(DOCUMENTED))
    kept = json.loads(json.dumps(to_fact(tmp_path)))
    assert from_fact(kept) == read_report(tmp_path)
    with pytest.raises(EngineError, match="kept without"):
        from_fact(None)


@pytest.mark.parametrize("before", [None, "mine.json"])
def test_the_report_is_asked_for_only_meanwhile(
    monkeypatch: pytest.MonkeyPatch, before: str | None
) -> None:
    if before is None:
        monkeypatch.delenv(VARIABLE, raising=False)
    else:
        monkeypatch.setenv(VARIABLE, before)
    with asked():
        assert os.environ[VARIABLE] == NAME
    assert os.environ.get(VARIABLE) == before


def test_an_empty_graph_has_no_operators() -> None:
    assert (VitisReport({}).total, VitisReport({}).on_npu) == (0, 0)
