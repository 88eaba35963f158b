"""``npumark engines install`` and ``remove``: what they print, and how they end."""

from __future__ import annotations

import json
import os
import sysconfig
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from npumark.cli.app import main
from npumark.engines import catalogue
from npumark.engines.catalogue import Environment
from npumark.orchestrator import install as installing
from npumark.orchestrator import pip
from npumark.orchestrator.discover import Found, Runtime
from npumark.orchestrator.environments import here
from npumark.orchestrator.lock import measuring
from npumark.worker.protocol import EngineInfo

ROW = Environment(
    "stub", "A stub", ("stub==1.0",), (), ("stub",), (here(),), note="for tests", megabytes=12
)
OTHER = replace(ROW, name="other", platforms=("windows-arm64",), megabytes=None)


def engine(name: str, reason: str | None = None, *, emulated: bool = False) -> Found:
    info = EngineInfo(name, reason is None, reason, "stub", "Stub", "1", emulated=emulated)
    return Found(info, Runtime("stub", "x:E", environment="stub"))


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own and a catalogue of two, one of them for another system; pip is faked."""
    monkeypatch.setenv("NPUMARK_HOME", str(tmp_path))
    monkeypatch.delenv("NPUMARK_ENGINES", raising=False)
    monkeypatch.setattr(catalogue, "ENVIRONMENTS", (ROW, OTHER))

    def venv(folder: Path, marker: str) -> None:
        for name in ("bin/python", "Scripts/python.exe"):
            (folder / name).parent.mkdir(parents=True)
            (folder / name).write_text("an interpreter")

    found = (engine("stub-cpu"), engine("stub-npu", emulated=True), engine("stub-gpu", "no driver"))
    monkeypatch.setattr(installing, "_venv", venv)
    monkeypatch.setattr(installing, "discover", lambda *_, **__: found)

    def install(python: str, *rest: Any) -> None:
        folder = Path(python).parents[1]
        scheme = {"base": str(folder), "platbase": str(folder)}
        site = Path(sysconfig.get_path("purelib", "venv", scheme))
        (site / "stub-1.0.dist-info").mkdir(parents=True)
        (site / "stub-1.0.dist-info" / "METADATA").write_text("Name: stub\nVersion: 1.0\n")
        rest[-1]("downloading stub.whl (1 MB)")

    monkeypatch.setattr(pip, "install", install)
    return tmp_path


def test_what_can_be_installed_is_listed(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["engines", "install"]) == 0
    out = capsys.readouterr().out
    assert "stub         not installed  about 12 MB" in out
    assert "A stub; for tests" in out
    assert "Not for this computer: other." in out
    assert str(home / "data" / "engines") in out


def test_one_is_installed_told_and_removed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["engines", "install", "stub"]) == 0
    said = capsys.readouterr()
    assert said.out.splitlines()[0].startswith("stub is installed (")
    assert "  stub-cpu  works here\n" in said.out
    assert "  stub-npu  works here, as an emulator\n" in said.out
    assert "  stub-gpu: no driver\n" in said.out
    assert "stub: making an environment (0 s)\n" in said.err
    assert "stub: downloading stub.whl (1 MB) (" in said.err

    assert main(["engines", "install", "stub"]) == 0
    assert capsys.readouterr().out.startswith("stub is installed and up to date.\n")
    assert main(["engines", "install"]) == 0
    assert "stub         installed" in capsys.readouterr().out

    assert main(["engines", "remove", "stub"]) == 0
    assert capsys.readouterr().out == "stub is removed\n"
    assert main(["engines", "remove", "stub"]) == 0
    assert capsys.readouterr().out == "stub was not installed\n"


def document(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def test_each_is_one_document_for_a_script(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["engines", "install", "--json"]) == 0
    listed = document(capsys)
    assert listed["folder"] == str(home / "data" / "engines")
    states = {row["name"]: row["state"] for row in listed["environments"]}
    assert states == {"stub": "absent", "other": "absent"}
    assert [row["for_this_computer"] for row in listed["environments"]] == [True, False]
    assert main(["engines", "install", "stub", "--json"]) == 0
    (made,) = document(capsys)["environments"]
    assert (made["name"], made["state"], made["already"]) == ("stub", "installed", False)
    assert made["bytes"] > 0
    assert [row["available"] for row in made["engines"]] == [True, True, False]
    assert main(["engines", "remove", "stub", "--json"]) == 0
    assert document(capsys) == {"removed": ["stub"], "stays": {}}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["install", "other"], "it works on Windows on ARM64"),
        (["install", "stub", "no-such"], "there is no environment called 'no-such'"),
        (["remove", "no-such"], "there is no environment called 'no-such'"),
        (["install", "--again"], "--again makes an environment anew, and none is named"),
    ],
)
def test_what_cannot_be_done_is_exit_2(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["engines", *words]) == 2
    said = capsys.readouterr()
    assert told in said.err
    assert "next: " in said.err
    assert said.out == ""  # nothing was begun


def test_a_measurement_going_on_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with measuring("npumark run --quick"):
        assert main(["engines", "install", "stub"]) == 2
        assert main(["engines", "install"]) == 0  # listing disturbs nobody
    assert "at work on this machine already: `npumark run --quick`" in capsys.readouterr().err


def test_a_damaged_one_is_named_with_the_fix(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "data" / "engines" / "stub").mkdir(parents=True)
    assert main(["engines", "install"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "broken" in out
    assert "it has no environment.json, so it was never finished" in out
    assert "`npumark engines install stub --again` makes its environment anew" in out


def test_one_is_made_anew_where_that_is_asked_for(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["engines", "install", "stub"]) == 0
    left = home / "data" / "engines" / "stub" / "left"
    left.write_text("")
    assert main(["engines", "install", "stub"]) == 0
    assert left.exists()
    capsys.readouterr()
    assert main(["engines", "install", "stub", "--again"]) == 0
    assert capsys.readouterr().out.startswith("stub is installed (")
    assert not left.exists()


def test_what_npumark_did_not_make_is_told_and_stays(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = home / "data" / "engines" / "stub"
    place.mkdir(parents=True)
    (place / "mine").write_text("")
    assert main(["engines", "install"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "stub in the way" in out
    assert "move it away, then run `npumark engines install stub`" in out
    for words in (["remove", "stub"], ["install", "stub", "--again"]):
        assert main(["engines", *words]) == 2
        assert "npumark did not make it: it stays as it is" in capsys.readouterr().err
    assert (place / "mine").exists()


@pytest.mark.skipif(os.name != "posix", reason="makes links")
def test_what_stays_of_one_that_was_removed_is_told(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["engines", "install", "stub"]) == 0
    place = home / "data" / "engines" / "stub"
    place.rename(home / "moved")
    place.symlink_to(home / "moved")
    capsys.readouterr()
    assert main(["engines", "remove", "stub"]) == 0
    told = f"stub is removed; it was a link to {home / 'moved'}, whose files stay\n"
    assert capsys.readouterr().out == told
    assert (home / "moved" / "environment.json").exists()


@pytest.mark.parametrize(
    ("value", "why"),
    [("file", "that is no folder"), ("none", "there is no such folder yet"), ("folder", None)],
)
def test_a_folder_of_environments_that_is_none_is_told_in_a_line(
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    value: str,
    why: str | None,
) -> None:
    (home / "file").write_text("")
    (home / "folder").mkdir()
    place = home / value
    monkeypatch.setenv("NPUMARK_ENGINES", str(place))
    line = f"note: NPUMARK_ENGINES is {str(place)!r}, and {why}: no environment is used from it\n"
    assert main(["engines", "install", "--json"]) == 0
    said = capsys.readouterr()
    assert said.err == (line if why else "")
    assert json.loads(said.out)["folder"] == str(place)


def test_a_mirror_that_is_none_is_a_fault_of_use(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NPUMARK_MIRROR", "ftp://wheels")
    assert main(["engines", "install", "stub"]) == 2
    said = capsys.readouterr().err
    assert "error: NPUMARK_MIRROR is 'ftp://wheels', and packages are not fetched by ftp\n" in said
