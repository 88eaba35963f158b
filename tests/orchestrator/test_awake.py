"""Sleep is held off by a program that ends with ours; its absence is a fact, not a failure."""

from __future__ import annotations

import os
import sys

import pytest

from npumark.orchestrator.awake import KeepAwake, command

pytestmark = pytest.mark.skipif(os.name != "posix", reason="starts a POSIX program")


def test_each_system_has_its_means() -> None:
    assert (command("linux") or ())[0] == "systemd-inhibit"
    assert command("darwin", 7) == ("caffeinate", "-i", "-s", "-w", "7")
    assert command("freebsd") is None


def test_it_holds_while_entered_and_ends_after() -> None:
    argv = (sys.executable, "-c", "import sys; sys.stdin.read()")
    with KeepAwake(argv) as awake:
        assert awake.state() == {"means": sys.executable, "why": None}
        process = awake._process
    assert process is not None
    assert process.poll() is not None


def test_absence_and_refusal_are_said() -> None:
    with KeepAwake(("no-such-program-here",)) as awake:
        assert awake.state() == {"means": None, "why": "no-such-program-here is not installed"}
    with KeepAwake((sys.executable, "-c", "raise SystemExit(3)")) as awake:
        assert awake._process is not None
        awake._process.wait()
        assert awake.state()["why"] == f"{sys.executable} ended with status 3"
    with KeepAwake(()) as awake:
        assert awake.state()["means"] is None
