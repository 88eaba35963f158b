"""``npumark doctor``: what it prints, and how it ends."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from npumark.cli.app import main
from npumark.machine import host as hosts
from tests.doctor.healthy import MACHINES
from tests.machine.conftest import Fake


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    """A machine in a folder, quiet, in a home and a current folder of its own."""
    monkeypatch.setenv("NPUMARK_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("NPUMARK_ENGINES", raising=False)
    machine = Fake(tmp_path / "root")
    machine.stat()
    machine.write("/proc/meminfo", "MemTotal: 16000000 kB\nMemAvailable: 8000000 kB")
    monkeypatch.setattr(hosts, "THIS", replace(machine.host, root=Path("/")))
    monkeypatch.chdir(tmp_path)
    return machine


def test_a_fake_battery_is_found_and_the_status_is_1(
    root: Fake, capsys: pytest.CaptureFixture[str]
) -> None:
    root.tree({"/sys/class/power_supply/B/type": "Battery"})
    root.tree({"/sys/class/power_supply/B/status": "Discharging"})
    assert main(["doctor", "--machine-root", str(root.root)]) == 1
    told = capsys.readouterr().out
    assert told.startswith("1 thing here would spoil a measurement; nothing was changed.")
    assert "Fix: Plug in its power supply." in told


def test_nothing_found_ends_with_0(root: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--machine-root", str(root.root)]) == 0
    assert "Nothing that would spoil a measurement was found." in capsys.readouterr().out


@pytest.mark.parametrize("name", MACHINES)
def test_a_healthy_machine_ends_with_0(
    name: str, root: Fake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = MACHINES[name][0](root.root / name)
    monkeypatch.setattr(hosts, "THIS", replace(machine, root=Path("/")))
    status = main(["doctor", "--machine-root", str(machine.root)])
    told = capsys.readouterr().out
    assert (status, told.partition("\n")[0]) == (
        0,
        "Nothing that would spoil a measurement was found.",
    )


def test_json_is_one_document(root: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    root.load = 2.0
    assert main(["doctor", "--json", "--machine-root", str(root.root)]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["schema"], told["problems"]) == ("npumark-doctor/1", 1)
    first = told["checks"][0]
    assert set(first) == {"id", "title", "state", "value", "sentence", "fix", "why"}
    assert (first["id"], first["state"]) == ("background_load", "problem")


def test_a_root_that_is_none_is_a_usage_error(
    root: Fake, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["doctor", "--machine-root", str(tmp_path / "none")]) == 2
    assert "there is no folder" in capsys.readouterr().err
