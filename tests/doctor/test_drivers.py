"""Drivers that are too old for the engines' runtimes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from npumark.doctor.drivers import drivers
from npumark.doctor.minimum_drivers import MINIMUMS, numbers
from npumark.engines.catalogue import environment
from npumark.machine.card import Card
from npumark.machine.inventory import Inventory
from npumark.orchestrator.environments import Standing


def _seen(system: str, *cards: Card, lacks: tuple[str, ...] = ()) -> Any:
    scene: Any = SimpleNamespace(
        host=SimpleNamespace(system=system), inventory=Inventory(cards, lacks)
    )
    return drivers(scene)


@pytest.fixture(autouse=True)
def made(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The environments that are installed; a test adds to them."""
    names: set[str] = set()

    def standings() -> tuple[Standing, ...]:
        made = tuple(Standing(name, "installed") for name in sorted(names))
        return (*made, Standing("directml", "absent"))

    monkeypatch.setattr("npumark.doctor.drivers.standings", standings)
    return names


NVIDIA, INTEL, AMD, QUALCOMM = 0x10DE, 0x8086, 0x1022, 0x17CB


@pytest.mark.parametrize(
    ("system", "role", "vendor", "driver", "state"),
    [
        ("linux", "dGPU", NVIDIA, "NVIDIA 575.57.08", "problem"),
        ("linux", "dGPU", NVIDIA, "NVIDIA 580.65.06", "ok"),
        ("linux", "dGPU", NVIDIA, "nvidia 570.86.15", "problem"),
        ("linux", "dGPU", NVIDIA, "nouveau of Linux 6.8.0", "unknown"),
        ("win32", "dGPU", NVIDIA, "32.0.15.7652", "problem"),
        ("win32", "dGPU", NVIDIA, "32.0.15.8088", "ok"),
        ("win32", "NPU", INTEL, "32.0.100.3104", "problem"),
        ("win32", "NPU", INTEL, "32.0.100.4239", "ok"),
        ("win32", "iGPU", INTEL, "31.0.101.5590", "problem"),
        ("linux", "NPU", INTEL, "intel_vpu of Linux 6.5.0-14", "problem"),
        ("linux", "NPU", INTEL, "intel_vpu of Linux 6.14.0", "ok"),
        ("win32", "NPU", QUALCOMM, "30.0.31.250", "problem"),
        ("win32", "NPU", AMD, "32.0.203.240", "problem"),
        ("win32", "NPU", AMD, "32.0.20101.3760", "ok"),
        ("linux", "dGPU", 0x1002, "amdgpu 6.14.14", "unknown"),
        ("linux", "dGPU", NVIDIA, None, "unknown"),
    ],
)
def test_a_driver_is_judged_by_its_makers_word(
    made: set[str], system: str, role: Any, vendor: int, driver: str | None, state: str
) -> None:
    made |= {"cuda", "windowsml"}
    (seen,) = _seen(system, Card(role, {}, vendor_id=vendor, name="A card", driver=driver))
    assert seen.state == state
    assert (seen.why is not None) is (state == "unknown")
    if state == "problem":
        assert "https://" in seen.sentence


@pytest.mark.parametrize(
    ("system", "role", "vendor", "driver", "environment"),
    [
        ("linux", "dGPU", NVIDIA, "NVIDIA 570.86.15", "tensorrt-rtx"),
        ("win32", "iGPU", INTEL, "31.0.101.2140", "windowsml"),
        ("win32", "NPU", QUALCOMM, "30.0.31.250", "windowsml"),
    ],
)
def test_an_old_driver_is_no_fault_where_nothing_needs_it(
    made: set[str], system: str, role: Any, vendor: int, driver: str, environment: str
) -> None:
    card = Card(role, {}, vendor_id=vendor, name="A card", driver=driver)
    made |= {"ggml"}
    (seen,) = _seen(system, card)
    assert (seen.state, seen.fix) == ("note", None)
    assert "no fault so far" in seen.sentence
    made |= {environment}
    assert _seen(system, card)[0].state == "problem"


def test_each_environment_of_a_row_is_one_that_there_is() -> None:
    for row in MINIMUMS:
        assert all(environment(name) is not None for name in row.environments or ())


def test_each_card_is_told_apart() -> None:
    card = Card("dGPU", {}, vendor_id=NVIDIA, name="A card", driver="NVIDIA 580.1")
    assert [one.id for one in _seen("linux", Card("CPU", {}), card, card)] == [
        "driver_1",
        "driver_2",
    ]


def test_a_list_that_could_not_be_read_is_not_no_card() -> None:
    assert _seen("linux", Card("CPU", {}))[0].state == "ok"
    assert _seen("linux", lacks=("NVML does not start",))[0].state == "unknown"


def test_every_row_names_its_source_and_compares_numbers() -> None:
    assert all(row.source.startswith("https://") and numbers(row.version) for row in MINIMUMS)
    assert numbers("6.10") > numbers("6.6")
    assert numbers("580") == numbers("580.0.0")
