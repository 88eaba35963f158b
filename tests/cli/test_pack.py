"""``npumark pack``: what it prints, what it leaves, and how it ends."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from npumark.cli.app import main
from npumark.orchestrator.lock import measuring
from npumark.pack import store
from npumark.pack.manifest import load_manifest
from npumark.pack.materialize import workload_paths
from npumark.policy import DATA

TINY = "peak-16x256x3"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NPUMARK_HOME", str(tmp_path))
    return tmp_path


def _json(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main(["pack", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def _count() -> int:
    """Return how many files the tiny workload reads, in all its variants."""
    return len(workload_paths(load_manifest(), [TINY]))


def test_the_life_of_a_pack(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = _json(capsys, "path")["root"]
    assert not Path(root).exists()
    rows = {row["id"]: row for row in _json(capsys, "list")["workloads"]}
    assert not rows[TINY]["present"]
    assert not rows["peak-8192x4096x4"]["default"]

    made = _json(capsys, "materialize", "-w", TINY)
    assert made["bytes"] == rows[TINY]["bytes"]
    assert made["pinned"]
    checked = _json(capsys, "verify", "-w", TINY)
    assert checked["verified"]
    assert checked["files"] == made["files"]
    assert {r["id"] for r in _json(capsys, "list")["workloads"] if r["present"]} == {TINY}

    assert _json(capsys, "clean") == {"removed": [root], "bytes": made["bytes"]}
    assert not Path(root).exists()
    assert _json(capsys, "clean")["bytes"] == 0


def test_too_little_memory_ends_with_2_and_says_what_it_takes(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("npumark.machine.sensors.available_memory", lambda: 10)
    assert main(["pack", "materialize", "-w", "peak-8192x4096x4"]) == 2
    said = capsys.readouterr().err
    assert "making peak-8192x4096x4/references.f16 needs" in said
    assert [path for path in home.rglob("*.f16*") if path.is_file()] == []


def test_damage_is_named_with_exit_code_5(capsys: pytest.CaptureFixture[str]) -> None:
    main(["pack", "materialize", "-w", TINY])
    root = store.pack_root(load_manifest())
    (root / TINY / "fp16.weights").write_bytes(b"short")
    (root / "note.txt").write_text("mine")
    capsys.readouterr()
    assert main(["pack", "verify", "-w", TINY]) == 5
    said = capsys.readouterr()
    assert f"{TINY}/fp16.weights is cut short" in said.out
    assert "note.txt is not in the manifest" in said.out
    assert f"1 of {_count()} files are damaged" in said.err
    assert "materialize" in said.err

    assert main(["pack", "verify", "-w", TINY, "--json"]) == 5
    document = json.loads(capsys.readouterr().out)
    assert document["faults"][0]["kind"] == "truncated"
    assert document["extra"] == ["note.txt"]
    assert not document["verified"]

    assert main(["pack", "materialize", "-w", TINY]) == 0
    assert main(["pack", "verify", "-w", TINY]) == 0


def test_what_is_not_made_yet_is_no_damage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pack", "verify", "-w", TINY]) == 0
    said = capsys.readouterr()
    assert said.out.startswith(f"{_count()} of {_count()} files are not made yet")
    assert said.err == ""

    main(["pack", "materialize", "-w", TINY])
    manifest = load_manifest()
    root = store.pack_root(manifest)
    fp32 = set(manifest.workloads[TINY].files("fp32"))
    for path in (p for p in manifest.files if p not in fp32):
        (root / path).unlink(missing_ok=True)
    capsys.readouterr()
    document = _json(capsys, "verify", "-w", TINY)
    assert not document["verified"]
    assert document["faults"] == []
    assert len(document["not_made"]) == document["files"] - len(fp32)
    row = next(r for r in _json(capsys, "list")["workloads"] if r["id"] == TINY)
    assert (row["present"], row["made"]) == (False, ["fp32"])
    assert main(["pack", "list"]) == 0
    assert "partly made (fp32)" in capsys.readouterr().out


def test_text_output(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pack", "list"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("npumark-open 1.0.0 (seeded)\n")
    assert "not made yet, only when asked for" in text
    assert main(["pack", "path"]) == 0
    assert capsys.readouterr().out == f"{store.pack_root(load_manifest())}\n"


def test_the_list_keeps_within_a_terminals_width(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("npumark.report.page._is_terminal", lambda _: True)
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("NO_COLOR", "1")
    assert main(["pack", "list"]) == 0
    *lines, folder = capsys.readouterr().out.splitlines()
    assert folder == str(store.pack_root(load_manifest()))  # a path is never broken
    assert all(len(line) <= 40 for line in lines)


def test_no_summary_of_the_help_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pack", "--help"]) == 0
    assert "..." not in capsys.readouterr().out.partition("Commands:")[2]


def test_an_unknown_workload_lists_the_valid_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pack", "materialize", "-w", "resnet51"]) == 2
    said = capsys.readouterr().err
    assert "'resnet51'" in said
    assert TINY in said


@pytest.mark.parametrize("command", ["list", "verify", "materialize", "path", "clean"])
def test_a_manifest_that_is_missing_or_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    assert main(["pack", command, "--manifest", str(tmp_path / "none.json")]) == 2
    (tmp_path / "bad.json").write_text("{")
    assert main(["pack", command, "--manifest", str(tmp_path / "bad.json")]) == 5
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("error: ") == 2
    assert "Traceback" not in said.err


def test_a_foreign_manifest_is_said_to_be_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    foreign = tmp_path / "manifest.json"
    foreign.write_bytes((DATA / "manifest.json").read_bytes() + b"\n")
    use = ["-w", TINY, "--manifest", str(foreign)]
    assert main(["pack", "materialize", *use]) == 0
    capsys.readouterr()
    assert main(["pack", "verify", *use]) == 0
    assert "never comparable" in capsys.readouterr().out
    assert main(["pack", "list", "--manifest", str(foreign)]) == 0
    assert "foreign" in capsys.readouterr().out
    assert main(["pack", "verify", *use, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert not document["pinned"]
    assert not document["verified"]
    assert main(["pack", "clean", "--all"]) == 0
    assert store.packs() == ()


def test_a_bar_on_a_terminal_and_silence_elsewhere(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pack", "materialize", "-w", TINY]) == 0
    assert capsys.readouterr().err == ""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", terminal)
    assert main(["pack", "verify", "-w", TINY]) == 0
    assert "checking" in terminal.getvalue()


def test_showing_the_help_imports_nothing_heavy() -> None:
    code = (
        "import sys, npumark.cli.pack\n"
        "heavy = {'numpy', 'rich', 'filelock', 'pydantic', 'onnxruntime', 'openvino'}\n"
        "sys.exit(str(heavy & set(sys.modules)) if heavy & set(sys.modules) else 0)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_pack_is_not_removed_under_a_measurement(
    capsys: pytest.CaptureFixture[str],
) -> None:
    root = store.pack_root(load_manifest())
    root.mkdir(parents=True)
    (root / "file").write_text("needed")
    with measuring("npumark run --quick"):
        for more in ((), ("--all",)):
            assert main(["pack", "clean", *more]) == 2
            assert "`npumark run --quick`, process" in capsys.readouterr().err
    assert (root / "file").exists()
    assert main(["pack", "clean"]) == 0
    assert not root.exists()


def test_compiled_models_are_removed_apart_from_the_pack(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pack = store.pack_root(load_manifest())
    pack.mkdir(parents=True)
    (pack / "file").write_text("stays")
    models = home / "cache" / "compiled"
    (models / "entry" / "models-1").mkdir(parents=True)
    (models / "entry" / "models-1" / "a.blob").write_bytes(bytes(70))
    with measuring("npumark run --quick"):
        assert main(["pack", "clean", "--compiled"]) == 2
    assert list(models.iterdir())
    capsys.readouterr()
    assert _json(capsys, "clean", "--compiled") == {"removed": [str(models)], "bytes": 70}
    assert not list(models.iterdir())
    assert (pack / "file").exists()
    assert _json(capsys, "clean", "--compiled")["bytes"] == 0
