"""``npumark box`` as a script calls it: what it asks for, and what it refuses at once."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from npumark.cli.app import main
from npumark.cli.complete import roles
from npumark.orchestrator.request import RunRequest


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NPUMARK_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[RunRequest]:
    """Return the requests that are carried out; nothing is measured."""
    found: list[RunRequest] = []

    def take(request: RunRequest, _listen: Any) -> Any:
        found.append(request)
        box = SimpleNamespace(roles=[SimpleNamespace(why="dgpu-2 hung", attempts=[])])
        plan = SimpleNamespace(box=SimpleNamespace(mode=request.box))
        told = {"run_id": "a-run", "score_why": "nothing ran", "entries": []}
        payload = SimpleNamespace(plan=plan, box=box, **told)
        record = SimpleNamespace(payload=payload)
        return SimpleNamespace(record=record, path=Path("record.json"), exit_code=4)

    monkeypatch.setattr("npumark.orchestrator.run.execute", take)
    monkeypatch.setattr("npumark.cli.report.show", lambda *_, **__: None)
    return found


def test_the_command_measures_all_cards_and_nothing_else(asked: list[RunRequest]) -> None:
    assert main(["box"]) == 4
    (request,) = asked
    assert (request.box, request.box_roles, request.box_cards) == ("only", None, None)
    assert request.box_from is None


def test_roles_and_cards_in_the_ways_that_scripts_write_them(asked: list[RunRequest]) -> None:
    words = ["--role", "DGPU", "--role", "dgpu", "--cards", "1,3", "--cards", "dgpu-5, 7"]
    assert main(["box", *words, "--quick", "--time-budget", "60"]) == 4
    (request,) = asked
    assert request.box_roles == ("dGPU",)
    assert request.box_cards == ("1", "3", "dgpu-5", "7")
    assert (request.quick, request.time_budget_s) == (True, 60.0)


def test_a_record_may_be_a_file(asked: list[RunRequest], tmp_path: Path) -> None:
    assert main(["box", "--from", str(tmp_path / "peaks.json")]) == 4
    assert asked[0].box_from == tmp_path / "peaks.json"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--role", "gpu"], "there is no role 'gpu'"),
        (["--role", "cpu"], "the CPU is never summed"),
        (["--cards", ","], "it names no card"),
        (["--from", "last"], "no run is saved yet"),
        (["--skip-preconditions", "--strict"], "--strict acts on the state"),
        (["--time-budget", "inf"], "not a number of seconds"),
    ],
)
def test_what_makes_no_sense_is_refused(
    asked: list[RunRequest], words: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["box", *words]) == 2
    assert why in capsys.readouterr().err
    assert asked == []


@pytest.mark.parametrize(
    ("words", "mode"), [([], "auto"), (["--box"], "on"), (["--no-box"], "off")]
)
def test_a_run_measures_all_cards_at_once_or_leaves_it_out(
    asked: list[RunRequest], words: list[str], mode: str
) -> None:
    main(["run", *words])
    assert [request.box for request in asked] == [mode]


def test_resuming_takes_no_other_box_stage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--resume", "last", "--no-box"]) == 2
    assert "it cannot take --no-box" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "why"),
    [(["box"], "no box total: dgpu-2 hung"), (["run"], "no score: nothing ran")],
)
def test_a_status_without_a_figure_has_its_reason_on_standard_error(
    words: list[str], why: str, asked: list[RunRequest], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "--json"]) == 4
    assert len(asked) == 1
    told = f"error: {why}\nnext: `npumark report a-run` shows what there is.\n"
    assert capsys.readouterr().err.endswith(told)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--box", "--no-box"], "--box and --no-box contradict each other"),
        (["--role", "dGPU"], "--role is an option of `npumark box`"),
        (["--cards=1,2"], "--cards is an option of `npumark box`"),
        (["--from", "last"], "--from is an option of `npumark box`"),
    ],
)
def test_what_a_run_does_not_take_is_said(
    words: list[str], why: str, asked: list[RunRequest], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *words]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert why in said
    assert "--force" not in said
    assert asked == []


def test_roles_are_completed_in_any_case() -> None:
    assert roles("d") == ["dGPU"]
    assert roles("NP") == ["NPU"]
    assert roles("") == ["iGPU", "dGPU", "NPU"]
