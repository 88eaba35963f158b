"""One measurement at a time: the holder is named, and what a killed one left is ended."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from npumark import paths
from npumark.errors import SetupError
from npumark.orchestrator import lock
from npumark.orchestrator.containment import kill_marked
from npumark.orchestrator.lock import Taken, at_work, measuring, measuring_with
from npumark.orchestrator.worker_env import MARKER

HOLD = """
import sys
from pathlib import Path
from npumark.orchestrator.lock import measuring
with measuring("npumark run --quick", Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def holder(folder: Path) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def test_a_second_measurement_is_refused_and_the_holder_named(tmp_path: Path) -> None:
    with holder(tmp_path) as process:
        with pytest.raises(SetupError) as refused, measuring("npumark run", tmp_path):
            pass
        assert f"process {process.pid}" in refused.value.message
        assert "`npumark run --quick`" in refused.value.message
        assert refused.value.exit_code == 2
    with measuring("npumark run", tmp_path) as ours:
        assert ours.pid == os.getpid()
        assert json.loads((tmp_path / "measuring.json").read_text())["pid"] == os.getpid()
    assert not (tmp_path / "measuring.json").exists()


def test_a_holder_that_cannot_be_named_still_holds(tmp_path: Path) -> None:
    with holder(tmp_path):
        (tmp_path / "measuring.json").write_text('{"pid": ')
        with (
            pytest.raises(SetupError, match="at work on this machine already"),
            measuring("x", tmp_path),
        ):
            pass


def test_workers_of_a_killed_holder_are_ended(tmp_path: Path) -> None:
    note = {"pid": 1, "command": "npumark run", "since": "then", "marker": "npumark-1-1"}
    (tmp_path / "measuring.json").write_text(json.dumps(note))
    env = {**os.environ, MARKER: "npumark-1-1/attempt-3"}
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    with subprocess.Popen(command, env=env) as child, measuring("npumark run", tmp_path):
        assert child.wait(10) != 0


def test_the_next_does_not_begin_before_they_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = {"pid": 1, "command": "npumark run", "since": "then", "marker": "npumark-1-1"}
    (tmp_path / "measuring.json").write_text(json.dumps(note))
    looks = iter([True, False, True, False])
    monkeypatch.setattr(lock, "kill_marked", lambda _: [11, 12])
    monkeypatch.setattr(lock, "_runs", lambda pid: pid in (11, 12) and next(looks))
    with measuring("npumark run", tmp_path):
        assert next(looks, None) is None


def test_one_that_cannot_be_ended_is_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = {"pid": 1, "command": "npumark run", "since": "then", "marker": "npumark-1-1"}
    (tmp_path / "measuring.json").write_text(json.dumps(note))
    monkeypatch.setattr(lock, "kill_marked", lambda _: [os.getpid()])
    monkeypatch.setattr(lock, "_GONE_WITHIN_S", 0.05)
    with measuring("npumark run", tmp_path) as holder_:
        assert holder_.pid == os.getpid()


def test_only_the_marked_are_killed() -> None:
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    env = {**os.environ, MARKER: "npumark-test-lock/attempt-10"}
    with subprocess.Popen(command, env=env) as child:
        try:
            assert kill_marked("npumark-test-lock/attempt-1") == []
            assert kill_marked("npumark-test-lock") == [child.pid]
        finally:
            child.kill()


@pytest.mark.skipif(os.name != "posix", reason="a file in place of a folder")
def test_a_place_that_cannot_be_a_folder_is_said(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    with (
        pytest.raises(SetupError, match="a file is in the way"),
        measuring("x", tmp_path / "data"),
    ):
        pass


def test_a_measurement_holds_the_environments_that_homes_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    monkeypatch.setenv("NPUMARK_HOME", str(tmp_path / "one"))
    with measuring_with(shared, "npumark run"):
        monkeypatch.setenv("NPUMARK_HOME", str(tmp_path / "other"))
        with measuring("npumark engines install stub"):
            pass  # the other home is its own
        with (
            pytest.raises(Taken, match="`npumark run`"),
            measuring("npumark engines install stub", shared),
        ):
            pass
        with pytest.raises(Taken), measuring_with(shared, "npumark engines"):
            pass
        with measuring("npumark history"):
            pass  # what was refused holds nothing


def test_environments_that_nobody_can_change_are_measured_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    monkeypatch.setenv("NPUMARK_HOME", str(tmp_path / "home"))
    make = paths.make

    def read_only(folder: Path) -> Path:
        if folder == shared:
            raise paths.unwritable(folder, OSError(errno.EROFS, "Read-only file system"))
        return make(folder)

    monkeypatch.setattr(paths, "make", read_only)
    with measuring_with(shared, "npumark run") as holder:
        assert holder.pid == os.getpid()
        with pytest.raises(Taken), measuring("npumark run"):
            pass
    assert list(shared.iterdir()) == []
    with measuring_with(tmp_path / "none", "npumark run"):
        assert not (tmp_path / "none").exists()


def test_who_is_at_work_is_told_without_taking_the_lock(tmp_path: Path) -> None:
    assert at_work(tmp_path) is None
    assert list(tmp_path.iterdir()) == []
    with holder(tmp_path) as process:
        found = at_work(tmp_path)
        assert found is not None
        assert (found.pid, found.command) == (process.pid, "npumark run --quick")
    # Its note outlives a holder that was killed, and names nobody.
    assert (tmp_path / "measuring.json").exists()
    assert at_work(tmp_path) is None


def test_a_process_that_has_a_dead_holders_number_is_not_it(tmp_path: Path) -> None:
    with measuring("npumark run", tmp_path):
        note = json.loads((tmp_path / "measuring.json").read_text())
        assert at_work(tmp_path) is not None
        other = {**note, "marker": f"npumark-{os.getpid()}-1"}
        (tmp_path / "measuring.json").write_text(json.dumps(other))
        assert at_work(tmp_path) is None
