"""``npumark report`` and ``verify`` on what ``npumark diagnose`` saved."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from npumark.cli.app import main
from npumark.diagnose.document import encode
from npumark.record.files import seal, write_record
from npumark.record.history import run_folder
from npumark.record.model import Record
from tests.report.conftest import make_record as make_record
from tests.report.test_diagnose import document

ID = "20261201T130000Z-123456"


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NPUMARK_HOME", str(tmp_path))
    path = tmp_path / "data" / "diagnostics" / ID / "diagnostics.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(encode(document()))
    return path


def test_diagnostics_are_shown_by_file_folder_and_id(
    saved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in (str(saved), str(saved.parent), ID):
        assert main(["report", name]) == 0
        assert "Contention" in capsys.readouterr().out
    assert main(["report", ID, "--json"]) == 0
    assert capsys.readouterr().out == saved.read_text(encoding="utf-8")


def test_edited_diagnostics_are_refused(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = json.loads(saved.read_bytes())
    whole["payload"]["id"] = "other"
    saved.write_text(json.dumps(whole))
    assert main(["report", str(saved)]) == 5
    assert "was changed after it was written" in capsys.readouterr().err


def test_diagnostics_are_no_record_to_verify(
    saved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", ID]) == 2
    said = capsys.readouterr().err
    assert f"{saved} is what `npumark diagnose` saved" in said
    assert f"`npumark diagnose --check {saved}`" in said


def test_a_record_that_is_not_of_this_home_is_verified_by_its_file(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    make_record: Callable[..., Record],
) -> None:
    monkeypatch.setenv("NPUMARK_HOME", str(tmp_path))
    record = seal(make_record().payload)
    elsewhere = tmp_path / "box.json"
    write_record(elsewhere, record)
    assert main(["report", str(elsewhere)]) == 0
    assert f"npumark verify {elsewhere}\n" in capsys.readouterr().out
    own = run_folder(record.payload.run_id).record
    own.parent.mkdir(parents=True)
    write_record(own, record)
    assert main(["report", str(elsewhere)]) == 0
    assert f"npumark verify {record.payload.run_id}`" in capsys.readouterr().out


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="makes a pipe with a name")
def test_a_record_in_a_pipe_is_read_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NPUMARK_HOME", str(tmp_path))
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(b"[]"))
    writer.start()
    assert main(["report", str(pipe)]) == 5
    writer.join()
    assert "Expecting value" not in capsys.readouterr().err
