"""What the machine itself shows: power, load, heat, limits, memory, swap."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from typing import Any

import pytest

from npumark.machine import nvidia_sensors
from npumark.machine.host import Memory, Reading, Running
from npumark.orchestrator.lock import measuring
from tests.machine.conftest import UNPLUGGED, USER

SUPPLY = "/sys/class/power_supply"
FREQ = "/sys/devices/system/cpu/cpufreq"
GROUPS = "0::/job"
MOUNT = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw"
GROUP = "/sys/fs/cgroup/job"


def _stat(pid: int, name: str, ticks: int, *, kernel: bool = False) -> str:
    flags = 0x00200000 if kernel else 0x00400000
    return f"{pid} ({name}) S 1 1 1 0 -1 {flags} 0 0 0 0 {ticks} 0 0 0 20 0 1 0 7"  # fields 1 to 22


@dataclass
class Working:
    """A process of the fake machine that takes ``cpus`` CPUs."""

    pid: int
    name: str
    cpus: float
    user: int = USER
    kernel: bool = False


def _work(clinic: Any, *working: Working) -> None:
    """Let processes run on the fake machine, and its counters show what they take."""
    clinic.fake.load = sum(one.cpus for one in working)

    def run(seconds: float) -> None:
        for one in working:
            ticks = round(100 * seconds * one.cpus)
            stat = _stat(one.pid, one.name, 5000 + ticks, kernel=one.kernel)
            clinic.fake.write(f"/proc/{one.pid}/stat", stat)

    run(0.0)
    for one in working:
        clinic.fake.write(f"/proc/{one.pid}/status", f"Name:\tx\nUid:\t0\t{one.user}\t0\t0")
    clinic.fake.on_sleep = run


def test_a_quiet_machine_has_no_problem(clinic: Any) -> None:
    assert clinic.problems() == set()


def test_every_problem_has_a_fix_and_every_unknown_a_reason(clinic: Any) -> None:
    clinic.fake.load = 2.0
    found = clinic.seen(free=lambda _: 0).values()
    assert any(one.state == "problem" for one in found)
    assert all(one.fix for one in found if one.state == "problem")
    assert all(one.why and one.value is None for one in found if one.state == "unknown")


def test_a_battery_is_found(clinic: Any) -> None:
    clinic.fake.tree({f"{SUPPLY}/AC/type": "Mains", f"{SUPPLY}/AC/online": 0})
    clinic.fake.tree({f"{SUPPLY}/BAT0/type": "Battery", f"{SUPPLY}/BAT0/status": "Discharging"})
    seen = clinic.seen()["power_source"]
    assert (seen.state, seen.fix) == ("problem", "Plug in its power supply.")


def test_a_battery_of_windows_is_found(clinic: Any) -> None:
    clinic.host = clinic.fake.other("win32", {}, battery=lambda: UNPLUGGED)
    assert "power_source" in clinic.problems()


@pytest.mark.parametrize(
    ("files", "step"),
    [
        ({"/sys/firmware/acpi/platform_profile": "low-power"}, "powerprofilesctl set performance"),
        (
            {
                f"{FREQ}/policy0/scaling_driver": "acpi-cpufreq",
                f"{FREQ}/policy0/scaling_governor": "powersave",
            },
            "cpupower frequency-set -g performance",
        ),
        (
            {
                f"{FREQ}/policy0/scaling_driver": "intel_pstate",
                f"{FREQ}/policy0/energy_performance_preference": "power",
            },
            "energy_performance_preference",
        ),
    ],
)
def test_a_setting_that_saves_energy_is_found_with_its_own_command(
    clinic: Any, files: dict[str, str], step: str
) -> None:
    clinic.fake.tree(files)
    seen = clinic.seen()["power_profile"]
    assert seen.state == "problem"
    assert step in seen.fix
    assert seen.fix.count("sudo") + seen.fix.count("powerprofilesctl") == 1


@pytest.mark.parametrize(
    ("system", "asked", "answer", "step"),
    [
        (
            "win32",
            ("powercfg", "/getactivescheme"),
            "GUID: a1841308-3541-4fab-bc81-f71556f20b4a (Power saver)",
            "powercfg /setactive SCHEME_MIN",
        ),
        (
            "darwin",
            ("pmset", "-g", "custom"),
            "AC Power:\n lowpowermode 1\n",
            "pmset -a lowpowermode 0",
        ),
    ],
)
def test_other_systems_name_their_own_command(
    clinic: Any, system: str, asked: tuple[str, ...], answer: str, step: str
) -> None:
    clinic.host = clinic.fake.other(system, {asked: answer})
    assert step in clinic.seen()["power_profile"].fix


def test_clocks_held_below_what_the_processor_has_are_noted(clinic: Any) -> None:
    policy = f"{FREQ}/policy0"
    clinic.fake.tree(
        {f"{policy}/scaling_max_freq": 2_000_000, f"{policy}/cpuinfo_max_freq": 4_500_000}
    )
    seen = clinic.seen()["clocks"]
    assert seen.state == "note"
    assert "policy0 (2.00 of 4.50 GHz)" in seen.sentence
    assert "4500000kHz" in seen.fix
    clinic.fake.write(f"{policy}/scaling_max_freq", 4_500_000)
    assert clinic.seen()["clocks"].state == "ok"
    clinic.fake.write(f"{FREQ}/boost", 0)
    seen = clinic.seen()["clocks"]
    assert seen.state == "note"
    assert "cpufreq/boost" in seen.fix


def test_each_clock_domain_is_held_against_itself(clinic: Any) -> None:
    clinic.fake.tree(
        {
            f"{FREQ}/policy0/scaling_max_freq": 4_000_000,
            f"{FREQ}/policy0/cpuinfo_max_freq": 4_000_000,
            f"{FREQ}/policy4/scaling_max_freq": 1_000_000,
            f"{FREQ}/policy4/cpuinfo_max_freq": 2_500_000,
        }
    )
    seen = clinic.seen()["clocks"]
    assert seen.sentence.startswith("1 of 2 clock domains")
    assert "policy4 (1.00 of 2.50 GHz)" in seen.sentence
    clinic.fake.write(f"{FREQ}/policy4/scaling_max_freq", 2_499_000)  # what a driver rounds
    assert clinic.seen()["clocks"].state == "ok"


def test_two_busy_loops_are_found_and_named(clinic: Any) -> None:
    _work(clinic, Working(41, "busy (loop)", 1.0), Working(42, "python", 0.5))
    seen = clinic.seen()["background_load"]
    assert seen.state == "problem"
    assert (
        "busy (loop) (process 41) 100% of a CPU, python (process 42) 50% of a CPU" in seen.sentence
    )
    assert [p["pid"] for p in seen.value["busiest"]] == [41, 42]
    assert seen.fix.startswith("Close these programs, or measure with `--wait-idle`")


def test_nobody_is_told_to_end_what_is_not_theirs(clinic: Any) -> None:
    _work(
        clinic,
        Working(1, "systemd", 0.2),
        Working(15, "kswapd0", 0.4, kernel=True),
        Working(700, "packagekitd", 0.8, user=0),
        Working(41, "game", 0.5),
    )
    seen = clinic.seen()["background_load"]
    assert "kill" not in seen.fix
    assert "game (process 41) 50% of a CPU" in seen.sentence
    theirs = "of the system or other users packagekitd 80% of a CPU, kswapd0 40% of a CPU"
    assert theirs in seen.sentence
    assert seen.sentence.count("process ") == 1
    assert seen.fix.startswith("Close what of these programs is yours")
    assert [p["mine"] for p in seen.value["busiest"]] == [False, True, False, False]
    _work(clinic, Working(700, "packagekitd", 0.8, user=0))
    clinic.fake.write("/proc/41/stat", _stat(41, "game", 0))
    seen = clinic.seen()["background_load"]
    assert "game" not in seen.sentence
    assert seen.fix.startswith("Measure with `--wait-idle`")


def test_a_process_that_takes_next_to_nothing_is_not_named(clinic: Any) -> None:
    _work(clinic, Working(41, "game", 0.9), Working(43, "shell", 0.03))
    sentence = clinic.seen()["background_load"].sentence
    assert "game" in sentence
    assert "shell" not in sentence


def test_many_small_processes_are_told_as_such(clinic: Any) -> None:
    _work(clinic, *(Working(100 + n, f"small{n}", 0.04) for n in range(30)))
    assert "many processes that take little each" in clinic.seen()["background_load"].sentence


def test_load_that_no_process_here_makes_is_told_so(clinic: Any) -> None:
    clinic.fake.load = 2.0
    assert "no process that can be seen" in clinic.seen()["background_load"].sentence


def test_windows_names_its_processes_without_its_idle_one(clinic: Any) -> None:
    spent = iter([0.0, 2.0])

    def processes() -> tuple[Running, ...]:
        now = next(spent)
        idle = Running(0, 0, "System Idle Process", 9 * now)
        return (idle, Running(7, 1, "game.exe", now, mine=True))

    times = iter([(0, 0), (0, 0), (4, 0), (4, 0)])
    clock = replace(clinic.fake.host.cpu_times())

    def cpu_times() -> Any:
        busy, idle = next(times)
        return replace(clock, busy=busy, idle=idle)

    clinic.host = clinic.fake.other("win32", {}, processes=processes, cpu_times=cpu_times)
    seen = clinic.seen()["background_load"]
    assert [p["name"] for p in seen.value["busiest"]] == ["game.exe"]
    assert "game.exe (process 7) 100% of a CPU" in seen.sentence
    assert "kill" not in seen.fix


def test_this_process_is_not_its_own_background_load(clinic: Any) -> None:
    _work(clinic, Working(os.getpid(), "npumark", 1.0))
    assert clinic.seen()["background_load"].value["busiest"] == []


def test_another_npumark_is_found(clinic: Any, tmp_path: Any) -> None:
    none = clinic.seen()["other_npumark"]
    assert none.state == "ok"
    assert "with this data folder or its engines" in none.sentence
    with measuring("npumark run --quick"):
        seen = clinic.seen()["other_npumark"]
        clinic.host = clinic.fake.other("win32", {})
        windows = clinic.seen()["other_npumark"]
    assert seen.state == "problem"
    assert f"`npumark run --quick`, process {os.getpid()}" in seen.sentence
    assert f"`kill -INT {os.getpid()}`" in seen.fix
    assert "Ctrl+C" in windows.fix
    assert "kill" not in windows.fix


def test_fewer_cpus_than_the_machine_has_are_found(clinic: Any) -> None:
    clinic.host = replace(clinic.fake.host, affinity=lambda: frozenset({0}))
    seen = clinic.seen()["cpus_allowed"]
    assert (seen.state, seen.value["allowed"], seen.value["machine"]) == ("problem", 1, 2)
    assert "taskset -c 0-1" in seen.fix


def test_a_cpuset_is_told_from_an_affinity_mask(clinic: Any) -> None:
    clinic.fake.tree({"/proc/self/cgroup": GROUPS, "/proc/self/mountinfo": MOUNT})
    clinic.fake.write(f"{GROUP}/cpuset.cpus.effective", "1")
    clinic.host = replace(clinic.fake.host, affinity=lambda: frozenset({1}))
    seen = clinic.seen()["cpus_allowed"]
    assert "a cpuset" in seen.sentence
    assert "--cpuset-cpus 0-1" in seen.fix


@pytest.mark.parametrize(
    ("text", "state"), [("50000 100000", "problem"), ("200000 100000", "ok"), ("max 100000", "ok")]
)
def test_a_quota_below_the_cpus_is_found(clinic: Any, text: str, state: str) -> None:
    clinic.fake.tree({"/proc/self/cgroup": GROUPS, "/proc/self/mountinfo": MOUNT})
    clinic.fake.write(f"{GROUP}/cpu.max", text)
    seen = clinic.seen()["cpu_quota"]
    assert seen.state == state
    if state == "problem":
        assert "0.5 CPUs' worth of time of 2" in seen.sentence
        assert f"echo max > {GROUP}/cpu.max" in seen.fix


def test_a_quota_of_the_first_version_names_its_own_file(clinic: Any) -> None:
    clinic.fake.tree(
        {
            "/proc/self/cgroup": "1:cpu:/job",
            "/proc/self/mountinfo": "31 23 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu",
            "/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us": 100_000,
            "/sys/fs/cgroup/cpu/job/cpu.cfs_period_us": 100_000,
        }
    )
    assert "echo -1 > /sys/fs/cgroup/cpu/job/cpu.cfs_quota_us" in clinic.seen()["cpu_quota"].fix


def test_a_quota_that_stops_processes_now_is_found(clinic: Any) -> None:
    clinic.fake.tree({"/proc/self/cgroup": GROUPS, "/proc/self/mountinfo": MOUNT})
    clinic.fake.write(f"{GROUP}/cpu.stat", "nr_throttled 3\nthrottled_usec 2500000")
    seen = clinic.seen()["throttling"]
    assert (seen.state, seen.sentence) == (
        "note",
        "Not now, but before: a CPU quota stopped processes for 2.5 s.",
    )
    clinic.fake.on_sleep = lambda _: clinic.fake.write(
        f"{GROUP}/cpu.stat", "nr_throttled 5\nthrottled_usec 2600000"
    )
    assert clinic.seen()["throttling"].state == "problem"


def test_a_hot_zone_is_found(clinic: Any) -> None:
    zone = "/sys/class/thermal/thermal_zone0"
    clinic.fake.tree({f"{zone}/type": "x86_pkg_temp", f"{zone}/temp": 60_000})
    clinic.fake.tree({f"{zone}/trip_point_0_temp": 95_000, f"{zone}/trip_point_0_type": "passive"})
    assert clinic.seen()["thermal"].state == "ok"
    clinic.fake.write(f"{zone}/temp", 97_000)
    seen = clinic.seen()["thermal"]
    assert seen.state == "problem"
    assert "x86_pkg_temp, has 97 °C" in seen.sentence


def test_a_graphics_card_that_its_driver_slows_for_heat_is_found(clinic: Any) -> None:
    card = "/sys/class/drm/card0"
    clinic.fake.tree(
        {f"{card}/device/vendor": "0x8086", f"{card}/gt/gt0/throttle_reason_thermal": 1}
    )
    assert clinic.seen()["thermal"].state == "problem"
    clinic.fake.write(f"{card}/gt/gt0/throttle_reason_thermal", 0)
    assert clinic.seen()["thermal"].state != "problem"


NVIDIA = {"card": "0000:01:00.0", "vendor": "NVIDIA", "celsius": 54, "reasons": []}


def _with_nvidia(clinic: Any, answer: Reading) -> None:
    clinic.fake.write("/proc/driver/nvidia/version", "NVRM version")
    clinic.host = replace(
        clinic.fake.host,
        output=lambda argv: answer if argv == nvidia_sensors.COMMAND else Reading(None, "no"),
    )


def test_a_card_of_nvidia_is_asked_for_heat(clinic: Any) -> None:
    _with_nvidia(clinic, Reading(json.dumps({"at_ns": 1, "gpus": [NVIDIA]})))
    seen = clinic.seen()["thermal"]
    assert seen.state == "ok"
    assert "1 of 1 graphics cards (the hottest has 54 °C)" in seen.sentence
    hot = {**NVIDIA, "celsius": 90, "reasons": ["power cap", "heat (hardware)"]}
    _with_nvidia(clinic, Reading(json.dumps({"at_ns": 1, "gpus": [hot, NVIDIA]})))
    seen = clinic.seen()["thermal"]
    assert seen.state == "problem"
    assert "(the hottest has 90 °C)" in seen.sentence
    assert [card["celsius"] for card in seen.value["slowed_cards"]] == [90]


@pytest.mark.parametrize(
    "answer",
    [
        Reading(None, f"{nvidia_sensors.COMMAND[0]} could not be run (TimeoutExpired)"),
        Reading('{"fault": "NVML does not start"}'),
        Reading('{"gpus": [{"reasons": 3, "celsius": 1}]}'),
        Reading("nonsense"),
    ],
)
def test_a_card_that_was_not_asked_is_not_called_cool(clinic: Any, answer: Reading) -> None:
    _with_nvidia(clinic, answer)
    seen = clinic.seen()["thermal"]
    assert seen.state == "unknown"
    assert "NVML" in seen.why
    zone = "/sys/class/thermal/thermal_zone0"
    clinic.fake.tree({f"{zone}/type": "x86_pkg_temp", f"{zone}/temp": 60_000})
    seen = clinic.seen()["thermal"]
    assert seen.state == "ok"
    assert "NVIDIA's cards were not asked" in seen.sentence


def test_too_little_memory_is_found(clinic: Any) -> None:
    clinic.fake.write("/proc/meminfo", "MemTotal: 16000 kB\nMemAvailable: 1024 kB")
    seen = clinic.seen()["memory"]
    assert seen.state == "problem"
    assert "Close programs" in seen.fix


def test_too_little_room_under_a_limit_names_the_limit(clinic: Any) -> None:
    clinic.fake.tree({"/proc/self/cgroup": GROUPS, "/proc/self/mountinfo": MOUNT})
    clinic.fake.tree({f"{GROUP}/memory.max": 4 << 20, f"{GROUP}/memory.current": 3 << 20})
    found = clinic.seen()
    assert "--memory" in found["memory"].fix
    assert found["memory_limit"].value["left_bytes"] == 1 << 20


def test_memory_of_other_systems_is_judged_too(clinic: Any) -> None:
    clinic.host = clinic.fake.other("win32", {}, memory=lambda: Memory(1 << 30, 1 << 10))
    assert "memory" in clinic.problems()


def test_swapping_is_found_and_what_lies_there_is_noted(clinic: Any) -> None:
    clinic.fake.write(
        "/proc/meminfo", "MemAvailable: 8000000 kB\nSwapTotal: 2000 kB\nSwapFree: 500 kB"
    )
    clinic.fake.write("/proc/vmstat", "pswpin 5\npswpout 6\n")
    assert clinic.seen()["swap"].state == "note"
    clinic.fake.on_sleep = lambda _: clinic.fake.write("/proc/vmstat", "pswpin 6\npswpout 6\n")
    seen = clinic.seen()["swap"]
    assert seen.state == "note"
    assert "within 2 s: 1, too few" in seen.sentence
    clinic.fake.on_sleep = lambda _: clinic.fake.write("/proc/vmstat", "pswpin 6\npswpout 9999\n")
    seen = clinic.seen()["swap"]
    assert seen.state == "problem"
    assert "swapoff" not in seen.fix


def test_stolen_time_is_noted(clinic: Any) -> None:
    clinic.fake.load, clinic.fake.steal = 0.1, 0.1
    seen = clinic.seen()["virtual_machine"]
    assert (seen.state, round(seen.value["steal"], 3)) == ("note", 0.05)


@pytest.mark.parametrize(
    ("flags", "state"),
    [("avx2 hypervisor", "note"), ("avx2", "note"), ("avx2 avx512_vnni", "ok")],
)
def test_a_processor_whose_int8_sums_saturate_is_noted(clinic: Any, flags: str, state: str) -> None:
    clinic.fake.write("/proc/cpuinfo", f"flags\t: {flags}")
    seen = clinic.seen()["int8_instructions"]
    assert (seen.state, seen.fix) == (state, None)
    assert ("do not count" in seen.sentence) is (state == "note")
    assert ("hypervisor" in seen.sentence) is ("hypervisor" in flags)


def test_a_slow_clock_source_and_a_container_are_noted(clinic: Any) -> None:
    clinic.fake.write("/sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet")
    clinic.fake.write("/.dockerenv", "")
    found = clinic.seen()
    assert found["clock_source"].state == "note"
    assert found["container"].value == "docker"


def test_a_machine_that_tells_nothing_is_no_problem(clinic: Any) -> None:
    clinic.host = clinic.fake.other("win32", {}, cpu_times=lambda: clinic.fake.host.cpu_times())
    assert clinic.problems() == set()
