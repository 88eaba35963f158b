"""A worker ends with the program that started it, even where that is killed outright."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from npumark.worker import parent
from npumark.worker.__main__ import main

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="asks Linux's kernel")

OURS = """
import os, sys, threading
from dataclasses import replace
from pathlib import Path
from npumark.orchestrator.interrupts import Interrupts
from npumark.orchestrator.supervisor import supervise
from npumark.policy import load_policy
from npumark.worker.protocol import Job

body = '''
import os, sys, time
from npumark.worker.parent import end_with_parent
os.write(1, f"{end_with_parent()}\\\\n".encode())
time.sleep(600)
'''
def work():
    supervise(
        Job("probe", "nowhere:Engine"), limits=load_policy().worker, deadline_s=600,
        interrupts=Interrupts(), marker="killed", log_path=Path(sys.argv[1]),
        command=(sys.executable, "-c", body),
    )
IN_A_THREAD
"""


@pytest.mark.parametrize("thread", [False, True])
def test_whoever_is_killed_outright_leaves_no_worker(tmp_path: Path, thread: bool) -> None:
    start = "threading.Thread(target=work).start()" if thread else "work()"
    log = tmp_path / "log"
    ours = OURS.replace("IN_A_THREAD", start)
    with subprocess.Popen((sys.executable, "-c", ours, str(log))) as npumark:
        await_(lambda: log.exists() and log.read_text().endswith("\n"))
        assert log.read_text() == "True\n"
        (worker,) = psutil.Process(npumark.pid).children()
        assert runs(worker)
        npumark.kill()
    await_(lambda: not runs(worker))


def test_one_whose_parent_ended_before_it_was_bound_does_no_job(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("ctypes.CDLL", lambda _: Kernel())
    monkeypatch.setenv(parent.PARENT, str(os.getppid()))
    assert parent.end_with_parent()
    monkeypatch.setenv(parent.PARENT, "0")
    assert not parent.end_with_parent()
    assert main(["1"]) == 1
    assert "has ended" in capsys.readouterr().err


def test_one_that_a_wrapper_started_goes_on_while_the_named_process_lives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ctypes.CDLL", lambda _: Kernel())
    with subprocess.Popen((sys.executable, "-c", "input()"), stdin=subprocess.PIPE) as named:
        monkeypatch.setenv(parent.PARENT, str(named.pid))
        assert parent.end_with_parent()
        named.kill()
        os.waitid(os.P_PID, named.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and is a zombie
        assert not parent.end_with_parent()
    assert not parent.end_with_parent()


def test_one_that_names_no_parent_is_bound_to_none(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel()
    monkeypatch.setattr("ctypes.CDLL", lambda _: kernel)
    monkeypatch.delenv(parent.PARENT, raising=False)
    assert parent.end_with_parent()
    assert kernel.asked == []


class Kernel:
    def __init__(self) -> None:
        self.asked: list[tuple[int, ...]] = []

    def prctl(self, *arguments: int) -> int:
        self.asked.append(arguments)
        return 0


def await_(done: Callable[[], bool]) -> None:
    until = time.monotonic() + 120
    while not done() and time.monotonic() < until:
        time.sleep(0.01)
    assert done()


def runs(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
