from __future__ import annotations

import os
from pathlib import Path

import pytest

from npumark.errors import UsageError
from npumark.record import history
from npumark.record.files import seal, write_record
from npumark.record.model import Record


def _save(root: Path, record: Record, run_id: str, created: str, **changes: object) -> None:
    folder = history.run_folder(run_id, root)
    folder.path.mkdir(parents=True)
    update = {"run_id": run_id, "created": created, **changes}
    write_record(folder.record, seal(record.payload.model_copy(update=update)))


@pytest.fixture
def root(tmp_path: Path, record: Record) -> Path:
    runs = tmp_path / "runs"
    _save(runs, record, "r-alpha", "2026-01-01T00:00:00Z", complete=True)
    _save(runs, record, "r-beta", "2026-03-01T00:00:00Z")
    _save(runs, record, "s-gamma", "2026-02-01T00:00:00Z", complete=True)
    return runs


def test_runs_are_listed_newest_first(root: Path) -> None:
    rows = history.list_runs(root)
    assert [(r.folder.run_id, r.state) for r in rows] == [
        ("r-beta", "partial"),
        ("s-gamma", "complete"),
        ("r-alpha", "complete"),
    ]
    assert rows[0].edition == "seeded"
    assert rows[0].quick is True
    assert rows[0].why == "an example"


def test_broken_runs_are_listed_with_the_reason(root: Path) -> None:
    (root / "r-alpha" / "record.json").write_text('{"payload": 1, "payload": 2}')
    journal_only = history.run_folder("t-delta", root)
    journal_only.path.mkdir()
    journal_only.journal.write_text("{}\n")
    (root / "u-empty").mkdir()
    for name in ("t-delta", "u-empty", "r-alpha"):
        os.utime(root / name, (0, 0))
    (root / "stray.txt").write_text("not a run")
    rows = {r.folder.run_id: r for r in history.list_runs(root)}
    assert len(rows) == 5
    assert rows["r-alpha"].state == "unreadable"
    assert "twice" in str(rows["r-alpha"].why)
    assert rows["r-alpha"].created == "1970-01-01T00:00:00Z"
    assert (rows["t-delta"].state, rows["u-empty"].state) == ("unfinished", "unreadable")
    assert rows["t-delta"].tops is None
    assert rows["t-delta"].why
    assert rows["u-empty"].why


def test_the_latest_is_the_newest_readable_run(root: Path) -> None:
    assert history.latest(root).run_id == "r-beta"
    (root / "r-beta" / "record.json").write_bytes(b"")
    assert history.latest(root).run_id == "s-gamma"
    with pytest.raises(UsageError, match="no run is saved"):
        history.latest(root / "nowhere")


def test_saved_runs_that_cannot_be_read_are_not_said_to_be_none(root: Path) -> None:
    for row in history.list_runs(root):
        row.folder.record.write_bytes(b"")
    with pytest.raises(UsageError, match="no saved run has a record that this npumark can read"):
        history.latest(root)


def test_a_run_is_found_by_the_start_of_its_id(root: Path) -> None:
    assert history.find("s", root).run_id == "s-gamma"
    assert history.find("r-alpha", root).run_id == "r-alpha"
    assert history.find("last", root).run_id == "r-beta"
    with pytest.raises(UsageError, match="2 run ids: r-alpha, r-beta"):
        history.find("r", root)
    with pytest.raises(UsageError, match="no saved run begins with 'q'"):
        history.find("q", root)
    # An id that begins another is still an id.
    (root / "s-gam").mkdir()
    assert history.find("s-gam", root).run_id == "s-gam"


@pytest.mark.parametrize("name", ["../x", "", "a/b", ".hidden", "x" * 200])
def test_a_run_id_never_leaves_the_folder(name: str, root: Path) -> None:
    with pytest.raises(UsageError, match="not a run id"):
        history.run_folder(name, root)


def test_a_record_is_located_by_path_or_by_id(root: Path, tmp_path: Path) -> None:
    assert history.locate(str(root / "r-alpha"), root) == root / "r-alpha" / "record.json"
    own = tmp_path / "own.json"
    assert history.locate(str(own), root) == own
    assert history.locate("s-g", root) == root / "s-gamma" / "record.json"


def test_runs_live_under_the_data_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NPUMARK_HOME", str(tmp_path))
    folder = history.run_folder("a-run")
    assert folder.path.is_relative_to(tmp_path)
    assert folder.samples.parent == folder.logs.parent == folder.path
    assert history.list_runs() == []
