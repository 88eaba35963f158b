from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from npumark.machine import host as module
from npumark.machine.host import THIS, Host
from npumark.machine.sensors import busy_share, cpu_times


def test_a_file_that_cannot_be_read_says_why(fake: Any) -> None:
    host = fake.host
    assert "does not exist" in str(host.read("/sys/none").why)
    fake.write("/sys/empty", "")
    assert "is empty" in str(host.read("/sys/empty").why)
    (fake.root / "sys/folder").mkdir()
    assert "could not be read" in str(host.read("/sys/folder").why)
    fake.write("/sys/text", "12 x")
    assert host.number("/sys/text") is None
    assert host.read("/sys/text").why is None


def test_a_forbidden_file_says_so(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object, **__: object) -> str:
        raise PermissionError(13, "Permission denied")

    fake.write("/sys/x", 1)
    monkeypatch.setattr(Path, "open", forbidden)
    assert "may not be read by this user" in str(fake.host.read("/sys/x").why)


@pytest.mark.skipif(sys.platform == "win32", reason="makes a named pipe")
def test_what_might_never_answer_is_not_opened(fake: Any) -> None:
    (fake.root / "sys").mkdir(exist_ok=True)
    os.mkfifo(fake.root / "sys/pipe")
    assert fake.host.read("/sys/pipe").why == "/sys/pipe could not be read (no regular file)"


def test_a_file_without_end_is_not_read_to_it(fake: Any) -> None:
    fake.write("/sys/long", 1)
    with (fake.root / "sys/long").open("r+b") as file:
        file.truncate(1 << 34)  # sparse
    assert fake.host.read("/sys/long").why == "/sys/long could not be read (longer than 16 MiB)"


def test_bytes_that_are_no_text_do_not_stop_a_reading(fake: Any) -> None:
    path = fake.root / "sys/raw"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"board \xff 5\0")
    assert fake.host.read("/sys/raw").value == "board \ufffd 5"


def test_folders_are_listed_in_natural_order(fake: Any) -> None:
    for n in (10, 9, 1):
        fake.write(f"/sys/cpu{n}/x", 1)
    assert fake.host.listing("/sys", "cpu[0-9]*") == ["/sys/cpu1", "/sys/cpu9", "/sys/cpu10"]
    assert fake.host.listing("/nowhere", "*") == []


def test_a_command_that_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host()
    assert "could not be run" in str(host.output(("npumark-no-such-command",)).why)
    assert "status 3" in str(host.output((sys.executable, "-c", "raise SystemExit(3)")).why)
    assert host.output((sys.executable, "-c", "print(7)")).value == "7\n"
    monkeypatch.setattr(module, "_COMMAND_LIMIT_S", 0.05)
    slow = host.output((sys.executable, "-c", "import time; time.sleep(60)"))
    assert "TimeoutExpired" in str(slow.why)


def test_windows_does_not_tell_the_time_of_finished_children(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    assert Host().own_cpu_s() is None


def test_this_machine_answers_every_call() -> None:
    host = Host()
    times = cpu_times(host)
    assert times is not None
    assert times.busy > 0
    assert busy_share(times, times) is None
    assert host.memory().total >= host.memory().available > 0
    own = host.own_cpu_s()
    assert (own is None) == (sys.platform == "win32")
    assert own is None or own > 0
    assert host.boot_time() > 0
    affinity = host.affinity()
    assert affinity is None or len(affinity) >= 1
    host.battery()
    if sys.platform != "win32":
        assert "no registry" in str(host.registry("key", "name").why)
        assert host.windows_cores() == b""


@pytest.mark.skipif(sys.platform != "linux", reason="reads this very kernel's files")
def test_what_the_kernel_itself_states_is_read() -> None:
    boot_id = "/proc/sys/kernel/random/boot_id"
    assert THIS.read(boot_id).value == Path(boot_id).read_text().strip()
