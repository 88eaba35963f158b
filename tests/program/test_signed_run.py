"""Whole runs are signed once they are measured, and nothing about signing costs a run."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from npumark.machine.host import THIS
from npumark.machine.machine_id import machine_id
from npumark.orchestrator.events import Note, Saved
from npumark.orchestrator.request import RunRequest
from npumark.orchestrator.run import execute
from npumark.record import keystore, signed
from npumark.record.files import read_record
from npumark.record.key_info import info_path
from npumark.record.model import Record
from npumark.record.signed import check_signatures
from tests.program.test_box import SHORT, gpu
from tests.program.test_stop_and_resume import HANG, NET, await_hang

Card = Callable[..., dict[str, Any]]
Await = Callable[[subprocess.Popen[str], str], list[str]]


def notes(bench: Any) -> list[str]:
    return [event.text for event in bench.events if isinstance(event, Note)]


def key_of(record: Record) -> str:
    """Return the key that signed a record; its signatures hold."""
    assert record.signatures is not None
    return check_signatures(record.payload_sha256, record.signatures).key_id


def test_a_run_is_signed_wherever_its_record_lies(bench: Any, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    outcome = bench.run(out=out)
    assert key_of(outcome.record) == keystore.install_key().key_id
    assert read_record(out) == read_record(outcome.path) == outcome.record
    assert "signs with a key of its own from now on" in notes(bench)[-1]
    assert isinstance(bench.events[-1], Saved)
    bench.check(out)
    again = bench.run()
    assert key_of(again.record) == key_of(outcome.record)
    assert not any("key" in note for note in notes(bench))


def test_it_is_saved_whole_before_it_is_signed(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def look(record: Record) -> Record:
        seen.append(read_record(bench.runs()[0]))
        return sign(record)

    sign = signed.sign
    monkeypatch.setattr(signed, "sign", look)
    outcome = bench.run()
    (before,) = seen
    assert before.payload.complete
    assert (before.payload, before.signatures) == (outcome.record.payload, None)


def damage_the_note(_: pytest.MonkeyPatch) -> None:
    keystore.install_key()
    info_path().write_text("{}")


def wish_for_a_cloud(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(keystore.VARIABLE, "cloud")


def break_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: Record) -> Record:
        raise RuntimeError("a library is damaged")

    monkeypatch.setattr(signed, "sign", fails)


@pytest.mark.parametrize(
    ("break_it", "words"),
    [
        (damage_the_note, "is damaged"),
        (wish_for_a_cloud, "NPUMARK_KEYSTORE is 'cloud'"),
        (break_the_library, "the record is not signed: RuntimeError: a library is damaged"),
    ],
)
def test_whatever_keeps_it_from_being_signed_costs_no_run(
    bench: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    break_it: Callable[[pytest.MonkeyPatch], None],
    words: str,
) -> None:
    break_it(monkeypatch)
    outcome = bench.run(out=tmp_path / "out.json")
    assert outcome.exit_code == 0
    assert outcome.record.payload.complete
    assert read_record(outcome.path) == read_record(tmp_path / "out.json") == outcome.record
    assert outcome.record.signatures is None
    (told,) = [note for note in notes(bench) if "is not signed" in note]
    assert words in told
    assert "`npumark submit` signs" in told


@pytest.mark.skipif(os.name != "posix", reason="sends POSIX signals")
def test_a_stopped_run_is_signed_as_it_is_and_anew_when_it_is_completed(
    bench: Any, make_card: Card, await_line: Await
) -> None:
    with bench.start(make_card(faults=[HANG]), workloads=(NET,)) as process:
        await_line(process, f"AttemptStarted {NET} fp32 1")
        await_hang(bench, f"virtual-cpu.{NET}.fp32.1")
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    (folder,) = bench.runs()
    stopped = read_record(folder)
    assert not stopped.payload.complete
    key = key_of(stopped)
    whole = execute(RunRequest(resume="last"), policy=bench.policy).record
    assert whole.payload.complete
    assert key_of(whole) == key
    assert whole.signatures != stopped.signatures
    assert read_record(folder) == whole


def test_a_box_is_signed_too(bench: Any) -> None:
    bench.rules |= SHORT
    outcome = bench.run(gpu(1), gpu(2), box="only")
    assert key_of(outcome.record) == keystore.install_key().key_id


def test_no_record_holds_the_machine_id(bench: Any) -> None:
    raw = bench.run().path.read_text()
    own = THIS.read("/etc/machine-id").value
    assert machine_id() not in raw
    assert own is None or own not in raw
    assert keystore.install_key().key_id in raw
