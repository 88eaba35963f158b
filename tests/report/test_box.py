"""The box block of a report: totals, a bar per card alone and in the box, flags, void attempts."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from npumark.record.model import Record
from npumark.report.page import Page, width_of
from npumark.report.terminal import render

Make = Callable[..., Record]
WIDE = Page()
NAME = "RTX 6000 Ada Generation"


def processor(n: int) -> dict[str, Any]:
    return {"id": f"dgpu-{n}", "role": "dGPU", "name": NAME, "number": n, "details": {}}


def solo(n: int, tops: float = 100.0, **over: Any) -> dict[str, Any]:
    made = {
        "card": f"dgpu-{n}",
        "engine": f"ort-cuda-dgpu-{n}",
        "workload": "peak-2048x2048x4",
        "variant": "fp16",
        "format": "FP16",
        "label": "FP16",
        "tops": tops,
        "unstable": False,
        "source": None,
    }
    return made | over


def card(n: int, alone: float = 100.0, inside: float | None = 90.0, **over: Any) -> dict[str, Any]:
    made = {
        "card": f"dgpu-{n}",
        "name": NAME,
        "number": n,
        "solo": solo(n, alone),
        "in_box_tops": inside,
        "of_solo": None if inside is None else inside / alone,
        "slow_alone": False,
        "slow_in_box": None if inside is None else False,
    }
    return made | over


def ran(n: int, **over: Any) -> dict[str, Any]:
    made = {
        "card": f"dgpu-{n}",
        "engine": f"ort-cuda-dgpu-{n}",
        "workload": "peak-2048x2048x4",
        "variant": "fp16",
        "status": "ok",
        "why": None,
        "pid_exit": 0,
        "window": None,
        "pin": {"numa_node": (n - 1) // 2, "cpus": [n], "why": None},
        "log_tail": None,
        "passed": True,
        "counted": 10.0,
        "tops": 90.0,
    }
    return made | over


def attempt(n: int, cards: list[dict[str, Any]] | None = None, **over: Any) -> dict[str, Any]:
    made = {
        "role": "dGPU",
        "n": n,
        "status": "ran",
        "why": None,
        "started_ns": 0,
        "wall_ns": 7_000_000_000,
        "window_ns": 5_000_000_000,
        "cards": cards or [ran(1), ran(2)],
        "counts": True,
        "void_because": [],
        "skew_ns": 400_000 * n,
        "tops": 180.0,
    }
    return made | over


def role(**over: Any) -> dict[str, Any]:
    made = {
        "role": "dGPU",
        "tops": 180.0,
        "why": None,
        "solo_tops": 200.0,
        "scaling": 0.9,
        "agreement": 0.012,
        "cards": [card(1), card(2)],
        "left_out": [],
        "attempts": [attempt(n) for n in (1, 2, 3)],
        "finished": True,
    }
    return made | over


BOX = {"roles": [role()]}


@pytest.fixture
def report(make_record: Make, make_engine: Any) -> Callable[..., str]:
    """Return a maker of the box's part of a report: keywords replace fields of the role."""

    def make(page: Page = WIDE, run: dict[str, Any] | None = None, **over: Any) -> str:
        number = len(over.get("cards", (1, 2)))
        cpu = {"id": "cpu", "role": "CPU", "name": "Xeon", "number": 1, "details": {}}
        engines = [
            make_engine(f"ort-cuda-dgpu-{n}", "ONNX Runtime CUDA", 100.0, None)
            | {"processor": f"dgpu-{n}"}
            for n in range(1, number + 1)
        ]
        fields = {
            "processors": [cpu, *(processor(n) for n in range(1, number + 1))],
            "engines": engines,
            "entries": [],
            "box": {"roles": [role(**over)]},
            **(run or {}),
        }
        text = render(make_record(**fields), page)
        found = re.search(r"^All at once: .*?\n(?=\n)", text, re.DOTALL | re.MULTILINE)
        assert found is not None, text
        return found[0]

    return make


def flat(text: str) -> str:
    return " ".join(text.split())


def bars(text: str) -> dict[str, str]:
    """Return the bar of each line that has one, by what stands before it."""
    found = re.findall(r"^    (.*\S) +([█▉▊▋▌▍▎▏#]+)$", text, re.MULTILINE)
    return {flat(lead): drawn for lead, drawn in found}


def test_a_role_has_its_total_scaling_and_two_bars_per_card(report: Any) -> None:
    slow = card(2, 50.0, 25.0)
    total = "180.0 TOPS  median of 3 attempts  which agree within 1.2 %"
    assert report(cards=[card(1), slow]).splitlines() == [
        "All at once: 2 dGPUs · RTX 6000 Ada Generation",
        f"  total     {total}  beside the score, never part of it",
        "  scaling   0.900  of 200.0 TOPS, which the cards reach one at a time, summed",
        "  attempts  3 counted  each in one window of 5.0 s",
        "  start     all cards within 1.2 ms",
        "  workers   2 of 2 bound to NUMA node 0",
        "  Each card ran ONNX Runtime CUDA, FP16, 2048×2048, 4 layers.",
        "                     TOPS  of solo",
        f"    dgpu-1  solo    100.0           {'█' * 40}",
        f"            in box   90.0     90 %  {'█' * 36}",
        f"    dgpu-2  solo     50.0           {'█' * 20}",
        f"            in box   25.0     50 %  {'█' * 10}",
    ]


def test_the_total_stands_below_the_headline_too(make_record: Make) -> None:
    lines = render(make_record(box={"roles": [role()]}), Page()).splitlines()
    assert lines[1] == "Box total 180.0 TOPS · 2 dGPUs · RTX 6000 Ada Generation · scaling 0.900"


def test_a_slow_card_is_flagged_with_advice_and_only_it(report: Any) -> None:
    text = report(cards=[card(1), card(2, slow_in_box=True), card(3)])
    assert flat(text).count("Check its cooling, power and PCIe link.") == 1
    flag = "Slow in the box: under 90 % of the median of its identical cards."
    lines = text.splitlines()
    at = next(i for i, line in enumerate(lines) if line.strip().startswith("dgpu-2"))
    assert lines[at + 2].strip().startswith(flag)
    both = report(cards=[card(1), card(2, slow_alone=True, slow_in_box=True)])
    assert "Slow alone and in the box: under 90 %" in flat(both)
    assert "Slow" not in report()


def test_a_card_far_above_its_solo_peak_is_remarked_on_and_only_it(report: Any) -> None:
    text = report(cards=[card(1, 100.0, 104.0), card(2, 50.0, 147.5), card(3)])
    remark = "Faster in the box than alone: its solo peak was disturbed. Measure again."
    assert flat(text).count(remark) == 1
    lines = text.splitlines()
    at = next(i for i, line in enumerate(lines) if line.strip().startswith("dgpu-2"))
    assert lines[at + 2].strip() == remark


def test_what_broke_a_bound_is_told_by_its_name(report: Any) -> None:
    why = "dgpu-2 answered wrong: snr_db 3 dB is below the bound 20 dB"
    void = attempt(1, counts=False, tops=None, skew_ns=None, void_because=[why])
    text = flat(report(attempts=[void], tops=None, why=why, scaling=None))
    assert text.count("dgpu-2 answered wrong: SNR 3 is below the bound of 20 dB") == 2
    assert "snr_db" not in text


@pytest.mark.parametrize(
    ("void", "said"),
    [
        ((1,), "1 of 2 attempts at all cards at once does not count: a card crashed"),
        ((1, 2), "2 of 2 attempts at all cards at once do not count: a card crashed"),
    ],
)
def test_how_many_attempts_are_void_is_told(
    make_record: Make, void: tuple[int, ...], said: str
) -> None:
    attempts = [attempt(n, counts=n not in void) for n in (1, 2)]
    shown = role(attempts=[*attempts, attempt(3, counts=False, status="interrupted")])
    record = make_record(box={"roles": [shown]}, warnings=["box_void"])
    assert f"- {said}" in flat(render(record, Page()))


def test_a_run_of_cards_alone_names_no_processor_it_left_out(
    make_record: Make, make_engine: Any
) -> None:
    base = make_record().payload.model_dump(mode="json", by_alias=True)["plan"]
    cpu = {"id": "cpu", "role": "CPU", "name": "Xeon", "number": 1, "details": {}}
    engine = make_engine("ort-cuda-dgpu-1", "ONNX Runtime CUDA", 100.0, None)
    fields = {
        "processors": [cpu, processor(1)],
        "engines": [engine | {"processor": "dgpu-1"}],
        "entries": [],
    }
    for mode, named in (("only", False), ("on", True)):
        plan = base | {"box": {"mode": mode, "roles": None, "cards": None, "solo": []}}
        text = render(make_record(plan=plan, **fields), Page())
        assert ("Not measured: CPU" in flat(text)) is named


def test_a_total_that_is_null_has_its_reason_and_no_zero(report: Any) -> None:
    why = "1 of 5 attempts count: dgpu-2 hung"
    gone = [card(n, inside=None) for n in (1, 2)]
    text = report(tops=None, why=why, scaling=None, agreement=None, cards=gone, attempts=[])
    assert f"  total     —  {why}" in text.splitlines()
    assert "scaling" not in text
    assert "attempts  0 counted" in text
    assert re.search(r"in box +—$", text, re.MULTILINE)
    assert not re.search(r"(?<![\d.])0(\.0+)?( TOPS|  )", text.replace("0 counted", ""))


def test_a_void_attempt_names_who_and_why_with_its_last_words(report: Any) -> None:
    why = "dgpu-2 crashed: the worker died: SIGSEGV"
    stopped = ran(1, status="interrupted", why="stopped because dgpu-2 died", log_tail="bye\n")
    dead = ran(2, status="crashed", why="the worker died", log_tail="load\nCUDA error 700\n")
    void = {"counts": False, "tops": None, "skew_ns": None, "void_because": [why]}
    attempts = [
        attempt(1),
        attempt(2, [stopped, dead], **void),
        attempt(3, [stopped, dead], **void),
        attempt(4, status="interrupted", counts=False, tops=None, void_because=["it was stopped"]),
    ]
    text = report(attempts=attempts)
    assert "1 counted  2 void  1 interrupted" in text
    assert f"  Attempts 2, 3 void: {why}\n    | dgpu-2: CUDA error 700\n" in text
    assert "  Attempt 4 interrupted: it was stopped\n" in text
    assert "bye" not in text


def test_one_attempt_is_no_median_and_agrees_with_nothing(report: Any) -> None:
    text = report(attempts=[attempt(1)], agreement=None)
    assert "180.0 TOPS  1 attempt  beside" in text
    assert "within 1.2 %" not in text


def test_cards_left_out_are_named_with_the_reason(report: Any) -> None:
    text = report(left_out=[{"card": "dgpu-3", "why": "it was not asked for"}])
    assert "  Left out: dgpu-3: it was not asked for\n" in text


def test_what_differs_between_cards_is_told_of_each(report: Any) -> None:
    other = card(2, solo=solo(2, label="INT8", unstable=True), name="RTX 4000")
    text = report(cards=[card(1), other])
    assert text.startswith("All at once: 2 dGPUs\n")
    assert "dgpu-1 · RTX 6000 Ada Generation #1" in text
    assert "dgpu-2 · RTX 4000 #2" in text
    assert "ran ONNX Runtime CUDA, FP16," in text
    assert "ran ONNX Runtime CUDA, INT8," in text
    assert re.search(r"solo +100\.0  unstable", text)


def test_a_solo_peak_of_another_record_is_called_that_records_statement(report: Any) -> None:
    name = {"run_id": "20261101-101112-beef", "payload_sha256": "0" * 64}
    for quick, noisy, how in (
        (False, False, ""),
        (True, False, ", which was quick"),
        (True, True, ", which was quick and noisy"),
    ):
        source = {**name, "quick": quick, "noisy": noisy}
        text = report(cards=[card(n, solo=solo(n, source=source)) for n in (1, 2)])
        assert f"(solo: as run 20261101-101112-beef states{how})" in flat(text)


def test_an_attempt_that_was_not_made_says_why(report: Any) -> None:
    why = "all cards at once: not enough memory: 9.0 MB needed, 8.0 MB free"
    one = attempt(1, counts=False, tops=None, skew_ns=None, status="skipped", why=why)
    text = report(attempts=[one | {"cards": [], "void_because": [why]}], tops=None, why=why)
    assert "0 counted  1 skipped" in text
    assert f"Attempt 1 skipped: {why}" in flat(text)
    assert "void" not in text


def test_workers_that_were_not_bound_say_why(report: Any) -> None:
    pin = {"numa_node": None, "cpus": None, "why": "the system does not say where the card sits"}
    text = report(attempts=[attempt(1, [ran(1), ran(2, pin=pin)])])
    assert "1 of 2 bound to NUMA node 0" in text
    assert "not bound: the system does not say where the card sits" in text


@pytest.mark.parametrize("width", [24, 30, 48, 80, 100])
@pytest.mark.parametrize("unicode", [True, False])
def test_every_line_fits_and_nothing_is_lost(report: Any, width: int, unicode: bool) -> None:
    slow = card(3, 88.0, 70.0, slow_alone=True, slow_in_box=True)
    text = report(Page(width=width, unicode=unicode), cards=[card(1), card(2), slow])
    assert all(width_of(line) <= width for line in text.splitlines())
    words = flat(text)
    assert all(said in words for said in ("100.0", "70.0", "88.0", "80 %", "PCIe link."))
    if not unicode:
        assert text.isascii()


def test_bars_share_one_scale_however_narrow_the_page(report: Any) -> None:
    cards = [card(1), card(2, 50.0, 25.0)]
    wide = list(bars(report(Page(width=80), cards=cards)).values())
    longest = len(wide[0])
    assert [len(b) for b in wide] == pytest.approx(
        [longest, longest * 0.9, longest * 0.5, longest * 0.25], abs=1
    )
    narrow = re.findall(r"^    (#+)$", report(Page(width=30, unicode=False), cards=cards), re.M)
    assert [len(b) for b in narrow] == [24, 21, 12, 6]


def test_colour_adds_nothing_but_colour(report: Any, make_record: Make) -> None:
    slow = [card(1), card(2, slow_alone=True)]
    record = make_record(box={"roles": [role(cards=slow)]})
    coloured = render(record, Page(colour=True))
    assert re.search("\x1b\\[33m *Slow alone", coloured)
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == render(record, Page())


@pytest.mark.parametrize(("mode", "told"), [("on", True), ("only", True), ("auto", False)])
def test_why_there_is_no_total_is_told_to_those_who_asked(
    make_record: Make, mode: str, told: bool
) -> None:
    base = make_record().payload.model_dump(mode="json", by_alias=True)["plan"]
    plan = base | {"box": {"mode": mode, "roles": None, "cards": None, "solo": []}}
    why = "nothing to sum: no role has two or more devices"
    text = render(make_record(plan=plan, box_why=why), Page())
    assert (f"No box total: {why}." in text) is told


def test_the_closing_lines_count_and_explain_the_box(make_record: Make) -> None:
    where = Path("/records/record.json")
    plain, boxed = (render(make_record(**b), Page(), where=where) for b in ({}, {"box": BOX}))
    kept = [int(re.search(r"(\d+) attempts kept", text)[1]) for text in (plain, boxed)]  # type: ignore[index]
    assert kept[1] == kept[0] + 3
    assert "box total (median of the sums over cards)" in flat(boxed)
    assert "box total" not in plain


def test_a_strangers_text_shows_and_no_terminal_obeys_it(make_record: Make) -> None:
    evil = "red\x1b[31m\x1b]0;title\x07\x08"
    dead = ran(2, status="crashed", why=evil, log_tail=f"load\n{evil}\n")
    void = attempt(2, [ran(1), dead], counts=False, tops=None, void_because=[evil])
    shown = role(
        why=evil,
        tops=None,
        cards=[card(1, name=evil), card(2, name=f"other {evil}")],
        left_out=[{"card": "dgpu-3", "why": evil}],
        attempts=[void],
    )
    text = render(make_record(box={"roles": [shown]}), Page(width=60))
    assert "red" in text
    assert {c for c in text if not c.isprintable() and c != "\n"} == set()


@pytest.mark.parametrize(("log", "told"), [("CUDA error 700\n", True), (None, False)])
def test_logs_are_pointed_at_where_a_card_left_one(
    make_record: Make, log: str | None, told: bool
) -> None:
    dead = ran(2, status="crashed", why="the worker died", log_tail=log)
    void = attempt(1, [ran(1), dead], counts=False, tops=None, void_because=["dgpu-2 crashed"])
    record = make_record(box={"roles": [role(attempts=[void])]}, entries=[])
    assert ("Logs: /runs/x/logs" in render(record, Page(), logs=Path("/runs/x/logs"))) is told
