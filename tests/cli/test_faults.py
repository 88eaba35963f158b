from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from npumark import errors
from npumark.cli import app, faults, output


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NPUMARK_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def every_error() -> list[type[errors.NpumarkError]]:
    found = [errors.NpumarkError]
    for kind in found:
        found += kind.__subclasses__()
    return found


@pytest.mark.parametrize("kind", every_error())
def test_every_error_ends_with_its_sentence_next_step_and_status(
    kind: type[errors.NpumarkError], capsys: pytest.CaptureFixture[str]
) -> None:
    assert faults.end(kind("it broke", "mend it")) == kind.exit_code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "error: it broke\nnext: mend it\n"


def test_an_unforeseen_error_is_one_sentence_and_a_log(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken() -> None:
        raise ZeroDivisionError("a bug\nin two lines")

    with pytest.raises(ZeroDivisionError) as caught:
        broken()
    assert faults.end(caught.value) == 1
    err = capsys.readouterr().err
    assert "ZeroDivisionError: a bug in two lines" in err
    assert "Traceback" not in err
    (log,) = (home / "data" / "logs").iterdir()
    assert str(log) in err
    assert "Traceback" in log.read_text()
    assert "broken" in log.read_text()


@pytest.mark.parametrize("path", ["x" * 6000, "/" + "y" * 300 + ".json", "a/" * 3000 + "b.json"])
@pytest.mark.parametrize(
    "words",
    [
        ("report",),
        ("verify",),
        ("verify", "last", "--manifest"),
        ("pack", "list", "--manifest"),
        ("box", "--from"),
        ("doctor", "--machine-root"),
        ("engines", "--virtual"),
        ("run", "--dry-run", "--manifest"),
        ("run", "--dry-run", "--out"),
        ("run", "--resume"),
        ("diagnose", "--out"),
    ],
)
def test_a_path_longer_than_the_system_takes_is_said(
    words: tuple[str, ...], path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status = app.main([*words, path])
    err = capsys.readouterr().err
    assert "error: " in err
    assert "does not know" not in err
    if words[0] != "box" or status != 3:  # where there are no cards no path is looked at
        assert status == 2


def test_a_log_that_cannot_be_kept_hides_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("NPUMARK_HOME", str(blocked))
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(blocked))
    assert faults.end(RuntimeError("odd")) == 1
    assert (
        capsys.readouterr().err
        == "error: npumark met an error it does not know: RuntimeError: odd\n"
    )


def test_ctrl_c_ends_with_130(capsys: pytest.CaptureFixture[str]) -> None:
    assert faults.end(KeyboardInterrupt()) == 130
    assert capsys.readouterr().err == "error: stopped\n"


def test_an_error_inside_a_command_reaches_the_one_place(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken() -> None:
        raise LookupError("lost")

    monkeypatch.setattr("npumark.record.history.list_runs", broken)
    assert app.main(["history"]) == 1
    assert "LookupError: lost" in capsys.readouterr().err


def test_a_reader_that_went_away_is_no_error() -> None:
    code = "from npumark.cli.output import put\nfor _ in range(20000): put('x' * 100 + '\\n')"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.readline()
        child.stdout.close()
        assert child.stderr.read() == b""
        assert child.wait() == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
def test_a_full_disk_is_one_sentence() -> None:
    code = "from npumark.cli.app import main; import sys; sys.exit(main(['history']))"
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", code],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr.startswith("error: the output cannot be written: No space left on device\n")
    assert done.stderr.count("\n") == 2


def test_json_refuses_what_json_cannot_hold(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        output.put_json({"score": float("nan")})
    output.put_json({"score": 0.1})
    assert json.loads(capsys.readouterr().out) == {"score": 0.1}


def test_a_narrow_encoding_loses_a_character_and_not_the_report() -> None:
    code = "from npumark.cli.output import put; put('0.83 TOPS · █ end\\n')"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        check=True,
        env={"PYTHONIOENCODING": "ascii", "PATH": ""},
        cwd=Path(__file__).parents[2],
    )
    assert done.stdout == b"0.83 TOPS ? ? end\n"


MAIN = "import sys; from npumark.cli.app import main; sys.exit(main(sys.argv[1:]))"
SHELL = pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")


def shell(words: str, redirected: str) -> subprocess.CompletedProcess[str]:
    command = f'exec "{sys.executable}" -c "$0" {words} {redirected}'
    # A Python that buffers, as a user's does: what is left at its end is written then.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.run(
        ["/bin/sh", "-c", command, MAIN], capture_output=True, text=True, check=False, env=env
    )


@SHELL
@pytest.mark.parametrize(
    "words", ["--help", "--version", "run --help", "pack path", "pack list", "engines --help"]
)
def test_each_output_to_a_full_disk_is_one_sentence(words: str) -> None:
    done = shell(words, ">/dev/full")
    assert done.returncode == 2
    assert done.stderr.startswith("error: the output cannot be written: No space left on device\n")
    assert done.stderr.count("\n") == 2


@SHELL
@pytest.mark.parametrize("words", ["--help", "--version", "history", "pack path"])
def test_a_closed_output_is_written_nowhere(home: Path, words: str) -> None:
    done = shell(words, ">&-")
    assert (done.returncode, done.stderr) == (0, "")
    assert not (home / "data" / "logs").exists()


@SHELL
@pytest.mark.parametrize("to", ["2>&-", "2>/dev/full", "2>&- <&-"])
@pytest.mark.parametrize(
    ("words", "code"), [("report nothing", 2), ("rnu", 2), ("run --time-budget nan", 2)]
)
def test_an_error_that_nobody_can_read_keeps_its_status(words: str, code: int, to: str) -> None:
    done = shell(words, to)
    assert (done.returncode, done.stdout) == (code, "")


def test_what_stops_a_command_has_a_next_step_wherever_it_is_raised() -> None:
    kinds = {"UsageError", "SetupError", "NothingToMeasure", "NoScore", "NetworkError"}
    kinds.add("Interrupted")
    bare, met = [], 0
    for path in Path(errors.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call)):
                continue
            call = node.exc
            if isinstance(call.func, ast.Name) and call.func.id in kinds:
                met += 1
                if len(call.args) < 2 and "hint" not in {k.arg for k in call.keywords}:
                    bare.append(f"{path.name}:{node.lineno}")
    assert met > 50
    assert bare == []


@pytest.mark.parametrize("told", ["9" * 5000, "\u0661\u0662", "wide", "-5"])
def test_a_size_that_no_terminal_has_is_forgotten(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], told: str
) -> None:
    monkeypatch.setenv("COLUMNS", told)
    monkeypatch.setenv("LINES", told)
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert app.main(["history"]) == 0
    assert app.main(["run", "--help"]) == 0
    assert "error" not in capsys.readouterr().err
    assert "COLUMNS" not in os.environ
    assert "LINES" not in os.environ
    monkeypatch.setenv("COLUMNS", "132")
    output.forget_odd_sizes()
    assert os.environ["COLUMNS"] == "132"
