"""All cards at once: whole runs on virtual cards, what they leave behind and how they end."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from npumark.cli.app import main
from npumark.errors import IntegrityError, NothingToMeasure, UsageError
from npumark.orchestrator.events import BoxEnded, BoxStarted, Event, Note, PlanMade
from npumark.orchestrator.journal import read_journal, replay
from npumark.orchestrator.request import RunRequest
from npumark.orchestrator.run import dry_run, execute
from npumark.record.files import read_record, seal, write_record
from npumark.record.history import RunFolder
from npumark.record.samples import check_samples
from tests.program.conftest import make_bench
from tests.program.test_stop_and_resume import workers

Card = Callable[..., dict[str, Any]]
Await = Callable[[subprocess.Popen[str], str], list[str]]
PEAK = "peak-4x8x1"
SHORT = {"box.window_s": "0.2", "lead_s": "0.05"}
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
def short(whole_bench: Any) -> None:
    whole_bench.rules |= SHORT


def only(bench: Any, *cards: dict[str, Any], **fields: Any) -> Any:
    return bench.run(*cards, **{"box": "only", **fields})


def resume(bench: Any, **fields: Any) -> Any:
    request = RunRequest(**{"resume": "last", **fields})
    return execute(request, bench.events.append, policy=bench.policy)


def test_eight_cards_in_bus_order_each_with_its_best_configuration(bench: Any) -> None:
    cards = [gpu(n) for n in range(8, 0, -1)]
    cards[5] = gpu(3, slower=2.0, variants=["fp32", "int8-u8s8"])
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
    assert "0000:0" not in outcome.path.read_text()  # no address of a card


def test_a_whole_run_measures_all_cards_at_once_by_itself(bench: Any) -> None:
    """The total is the median of three sums, after everything else."""
    bench.rules |= {"peak_min_attempts": "3", "network_min_attempts": "2"}
    factors = {f"{PEAK}/*": [1.0, 1.0, 1.0, 1.25, 1.0, 2.0]}  # alone three times, then with card 1
    payload = bench.check(bench.run(gpu(1), gpu(2, attempt_factors=factors), quick=False).path)
    assert payload.complete
    (role,) = payload.box.roles
    assert [(a.n, a.counts) for a in role.attempts] == [(1, True), (2, True), (3, True)]
    assert [a.tops for a in role.attempts] == pytest.approx([1.8, 2.0, 1.5])
    assert role.tops == pytest.approx(1.8)
    assert role.scaling == pytest.approx(0.9)
    ended = [e for e in bench.events if isinstance(e, BoxEnded)]
    assert [e.attempt for e in ended] == role.attempts
    last = max(a.started_ns for e in payload.entries for a in e.attempts)
    assert all(a.started_ns > last for a in role.attempts)
    assert payload.score.tops == pytest.approx(1.0)  # the total is never part of it


def test_a_quick_run_that_insists_makes_one_attempt(bench: Any) -> None:
    payload = bench.check(bench.run(gpu(1), gpu(2), box="on").path)
    (role,) = payload.box.roles
    assert (len(role.attempts), role.tops) == (1, pytest.approx(2.0))
    assert any(e.workload != PEAK for e in payload.entries)


@pytest.mark.parametrize(
    ("fields", "error", "sentence"),
    [
        ({"engines": ("virtual-dgpu-1",)}, NothingToMeasure, "only one .*reaches dgpu-2"),
        ({"box": "on", "workloads": ("tiny-net",)}, UsageError, "peak of each card"),
    ],
)
def test_what_cannot_be_summed_is_refused_before_anything_is_measured(
    bench: Any, fields: dict[str, Any], error: type[Exception], sentence: str
) -> None:
    """Which cards there are, orchestrator.box_choice says."""
    with pytest.raises(error, match=sentence):
        only(bench, gpu(1), gpu(2), **fields)
    assert bench.runs() == []


def test_a_peak_that_would_be_skipped_is_refused_with_the_reason(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("npumark.orchestrator.preparation.sensors.available_memory", lambda: 1)
    with pytest.raises(UsageError, match=r"peak of each card.*: not enough memory"):
        bench.run(gpu(1), gpu(2), box="on")
    assert bench.runs() == []


def test_cards_that_do_not_fit_into_memory_at_once_are_not_started(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them alone does."""
    monkeypatch.setattr("npumark.orchestrator.box.available_memory", lambda: 1)
    outcome = only(bench, gpu(1), gpu(2))
    assert outcome.exit_code == NothingToMeasure.exit_code  # no card has failed
    payload = bench.check(outcome.path)
    assert payload.complete
    (role,) = payload.box.roles
    assert all(card.solo.tops == pytest.approx(1.0) for card in role.cards)
    assert "all cards at once: not enough memory: " in role.why
    (attempt,) = role.attempts
    assert (attempt.status, attempt.cards, attempt.wall_ns) == ("skipped", [], 0)
    assert not any(isinstance(e, BoxStarted) for e in bench.events)


def test_some_cards_by_number(bench: Any) -> None:
    outcome = only(bench, *map(gpu, (1, 2, 3)), box_roles=("dGPU",), box_cards=("3", "1"))
    payload = bench.check(outcome.path)
    assert payload.plan.box.cards == ["dgpu-3", "dgpu-1"]
    (role,) = payload.box.roles
    assert [c.card for c in role.cards] == ["dgpu-1", "dgpu-3"]
    assert [(c.card, c.why) for c in role.left_out] == [("dgpu-2", "it was not asked for")]
    assert {e.engine for e in payload.entries} == {"virtual-dgpu-1", "virtual-dgpu-3"}


def test_a_card_that_crashes_voids_the_attempt_and_is_named(bench: Any) -> None:
    """The next attempt starts apart, within the time there is."""
    bench.rules["spacing_s"] = "2.5"
    faulty = gpu(2, faults=[in_window("abort", 2)])
    outcome = only(bench, gpu(1), faulty, time_budget_s=2000.0)
    assert outcome.exit_code == 1
    payload = bench.check(outcome.path)
    assert payload.complete
    (role,) = payload.box.roles
    first, second = role.attempts
    assert (first.counts, second.counts) == (False, True)
    assert first.void_because[0].startswith("dgpu-2 crashed")
    assert len(first.void_because) == 1
    assert first.cards[0].status in ("ok", "interrupted")
    assert second.started_ns - first.started_ns >= 2_500_000_000
    assert role.tops == pytest.approx(2.0)


def test_a_card_that_keeps_crashing_leaves_no_total(bench: Any) -> None:
    bench.rules["box.max_attempts"] = "2"
    outcome = only(bench, gpu(1), gpu(2, faults=[in_window("abort", *range(2, 12))]))
    assert outcome.exit_code == 4
    payload = bench.check(outcome.path)
    (role,) = payload.box.roles
    assert payload.complete
    assert len(role.attempts) == 2
    assert role.tops is None
    assert "dgpu-2 crashed" in role.why


def test_a_wrong_answer_ends_the_stage(bench: Any) -> None:
    """It can never count, so that it is not tried again."""
    wrong = {"do": "zeros", "variant": "int8-*", "attempts": [2]}
    outcome = only(bench, gpu(1), gpu(2, faults=[wrong]))
    assert outcome.exit_code == 4
    (role,) = bench.check(outcome.path).box.roles
    (attempt,) = role.attempts
    assert attempt.void_because[0].startswith("dgpu-2 answered wrong")


def test_a_time_budget_ends_a_run_before_an_attempt_that_would_not_fit(bench: Any) -> None:
    """What is then in its journal is believed only whole."""
    bench.rules["lead_s"] = "3000.0"
    partial = only(bench, gpu(1), gpu(2), time_budget_s=2000.0)
    payload = bench.check(partial.path)
    assert not payload.complete
    assert "time_budget" in payload.not_comparable_because
    assert payload.box.roles[0].attempts == []
    assert partial.exit_code == NothingToMeasure.exit_code
    (folder,) = bench.runs()
    with (folder / "journal.jsonl").open("a") as journal:
        line = {"kind": "box_starting", "role": "CPU", "n": 1, "started_ns": 5}
        journal.write(json.dumps(line) + "\n")
    with pytest.raises(IntegrityError, match=r"damaged.*: a line after the first has a wrong role"):
        resume(bench)


@posix
def test_a_run_killed_in_the_box_stage_is_completed(bench: Any, await_line: Await) -> None:
    """With every engine that it wants, and not without one."""
    cards = [gpu(1), gpu(2, faults=[in_window("abort", 2)])]
    with bench.start(*cards, box="only") as process:
        await_line(process, "BoxEnded")
        await_line(process, "BoxStarted")
        process.kill()
        process.wait(30)
    (folder,) = bench.runs()
    told = replay(read_journal(folder / "journal.jsonl"))
    assert told.box_in_flight is not None
    assert (len(told.box), told.box_in_flight["n"]) == (1, 2)
    bench.script(gpu(1))
    with pytest.raises(UsageError, match="virtual-dgpu-2 is not available any more") as gone:
        resume(bench)
    assert "What was measured is in" in str(gone.value.hint)
    bench.script(*cards)
    outcome = resume(bench)
    assert outcome.exit_code == 1  # the first attempt is void
    payload = bench.check(outcome.path)
    assert payload.complete
    (role,) = payload.box.roles
    assert [(a.n, a.status, a.counts) for a in role.attempts] == [
        (1, "ran", False),
        (2, "interrupted", False),
        (3, "ran", True),
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
    assert main(["history", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["runs"]
    assert row["box_only"] is True
    assert row["box"] == [{name: role[name] for name in ("role", "tops", "scaling", "why")}]
    assert row["box"][0]["tops"] is not None
    assert main(["verify", "last", "--manifest", str(bench.manifest)]) == 0
    assert "from 4 attempts; the raw samples agree" in capsys.readouterr().out
    assert main(["box", "--role", "npu", *words]) == NothingToMeasure.exit_code
    assert "nothing to sum: no NPU" in capsys.readouterr().err
    assert main(["box", "--dry-run", *words]) == 0
    most = bench.policy.box.max_attempts
    told = capsys.readouterr().out
    assert "dGPU  dgpu-1, dgpu-2" in told
    assert f" alone  3 to {most} at all cards at once" in told
    assert main(["box", "--dry-run", "--quick", "--from", "last", *words]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "All cards at once and nothing else, with the solo peaks of another record;" in shown
    assert f"attempts 1 to {most} at all cards at once" in shown


def test_raw_samples_that_could_not_be_kept_are_told_by_the_run_and_by_verify(
    bench: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def in_the_way(folder: RunFolder) -> Path:
        born = not folder.path.name.startswith(".")
        return (folder.journal if born else folder.path) / "samples"

    monkeypatch.setattr("npumark.orchestrator.run.load_policy", lambda: bench.policy)
    monkeypatch.setattr("npumark.policy.load_policy", lambda: bench.policy)
    manifest = ["--manifest", str(bench.manifest)]
    words = ["--quick", "--virtual", str(bench.script(gpu(1), gpu(2))), *manifest]
    assert main(["box", *words]) == 0
    assert "raw samples" not in capsys.readouterr().err
    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "samples", property(in_the_way))
        assert main(["box", *words]) == 0
    assert re.search(r"note: (\d+) of \1 attempts kept no raw samples", capsys.readouterr().err)
    assert main(["verify", "last", *manifest]) == 0
    told = capsys.readouterr().out
    assert re.search(r"; no raw samples lie beside it, and (\d+) of \1 attempts kept none", told)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return the record of a quick run of two cards, made once."""
    home = tmp_path_factory.mktemp("peaks") / "home"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NPUMARK_HOME", str(home))
        bench = make_bench(home)
        bench.rules |= SHORT
        return Path(bench.run(gpu(1), gpu(2), workloads=(PEAK,)).path).read_bytes()


@pytest.fixture
def peaks(whole_bench: Any, measured: bytes) -> Path:
    path = Path(whole_bench.home / "peaks.json")
    path.write_bytes(measured)
    return path


def test_a_quick_run_leaves_the_box_stage_out_and_says_so(peaks: Path) -> None:
    payload = read_record(peaks).payload
    assert payload.box is None
    assert "a quick run leaves the box stage out" in payload.box_why
    assert payload.complete


def test_the_peaks_of_another_record(
    whole_bench: Any,
    peaks: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("npumark.policy.load_policy", lambda: whole_bench.policy)
    source = read_record(peaks)
    cards = [gpu(n, compiles={}) for n in (1, 2)]  # these peaks are no entries of the run
    outcome = only(whole_bench, *cards, box_from=peaks)
    assert outcome.exit_code == 0
    payload = whole_bench.check(outcome.path)
    assert payload.entries == []
    assert {"virtual", "selection"} <= set(payload.not_comparable_because)
    (role,) = payload.box.roles
    assert role.scaling == pytest.approx(1.0)
    assert {s.source.run_id for s in payload.plan.box.solo} == {source.payload.run_id}
    assert {s.source.payload_sha256 for s in payload.plan.box.solo} == {source.payload_sha256}
    assert {(s.source.quick, s.source.noisy) for s in payload.plan.box.solo} == {
        (True, source.payload.environment.noisy)
    }
    assert any(isinstance(e, Note) and source.payload.run_id in e.text for e in whole_bench.events)
    assert payload.harness["overhead_ns"]
    assert main(["verify", str(outcome.path), "--manifest", str(whole_bench.manifest)]) == 0
    told = capsys.readouterr().out
    assert f"with the solo peaks that run {source.payload.run_id} states; the raw" in told
    with pytest.raises(UsageError, match="took its peaks from another record"):
        only(whole_bench, gpu(1), gpu(2), box_from=outcome.path)


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
    assert bench.runs() == []


def test_a_dry_run_tells_the_cards_and_the_time(bench: Any) -> None:
    """What is told before the plan is shown is its least time."""
    told: list[Event] = []
    bench.rules["quick_idle_window_s"] = "0.25"
    request = bench.request(gpu(1), gpu(2), box="only")
    found = dry_run(request, told.append, policy=bench.policy)
    (choice,) = found.box.choices
    assert [p.id for p in choice.cards] == ["dgpu-1", "dgpu-2"]
    low, high = found.box_s
    assert 0 < low < high
    (made,) = [e for e in told if isinstance(e, PlanMade)]
    assert made.estimate_s == found.estimate.seconds[0]
    assert made.beside_s == found.idle_window_s + low
    assert found.idle_window_s > 0
    assert found.box_attempts == (1, bench.policy.box.max_attempts)
    unseen = dry_run(replace(request, skip_preconditions=True), policy=bench.policy)
    assert unseen.idle_window_s == 0
    quiet = dry_run(bench.request(gpu(1), gpu(2)), policy=bench.policy)
    assert (quiet.box.choices, quiet.box_s) == ((), (0.0, 0.0))
