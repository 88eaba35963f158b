"""The command line over whole runs on virtual engines: what a user, or a script, gets."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from npumark.cli.app import main
from npumark.cli.run import named
from npumark.orchestrator.lock import measuring
from npumark.record.files import read_record, seal, write_record
from npumark.record.model import Payload

Card = Callable[..., dict[str, Any]]
Call = Callable[..., int]


@pytest.fixture
def call(bench: Any, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Return a caller of the command line whose runs use the bench's pack, engines and policy."""
    monkeypatch.setattr("npumark.orchestrator.run.load_policy", lambda: bench.policy)
    monkeypatch.setattr("npumark.orchestrator.survey.load_policy", lambda: bench.policy)
    monkeypatch.setattr("npumark.policy.load_policy", lambda: bench.policy)

    def run(command: str, *words: str, cards: tuple[dict[str, Any], ...] = ()) -> int:
        given = [command, *words]
        if command in ("run", "engines"):
            given += ["--virtual", str(bench.request(*cards).virtual)]
        if command in ("run", "verify"):
            given += ["--manifest", str(bench.manifest)]
        return main(given)

    return run


def test_a_run_is_reported_verified_and_listed(
    call: Call, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("run", "--quick") == 0
    first = capsys.readouterr()
    assert " TOPS · CPU · " in first.out.splitlines()[0]
    assert "made up for tests" in first.out
    assert "[4/4]" in first.err
    assert "\x1b" not in first.out + first.err

    assert call("report") == 0
    assert capsys.readouterr().out == first.out
    assert call("verify", "last") == 0
    assert "recomputes exactly" in capsys.readouterr().out
    assert call("history") == 0
    assert re.search(r"complete +no, quick\n", capsys.readouterr().out)


def test_raw_samples_that_changed_are_named(
    call: Call, bench: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("run", "--quick") == 0
    assert call("verify", "last") == 0
    assert "the raw samples agree" in capsys.readouterr().out
    (folder,) = bench.runs()
    for raw in (folder / "samples").iterdir():
        data = bytearray(raw.read_bytes())
        data[0] ^= 1
        raw.write_bytes(data)
    assert call("verify", "last", "--json") == 5
    said = json.loads(capsys.readouterr().out)["raw_samples"]
    assert len(said) == 4
    assert all("no file in" in text for text in said)


def test_attempts_that_kept_no_raw_samples_are_counted(
    call: Call, bench: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("run", "--quick") == 0
    (folder,) = bench.runs()
    record = read_record(folder / "record.json")
    document = record.payload.model_dump(mode="python", by_alias=True)
    document["entries"][0]["attempts"][0]["measurement"]["samples_sha256"] = None
    write_record(folder / "record.json", seal(Payload.model_validate(document)), force=True)
    assert call("verify", "last") == 0
    assert "agree, and 1 of 4 attempts kept none" in capsys.readouterr().out


def test_json_is_one_document_and_nothing_else(
    call: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "record.json"
    assert call("run", "--quick", "--json", "--out", str(out)) == 0
    printed = capsys.readouterr().out
    assert printed.encode() == out.read_bytes()
    run_id = json.loads(printed)["payload"]["run_id"]

    assert call("report", run_id[:12], "--json") == 0
    assert capsys.readouterr().out == printed
    assert call("verify", str(out), "--json") == 0
    assert json.loads(capsys.readouterr().out)["verified"] is True
    assert call("history", "--json") == 0
    assert [r["run_id"] for r in json.loads(capsys.readouterr().out)["runs"]] == [run_id]
    assert call("engines", "--json") == 0
    (engine,) = json.loads(capsys.readouterr().out)["engines"]
    assert (engine["id"], engine["available"], engine["reason"]) == ("virtual-cpu", True, None)
    assert "key" not in engine["processor"]


def test_a_dry_run_shows_the_plan_and_measures_nothing(
    call: Call, bench: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("run", "--quick", "--dry-run") == 0
    text = capsys.readouterr().out
    assert "4 entries on 1 engine; nothing has been measured." in text
    assert "projected" in text
    assert call("run", "--quick", "--dry-run", "--json") == 0
    plan = json.loads(capsys.readouterr().out)
    assert len(plan["plan"]) == 4
    assert plan["fits"] is True
    assert bench.runs() == []


def test_an_engine_that_is_not_here_costs_the_others_nothing(
    call: Call, make_card: Card, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = make_card("virtual-npu", available=False, reason="it needs its driver")
    words = ("run", "--quick", "-e", "virtual-cpu", "-e", "virtual-npu")
    assert call(*words, cards=(make_card(), gone)) == 0
    said = capsys.readouterr()
    assert "virtual-npu is left out: it needs its driver\n" in said.err
    assert "TOPS" in said.out


def test_a_dry_run_beside_a_measurement_says_why_it_waits(
    call: Call, capsys: pytest.CaptureFixture[str]
) -> None:
    with measuring("npumark run --all-variants"):
        assert call("run", "--dry-run") == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "`npumark run --all-variants`" in said
    assert "A dry run runs small models on the engines too, which would disturb it. Wait" in said


def test_unknown_names_list_the_valid_ones(call: Call, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("run", "--engine", "virtual-cpv") == 2
    assert "Did you mean virtual-cpu?" in capsys.readouterr().err
    assert call("run", "--workload", "resnet51") == 2
    assert "peak-4x8x1, tiny-net" in capsys.readouterr().err
    assert call("run", "--variant", "int3") == 2
    assert "fp32, int8-u8s8" in capsys.readouterr().err


def test_an_output_that_cannot_be_written_is_told_before_anything_is_measured(
    call: Call, bench: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    taken = tmp_path / "taken.json"
    taken.write_text("mine")
    for out in (taken, tmp_path, tmp_path / "no" / "such" / "folder.json"):
        assert call("run", "--quick", "--out", str(out)) == 2
        captured = capsys.readouterr()
        assert str(out) in captured.err or str(out.parent) in captured.err
        assert captured.out == ""
        assert "next: " in captured.err
    assert taken.read_text() == "mine"
    assert bench.runs() == []
    assert call("run", "--quick", "--out", str(taken), "--force") == 0
    assert json.loads(taken.read_text())["payload"]


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="needs modes to matter")
def test_a_read_only_folder_is_told_at_once(
    call: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tmp_path.chmod(0o500)
    try:
        assert call("run", "--quick", "--out", str(tmp_path / "record.json")) == 2
    finally:
        tmp_path.chmod(0o700)
    assert "no permission" in capsys.readouterr().err


def test_nothing_to_measure_is_3(
    call: Call, make_card: Card, capsys: pytest.CaptureFixture[str]
) -> None:
    card = make_card(available=False, reason="its driver is missing")
    assert call("run", "--quick", cards=(card,)) == 3
    assert "its driver is missing" in capsys.readouterr().err
    assert call("engines", cards=(card,)) == 0
    out = capsys.readouterr().out
    assert "No engine can be measured here." in out
    assert "virtual-cpu: its driver is missing" in out


def test_a_crash_is_1_and_the_report_says_what_to_do(
    call: Call, make_card: Card, capsys: pytest.CaptureFixture[str]
) -> None:
    fault = {"workload": "tiny-net", "variant": "fp32", "do": "segfault"}
    assert call("run", "--quick", cards=(make_card(faults=[fault]),)) == 1
    captured = capsys.readouterr()
    assert "crashed: 1 entry" in captured.out
    assert "Update the runtime or the driver" in " ".join(captured.out.split())
    assert "crashed" in captured.err
    assert not re.search(r"(?<![\d.])0(\.0+)? TOPS", captured.out)


def test_workers_that_leave_no_score_are_4(
    call: Call, make_card: Card, capsys: pytest.CaptureFixture[str]
) -> None:
    card = make_card(faults=[{"do": "segfault"}])
    assert call("run", "--quick", cards=(card,)) == 4
    assert capsys.readouterr().out.startswith("No score: ")


def test_an_edited_record_is_5_and_the_difference_is_named(
    call: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from npumark.record.files import read_record, seal, write_record

    out = tmp_path / "record.json"
    assert call("run", "--quick", "--out", str(out)) == 0
    capsys.readouterr()
    text = out.read_text()
    out.write_text(text.replace('"attempts": 1', '"attempts": 2', 1))
    assert call("verify", str(out)) == 5
    captured = capsys.readouterr()
    assert "was changed after it was written" in captured.err
    assert captured.out.startswith("payload_sha256: recorded ")
    assert call("verify", str(out), "--json") == 5
    document = json.loads(capsys.readouterr().out)
    assert (document["record"], document["verified"]) == (str(out), False)
    assert "was changed after it was written" in document["error"]
    digest, figure = document["differences"]
    assert digest["path"] == "payload_sha256"
    assert (figure["recorded"], figure["recomputed"]) == (2, 1)

    out.write_text(text[:1000])
    assert call("verify", str(out), "--json") == 5
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    assert (document["verified"], document["differences"]) == (False, [])
    assert f"error: {document['error']}\n" in captured.err

    out.write_text(text)
    payload = read_record(out).payload
    assert payload.score is not None
    better = payload.score.model_copy(update={"tops": payload.score.tops * 2})
    write_record(out, seal(payload.model_copy(update={"score": better})), force=True)
    assert call("verify", str(out)) == 5
    captured = capsys.readouterr()
    assert captured.out.startswith("score.tops: recorded ")
    assert "does not recompute: 1 of its values" in captured.err
    assert call("verify", str(out), "--json") == 5
    (difference,) = json.loads(capsys.readouterr().out)["differences"]
    assert difference["path"] == "score.tops"
    assert difference["recorded"] == 2 * difference["recomputed"]


def test_strict_refuses_a_noisy_machine(
    call: Call, bench: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.rules |= {"quick_idle_window_s": "0.05", "max_busy": "-1.0"}
    assert call("run", "--quick", "--strict") == 2
    assert "Without --strict" in capsys.readouterr().err
    assert bench.runs() == []


def test_resume_takes_a_run_or_the_last_one() -> None:
    assert named(["--resume"]) == ["--resume", "last"]
    assert named(["--resume", "--json"]) == ["--resume", "last", "--json"]
    assert named(["--resume", "2026", "--json"]) == ["--resume", "2026", "--json"]
    assert named(["--resume=2026"]) == ["--resume=2026"]


def test_resuming_without_a_stopped_run_says_so(
    call: Call, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("run", "--resume") == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
