from __future__ import annotations

import ctypes
import itertools
import json
from dataclasses import replace
from typing import Any

import pytest

from npumark.machine import gpu_sensors, nvidia, nvidia_sensors

AMD, INTEL = "0000:03:00.0", "0000:00:02.0"


def plug(fake: Any, number: int, bus: str, vendor: str) -> str:
    """Add a card, its device folder where the kernel has it; return the card's path."""
    fake.write(f"/sys/devices/pci0000:00/{bus}/vendor", vendor)
    card = f"/sys/class/drm/card{number}"
    fake.host.path(card).mkdir(parents=True)
    fake.host.path(f"{card}/device").symlink_to(fake.host.path(f"/sys/devices/pci0000:00/{bus}"))
    return card


def test_an_amd_card_tells_clock_temperatures_and_power(fake: Any) -> None:
    card = plug(fake, 1, AMD, "0x1002")
    hwmon = f"{card}/device/hwmon/hwmon3"
    fake.tree(
        {
            f"{hwmon}/freq1_input": 2_450_000_000,
            f"{hwmon}/temp1_input": 61000,
            f"{hwmon}/temp2_input": 79500,
            f"{hwmon}/power1_average": 212_000_000,
        }
    )
    assert gpu_sensors.readings(fake.host) == [
        {
            "card": AMD,
            "vendor": "AMD",
            "clock_mhz": 2450.0,
            "celsius": 79.5,
            "power_w": 212.0,
            "reasons": None,
            "why": {"reasons": "amdgpu's sysfs names no reasons"},
        }
    ]


I915 = ("gt/gt0/rps_act_freq_mhz", "gt/gt0/throttle_reason_")
XE = ("device/tile0/gt0/freq0/act_freq", "device/tile0/gt0/freq0/throttle/reason_")


@pytest.mark.parametrize(("clock", "lead"), [I915, XE], ids=["i915", "xe"])
def test_an_intel_card_names_what_holds_it_down(fake: Any, clock: str, lead: str) -> None:
    card = plug(fake, 0, INTEL, "0x8086")
    fake.tree({f"{card}/{clock}": 1800, f"{card}/{lead}thermal": 1})
    fake.tree({f"{card}/{lead}pl1": 1, f"{card}/{lead}pl2": 0, f"{card}/{lead}status": 1})
    (told,) = gpu_sensors.readings(fake.host)
    assert (told["card"], told["clock_mhz"], told["reasons"]) == (INTEL, 1800, ["pl1", "thermal"])
    assert set(told["why"]) == {"celsius", "power_w"}
    fake.tree({f"{card}/{lead}{name}": 0 for name in ("thermal", "pl1", "status")})
    assert gpu_sensors.readings(fake.host)[0]["reasons"] == []


def test_what_a_card_does_not_tell_has_a_reason(fake: Any) -> None:
    plug(fake, 0, INTEL, "0x8086")
    (told,) = gpu_sensors.readings(fake.host)
    names = {"clock_mhz", "celsius", "power_w", "reasons"}
    assert {name for name in names if told[name] is None} == names == set(told["why"])


def test_connectors_and_cards_of_others_are_no_cards_here(fake: Any) -> None:
    plug(fake, 0, "0000:01:00.0", "0x10de")
    fake.write("/sys/class/drm/card0-HDMI-A-1/status", "connected")
    assert gpu_sensors.readings(fake.host) == []
    assert gpu_sensors.readings(fake.other("darwin", {})) == []


class FakeNvml:
    """NVML's C calls over two cards, of which the second cannot be opened. ``lacks`` are the
    calls that this driver's library does not have."""

    def __init__(self, *, lacks: tuple[str, ...] = (), reasons: int = 0, starts: bool = True):
        self.lacks, self.reasons, self.starts = lacks, reasons, starts

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("nvml") and name in self.lacks:
            raise AttributeError(name)
        return super().__getattribute__(name)

    def nvmlInit_v2(self) -> int:
        return 0 if self.starts else 9

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:
        count._obj.value = 2
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index: Any, handle: Any) -> int:
        return 0 if index.value == 0 else 3

    def nvmlDeviceGetPciInfo_v3(self, handle: Any, info: Any) -> int:
        info._obj.bus_id = b"00000000:41:00.0"
        return 0

    def nvmlDeviceGetClockInfo(self, handle: Any, kind: Any, mhz: Any) -> int:
        mhz._obj.value = {0: 1980, 2: 2619}[kind.value]
        return 0

    def nvmlDeviceGetTemperatureV(self, handle: Any, asked: Any) -> int:
        if asked._obj.version != 0x0100000C or asked._obj.sensor != 0:
            return 25
        asked._obj.celsius = 64
        return 0

    def nvmlDeviceGetTemperature(self, handle: Any, sensor: Any, celsius: Any) -> int:
        celsius._obj.value = 63
        return 0

    def nvmlDeviceGetPowerUsage(self, handle: Any, milliwatts: Any) -> int:
        milliwatts._obj.value = 699_123
        return 0

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: Any, bits: Any) -> int:
        bits._obj.value = self.reasons
        return 0

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: Any, bits: Any) -> int:
        bits._obj.value = 0x80
        return 0


def test_nvml_tells_of_each_card_that_it_can_open() -> None:
    assert nvidia_sensors.readings(FakeNvml(reasons=0x1 | 0x4 | 0x40)) == [
        {
            "card": "0000:41:00.0",
            "vendor": "NVIDIA",
            "clock_mhz": 1980,
            "memory_mhz": 2619,
            "celsius": 64,
            "power_w": 699.123,
            "reasons": ["power cap", "heat (hardware)"],
            "why": {},
        }
    ]


def test_an_older_driver_is_asked_by_its_older_calls() -> None:
    newer = ("nvmlDeviceGetTemperatureV", "nvmlDeviceGetCurrentClocksEventReasons")
    (told,) = nvidia_sensors.readings(FakeNvml(lacks=newer))
    assert (told["celsius"], told["reasons"]) == (63, ["power brake"])


def test_what_nvml_does_not_tell_is_null() -> None:
    gone = tuple(name for name in vars(FakeNvml) if name.startswith("nvmlDeviceGetC"))
    gone = (*(name for name in gone if "Count" not in name), "nvmlDeviceGetPowerUsage")
    (told,) = nvidia_sensors.readings(FakeNvml(lacks=gone))
    unknown = {"clock_mhz", "memory_mhz", "power_w", "reasons"}
    assert {name for name, value in told.items() if value is None} == unknown == set(told["why"])


def test_nvmls_structure_is_what_its_version_says() -> None:
    assert ctypes.sizeof(nvidia_sensors._Temperature) == 12
    assert nvidia_sensors._TEMPERATURE_V1 == 0x100000C


def test_readings_follow_each_other_and_a_card_that_does_not_start_ends_them() -> None:
    told = list(itertools.islice(nvidia_sensors.stream(FakeNvml(), 0.0), 2))
    assert [len(t["gpus"]) for t in told] == [1, 1]
    assert told[0]["at_ns"] <= told[1]["at_ns"]
    with pytest.raises(OSError, match="does not start"):
        next(nvidia_sensors.stream(FakeNvml(starts=False), 0.0))


def test_without_the_library_the_process_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing() -> Any:
        raise OSError("libnvidia-ml.so.1: cannot open shared object file")

    monkeypatch.setattr(nvidia, "library", missing)
    monkeypatch.setattr(nvidia_sensors, "_until_input_ends", lambda: None)
    assert nvidia_sensors.main(["2.0"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["fault"].startswith("NVIDIA's NVML cannot be asked: libnvidia-ml.so.1")


def test_nvml_is_worth_a_process_where_the_driver_is(fake: Any) -> None:
    assert not nvidia_sensors.present(fake.host)
    assert not nvidia_sensors.present(fake.other("darwin", {}))
    fake.write("/proc/driver/nvidia/version", "NVRM version: 570")
    assert nvidia_sensors.present(fake.host)


def test_without_a_period_the_process_reads_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(nvidia, "library", lambda: FakeNvml(reasons=0x40))
    assert nvidia_sensors.main([]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert [card["reasons"] for card in json.loads(line)["gpus"]] == [["heat (hardware)"]]


def test_cards_are_asked_once_by_a_process_and_only_where_the_driver_is(fake: Any) -> None:
    line = json.dumps({"at_ns": 1, "gpus": nvidia_sensors.readings(FakeNvml(reasons=0x20))})
    answers = {nvidia_sensors.COMMAND: line}
    host = replace(fake.other("linux", answers), root=fake.root)
    assert nvidia_sensors.ask_once(host) == ([], None)
    fake.write("/proc/driver/nvidia/version", "NVRM version: 570")
    cards, why = nvidia_sensors.ask_once(host)
    assert ([card["reasons"] for card in cards], why) == ([["heat (driver)"]], None)
    cards, why = nvidia_sensors.ask_once(fake.host)
    assert (cards, why) == ([], "the process that asks NVIDIA's NVML is not recorded")
