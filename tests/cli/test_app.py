from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from npumark import __version__
from npumark.cli.app import COMMANDS, main
from npumark.cli.complete import runs

HEAVY = ("numpy", "pydantic", "rich", "onnxruntime", "openvino", "psutil", "cryptography")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NPUMARK_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def imported_by(code: str) -> set[str]:
    """Return the top-level modules a fresh interpreter has imported after ``code``."""
    tail = "\nprint(*{m.partition('.')[0] for m in sys.modules})"
    done = subprocess.run(
        [sys.executable, "-c", "import sys\n" + code + tail],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["-h"]])
def test_the_overview_imports_nothing_heavy(words: list[str]) -> None:
    found = imported_by(f"from npumark.cli.app import main\nmain({words!r})")
    assert not found & set(HEAVY)


def test_the_import_list_would_show_a_heavy_import() -> None:
    assert "numpy" in imported_by("import numpy")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_commands_help_imports_no_engine_and_no_numpy(command: str) -> None:
    found = imported_by(f"from npumark.cli.app import main\nmain([{command!r}, '--help'])")
    assert not found & {"numpy", "onnxruntime", "openvino", "psutil"}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    assert capsys.readouterr().out.startswith(f"Usage: npumark {command}")


def test_the_overview_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(f"  {name} " in out for name in COMMANDS)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"npumark {__version__}\n"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["rnu"], "Did you mean 'run'?"),
        (["run", "--quik"], "--quick"),
        (["run", "--time-budget", "soon"], "--time-budget"),
        (["run", "--time-budget", "-3"], "--time-budget"),
        (["run", "--ladder", "tall"], "default"),
        (["run", "--strict", "--skip-preconditions"], "--strict acts on"),
        (["run", "--wait-idle", "--skip-preconditions"], "--wait-idle acts on"),
        (["verify"], "RECORD"),
        (["report", "a", "b"], "unexpected"),
    ],
)
def test_wrong_usage_is_told_with_exit_2(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert says in captured.err
    assert "Traceback" not in captured.err


@pytest.mark.parametrize("command", ["report", "verify"])
@pytest.mark.parametrize(
    ("name", "content", "status"),
    [
        ("missing.json", None, 2),
        ("text.json", "hello", 5),
        ("empty.json", "", 5),
        ("half.json", '{"payload": {"schema": "npumark-rec', 5),
        ("other.json", '{"name": "no record"}', 5),
        ("list.json", "[1, 2]", 5),
        ("nan.json", '{"payload": NaN}', 5),
        ("future.json", '{"payload": {"schema": "npumark-record/99"}}', 5),
        ("twice.json", '{"payload": {}, "payload": {}}', 5),
        ("deep.json", "[" * 100_000, 5),
    ],
)
def test_what_is_no_record_is_told_in_a_sentence(
    command: str,
    name: str,
    content: str | None,
    status: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_text(content)
    assert main([command, str(path)]) == status
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert str(path) in captured.err
    assert "Traceback" not in captured.err


def test_a_file_that_is_no_record_is_not_called_a_damaged_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "README.md"
    path.write_text("# A readme\n")
    for command in ("verify", "report"):
        assert main([command, str(path)]) == 5
        assert f"error: {path} is not an npumark record" in capsys.readouterr().err


def test_a_binary_file_and_a_folder_are_no_records(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    binary = tmp_path / "binary.json"
    binary.write_bytes(bytes(range(256)))
    assert main(["report", str(binary)]) == 5
    assert main(["report", str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("error: ") == 2


def test_without_runs_the_history_says_how_to_begin(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history"]) == 0
    assert "npumark run --quick" in capsys.readouterr().out
    assert main(["report", "last"]) == 2
    assert "next: " in capsys.readouterr().err


def test_an_empty_history_is_one_json_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"runs": []}


def complete(words: str) -> list[str]:
    env = dict(
        os.environ,
        _NPUMARK_COMPLETE="complete_bash",
        COMP_WORDS=words,
        COMP_CWORD=str(words.count(" ")),
    )
    done = subprocess.run(
        [sys.executable, "-m", "npumark"], env=env, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("npumark ver", "verify"),
        ("npumark run --engine ort", "ort-cpu"),
        ("npumark run --workload peak-512", "peak-512x2048x8"),
        ("npumark run --variant int8", "int8-u8s8"),
        ("npumark report la", "last"),
        ("npumark pack li", "list"),
    ],
)
def test_the_shell_completes_commands_and_ids(words: str, offered: str) -> None:
    assert offered in complete(words)


@pytest.mark.parametrize("seconds", ["inf", "1e400", "1e300", "nan", "-5", "0", "-inf", "x"])
def test_a_time_budget_is_a_number_of_seconds(
    seconds: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", f"--time-budget={seconds}"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "--time-budget" in captured.err


def test_runs_are_completed_without_a_home_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NPUMARK_HOME", "~nosuchuser/x")
    assert runs("") == ["last"]
