"""The large-batch peak in a report: per engine and per role, beside the score."""

from __future__ import annotations

from dataclasses import replace

from npumark.orchestrator.request import RunRequest
from npumark.record.model import Payload
from npumark.report.catalog import catalog_of
from npumark.report.large_peak import large_peak
from npumark.report.page import Page
from npumark.report.processors import processors
from npumark.report.sheet import Sheet
from npumark.worker.protocol import EngineInfo
from tests.synthetic import CPU, engine, manifest, payload_of, simulate, steady

FAST = engine("ort-cuda-dgpu", "dGPU", variants=("fp16",), derived_from={})
SLOW = engine("ort-webgpu-gpu", "iGPU", variants=("fp16",), derived_from={})


def _run(*engines: EngineInfo, request: RunRequest | None = None) -> Payload:
    facts = simulate(
        lambda p, n: replace(steady(p, n), ips=100.0 if p.engine == FAST.id else 50.0),
        engines,
        request or RunRequest(large_peak=True),
    )
    return payload_of(facts)


def test_each_role_has_a_line_with_its_best_engine() -> None:
    sheet = Sheet(Page())
    large_peak(sheet, _run(CPU, FAST, SLOW))
    title, *rows = sheet.text().strip().splitlines()
    assert title == "Large-batch peak, beside the score and never part of it"
    assert [row.split() for row in rows] == [
        ["dGPU", "1.80", "TOPS", "FP16", FAST.id],
        ["iGPU", "0.90", "TOPS", "FP16", SLOW.id],
    ]


def test_each_engine_has_its_own_beside_its_peak() -> None:
    sheet = Sheet(Page())
    processors(sheet, _run(CPU, FAST, SLOW), catalog_of(manifest()))
    told = [line for line in sheet.text().splitlines() if "large batch" in line]
    assert len(told) == 2
    assert all("beside the score" in line for line in told)


def test_nothing_is_said_where_none_was_measured() -> None:
    sheet = Sheet(Page())
    large_peak(sheet, _run(CPU))
    assert sheet.text() == ""


def test_an_emulated_engine_leads_no_role() -> None:
    sheet = Sheet(Page())
    request = RunRequest(large_peak=True, include_emulated=True)
    large_peak(sheet, _run(CPU, replace(FAST, emulated=True), request=request))
    assert "Only emulated or virtual engines" in sheet.text()
