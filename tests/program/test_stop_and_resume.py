"""Real signals to a real process: what was measured is kept, and a killed run is completed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pytest

from npumark.errors import IntegrityError, Interrupted, SetupError, UsageError
from npumark.machine import sensors
from npumark.orchestrator import run
from npumark.orchestrator.events import AttemptEnded
from npumark.orchestrator.interrupts import Interrupts
from npumark.orchestrator.journal import read_journal, replay
from npumark.orchestrator.request import RunRequest
from npumark.orchestrator.run import execute
from npumark.orchestrator.worker_env import MARKER
from npumark.pack import store
from npumark.pack.manifest import load_manifest
from npumark.record.files import read_record

pytestmark = pytest.mark.skipif(os.name != "posix", reason="sends POSIX signals")

Card = Callable[..., dict[str, Any]]
Await = Callable[[subprocess.Popen[str], str], list[str]]
PEAK, NET = "peak-4x8x1", "tiny-net"
HANG = {"do": "hang", "workload": NET, "variant": "fp32", "attempts": [1]}


def workers(process: int) -> list[int]:
    """Return the living processes that carry the marker of a run's process."""
    found = []
    for other in psutil.process_iter():
        try:
            if other.environ().get(MARKER, "").startswith(f"npumark-{process}-"):
                found.append(other.pid)
        except psutil.Error:
            continue
    return found


def await_hang(bench: Any, attempt: str) -> None:
    """Wait until a worker has begun to load, which the script's state folder shows."""
    until = time.monotonic() + 120
    while not (bench.home / "script.attempts" / attempt).exists():
        assert time.monotonic() < until
        time.sleep(0.01)


def resume(bench: Any, **fields: Any) -> Any:
    request = RunRequest(**{"resume": "last", **fields})
    return execute(request, bench.events.append, policy=bench.policy)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_the_worker_and_saves(
    bench: Any, make_card: Card, await_line: Await, number: signal.Signals
) -> None:
    with bench.start(make_card(faults=[HANG]), workloads=(NET,)) as process:
        await_line(process, f"AttemptStarted {NET} fp32 1")
        await_hang(bench, f"virtual-cpu.{NET}.fp32.1")
        process.send_signal(number)
        assert process.wait(60) == 130  # the hang by itself never ends
        assert workers(process.pid) == []
    (folder,) = bench.runs()
    payload = bench.check(folder / "record.json")
    assert [a.status for e in payload.entries for a in e.attempts] == ["interrupted"]
    assert not payload.complete


def test_a_signal_before_anything_is_measured(bench: Any, await_line: Await) -> None:
    bench.rules["quick_idle_window_s"] = "60.0"
    with bench.start() as process:
        await_line(process, "Stage preconditions")
        process.send_signal(signal.SIGINT)
        lines = process.communicate(timeout=30)[0].splitlines()
        assert process.returncode == Interrupted.exit_code
    assert lines == ["error stopped before anything was measured"]
    assert bench.runs() == []


def test_a_stop_during_a_wait_is_immediate(bench: Any, await_line: Await) -> None:
    bench.rules["spacing_s"] = "60.0"
    with bench.start(quick=False, workloads=(NET,), variants=("fp32",)) as process:
        await_line(process, "Stage spacing")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 130
    (folder,) = bench.runs()
    assert len(bench.check(folder / "record.json").entries[0].attempts) == 1


def test_the_orchestrator_imports_no_engine(bench: Any, await_line: Await) -> None:
    with bench.start(workloads=(NET,), variants=("fp32",)) as process:
        modules = set(await_line(process, "modules")[-1].split())
        assert process.wait(30) == 0
    assert "psutil" in modules
    assert not modules & {"onnxruntime", "openvino", "mlx", "coremltools", "torch", "onnx"}


@pytest.mark.parametrize(
    "moments",
    [
        ("Stage overhead",),
        (
            f"AttemptStarted {NET} fp32 1",
            f"AttemptStarted {NET} fp32 2",
            "Stage preconditions",
            f"AttemptStarted {NET} int8-u8s8 1",
        ),
    ],
)
def test_a_killed_run_is_completed(bench: Any, await_line: Await, moments: tuple[str, ...]) -> None:
    """Killed once or several times, in an attempt, before one, while being resumed."""
    process = bench.start(workloads=(NET,))
    for moment in moments:
        with process:
            await_line(process, moment)
            process.kill()
            process.wait(30)
        before = replay(read_journal(bench.runs()[0] / "journal.jsonl"))
        process = bench.resume_in_process()
    with process:
        await_line(process, "record")
        assert process.wait(30) == 0
    (folder,) = bench.runs()
    payload = bench.check(folder / "record.json")
    assert payload.complete
    assert payload.run_id == folder.name
    assert all(e.changed == [] for e in payload.resumed)
    assert [e.status for e in payload.entries] == ["ok"] * 2
    state = replay(read_journal(folder / "journal.jsonl"))
    assert state.finished
    for key, attempts in before.attempts.items():
        assert state.attempts[key][: len(attempts)] == attempts
    if before.in_flight is not None:
        void = [a for e in payload.entries for a in e.attempts if a.status == "interrupted"]
        assert void[-1].started_ns == before.in_flight["started_ns"]
        assert "npumark ended before" in (void[-1].why or "")


def test_a_worker_of_a_killed_run_ends_with_it_or_with_the_next(
    bench: Any, make_card: Card, await_line: Await
) -> None:
    with bench.start(make_card(faults=[HANG]), workloads=(NET,)) as process:
        await_line(process, f"AttemptStarted {NET} fp32 1")
        await_hang(bench, f"virtual-cpu.{NET}.fp32.1")
        process.kill()
        process.wait(30)
    if sys.platform == "linux":
        until = time.monotonic() + 60
        while workers(process.pid) and time.monotonic() < until:
            time.sleep(0.01)
        assert workers(process.pid) == []
    assert resume(bench).exit_code == 0
    assert workers(process.pid) == []


def test_spacing_is_kept_through_a_kill(bench: Any, await_line: Await) -> None:
    bench.rules["spacing_s"] = "3.0"
    with bench.start(quick=False, workloads=(NET,), variants=("fp32",)) as process:
        await_line(process, f"AttemptStarted {NET} fp32 2")
        process.kill()
        process.wait(30)
    (entry,) = bench.check(resume(bench).path).entries
    starts = [a.started_ns for a in entry.attempts]
    assert [a.n for a in entry.attempts] == [1, 2, 3, 4]
    assert all(later - earlier >= 3_000_000_000 for earlier, later in pairwise(starts))


def test_what_disturbed_the_first_part_is_told_of_the_whole(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the loudness of an earlier part nor its share is lost with its process."""
    bench.rules["max_busy"] = "0.2"
    between = sensors.load_between

    def loud(first: Any, last: Any) -> dict[str, Any]:
        return {**between(first, last), "cpu_s": 60.0, "others": share}

    monkeypatch.setattr(sensors, "load_between", loud)
    interrupts = Interrupts()
    monkeypatch.setattr(run, "Interrupts", lambda: interrupts)

    def stop_after_one(event: object) -> None:
        if isinstance(event, AttemptEnded):
            interrupts.trigger()

    share = 0.5
    partial = execute(bench.request(workloads=(NET,)), stop_after_one, policy=bench.policy)
    assert partial.exit_code == 130
    assert partial.record.payload.environment.noisy
    lines = read_journal(bench.runs()[0] / "journal.jsonl")
    kept = [line.body["parts"] for line in lines if line.kind in ("attempt", "parts")]
    assert [[part["load"]["others"] for part in parts] for parts in kept] == [[0.5]] * len(kept)
    assert len(kept) == 2
    share = 0.0
    interrupts.count = 0
    payload = bench.check(resume(bench).path)
    assert payload.complete
    assert payload.environment.checks["load_beside_measuring"].value == 0.25
    assert [p["load"]["others"] for p in payload.environment.facts["parts"]] == [0.5, 0.0]
    assert payload.environment.noisy
    assert "noisy" in payload.warnings


@pytest.fixture
def stopped(bench: Any, await_line: Await) -> Path:
    """The folder of a run that was killed in its second attempt."""
    with bench.start() as process:
        await_line(process, f"AttemptStarted {PEAK} int8-u8s8 1")
        process.kill()
        process.wait(30)
    (folder,) = bench.runs()
    return Path(folder)


def edit_header(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    lines = (folder / "journal.jsonl").read_bytes().splitlines(keepends=True)
    header = json.loads(lines[0])
    change(header)
    lines[0] = json.dumps(header).encode() + b"\n"
    (folder / "journal.jsonl").write_bytes(b"".join(lines))


def test_a_reboot_and_a_new_driver_are_told(bench: Any, stopped: Path) -> None:
    def yesterday(header: dict[str, Any]) -> None:
        header["state"]["boot"] = "another"
        header["state"]["engines"]["virtual-cpu"]["versions"] = {"driver": "1"}
        header["origin_ns"] += 10**15  # the monotonic clock began anew
        header["wall_ns"] -= 3600 * 10**9

    edit_header(stopped, yesterday)
    payload = bench.check(resume(bench).path)
    assert [e.changed for e in payload.resumed] == [["boot", "engine virtual-cpu"]]
    assert "resumed_changed" in payload.not_comparable_because
    starts = [a.started_ns for e in payload.entries for a in e.attempts]
    assert payload.resumed[0].at_ns >= 3600 * 10**9
    assert starts[-1] > 3600 * 10**9


def test_another_pack_is_told(bench: Any, stopped: Path) -> None:
    text = bench.manifest.read_text()
    before = store.pack_root(load_manifest(bench.manifest))
    bench.manifest.write_text(text + "\n")
    before.rename(store.pack_root(load_manifest(bench.manifest)))
    payload = bench.check(resume(bench).path)
    assert [e.changed for e in payload.resumed] == [["pack"]]


def test_an_engine_that_is_gone_stops_a_resumption_before_it_measures(
    bench: Any, make_card: Card, stopped: Path
) -> None:
    """Its attempts would all fail, and be recorded as its own faults."""
    journal = (stopped / "journal.jsonl").read_bytes()
    bench.script(make_card(available=False, reason="no driver"))
    with pytest.raises(SetupError) as told:
        resume(bench)
    assert told.value.message == (
        "the engine virtual-cpu has attempts left to run and is not available: no driver"
    )
    assert f"then `npumark run --resume {stopped.name}`; what was measured is kept" in str(
        told.value.hint
    )
    assert (stopped / "journal.jsonl").read_bytes() == journal
    bench.script(make_card())
    payload = bench.check(resume(bench).path)
    assert payload.complete
    assert len(payload.resumed) == 1


def test_an_environment_that_is_gone_is_named_with_what_brings_it_back(
    bench: Any, make_card: Card, stopped: Path
) -> None:
    def moved(header: dict[str, Any]) -> None:
        header["engines"][0]["runtime"]["environment"] = "qnn"

    edit_header(stopped, moved)
    bench.script(make_card("virtual-other"))
    with pytest.raises(SetupError, match="is not available: nothing is known of it") as told:
        resume(bench)
    assert str(told.value.hint).startswith("Run `npumark engines install qnn`, then `npumark run")


def test_an_engine_that_is_done_may_be_gone(bench: Any, make_card: Card, await_line: Await) -> None:
    """Only one that still has attempts to run is needed."""
    cards = (make_card("virtual-one"), make_card("virtual-two"))
    with bench.start(*cards, workloads=(NET,), variants=("fp32",)) as process:
        lines = await_line(process, f"AttemptStarted {NET} fp32 1")
        lines += await_line(process, f"AttemptStarted {NET} fp32 1")
        process.kill()
        process.wait(30)
    (folder,) = bench.runs()
    state = replay(read_journal(folder / "journal.jsonl"))
    ((done, *_),) = state.attempts
    bench.script(*(c if c["id"] != done else {**c, "available": False} for c in cards))
    payload = bench.check(resume(bench).path)
    assert payload.complete
    assert {e.status for e in payload.entries} == {"ok"}


def test_a_pack_without_the_planned_is_refused(bench: Any, stopped: Path) -> None:
    doc = json.loads(bench.manifest.read_text())
    doc["workloads"] = doc["workloads"][:1]
    bench.manifest.write_text(json.dumps(doc))
    with pytest.raises(UsageError, match="no longer has tiny-net"):
        resume(bench)


def test_resuming_what_cannot_be_is_refused(bench: Any, stopped: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot take --engine, --variant, --workload$"):
        resume(bench, engines=("virtual-cpu",), workloads=(NET,), variants=("fp32",))
    with pytest.raises(UsageError, match="cannot take --quick"):
        resume(bench, quick=True)
    with pytest.raises(UsageError, match="no saved run"):
        resume(bench, resume="2020")
    out = bench.home / "record.json"
    assert resume(bench, resume=stopped.name[:12], out=out).exit_code == 0
    assert out.exists()
    with pytest.raises(UsageError, match="is complete"):
        resume(bench, resume=stopped.name)
    with pytest.raises(UsageError, match="no stopped run"):
        resume(bench)


def test_a_resumed_run_replaces_its_own_output_only(bench: Any, await_line: Await) -> None:
    out = bench.home / "record.json"
    with bench.start(out=out, workloads=(NET,)) as process:
        await_line(process, f"AttemptStarted {NET} fp32 1")
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
    assert not bench.check(out).complete
    foreign = bench.home / "foreign.json"
    foreign.write_text("{}")
    with pytest.raises(UsageError, match="exists"):
        resume(bench, out=foreign)
    resume(bench)
    assert bench.check(out).complete
    assert foreign.read_text() == "{}"


def test_a_budget_ends_a_run_and_a_resumption_completes_it(bench: Any) -> None:
    partial = bench.run(quick=False, time_budget_s=1.0, workloads=(NET,))
    assert not partial.record.payload.complete
    assert replace(partial, exit_code=0).path.exists()
    stopped = read_record(partial.path).signatures
    done = resume(bench)
    assert bench.check(done.path).complete
    whole = read_record(done.path).signatures
    assert None not in (stopped, whole)  # each is signed as it then is
    assert whole != stopped


def _spoilt(lines: list[dict[str, Any]], kind: str, **changed: Any) -> None:
    next(line for line in lines if line["kind"] == kind).update(changed)


@pytest.mark.parametrize(
    ("kind", "changed"),
    [
        ("header", {"threads": "x"}),
        ("header", {"threads": 0}),
        ("header", {"origin_ns": "q"}),
        ("header", {"run_id": "20200101T000000Z-abcdef"}),
        ("header", {"request": None}),
        ("header", {"suite": {}}),
        ("header", {"environment": 4}),
        ("header", {"plan": [{}]}),
        ("attempt", {"attempt": {"n": 1, "started_ns": 1, "wall_ns": 1}}),
        ("attempt", {"entry": ["no", "such", "entry"]}),
    ],
)
def test_a_damaged_journal_is_refused_in_one_sentence(
    bench: Any, stopped: Path, kind: str, changed: dict[str, Any]
) -> None:
    path = bench.runs()[0] / "journal.jsonl"
    lines = [json.loads(text) for text in path.read_text().splitlines()]
    _spoilt(lines, kind, **changed)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(IntegrityError, match=r"journal\.jsonl is damaged.*: line \d") as told:
        resume(bench)
    assert "\n" not in told.value.message
    assert len(told.value.message) < 600
