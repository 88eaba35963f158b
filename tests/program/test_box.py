"""All cards at once: whole runs on virtual cards, what they leave behind and how they end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from npumark.cli.app import main
from npumark.errors import IntegrityError, NothingToMeasure, UsageError
from npumark.orchestrator.events import BoxEnded, BoxStarted
from npumark.orchestrator.journal import read_journal, replay
from npumark.orchestrator.request import RunRequest
from npumark.orchestrator.run import dry_run, execute
from npumark.record.files import read_record, seal, write_record
from npumark.record.samples import check_samples
from tests.program.test_stop_and_resume import workers

Card = Callable[..., dict[str, Any]]
Await = Callable[[subprocess.Popen[str], str], list[str]]
PEAK = "peak-4x8x1"
posix = pytest.mark.skipif(os.name != "posix", reason="sends POSIX signals")


def gpu(number: int, *, slower: float = 1.0, **fields: Any) -> dict[str, Any]:
    """Return a discrete GPU on a bus of its own, whose INT8 peak is 1 TOPS, FP32 half of that."""
    return {
        "id": f"virtual-dgpu-{number}",
        "variants": ["int8-u8s8"],
        "processor": {"key": f"0000:{number:02x}:00.0", "role": "dGPU", "name": "Virtual GPU"},
        "latency_us": {"*/int8-*": 2_000 * slower, "*/*": 4_000 * slower},
        **fields,
    }


def in_window(do: str, *loads: int, **fields: Any) -> dict[str, Any]:
    """Return a fault in the window of some loads of the fastest configuration. In a quick run the
    first load measures the card alone, the second is that of the first attempt at all cards."""
    return {"do": do, "variant": "int8-*", "attempts": list(loads), "call": 60, **fields}


@pytest.fixture(autouse=True)
def short(bench: Any) -> None:
    bench.rules |= {"box.window_s": "0.2", "lead_s": "0.05"}


def only(bench: Any, *cards: dict[str, Any], **fields: Any) -> Any:
    return bench.run(*cards, **{"box": "only", **fields})


def resume(bench: Any, **fields: Any) -> Any:
    request = RunRequest(**{"resume": "last", **fields})
    return execute(request, bench.events.append, policy=bench.policy)


def test_eight_cards_in_bus_order_each_with_its_best_configuration(bench: Any) -> None:
    both = ["fp32", "int8-u8s8"]
    cards = [gpu(n, slower=2.0 if n == 3 else 1.0, variants=both) for n in range(8, 0, -1)]
    outcome = only(bench, *cards)
    assert outcome.exit_code == 0
    payload = bench.check(outcome.path)
    assert payload.complete
    (role,) = payload.box.roles
    assert [c.card for c in role.cards] == [f"dgpu-{n}" for n in range(1, 9)]
    assert [c.solo.engine for c in role.cards] == [f"virtual-dgpu-{n}" for n in range(1, 9)]
    assert {c.solo.variant for c in role.cards} == {"int8-u8s8"}
    assert role.solo_tops == pytest.approx(7.5)
    assert role.tops == pytest.approx(7.5)
    assert role.scaling == pytest.approx(1.0)
    assert [c.slow_in_box for c in role.cards] == [n == 3 for n in range(1, 9)]
    assert {e.workload for e in payload.entries} == {PEAK}
    assert check_samples(outcome.record, bench.runs()[0] / "samples") == []
    (started,) = [e for e in bench.events if isinstance(e, BoxStarted)]
    assert (started.role, started.n) == ("dGPU", 1)
    assert list(started.cards) == [c.card for c in role.cards]


def test_the_total_is_the_median_of_three_sums(bench: Any) -> None:
    factors = {"*/*": [*[1.0] * 5, 1.25, 1.0, 2.0]}  # alone five times, then with the other
    outcome = only(bench, gpu(1), gpu(2, attempt_factors=factors), quick=False)
    payload = bench.check(outcome.path)
    assert payload.complete
    (role,) = payload.box.roles
    assert [(a.n, a.counts) for a in role.attempts] == [(1, True), (2, True), (3, True)]
    assert [a.tops for a in role.attempts] == pytest.approx([1.8, 2.0, 1.5])
    assert role.tops == pytest.approx(1.8)
    assert role.scaling == pytest.approx(0.9)
    ended = [e for e in bench.events if isinstance(e, BoxEnded)]
    assert [e.attempt for e in ended] == role.attempts


def test_no_address_of_a_card_enters_the_record(bench: Any) -> None:
    assert "0000:0" not in only(bench, gpu(1), gpu(2)).path.read_text()


def test_a_whole_run_measures_all_cards_at_once_by_itself(bench: Any) -> None:
    payload = bench.check(bench.run(gpu(1), gpu(2), quick=False).path)
    (role,) = payload.box.roles
    assert role.tops == pytest.approx(2.0)
    last = max(a.started_ns for e in payload.entries for a in e.attempts)
    assert all(a.started_ns > last for a in role.attempts)
    assert payload.score.tops == pytest.approx(1.0)  # the total is never part of it


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"box": "off"}, "--no-box"),
        ({"quick": True}, "a quick run leaves the box stage out"),
        ({"quick": False, "workloads": (PEAK,)}, "only a part of the run"),
    ],
)
def test_a_run_without_the_box_stage_says_why(bench: Any, fields: dict[str, Any], why: str) -> None:
    payload = bench.check(bench.run(gpu(1), gpu(2), **fields).path)
    assert payload.box is None
    assert why in payload.box_why
    assert payload.complete


def test_a_quick_run_that_insists_makes_one_attempt(bench: Any) -> None:
    payload = bench.check(bench.run(gpu(1), gpu(2), box="on").path)
    (role,) = payload.box.roles
    assert (len(role.attempts), role.tops) == (1, pytest.approx(2.0))
    assert any(e.workload != PEAK for e in payload.entries)


@pytest.mark.parametrize(
    ("cards", "fields", "error", "sentence"),
    [
        ([], {}, NothingToMeasure, "nothing to sum: there is no iGPU, dGPU or NPU here"),
        ([1], {}, NothingToMeasure, "nothing to sum: there is only one dGPU here"),
        ([1], {"box_roles": ("dGPU",)}, NothingToMeasure, "only one dGPU, dgpu .* measured"),
        ([1, 2], {"box_cards": ("dgpu-2",)}, NothingToMeasure, "only one dGPU, dgpu-2 .* asked"),
        ([1, 2], {"box_roles": ("NPU",)}, NothingToMeasure, "nothing to sum: no NPU"),
        ([1, 2], {"engines": ("virtual-dgpu-1",)}, NothingToMeasure, "only one .*reaches dgpu-2"),
        ([1, 2], {"box_cards": ("dgpu-4",)}, UsageError, "there is no card 'dgpu-4'"),
        ([1, 2], {"box_cards": ("1", "2")}, UsageError, "names a card only within one role"),
        ([1, 2], {"box_cards": ("cpu",)}, UsageError, "the CPU, which is never summed"),
        ([1, 2], {"box": "on", "workloads": ("tiny-net",)}, UsageError, "the peak of each card"),
        ([1], {"box": "on"}, NothingToMeasure, "nothing to sum: there is only one dGPU"),
    ],
)
def test_what_cannot_be_summed_is_refused_before_anything_is_measured(
    bench: Any,
    make_card: Card,
    cards: list[int],
    fields: dict[str, Any],
    error: type[Exception],
    sentence: str,
) -> None:
    with pytest.raises(error, match=sentence):
        only(bench, make_card(), *map(gpu, cards), **fields)
    assert bench.runs() == []


def test_cards_that_cannot_be_told_apart_are_refused_with_the_reason(bench: Any) -> None:
    doubt = {"role": "dGPU", "name": "Virtual GPU", "details": {"identity": "it lists no address"}}
    twin = gpu(2, processor={"key": "0000:02:00.0", **doubt})
    with pytest.raises(NothingToMeasure, match=r"which device dgpu-2 is cannot be told: it lists"):
        only(bench, gpu(1), twin)
    payload = bench.check(bench.run(gpu(1), twin, quick=False).path)
    (role,) = payload.box.roles
    assert (role.tops, role.attempts) == (None, [])
    assert "it lists no address" in role.why


def test_some_cards_by_number(bench: Any) -> None:
    outcome = only(bench, *map(gpu, (1, 2, 3)), box_roles=("dGPU",), box_cards=("3", "1"))
    payload = bench.check(outcome.path)
    assert payload.plan.box.cards == ["dgpu-3", "dgpu-1"]
    (role,) = payload.box.roles
    assert [c.card for c in role.cards] == ["dgpu-1", "dgpu-3"]
    assert [(c.card, c.why) for c in role.left_out] == [("dgpu-2", "it was not asked for")]
    assert {e.engine for e in payload.entries} == {"virtual-dgpu-1", "virtual-dgpu-3"}


def test_a_card_that_crashes_voids_the_attempt_and_is_named(bench: Any) -> None:
    outcome = only(bench, gpu(1), gpu(2, faults=[in_window("abort", 2)]))
    assert outcome.exit_code == 1
    (role,) = bench.check(outcome.path).box.roles
    first, second = role.attempts
    assert (first.counts, second.counts) == (False, True)
    assert first.void_because[0].startswith("dgpu-2 crashed")
    assert len(first.void_because) == 1
    assert first.cards[0].status in ("ok", "interrupted")
    assert role.tops == pytest.approx(2.0)


def test_a_card_that_keeps_crashing_leaves_no_total(bench: Any) -> None:
    outcome = only(bench, gpu(1), gpu(2, faults=[in_window("abort", *range(2, 12))]))
    assert outcome.exit_code == 4
    payload = bench.check(outcome.path)
    (role,) = payload.box.roles
    assert payload.complete
    assert len(role.attempts) == bench.policy.box.max_attempts
    assert role.tops is None
    assert "dgpu-2 crashed" in role.why


def test_a_card_that_hangs_is_named_and_the_others_are_stopped(bench: Any) -> None:
    bench.rules["overrun_s"] = "4.0"
    outcome = only(bench, gpu(1), gpu(2, faults=[in_window("hang", 2)]))
    (role,) = bench.check(outcome.path).box.roles
    assert any(why.startswith("dgpu-2 hung") for why in role.attempts[0].void_because)
    assert outcome.exit_code == 1


def test_a_wrong_answer_ends_the_stage(bench: Any) -> None:
    """It can never count, so that it is not tried again."""
    wrong = {"do": "zeros", "variant": "int8-*", "attempts": [2]}
    outcome = only(bench, gpu(1), gpu(2, faults=[wrong]))
    assert outcome.exit_code == 4
    (role,) = bench.check(outcome.path).box.roles
    (attempt,) = role.attempts
    assert attempt.void_because[0].startswith("dgpu-2 answered wrong")


def test_a_card_without_a_peak_leaves_no_total_and_is_named(bench: Any) -> None:
    broken = gpu(2, faults=[{"do": "abort"}])
    outcome = only(bench, gpu(1), broken)
    assert outcome.exit_code == 4
    (role,) = bench.check(outcome.path).box.roles
    assert role.attempts == []
    assert "dgpu-2 has no peak of its own" in role.why


def test_compiled_models_are_used_as_in_the_attempts(bench: Any) -> None:
    outcome = only(bench, gpu(1, compiles={}), gpu(2, compiles={}))
    payload = bench.check(outcome.path)
    assert payload.box.roles[0].tops == pytest.approx(2.0)
    assert len(payload.prepared) == 2  # each entry once, none of them again for the box


def test_a_time_budget_ends_a_run_before_an_attempt_that_would_not_fit(bench: Any) -> None:
    assert only(bench, gpu(1), gpu(2), time_budget_s=2000.0).record.payload.complete
    bench.rules["lead_s"] = "3000.0"
    partial = only(bench, gpu(1), gpu(2), time_budget_s=2000.0)
    payload = bench.check(partial.path)
    assert not payload.complete
    assert "time_budget" in payload.not_comparable_because
    assert payload.box.roles[0].attempts == []
    assert partial.exit_code == NothingToMeasure.exit_code


def test_attempts_start_apart(bench: Any) -> None:
    bench.rules["spacing_s"] = "2.5"
    faulty = gpu(2, faults=[in_window("abort", 2)])
    (role,) = bench.check(only(bench, gpu(1), faulty).path).box.roles
    first, second = role.attempts
    assert second.started_ns - first.started_ns >= 2_500_000_000


@posix
def test_a_run_killed_in_the_box_stage_is_completed(bench: Any, await_line: Await) -> None:
    with bench.start(gpu(1), gpu(2), box="only", quick=False) as process:
        await_line(process, "BoxEnded")
        await_line(process, "BoxStarted")
        process.kill()
        process.wait(30)
    (folder,) = bench.runs()
    told = replay(read_journal(folder / "journal.jsonl"))
    assert told.box_in_flight is not None
    assert (len(told.box), told.box_in_flight["n"]) == (1, 2)
    outcome = resume(bench)
    assert outcome.exit_code == 0
    payload = bench.check(outcome.path)
    assert payload.complete
    (role,) = payload.box.roles
    assert [(a.n, a.status) for a in role.attempts] == [
        (1, "ran"),
        (2, "interrupted"),
        (3, "ran"),
        (4, "ran"),
    ]
    assert role.attempts[0].model_dump(mode="json") == told.box[0]
    assert "npumark ended before" in role.attempts[1].why
    assert role.tops == pytest.approx(2.0)
    with pytest.raises(UsageError, match="is complete"):
        resume(bench, resume=folder.name)


@posix
def test_a_signal_in_an_attempt_stops_every_card_and_saves(bench: Any, await_line: Await) -> None:
    bench.rules["lead_s"] = "60.0"
    with bench.start(gpu(1), gpu(2), box="only") as process:
        await_line(process, "BoxStarted")
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert workers(process.pid) == []
    (folder,) = bench.runs()
    payload = bench.check(folder / "record.json")
    (attempt,) = payload.box.roles[0].attempts
    assert (attempt.status, attempt.why) == ("interrupted", "stopped by the user")
    assert not payload.complete


@posix
def test_an_engine_that_is_gone_stops_the_box_stage_of_a_resumed_run(
    bench: Any, await_line: Await
) -> None:
    with bench.start(gpu(1), gpu(2), box="only") as process:
        await_line(process, "BoxStarted")
        process.kill()
        process.wait(30)
    bench.script(gpu(1))
    with pytest.raises(UsageError, match="virtual-dgpu-2 is not available any more") as told:
        resume(bench)
    assert "What was measured is in" in str(told.value.hint)
    bench.script(gpu(1), gpu(2))
    assert bench.check(resume(bench).path).box.roles[0].tops == pytest.approx(2.0)


def test_a_script_gets_the_record_and_nothing_else(
    bench: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("npumark.orchestrator.run.load_policy", lambda: bench.policy)
    monkeypatch.setattr("npumark.policy.load_policy", lambda: bench.policy)
    virtual = str(bench.script(gpu(1), gpu(2, faults=[in_window("abort", 2)])))
    words = ["--virtual", virtual, "--manifest", str(bench.manifest)]
    assert main(["box", "--quick", "--json", "--role", "dgpu", *words]) == 1
    (role,) = json.loads(capsys.readouterr().out)["payload"]["box"]["roles"]
    assert role["attempts"][0]["void_because"][0].startswith("dgpu-2 crashed")
    assert main(["verify", "last", "--manifest", str(bench.manifest)]) == 0
    assert "from 4 attempts; the raw samples agree" in capsys.readouterr().out
    assert main(["box", "--role", "npu", *words]) == NothingToMeasure.exit_code
    assert "nothing to sum: no NPU" in capsys.readouterr().err
    assert main(["box", "--dry-run", *words]) == 0
    assert "dGPU  dgpu-1, dgpu-2" in capsys.readouterr().out


@pytest.fixture
def peaks(bench: Any) -> Path:
    """Return the record of a quick run of two cards."""
    path = bench.home / "peaks.json"
    bench.run(gpu(1), gpu(2), workloads=(PEAK,), out=path)
    return Path(path)


def test_the_peaks_of_another_record(bench: Any, peaks: Path) -> None:
    source = read_record(peaks)
    outcome = only(bench, gpu(1), gpu(2), box_from=peaks)
    assert outcome.exit_code == 0
    payload = bench.check(outcome.path)
    assert payload.entries == []
    assert {"virtual", "selection"} <= set(payload.not_comparable_because)
    (role,) = payload.box.roles
    assert role.scaling == pytest.approx(1.0)
    assert {s.source.run_id for s in payload.plan.box.solo} == {source.payload.run_id}
    assert {s.source.payload_sha256 for s in payload.plan.box.solo} == {source.payload_sha256}
    assert payload.harness["overhead_ns"]
    with pytest.raises(UsageError, match="took its peaks from another record"):
        only(bench, gpu(1), gpu(2), box_from=outcome.path)


def test_compiled_models_for_the_peaks_of_another_record(bench: Any, peaks: Path) -> None:
    cards = [gpu(n, compiles={}) for n in (1, 2)]
    outcome = only(bench, *cards, box_from=peaks)
    assert bench.check(outcome.path).box.roles[0].tops == pytest.approx(2.0)


@posix
def test_a_killed_run_with_the_peaks_of_another_record_is_completed(
    bench: Any, peaks: Path, await_line: Await
) -> None:
    with bench.start(gpu(1), gpu(2), box="only", box_from=peaks) as process:
        await_line(process, "BoxStarted")
        process.kill()
        process.wait(30)
    peaks.unlink()  # what it gave is in the journal
    payload = bench.check(resume(bench).path)
    assert payload.box.roles[0].tops == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("cards", "why"),
    [
        ([gpu(1), gpu(2), gpu(3)], "it lists dgpu-1, dgpu-2, and this computer has dgpu-1,"),
        ([gpu(1), gpu(2, version="2")], "virtual-dgpu-2 is version 2 here and 1 there"),
        (
            [gpu(1), gpu(2, variants=[], available=False, reason="no driver"), gpu(3)],
            "virtual-dgpu-2, which led on dgpu-2, is not available here: no driver",
        ),
        (
            [gpu(1), gpu(2, processor={"key": "0000:02:00.0", "role": "dGPU", "name": "Other"})],
            "dgpu-2 is Other #1 here and Virtual GPU #2 there",
        ),
    ],
)
def test_peaks_of_other_cards_are_refused_with_what_differs(
    bench: Any, peaks: Path, cards: list[dict[str, Any]], why: str
) -> None:
    with pytest.raises(UsageError, match=why):
        only(bench, *cards, box_from=peaks)
    assert len(bench.runs()) == 1


def test_a_record_that_was_edited_gives_no_peaks(bench: Any, peaks: Path) -> None:
    """With its digest made anew, the arithmetic still tells."""
    record = read_record(peaks)
    engines = [
        e.model_copy(update={"peak": e.peak.model_copy(update={"tops": 9.0})})
        for e in record.payload.engines
        if e.peak
    ]
    forged = seal(record.payload.model_copy(update={"engines": engines}))
    write_record(peaks, forged, force=True)
    with pytest.raises(IntegrityError, match="does not recompute"):
        only(bench, gpu(1), gpu(2), box_from=peaks)
    peaks.write_text(peaks.read_text().replace("Virtual GPU", "Other GPU"))
    with pytest.raises(IntegrityError):
        only(bench, gpu(1), gpu(2), box_from=peaks)
    assert len(bench.runs()) == 1


def test_a_dry_run_tells_the_cards_and_the_time(bench: Any) -> None:
    found = dry_run(bench.request(gpu(1), gpu(2), box="only"), policy=bench.policy)
    (choice,) = found.box.choices
    assert [p.id for p in choice.cards] == ["dgpu-1", "dgpu-2"]
    low, high = found.box_s
    assert 0 < low < high
    quiet = dry_run(bench.request(gpu(1), gpu(2)), policy=bench.policy)
    assert (quiet.box.choices, quiet.box_s) == ((), (0.0, 0.0))


def test_a_damaged_line_of_the_box_stage_is_refused(bench: Any) -> None:
    bench.rules["lead_s"] = "3000.0"
    partial = only(bench, gpu(1), gpu(2), time_budget_s=2000.0)
    assert not partial.record.payload.complete
    (folder,) = bench.runs()
    with (folder / "journal.jsonl").open("a") as journal:
        line = {"kind": "box_starting", "role": "CPU", "n": 1, "started_ns": 5}
        journal.write(json.dumps(line) + "\n")
    with pytest.raises(IntegrityError, match="is damaged: a line after the first has a wrong role"):
        resume(bench)
