from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from npumark.record.model import Record
from npumark.report.catalog import Catalog
from npumark.report.page import Page, width_of
from npumark.report.terminal import render

Make = Callable[..., Record]
TITLES = Catalog({"resnet50": "ResNet-50"})


def flat(text: str) -> str:
    """Return ``text`` with its line breaks undone."""
    return " ".join(text.split())


def test_the_headline_comes_first_with_its_series(make_record: Make) -> None:
    lines = render(make_record(), Page()).splitlines()
    assert lines[0] == "0.83 TOPS · CPU · Intel Xeon Platinum 8581C (ONNX Runtime) · INT8"
    assert "seeded weights" in lines[1]
    assert "score 3.2" in lines[1]


def test_a_run_without_a_score_says_why(make_record: Make) -> None:
    text = render(make_record(score=None, score_why="no peak passed its gate"), Page())
    assert text.startswith("No score: no peak passed its gate")
    assert "0 TOPS" not in text.splitlines()[0]


def test_every_reason_against_comparing_is_in_words_with_a_next_step(make_record: Make) -> None:
    text = render(make_record(comparable=False, not_comparable_because=["quick"]), Page())
    assert "Not comparable" in text
    assert "one short attempt each" in text
    assert "`npumark run`" in text


def test_a_code_without_advice_still_shows(make_record: Make) -> None:
    record = make_record(comparable=False, not_comparable_because=["moon_phase"])
    assert "moon phase" in render(record, Page())


def test_a_noisy_run_is_called_so_with_what_disturbed_it(make_record: Make) -> None:
    busy = {"value": 0.23, "why": None, "violation": True}
    environment = {"checks": {"cpu_busy": busy}, "noisy": True, "skipped": False, "facts": {}}
    text = render(make_record(environment=environment), Page())
    assert "Noisy" in text
    assert "23% busy" in text
    assert "--wait-idle" in text


def test_skipped_checks_are_told(make_record: Make) -> None:
    environment = {"checks": {}, "noisy": False, "skipped": True, "facts": {}}
    assert "--skip-preconditions" in render(make_record(environment=environment), Page())


def test_a_stopped_run_says_how_to_complete_it(make_record: Make) -> None:
    text = render(make_record(complete=False), Page())
    assert "npumark run --resume 20261130-214500-abcd" in text


def test_a_run_of_another_computer_is_named_by_its_file(make_record: Make) -> None:
    where = Path("/elsewhere/my box.json")
    known = render(make_record(complete=False), Page(), where=where)
    assert "with `npumark verify 20261130-214500-abcd`" in flat(known)
    text = render(make_record(complete=False), Page(), where=where, kept=False)
    assert "\n  npumark verify '/elsewhere/my box.json'\n" in text
    assert "on the computer that measured it, with `npumark run --resume" in flat(text)


def test_a_partial_delivered_figure_names_what_is_missing(make_record: Make) -> None:
    text = render(make_record(), Page())
    assert re.search(r"delivered .*partial, never ranked: without granite-30m", text)


def test_what_was_not_measured_is_a_dash_with_the_reason_never_a_zero(make_record: Make) -> None:
    text = render(make_record(), Page())
    row = next(i for i, x in enumerate(text.splitlines()) if re.match(r"\s+W8\s+—\s+—", x))
    assert "segmentation fault" in text.splitlines()[row + 1]
    assert not re.search(r"(?<![\d.])0(\.0+)? TOPS", text)


def test_a_gate_failure_shows_its_margin_and_does_not_count(make_record: Make) -> None:
    text = render(make_record(), Page(), catalog=TITLES)
    assert "ResNet-50" in text
    assert "SNR -3.25 dB" in text
    assert "SNR 16.8 is below the bound of 20 dB" in text
    assert "snr_db" not in text
    assert re.search(r"\* INT8 .*\n\s+W8 .*SNR -3.25", text)


def test_failures_come_with_the_end_of_the_log_and_advice(make_record: Make) -> None:
    text = render(make_record(), Page())
    assert "crashed: 1 entry" in text
    assert "| Segmentation fault (core dumped)" in text
    assert "Update the runtime or the driver" in flat(text)


DEAD = {"figure": None, "counts": False, "format": None}


def attempts(*endings: tuple[str, str | None, str | None]) -> list[dict[str, Any]]:
    empty = dict.fromkeys(("observed", "placement", "measurement", "pid_exit", "cache"))
    return [
        {"n": n, "status": status, "why": why, "log_tail": log, **empty}
        | {"started_ns": n, "wall_ns": 3, "seed": 1}
        for n, (status, why, log) in enumerate(endings, 1)
    ]


def test_what_died_is_said_once_and_by_its_right_name(make_record: Make, make_entry: Any) -> None:
    segv, none = "the worker died: SIGSEGV", "the worker ended without a result"
    trace = 'Fatal Python error: Segmentation fault\n\n  File "a.py", line 2 in go\n'
    trace += "\nExtension modules: x\n"
    entries = [
        make_entry("ort-cpu", "resnet50", "fp32", None, status="crashed", why_not="crashed")
        | DEAD
        | {
            "why": segv,
            "crashed_attempts": [{"attempt": 1, "why": segv}],
            "attempts": attempts(("crashed", segv, trace)),
        },
        make_entry("ort-cpu", "peak-512x2048x8", "fp32", None, status="no_result")
        | DEAD
        | {
            "why": none,
            "why_not": "no_result",
            "crashed_attempts": [{"attempt": 1, "why": none}],
            "attempts": attempts(("no_result", none, None)),
        },
        make_entry("ort-cpu", "peak-512x2048x8", "int8-u8s8", 0.8)
        | {
            "crashed_attempts": [{"attempt": 2, "why": none}, {"attempt": 3, "why": none}],
            "attempts": attempts(("ok", None, None), *[("no_result", none, None)] * 2),
        },
    ]
    record = make_record(entries=entries, warnings=["attempts_died"])
    text = render(record, Page(), logs=Path("/runs/x/logs"))
    assert text.count(segv) == 2  # in the table, and among what was not measured
    assert "succeeded" not in text
    assert not re.search(r"crashed: the worker ended", text)
    assert f"Attempts 2, 3 gave no result: {none}." in text
    assert "| Fatal Python error: Segmentation fault\n" in text
    assert "a.py" not in text
    assert "Extension modules" not in text
    assert "Logs: /runs/x/logs" in text


def test_lack_of_memory_is_not_the_drivers_fault(make_record: Make, make_entry: Any) -> None:
    why = "the runtime ran out of memory"
    trace = f'Traceback (most recent call last):\n  File "a.py"\nErr: {why}\n'
    entry = make_entry("ort-cpu", "resnet50", "fp32", None, status="crashed", why_not="crashed")
    entry |= DEAD | {"why": why, "attempts": attempts(("crashed", why, trace))}
    text = render(make_record(entries=[entry]), Page())
    assert "out of memory: 1 entry" in text
    assert "Close other programs" in text
    assert "driver" not in text
    assert "| " not in text  # the log says no more than the reason


def test_networks_that_were_not_asked_for_did_not_fail(make_record: Make) -> None:
    entries = [e.model_dump() for e in make_record().payload.entries]
    record = make_record(warnings=["delivered_partial"])
    assert "See below what failed" in render(record, Page())
    asked = [e for e in entries if e["workload"] != "granite-30m"]
    text = render(make_record(warnings=["delivered_partial"], entries=asked), Page())
    assert "See below what failed" not in text
    assert "that were asked for alone" in flat(text)


@pytest.mark.parametrize("width", [40, 80])
def test_each_format_of_the_peak_shows_its_margin_and_cv(make_record: Make, width: int) -> None:
    text = flat(render(make_record(), Page(width=width)).partition("Networks")[0])
    assert re.search(r"FP32 0\.17 .*?SNR \+9\.7 dB (CV )?0\.4 %", text)
    assert "margin" in text


@pytest.mark.parametrize("width", [30, 40, 80])
def test_no_length_of_time_is_torn_apart(make_record: Make, width: int) -> None:
    spent = {"loop": 6_700_000_000, "spacing": 6_700_000_000}
    environment = {"checks": {}, "noisy": False, "skipped": False, "facts": {"spent_ns": spent}}
    text = render(make_record(environment=environment), Page(width=width))
    assert len(re.findall(r"%\s+6\.7 s\b", text)) == 2
    row = r"waits between attempts +\d" if width >= 40 else r"waits between attempts\n +\d"
    assert re.search(row, text)
    if width >= 40:
        assert all(width_of(x) <= width for x in text.splitlines())


@pytest.mark.parametrize("width", range(20, 60))
def test_no_number_is_torn_from_its_unit(make_record: Make, width: int) -> None:
    text = render(make_record(), Page(width=width))
    assert not re.search(r"\d\n\s*(%|ms|s|dB|TOPS|ns)(\s|[.,)])", text)


def test_the_mark_after_a_command_stays_with_it(make_record: Make) -> None:
    for run_id in ("x" * n for n in range(15, 30)):
        text = render(make_record(run_id=run_id), Page(width=40), where=Path("/r.json"))
        assert ".\n" not in [line.strip() + "\n" for line in text.splitlines()]
        last = text.partition("Recompute every")[2]
        assert all(width_of(x) <= 40 for x in last.splitlines())


def test_an_attempt_that_the_user_stopped_did_not_die(make_record: Make) -> None:
    text = render(make_record(where_time_went_ns={"unfinished": 10**9}), Page())
    assert "fruitless attempts" in text
    assert "died" not in text.partition("Where the time went")[2]


def test_an_engine_without_a_peak_says_why(make_record: Make, make_engine: Any) -> None:
    engine = make_engine("ort-cpu", "ONNX Runtime", 1.0, None) | {"peak": None}
    entries = [e.model_dump() for e in make_record().payload.entries if e.engine == "ort-cpu"]
    bad = {"counts": False, "why_not": "gate_failed", "why": "snr_db is low"}
    entries = [e | (bad if e["workload"].startswith("peak") else {}) for e in entries]
    text = render(make_record(engines=[engine], entries=entries), Page())
    assert re.search(r"peak\s+—\s+no configuration of the peak test counted", text)
    assert "SNR is low" in text


def test_an_engine_the_peak_test_skipped_says_so(make_record: Make, make_engine: Any) -> None:
    engine = make_engine("ort-cpu", "ONNX Runtime", 1.0, None) | {"peak": None}
    text = render(make_record(engines=[engine], entries=[]), Page())
    assert "the peak test was not part of this run" in text


def test_unstable_figures_are_marked(make_record: Make, make_engine: Any) -> None:
    engine = make_engine("ort-cpu", "ONNX Runtime", 1.0, None)
    engine["peak"] |= {"unstable": True, "robust_cv": 0.08}
    assert "unstable (robust CV 8.0 %)" in render(make_record(engines=[engine]), Page())


def test_identical_cards_are_numbered(make_record: Make, make_engine: Any) -> None:
    cards = [
        {"id": f"dgpu-{n}", "role": "dGPU", "name": "RTX 6000", "number": n, "details": {}}
        for n in (1, 2)
    ]
    engines = [
        make_engine(f"ort-cuda-dgpu-{n}", "CUDA", 1.0, None) | {"processor": f"dgpu-{n}"}
        for n in (1, 2)
    ]
    text = render(make_record(processors=cards, engines=engines, entries=[]), Page())
    assert "dGPU · RTX 6000 #1" in text
    assert "dGPU · RTX 6000 #2" in text


def test_two_encodings_of_one_format_are_told_apart(make_record: Make, make_entry: Any) -> None:
    twins = [
        make_entry("ort-cpu", "resnet50", "int8-u8s8", 0.2),
        make_entry("ort-cpu", "resnet50", "int8-u8s8", 0.1) | {"variant": "int8-s8s8"},
    ]
    text = render(make_record(entries=twins), Page())
    assert "* INT8 (int8-u8s8)" in text
    assert "  INT8 (int8-s8s8)" in text


def test_activations_of_16_bits_have_a_row_and_a_bar_of_their_own(
    make_record: Make, make_entry: Callable[..., dict[str, Any]]
) -> None:
    wide = {"variant": "int8-a16w8", "label": "INT8 (A16W8)"}
    entries = [
        make_entry("ort-cpu", workload, "int8-u8s8", tops) | change
        for workload in ("peak-512x2048x8", "resnet50")
        for tops, change in ((0.2, {}), (0.1, wide))
    ]
    entries.append(
        make_entry("ort-cpu", "deeplabv3", "int8-u8s8", None, status="crashed", format=None) | wide
    )
    lines = render(make_record(entries=entries), Page(width=100)).splitlines()
    for name, times in (("INT8", 2), ("INT8 (A16W8)", 3)):
        found = [x for x in lines if re.match(rf"\s*\*?\s*{re.escape(name)}  ", x)]
        assert len(found) == times
    assert not [x for x in lines if "int8-a16w8" in x]


def test_all_engines_share_one_scale(make_record: Make) -> None:
    text = render(make_record(), Page(width=80))
    bars = [len(m) for m in re.findall(r"INT8 +0\.\d+ +SNR \S+ dB +0\.4 % +(█+)", text)]
    assert bars[1] == pytest.approx(0.9 * bars[0], abs=1)


def test_an_overhead_below_what_can_be_told_apart_is_no_negative_time(make_record: Make) -> None:
    cost = {"call": 2100, "bare_call": 8673, "added": -6573, "timer": 38}
    text = " ".join(render(make_record(harness={"overhead_ns": cost}), Page()).split())
    assert "on a trivial graph: below what can be told apart (call 2.1 µs" in text
    assert "-6573" not in text


def test_the_record_and_the_time_are_in_the_last_lines(make_record: Make) -> None:
    text = render(make_record(), Page(width=40), where=Path("/a/very/long/path/to/the/record.json"))
    assert "\n/a/very/long/path/to/the/record.json\n" in text
    assert "timed loops" in text
    assert "Harness overhead" in text


@pytest.mark.parametrize("width", [40, 60, 80, 100, 132])
def test_no_line_is_wider_than_the_page(make_record: Make, width: int) -> None:
    text = render(make_record(), Page(width=width), catalog=TITLES)
    wide = [x for x in text.splitlines() if width_of(x) > width]
    assert wide == []


@pytest.mark.parametrize("width", [20, 21, 33])
def test_a_very_narrow_page_loses_no_word(make_record: Make, width: int) -> None:
    text = render(make_record(), Page(width=width), catalog=TITLES)
    for word in ("openvino-cpu", "Segmentation", "20261130-214500-abcd", "ResNet-50"):
        assert word in text


def test_a_pipe_cuts_nothing(make_record: Make) -> None:
    text = render(make_record(), Page(), catalog=Catalog({"resnet50": "x" * 300}))
    assert "x" * 300 in text
    assert "…" not in text


def test_ascii_pages_hold_ascii_alone(make_record: Make) -> None:
    text = render(make_record(), Page(width=80, unicode=False), catalog=TITLES)
    text.encode("ascii")
    assert "####" in text


def test_colour_changes_no_word(make_record: Make) -> None:
    coloured = render(make_record(), Page(width=80, colour=True))
    assert "\x1b[" in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == render(make_record(), Page(width=80))
