"""Which processes take the processor's time, and whose they are."""

from __future__ import annotations

import os
import subprocess
import sys

from npumark.machine.busy import busiest, processes
from npumark.machine.host import THIS, Running


def test_a_process_of_this_user_is_its_own_and_the_first_process_is_nobodys() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        found = {process.pid: process for process in processes()}
        whole = {process.pid: process for process in THIS.processes()}
        child.communicate(b"\n")
    for seen in (found, whole):
        assert seen[os.getpid()].mine
        assert seen[child.pid].mine
        assert not any(one.mine for one in seen.values() if one.pid in (0, 1))


def test_the_busiest_come_first_and_a_new_one_counts_from_its_start() -> None:
    before = (Running(5, 1.0, "old", 10.0, mine=True), Running(6, 1.0, "still", 3.0))
    after = (
        Running(5, 1.0, "old", 11.0, mine=True),
        Running(6, 1.0, "still", 3.0),
        Running(7, 9.0, "new", 4.0),
    )
    told = [(one.pid, one.cpus, one.mine) for one in busiest(before, after, 2.0)]
    assert told == [(7, 2.0, False), (5, 0.5, True)]
