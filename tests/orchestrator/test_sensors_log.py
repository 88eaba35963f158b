from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from npumark.machine import cpu_sensors
from npumark.orchestrator import sensors_log as module
from npumark.orchestrator.sensors_log import SensorLog

MOMENT_S = 0.01
LONG_S = 600.0


def within(seconds: float, met: Callable[[], bool]) -> bool:
    until = time.monotonic() + seconds
    while not met():
        if time.monotonic() > until:
            return False
        threading.Event().wait(MOMENT_S)
    return True


def asker(folder: Path, *lines: str, then: str = "sys.stdin.read()") -> list[str]:
    """Return a command that stands for the process that asks NVML."""
    program = folder / "asker.py"
    printed = "".join(f"print({line}, flush=True)\n" for line in lines)
    program.write_text(f"import json, sys, time\n{printed}{then}\n")
    return [sys.executable, str(program)]


def now(**card: Any) -> str:
    return f"json.dumps({{'at_ns': time.perf_counter_ns(), 'gpus': [{card!r}]}})"


def test_it_reads_at_once_again_and_at_the_end(machine: Any) -> None:
    machine.write("/sys/class/thermal/thermal_zone0/temp", 41000)
    with SensorLog(MOMENT_S, host=machine.host) as log:
        assert within(60, lambda: len(log.readings) > 2)
        machine.write("/sys/class/thermal/thermal_zone0/temp", 55000)
    assert log.readings[0]["hottest_celsius"] == 41.0
    assert log.readings[-1]["hottest_celsius"] == 55.0
    at = [reading["at_ns"] for reading in log.readings]
    assert at == sorted(at)
    assert at[-1] <= time.perf_counter_ns()
    assert "gpus" not in log.readings[0]


def test_a_long_period_does_not_hold_up_the_end(machine: Any) -> None:
    began = time.monotonic()
    with SensorLog(LONG_S, host=machine.host) as log:
        pass
    assert time.monotonic() - began < LONG_S / 2
    assert len(log.readings) >= 1


def test_a_sensor_that_fails_is_a_reason_and_no_fault(
    machine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def odd(host: Any) -> Any:
        raise ZeroDivisionError("a driver's own")

    monkeypatch.setattr(cpu_sensors, "reading", odd)
    told = SensorLog(LONG_S, host=machine.host).read()
    names = ("cpu_khz", "hottest_celsius", "cpu_s")
    assert [told[name] for name in names] == [None] * 3
    assert told["throttling"] == {}
    assert told["why"]["cpu_khz"] == "reading it failed: ZeroDivisionError: a driver's own"


def test_what_the_nvidia_process_told_last_goes_into_each_reading(
    machine: Any, tmp_path: Path
) -> None:
    command = asker(tmp_path, now(card="0000:41:00.0", celsius=64))
    with SensorLog(LONG_S, host=machine.host, nvidia=command) as log:
        assert within(60, lambda: "gpus" in log.read())
    assert log.readings[-1]["gpus"] == [{"card": "0000:41:00.0", "celsius": 64}]
    assert "gpus" not in log.readings[-1]["why"]
    assert not [c for c in psutil.Process().children() if "asker.py" in " ".join(c.cmdline())]


@pytest.mark.parametrize(
    ("lines", "then", "why"),
    [
        pytest.param(['\'{"fault": "NVML cannot"}\''], "", "NVML cannot", id="a reason"),
        pytest.param([], "", "the process that asks NVIDIA's NVML ended", id="a crash"),
        pytest.param(["'no JSON'"], "", "the process that asks NVIDIA's NVML ended", id="rubbish"),
        pytest.param(["'[1]'"], "", "the process that asks NVIDIA's NVML ended", id="no answer"),
        pytest.param(
            ['\'{"at_ns": 1, "gpus": [{}]}\''],
            "sys.stdin.read()",
            "NVIDIA's NVML has not answered lately",
            id="an old answer",
        ),
    ],
)
def test_why_nvidias_cards_are_not_told_is_told(
    machine: Any, tmp_path: Path, lines: list[str], then: str, why: str
) -> None:
    with SensorLog(MOMENT_S, host=machine.host, nvidia=asker(tmp_path, *lines, then=then)) as log:
        assert within(60, lambda: log.read()["why"].get("gpus") == why)
    assert "gpus" not in log.readings[-1]


def test_without_the_program_the_reason_is_told(machine: Any) -> None:
    with SensorLog(LONG_S, host=machine.host, nvidia=["/no/such/program"]) as log:
        pass
    assert log.readings[0]["why"]["gpus"] == (
        "NVIDIA's NVML cannot be asked: No such file or directory"
    )


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel ends it there")
def test_the_process_that_asks_ends_with_whoever_started_it(tmp_path: Path) -> None:
    command = asker(tmp_path, "os.getpid()", then="time.sleep(600)")
    program = tmp_path / "asker.py"
    program.write_text(program.read_text().replace("import json", "import json, os"))
    parent = tmp_path / "dies.py"
    parent.write_text(
        "import os, psutil\n"
        "from npumark.orchestrator.sensors_log import SensorLog\n"
        f"log = SensorLog(60.0, nvidia={command!r})\n"
        "log.__enter__()\n"
        "print(*[c.pid for c in psutil.Process().children()], flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    died = subprocess.run([sys.executable, parent], capture_output=True, text=True, check=False)
    (pid,) = (int(word) for word in died.stdout.split())
    assert within(60, lambda: not psutil.pid_exists(pid))


def test_a_process_that_cannot_be_ended_holds_up_nothing(
    machine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that hangs in a driver: here, one that is not killed."""
    monkeypatch.setattr(module, "_GONE_WITHIN_S", MOMENT_S)
    log = SensorLog(LONG_S, host=machine.host, nvidia=asker(tmp_path, then="time.sleep(600)"))
    with log:
        child = log._cards._child  # type: ignore[union-attr]
        assert child is not None
        monkeypatch.setattr(child, "kill", lambda: None)
    assert child.poll() is None
    monkeypatch.undo()
    child.kill()
    child.wait()
