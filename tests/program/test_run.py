"""Whole runs on virtual engines: what comes out, whatever an engine does."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from npumark.errors import NothingToMeasure, PackError, SetupError, UsageError
from npumark.machine import sensors
from npumark.orchestrator import measuring as loop
from npumark.orchestrator import preparation
from npumark.orchestrator.discover import Runtime
from npumark.orchestrator.events import AttemptEnded, AttemptStarted, Checked, Note, Saved
from npumark.orchestrator.interrupts import Interrupts
from npumark.orchestrator.journal import Journal
from npumark.orchestrator.lock import measuring
from npumark.orchestrator.run import dry_run, execute
from npumark.orchestrator.survey import runtimes as known_runtimes
from npumark.orchestrator.survey import survey
from npumark.pack import store
from npumark.pack.inspection import Fault
from npumark.pack.manifest import load_manifest
from npumark.pack.verify import EnsureResult, ensure
from npumark.record.files import read_record
from npumark.record.keystore import install_key
from npumark.record.model import Payload
from npumark.record.samples import check_samples

Card = Callable[..., dict[str, Any]]
PEAK, NET = "peak-4x8x1", "tiny-net"


def statuses(payload: Payload) -> dict[tuple[str, str], str]:
    return {(e.workload, e.variant): e.status for e in payload.entries}


def test_a_run_ends_with_a_score_and_a_record_that_recomputes(whole_bench: Any) -> None:
    out = whole_bench.run(quick=False)
    payload = whole_bench.check(out.path)
    assert out.exit_code == 0
    assert payload.complete
    assert payload.score is not None
    assert payload.score.label.endswith("INT8 (virtual)")
    assert payload.engines[0].delivered is not None
    counts = {(e.workload, e.variant): len(e.attempts) for e in payload.entries}
    # FP32 takes twice as long as INT8: below both screens, so it ran once.
    assert counts == {
        (PEAK, "fp32"): 1,
        (PEAK, "int8-u8s8"): 5,
        (NET, "fp32"): 1,
        (NET, "int8-u8s8"): 3,
    }
    assert payload.not_comparable_because == ["pack_not_verified", "virtual"]
    assert payload.harness["overhead_ns"]["call"] > 0
    assert {"discover", "pack", "overhead", "loop"} <= set(payload.where_time_went_ns)
    assert check_samples(out.record, out.path.parent / "samples") == []
    ended = [e for e in whole_bench.events if isinstance(e, AttemptEnded)]
    assert len(ended) == sum(counts.values())
    assert all(e.counts for e in ended)
    assert whole_bench.events[-1] == Saved(out.path, complete=True)


def test_attempts_of_an_entry_start_apart(bench: Any) -> None:
    bench.rules["spacing_s"] = "1.5"
    out = bench.run(quick=False, workloads=(NET,), variants=("fp32",))
    starts = [a.started_ns for a in bench.check(out.path).entries[0].attempts]
    gaps = [b - a for a, b in pairwise(starts)]
    assert len(gaps) == 2
    assert min(gaps) >= 1_500_000_000
    assert out.record.payload.where_time_went_ns["spacing"] > 0


DEATHS = {
    "segfault": ({"do": "segfault"}, "crashed", "SIGSEGV"),
    "kill": ({"do": "kill", "call": 3}, "crashed", "SIGKILL"),
    "abort": ({"do": "abort"}, "crashed", "SIGABRT"),
    "silent": ({"do": "exit", "code": 0}, "no_result", "without a result"),
    "exit": ({"do": "exit", "code": 7}, "crashed", "exit status 7"),
    "half": ({"do": "half_json"}, "no_result", "not whole"),
    "garbage": ({"do": "garbage"}, "no_result", "not whole"),
    "raise": ({"do": "raise"}, "crashed", "a virtual fault of two lines"),
    "memory": ({"do": "out_of_memory"}, "crashed", "out of memory"),
}


def test_a_dead_worker_costs_its_attempt_only(bench: Any, make_card: Card) -> None:
    cards = [make_card(name, variants=["fp32"], faults=[f]) for name, (f, _, _) in DEATHS.items()]
    out = bench.run(*cards, make_card(variants=["fp32"]), workloads=(NET,))
    entries = {e.engine: e for e in bench.check(out.path).entries}
    for name, (_, status, why) in DEATHS.items():
        entry = entries[name]
        assert (entry.status, entry.figure) == (status, None), name
        assert why in (entry.attempts[0].why or ""), name
        assert str(bench.home) not in (entry.attempts[0].log_tail or ""), name
    assert entries["virtual-cpu"].status == "ok"
    assert entries["virtual-cpu"].figure is not None
    assert out.exit_code == 1


def test_a_hang_is_a_timeout(bench: Any, make_card: Card) -> None:
    bench.rules["attempt_deadline_s"] = "3.0"
    hang = {"do": "hang", "workload": NET, "variant": "fp32", "call": 4}
    out = bench.run(make_card(faults=[hang]), workloads=(NET,))
    assert statuses(bench.check(out.path))[NET, "fp32"] == "timeout"
    assert out.exit_code == 1


def test_a_flood_on_stderr_does_no_harm(bench: Any, make_card: Card) -> None:
    bench.rules["log_cap_bytes"] = "65536"
    flood = {"do": "stderr_flood", "bytes": 16 << 20}
    out = bench.run(make_card(faults=[flood]), workloads=(NET,))
    assert set(statuses(bench.check(out.path)).values()) == {"ok"}
    logs = list((out.path.parent / "logs").glob(f"*{NET}*"))
    assert len(logs) == 2
    assert all(log.stat().st_size < 70_000 for log in logs)


def test_dead_peaks_leave_no_score(bench: Any, make_card: Card) -> None:
    out = bench.run(make_card(faults=[{"do": "segfault", "workload": "peak-*"}]))
    payload = bench.check(out.path)
    assert payload.score is None
    assert payload.score_why
    assert out.exit_code == 4


LIES = ("nan", "zeros", "scale", "roll", "memoised", "memoised_when_timed", "wrong_shape")


def test_wrong_answers_never_count(bench: Any, make_card: Card) -> None:
    cards = [
        make_card(
            do.replace("_", "-"),
            variants=["fp32"],
            faults=[{"do": do}],
            latency_us={"*/*": 100},
        )
        for do in LIES
    ]
    out = bench.run(*cards, make_card(variants=["fp32"]), workloads=(PEAK,))
    payload = bench.check(out.path)
    assert {e.engine for e in payload.entries if e.counts} == {"virtual-cpu"}
    assert {e.status for e in payload.entries if not e.counts} <= {"gate_failed", "crashed"}
    assert payload.score is not None
    assert payload.score.engine == "virtual-cpu"


def test_an_npu_that_did_not_do_the_work_is_caught(bench: Any, make_card: Card) -> None:
    npu = make_card(
        "virtual-npu",
        processor={"key": "npu0", "role": "NPU", "name": "Virtual NPU"},
        latency_us={"*/*": 1_000},
        placement={"verdict": "proved", "share": 0.1},
    )
    out = bench.run(make_card(variants=["fp32"]), npu, workloads=(PEAK,))
    payload = bench.check(out.path)
    lied = {e.status for e in payload.entries if e.engine == "virtual-npu"}
    assert lied == {"wrong_device"}
    assert {e.figure for e in payload.entries if e.engine == "virtual-npu"} == {None}
    ended = [e for e in bench.events if isinstance(e, AttemptEnded)]
    told = {e.tops for e in ended if e.entry.engine == "virtual-npu"}
    assert told == {None}
    assert {e.marks for e in ended} == {("virtual",)}
    assert payload.score is not None
    assert payload.score.engine == "virtual-cpu"
    assert out.exit_code == 1


def test_one_engine_down_costs_only_itself(bench: Any, make_card: Card) -> None:
    gone = make_card("virtual-gpu", available=False, reason="no driver")
    out = bench.run(make_card(), gone, workloads=(NET,))
    assert {e.engine for e in bench.check(out.path).entries} == {"virtual-cpu"}
    assert out.exit_code == 0
    found = {f.info.id: f.info.reason for f in survey(bench.script(make_card(), gone)).found}
    assert found == {"virtual-cpu": None, "virtual-gpu": "no driver"}


def test_nothing_to_measure_is_said(bench: Any, make_card: Card) -> None:
    with pytest.raises(NothingToMeasure, match="no driver"):
        bench.run(make_card(available=False, reason="no driver"))
    assert bench.runs() == []


@pytest.mark.parametrize(
    ("probe", "why"), [({"do": "segfault"}, "SIGSEGV"), ({"do": "raise"}, "a virtual fault")]
)
def test_a_probe_that_dies_is_a_reason(bench: Any, probe: dict[str, Any], why: str) -> None:
    bench.request()
    script = bench.script({"id": "virtual-cpu"}, probe=probe)
    (found,) = survey(script, bench.policy).found
    assert not found.info.available
    assert why in (found.info.reason or "")


def test_a_probe_that_hangs_is_a_reason(bench: Any) -> None:
    bench.rules["probe_deadline_s"] = "1.5"
    script = bench.script({"id": "virtual-cpu"}, probe={"do": "hang"})
    (found,) = survey(script, bench.policy).found
    assert found.info.reason is not None
    assert found.info.reason.startswith("its probe hung: no end within 1.5 s")


def test_unknown_names_are_refused(bench: Any) -> None:
    with pytest.raises(UsageError, match="no engine called 'cpu'"):
        bench.run(engines=("cpu",))
    with pytest.raises(UsageError, match="no script"):
        execute(replace(bench.request(), virtual=bench.home / "none.json"))
    with pytest.raises(UsageError, match="cannot be read"):
        execute(replace(bench.request(), manifest=bench.home / "none.json"))


def test_memory_that_a_container_withholds_is_not_planned_with(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sensors, "available_memory", lambda: 1)
    told = dry_run(bench.request(), policy=bench.policy)
    assert {p.skip for p in told.plan} != {None}
    assert all("not enough memory" in p.skip for p in told.plan if p.skip)


def test_a_second_measurement_is_refused_before_anything(bench: Any) -> None:
    with measuring("npumark run --all-variants"):
        for attempt in (
            bench.run,
            lambda: survey(bench.script()),
            lambda: dry_run(bench.request()),
        ):
            with pytest.raises(SetupError, match="`npumark run --all-variants`"):
                attempt()
    assert bench.runs() == []


def test_an_output_is_checked_before_and_written_after(bench: Any, tmp_path: Path) -> None:
    out = tmp_path / "record.json"
    few = {"workloads": (NET,), "variants": ("fp32",)}
    done = bench.run(out=out, **few)
    assert read_record(out) == done.record
    with pytest.raises(UsageError, match="exists"):
        bench.run(out=out)
    with pytest.raises(SetupError, match="does not exist"):
        bench.run(out=tmp_path / "missing" / "record.json")
    assert len(bench.runs()) == 1
    again = bench.run(out=out, force=True, **few)
    assert read_record(out).payload.run_id == again.record.payload.run_id


def test_a_dry_run_measures_and_writes_nothing(bench: Any) -> None:
    pack = store.pack_root(load_manifest(bench.manifest))
    (pack / f"{NET}/x.bin").unlink()
    told = dry_run(bench.request(), policy=bench.policy)
    assert len(told.plan) == 4
    assert told.missing_bytes == 3 * 4 * 8 * 2
    assert told.free_bytes > 0
    assert told.estimate.attempts == (4, 4)
    assert bench.runs() == []
    with pytest.raises(UsageError, match="--resume"):
        dry_run(replace(bench.request(), resume="last"))


def test_a_time_budget_ends_the_run_early(bench: Any) -> None:
    # However slow the machine, the first pass fits; however fast, the second may not begin.
    bench.rules["spacing_s"] = "600.0"
    out = bench.run(quick=False, time_budget_s=300.0)
    payload = bench.check(out.path)
    assert not payload.complete
    assert "time_budget" in payload.not_comparable_because
    assert out.exit_code == 0


def test_a_view_that_fails_costs_nothing(bench: Any) -> None:
    def broken(event: object) -> None:
        raise BrokenPipeError

    request = bench.request(workloads=(NET,))
    out = execute(request, broken, policy=bench.policy)
    assert out.record.payload.complete


def test_a_changed_file_runs_and_is_not_comparable(bench: Any) -> None:
    pack = store.pack_root(load_manifest(bench.manifest))
    graph = pack / f"{NET}/fp32.onnx"
    graph.write_bytes(graph.read_bytes()[::-1])
    out = bench.run(workloads=(NET,))
    payload = bench.check(out.path)
    assert not payload.suite.verified
    assert "fp32.onnx" in (payload.suite.why_not or "")
    assert set(statuses(payload).values()) == {"ok"}


def test_files_that_were_rebuilt_are_told_and_recorded(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = tuple(Fault(f"{n}.bin", "changed", f"{n}.bin has other bytes") for n in "abcd")

    def repaired(*given: Any, **named: Any) -> EnsureResult:
        return replace(ensure(*given, **named), rebuilt=faults)

    monkeypatch.setattr(preparation, "ensure", repaired)
    install_key()  # made by the first run, which says so
    out = bench.run(workloads=(NET,), variants=("fp32",))
    (note,) = [e for e in bench.events if isinstance(e, Note)]
    assert note.text.startswith("rebuilt in the pack: a.bin has other bytes; ")
    assert note.text.endswith("; and 1 more")
    facts = bench.check(out.path).environment.facts
    assert [f["path"] for f in facts["pack_files_rebuilt"]] == [f"{n}.bin" for n in "abcd"]


def test_a_missing_file_costs_the_entries_that_read_it(bench: Any) -> None:
    pack = store.pack_root(load_manifest(bench.manifest))
    (pack / f"{NET}/fp32.onnx").unlink()
    out = bench.run()
    seen = statuses(bench.check(out.path))
    assert seen[NET, "fp32"] == "pack_error"
    assert seen[NET, "int8-u8s8"] == "ok"
    assert out.exit_code == 1


def test_a_pack_without_any_file_is_an_integrity_error(bench: Any) -> None:
    pack = store.pack_root(load_manifest(bench.manifest))
    for path in pack.rglob("*.onnx"):
        path.unlink()
    assert bench.run().exit_code == PackError.exit_code


def test_sleep_voids_an_attempt_and_it_runs_again(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    naps = iter([7_000_000_000])

    class Watch:
        def slept_ns(self) -> int:
            return next(naps, 0)

    monkeypatch.setattr(loop, "SleepWatch", Watch)
    out = bench.run(workloads=(NET,), variants=("fp32",))
    (entry,) = bench.check(out.path).entries
    assert [a.status for a in entry.attempts] == ["interrupted", "ok"]
    assert entry.attempts[0].why == "the machine slept for 7.0 s during the attempt"
    assert entry.attempts[0].measurement is None
    assert out.exit_code == 0


def test_a_disk_that_fails_loses_nothing_measured(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = Journal.append
    starts = 0

    def full(self: Journal, kind: str, body: dict[str, Any]) -> None:
        nonlocal starts
        starts += kind == "starting"
        if starts == 3:
            raise SetupError("no space left while writing", "Free some space.")
        append(self, kind, body)

    monkeypatch.setattr(Journal, "append", full)
    with pytest.raises(SetupError) as told:
        bench.run()
    assert "npumark run --resume" in (told.value.hint or "")
    (folder,) = bench.runs()
    payload = bench.check(folder / "record.json")
    assert sum(len(e.attempts) for e in payload.entries) == 2


@pytest.mark.parametrize("complete", [True, False])
def test_an_output_that_fails_at_the_end_says_where_the_record_is(
    bench: Any, tmp_path: Path, complete: bool
) -> None:
    """As where a file has appeared meanwhile, which stays as it is."""
    out = tmp_path / "record.json"

    def listen(event: object) -> None:
        bench.events.append(event)
        if isinstance(event, Checked):
            out.write_text("mine")

    budget = None if complete else 0.001
    few = {"workloads": (NET,), "variants": ("fp32",), "quick": complete}
    request = bench.request(out=out, time_budget_s=budget, **few)
    with pytest.raises(UsageError, match="exists") as told:
        execute(request, listen, policy=bench.policy)
    (kept,) = bench.runs()
    assert str(kept / "record.json") in (told.value.hint or "")
    assert ("--resume" in (told.value.hint or "")) is not complete
    assert bench.check(kept / "record.json").complete is complete
    assert out.read_text() == "mine"
    assert bench.events[-1] == Saved(kept / "record.json", complete=complete)


def test_an_interrupt_keeps_what_was_measured(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Signals as an embedding program would pass them on; real ones are sent elsewhere."""
    caught: list[Interrupts] = []
    make = Interrupts.__init__

    def remember(self: Interrupts) -> None:
        make(self)
        caught.append(self)

    monkeypatch.setattr(Interrupts, "__init__", remember)

    def listen(event: object) -> None:
        bench.events.append(event)
        if isinstance(event, AttemptStarted) and event.done == 2:
            caught[-1].trigger()

    out = execute(bench.request(), listen, policy=bench.policy)
    payload = bench.check(out.path)
    assert out.exit_code == 130
    assert not payload.complete
    assert [a.status for e in payload.entries for a in e.attempts] == ["ok", "ok", "interrupted"]


def test_no_name_of_the_user_reaches_the_record(bench: Any) -> None:
    out = bench.run(workloads=(NET,), argv=("run", "--out", str(bench.home / "x.json")))
    text = json.dumps(out.record.model_dump(mode="json", by_alias=True))
    assert str(bench.home) not in text
    assert out.record.payload.plan.argv == ["run", "--out", "<npumark-home>/x.json"]


def test_a_runtime_that_broke_is_told_and_recorded(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:

    def runtimes(virtual: Path | None) -> Any:
        usable, refused = known_runtimes(virtual)
        return (*usable, Runtime("ort", "npumark.no_such_module:Engine")), refused

    monkeypatch.setattr("npumark.orchestrator.survey.runtimes", runtimes)
    out = bench.run(workloads=(NET,), variants=("fp32",))
    payload = bench.check(out.path)
    reason = payload.environment.facts["unavailable"]["ort"]
    assert "No module named 'npumark.no_such_module'" in reason
    notes = [e.text for e in bench.events if isinstance(e, Note)]
    assert f"ONNX Runtime could not be loaded, and is left out: {reason}" in notes
    started = next(i for i, e in enumerate(bench.events) if isinstance(e, AttemptStarted))
    assert any(isinstance(e, Note) for e in bench.events[:started])


def test_a_runtime_that_broke_is_no_news_where_others_are_named(
    bench: Any, make_card: Card, monkeypatch: pytest.MonkeyPatch
) -> None:

    def runtimes(virtual: Path | None) -> Any:
        usable, refused = known_runtimes(virtual)
        return (*usable, Runtime("mlx", "npumark.no_such_module:Engine")), refused

    monkeypatch.setattr("npumark.orchestrator.survey.runtimes", runtimes)
    install_key()  # made by the first run, which says so
    request: dict[str, Any] = {"workloads": (NET,), "variants": ("fp32",)}

    def notes(*engines: str) -> list[str]:
        out = bench.run(make_card(), engines=engines, **request)
        assert out.exit_code == 0
        return [e.text for e in bench.events if isinstance(e, Note)]

    assert notes("virtual-cpu") == []
    (told,) = notes("virtual-cpu", "mlx")
    assert told.startswith("mlx-gpu, mlx-cpu are left out: ")


def test_a_chain_beside_the_score_cannot_leave_a_run_without_one(
    bench: Any, make_card: Card
) -> None:
    old = store.pack_root(load_manifest(bench.manifest))
    doc = json.loads(bench.manifest.read_text())
    doc["workloads"].append({**doc["workloads"][0], "id": "peak-extra", "tier": "extra"})
    bench.manifest.write_text(json.dumps(doc))
    shutil.copytree(old, store.pack_root(load_manifest(bench.manifest)))

    card = make_card(faults=[{"workload": "peak-extra", "do": "segfault"}])
    out = bench.run(card, workloads=("peak-extra", NET), variants=("fp32",))
    assert bench.check(out.path).score is None
    assert statuses(out.record.payload)["peak-extra", "fp32"] == "crashed"
    assert out.exit_code == 1
    assert bench.run(card, workloads=("peak-extra",), variants=("fp32",)).exit_code == 4


def test_nothing_is_measured_while_the_environments_are_changed(
    bench: Any,
    make_card: Callable[..., dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another home installs into the folder that this one measures with."""
    monkeypatch.setenv("NPUMARK_ENGINES", str(tmp_path / "shared"))
    request = bench.request(make_card(), workloads=(NET,))
    with measuring("npumark engines install qnn", tmp_path / "shared"):
        for act in (
            lambda: execute(request, policy=bench.policy),
            lambda: dry_run(request, policy=bench.policy),
            lambda: survey(request.virtual),
        ):
            with pytest.raises(SetupError, match=r"at work .*`npumark engines install qnn`"):
                act()
    assert bench.runs() == []
    assert execute(request, policy=bench.policy).exit_code == 0
