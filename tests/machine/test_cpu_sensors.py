from __future__ import annotations

from typing import Any

import pytest

from npumark.machine import cpu_sensors
from npumark.machine.cache import last_level

CPU = "/sys/devices/system/cpu"


def test_clocks_temperatures_and_counters_are_read_together(fake: Any) -> None:
    fake.tree(
        {
            f"{CPU}/cpufreq/policy0/scaling_cur_freq": 3_900_000,
            f"{CPU}/cpufreq/policy1/scaling_cur_freq": 1_200_000,
            f"{CPU}/cpu0/thermal_throttle/core_throttle_count": 12,
            "/sys/class/thermal/thermal_zone0/temp": 41000,
            "/sys/class/hwmon/hwmon0/name": "nvme",
            "/sys/class/hwmon/hwmon0/temp1_input": 99000,
            "/sys/class/hwmon/hwmon1/name": "k10temp",
            "/sys/class/hwmon/hwmon1/temp1_input": 83250,
        }
    )
    told = cpu_sensors.reading(fake.host)
    assert told["cpu_khz"] == {"min": 1_200_000, "max": 3_900_000}
    assert told["hottest_celsius"] == 83.25  # the processor's own, not the disk's
    assert told["throttling"]["thermal_core"] == 12
    assert told["cpu_s"] == {"busy": 0.0, "idle": 0.0, "steal": 0.0}
    assert told["why"] == {}


def test_what_no_sensor_tells_is_null_with_its_reason(fake: Any) -> None:
    fake.host.path("/proc/stat").unlink()
    told = cpu_sensors.reading(fake.host)
    assert (told["cpu_khz"], told["hottest_celsius"], told["cpu_s"]) == (None, None, None)
    assert told["why"] == {
        "cpu_s": "the system keeps no CPU time counters",
        "cpu_khz": "this system exposes no processor clocks",
        "hottest_celsius": "this system exposes no thermal zone",
    }


def test_a_mac_tells_how_far_it_holds_its_clocks_down(fake: Any) -> None:
    answers = {("pmset", "-g", "therm"): "CPU_Speed_Limit \t= 80\n"}
    told = cpu_sensors.reading(fake.other("darwin", answers))
    assert told["speed_limit_percent"] == 80
    assert told["hottest_celsius"] is None
    assert "hottest_celsius" in told["why"]


def levels(fake: Any, cpu: int, *caches: tuple[int, str, str, str]) -> None:
    for i, (level, kind, size, shared) in enumerate(caches):
        index = f"{CPU}/cpu{cpu}/cache/index{i}"
        fake.tree({f"{index}/level": level, f"{index}/type": kind, f"{index}/size": size})
        fake.write(f"{index}/shared_cpu_list", shared)


def test_the_last_level_is_the_one_that_data_reaches_last(fake: Any) -> None:
    levels(
        fake,
        3,
        (1, "Data", "32K", "3"),
        (1, "Instruction", "32K", "3"),
        (2, "Unified", "1024K", "3"),
        (3, "Unified", "32768K", "2-5"),
    )
    found = last_level(fake.host, 3)
    assert (found.bytes, found.why) == (32 << 20, None)
    assert found.shared_by == {2, 3, 4, 5}


def test_a_damaged_list_of_sharers_is_unknown(fake: Any) -> None:
    levels(fake, 0, (3, "Unified", "8M", "0-x"))
    assert last_level(fake.host) == type(last_level(fake.host))(8 << 20, None)


@pytest.mark.parametrize("size", ["", "0K", "much", "-32K"])
def test_a_size_that_is_none_is_not_believed(fake: Any, size: str) -> None:
    levels(fake, 0, (3, "Unified", size, "0"))
    assert last_level(fake.host).bytes is None
    assert last_level(fake.host).why == "the kernel lists no caches here"


def test_other_systems_say_it_their_way_or_say_why_not(fake: Any) -> None:
    answers = {("sysctl", "-n", "hw.perflevel0.l2cachesize"): "16777216\n"}
    assert last_level(fake.other("darwin", answers)).bytes == 16 << 20
    assert last_level(fake.other("darwin", {})).why == "sysctl states no cache size"
    assert last_level(fake.other("win32", {})).bytes is None
    assert last_level(fake.other("win32", {})).why is not None
