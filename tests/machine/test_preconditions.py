from __future__ import annotations

import json
from typing import Any

import pytest

from npumark.machine import power, preconditions, sensors
from npumark.machine.host import Battery, CpuTimes
from npumark.policy import load_policy
from npumark.record.model import Check, Environment

POLICY = load_policy()
SUPPLY = "/sys/class/power_supply"
FREQ = "/sys/devices/system/cpu/cpufreq"


def _ac(online: int) -> dict[str, str | int]:
    return {f"{SUPPLY}/AC/type": "Mains", f"{SUPPLY}/AC/online": online}


def _battery(status: str) -> dict[str, str | int]:
    base = f"{SUPPLY}/BAT0"
    return {f"{base}/type": "Battery", f"{base}/status": status, f"{base}/present": 1}


_MOUSE = f"{SUPPLY}/hid-aa:bb:cc:dd:ee:ff-battery"
MOUSE: dict[str, str | int] = {
    f"{_MOUSE}/type": "Battery",
    f"{_MOUSE}/scope": "Device",
    f"{_MOUSE}/status": "Discharging",
}
UPS: dict[str, str | int] = {f"{SUPPLY}/ups/type": "UPS", f"{SUPPLY}/ups/status": "Discharging"}


@pytest.mark.parametrize(
    ("files", "value"),
    [
        pytest.param({}, None, id="no power_supply folder"),
        pytest.param(_ac(1), "mains", id="a desktop that reports its supply"),
        pytest.param({**_ac(1), **_battery("Charging")}, "mains", id="laptop on its charger"),
        pytest.param({**_ac(1), **_battery("Discharging")}, "mains", id="a weak charger"),
        pytest.param({**_ac(0), **_battery("Discharging")}, "battery", id="laptop unplugged"),
        pytest.param({**_ac(0), **_battery("Full")}, "battery", id="just unplugged"),
        pytest.param(_battery("Discharging"), "battery", id="a battery alone, discharging"),
        pytest.param(_battery("Full"), None, id="a battery alone, full"),
        pytest.param(UPS, None, id="only a UPS"),
        pytest.param(MOUSE, None, id="only a mouse"),
        pytest.param({**_ac(0), **MOUSE}, None, id="an idle port and a mouse"),
        pytest.param({**_ac(1), **MOUSE, **UPS}, "mains", id="a desktop with both"),
        pytest.param(
            {f"{SUPPLY}/usb/type": "USB", f"{SUPPLY}/usb/online": 1, **_battery("Charging")},
            "mains",
            id="charged over USB-C",
        ),
        pytest.param(
            {**_ac(0), **_battery("Discharging"), f"{SUPPLY}/BAT0/present": 0},
            None,
            id="an empty battery bay",
        ),
        pytest.param({**_ac(0)}, None, id="one supply, off line, no battery"),
    ],
)
def test_only_the_systems_own_battery_is_a_violation(
    fake: Any, files: dict[str, str | int], value: str | None
) -> None:
    fake.tree(files)
    seen = power.source(fake.host)
    assert seen.value == value
    assert seen.violation is (value == "battery")
    assert (seen.why is None) is (value is not None)
    environment = preconditions.check(POLICY, None, 1.0, fake.host)
    assert environment.noisy is seen.violation
    # A mouse's supply is called after its Bluetooth address, which stays out.
    assert "aa:bb" not in environment.model_dump_json()


@pytest.mark.parametrize(
    ("state", "value"),
    [
        (Battery(present=True, plugged=True), "mains"),
        (Battery(present=True, plugged=False), "battery"),
        (Battery(present=True, plugged=None), None),
        (None, None),
    ],
)
def test_other_systems_state_their_source(
    fake: Any, state: Battery | None, value: str | None
) -> None:
    host = fake.other("win32", {}, battery=lambda: state)
    seen = power.source(host)
    assert (seen.value, seen.violation) == (value, value == "battery")


@pytest.mark.parametrize(
    ("files", "violation"),
    [
        ({"/sys/firmware/acpi/platform_profile": "performance"}, False),
        ({"/sys/firmware/acpi/platform_profile": "balanced"}, False),
        ({"/sys/firmware/acpi/platform_profile": "low-power"}, True),
        (
            {
                f"{FREQ}/policy0/scaling_driver": "intel_pstate",
                f"{FREQ}/policy0/scaling_governor": "powersave",
                f"{FREQ}/policy0/energy_performance_preference": "balance_performance",
            },
            False,
        ),
        (
            {
                f"{FREQ}/policy0/scaling_driver": "amd-pstate-epp",
                f"{FREQ}/policy0/scaling_governor": "powersave",
                f"{FREQ}/policy0/energy_performance_preference": "power",
            },
            True,
        ),
        (
            {
                f"{FREQ}/policy0/scaling_driver": "acpi-cpufreq",
                f"{FREQ}/policy0/scaling_governor": "schedutil",
                f"{FREQ}/policy1/scaling_driver": "acpi-cpufreq",
                f"{FREQ}/policy1/scaling_governor": "powersave",
            },
            True,
        ),
    ],
)
def test_a_profile_that_saves_energy_is_a_violation(
    fake: Any, files: dict[str, str | int], violation: bool
) -> None:
    fake.tree(files)
    seen = power.profile(fake.host)
    assert seen.value is not None
    assert seen.violation is violation


def test_an_unknown_profile_is_null(fake: Any) -> None:
    for host in (fake.host, fake.other("darwin", {}), fake.other("win32", {})):
        seen = power.profile(host)
        assert (seen.value, seen.violation) == (None, False)
        assert seen.why


PMSET = "Battery Power:\n lowpowermode 1\nAC Power:\n lowpowermode {}\n"


@pytest.mark.parametrize(("mode", "violation"), [(0, False), (1, True)])
def test_a_macs_low_power_mode(fake: Any, mode: int, violation: bool) -> None:
    answers = {("pmset", "-g", "custom"): PMSET.format(mode)}
    assert power.profile(fake.other("darwin", answers)).violation is violation
    unplugged = fake.other("darwin", answers, battery=lambda: Battery(True, False))
    assert power.profile(unplugged).violation is True


@pytest.mark.parametrize(
    ("guid", "plan", "violation"),
    [
        ("381b4222-f694-41f0-9685-ff5bb260df2e", "balanced", False),
        ("A1841308-3541-4fab-bc81-f71556f20b4a", "power-saver", True),
        ("00000000-3541-4fab-bc81-f71556f20b4a", "another plan", False),
    ],
)
def test_a_windows_power_plan(fake: Any, guid: str, plan: str, violation: bool) -> None:
    said = f"Power Scheme GUID: {guid}  (Anything)"
    seen = power.profile(fake.other("win32", {("powercfg", "/getactivescheme"): said}))
    assert seen.value == {"profile": plan}
    assert seen.violation is violation


@pytest.mark.parametrize(
    ("cpus", "load", "noisy"),
    [(2, 0.0, False), (2, 2.0, True), (2, 0.2, False), (2, 0.22, True), (64, 2.0, False)],
)
def test_the_whole_machine_must_be_idle(fake: Any, cpus: int, load: float, noisy: bool) -> None:
    fake.cpus, fake.load = cpus, load
    environment = preconditions.check(POLICY, None, 30.0, fake.host)
    seen = environment.checks["cpu_busy"]
    assert seen.value == pytest.approx(load / cpus, abs=1e-3)
    assert (seen.violation, environment.noisy) == (noisy, noisy)
    assert fake.now == 30.0
    assert environment.facts["idle_window_s"] == 30.0


def test_without_counters_the_load_is_unknown_not_zero(fake: Any) -> None:
    for text in ("", "nonsense", "cpu a b c d e"):
        fake.write("/proc/stat", text)
        assert sensors.cpu_times(fake.host) is None
    fake.on_sleep = lambda _: fake.write("/proc/stat", "")
    seen = preconditions.check(POLICY, None, 1.0, fake.host).checks["cpu_busy"]
    assert (seen.value, seen.violation) == (None, False)
    assert seen.why


def test_an_idle_counter_that_stands_still_gives_no_share() -> None:
    at = CpuTimes(5.0, 5.0, None)
    assert sensors.busy_share(at, at) is None
    assert sensors.busy_share(at, CpuTimes(4.0, 9.0, None)) is None
    assert sensors.busy_share(None, at) is None


def test_an_old_kernels_short_line_is_read(fake: Any) -> None:
    fake.write("/proc/stat", "cpu 100 0 100 800")
    assert sensors.cpu_times(fake.host) == CpuTimes(2.0, 8.0, 0.0)


GROUP = {
    "/proc/self/mountinfo": "31 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw",
    "/proc/self/cgroup": "0::/",
}


@pytest.mark.parametrize(
    ("limit", "resident", "violation"),
    [(None, 8 << 20, False), (None, 9 << 20, True), (8 << 20, 8 << 20, True), (None, None, False)],
)
def test_memory_must_hold_the_resident_bytes_and_a_fifth(
    fake: Any, limit: int | None, resident: int | None, violation: bool
) -> None:
    fake.write("/proc/meminfo", "MemTotal: 65536 kB\nMemAvailable: 10240 kB")
    if limit is not None:
        fake.tree({**GROUP, "/sys/fs/cgroup/memory.max": limit, "/sys/fs/cgroup/memory.current": 0})
    seen = preconditions.check(POLICY, resident, 1.0, fake.host).checks["memory"]
    assert seen.violation is violation
    assert seen.value["available_bytes"] == min(10 << 20, limit or 10 << 20)
    assert (seen.value["needed_bytes"] is None) is (resident is None)
    assert (seen.why is None) is (resident is not None)


def test_unknown_memory_is_null(fake: Any) -> None:
    seen = preconditions.check(POLICY, 1, 1.0, fake.host).checks["memory"]
    assert (seen.value, seen.violation) == (None, False)


ZONE = "/sys/class/thermal/thermal_zone0"


@pytest.mark.parametrize(
    ("milli", "violation"), [(45000, False), (94999, False), (95000, True), (101000, True)]
)
def test_a_zone_at_its_limiting_trip_is_a_violation(fake: Any, milli: int, violation: bool) -> None:
    fake.tree(
        {
            f"{ZONE}/type": "x86_pkg_temp",
            f"{ZONE}/temp": milli,
            f"{ZONE}/trip_point_0_type": "active",
            f"{ZONE}/trip_point_0_temp": 40000,
            f"{ZONE}/trip_point_1_type": "passive",
            f"{ZONE}/trip_point_1_temp": 95000,
            f"{ZONE}/trip_point_2_type": "critical",
            f"{ZONE}/trip_point_2_temp": -274000,
            "/sys/class/thermal/thermal_zone1/type": "silent",
        }
    )
    seen = sensors.thermal(fake.host)
    assert seen.violation is violation
    (zone,) = seen.value
    assert zone["celsius"] == milli / 1000
    assert zone["lowest_limit_celsius"] == 95.0
    assert zone["reached"] == (["passive"] if violation else [])


@pytest.mark.parametrize(
    ("said", "value", "violation"),
    [
        ("CPU_Speed_Limit \t= 100", {"speed_limit_percent": 100}, False),
        ("CPU_Speed_Limit \t= 60", {"speed_limit_percent": 60}, True),
        ("CPU_Speed_Limit \t= ?", None, False),
        ("Note: No thermal warning level has been recorded", None, False),
    ],
)
def test_a_macs_speed_limit(fake: Any, said: str, value: object, violation: bool) -> None:
    seen = sensors.thermal(fake.other("darwin", {("pmset", "-g", "therm"): said}))
    assert (seen.value, seen.violation) == (value, violation)


def test_being_throttled_while_idle_is_a_violation(fake: Any) -> None:
    fake.tree({**GROUP, "/sys/fs/cgroup/cpu.stat": "nr_throttled 7\nthrottled_usec 70"})
    quiet = preconditions.check(POLICY, None, 1.0, fake.host)
    assert quiet.checks["throttling"].violation is False
    fake.on_sleep = lambda _: fake.write(
        "/sys/fs/cgroup/cpu.stat", "nr_throttled 8\nthrottled_usec 90"
    )
    seen = preconditions.check(POLICY, None, 1.0, fake.host)
    assert seen.noisy
    assert seen.checks["throttling"].value["in_window"]["nr_throttled"] == 1
    assert seen.checks["throttling"].value["before"]["nr_throttled"] == 8


def test_clocks_are_recorded_and_judge_nothing(fake: Any) -> None:
    assert power.clocks(fake.host).value is None
    fake.write("/proc/cpuinfo", "cpu MHz\t\t: 2599.998\ncpu MHz\t\t: 1800.0")
    assert power.clocks(fake.host).value["current_khz"] == {"min": 1800000, "max": 2599998}
    fake.tree(
        {
            f"{FREQ}/policy0/scaling_cur_freq": 800000,
            f"{FREQ}/policy0/scaling_max_freq": 2000000,
            f"{FREQ}/policy0/cpuinfo_max_freq": 4000000,
            "/sys/devices/system/cpu/intel_pstate/no_turbo": 1,
        }
    )
    seen = power.clocks(fake.host)
    assert seen.violation is False
    assert seen.value["permitted_max_khz"] == {"min": 2000000, "max": 2000000}
    assert seen.value["boost"] is False


def test_a_machine_that_tells_nothing_is_not_noisy(fake: Any) -> None:
    (fake.root / "proc/stat").unlink()
    fake.on_sleep = lambda _: (fake.root / "proc/stat").unlink()
    environment = preconditions.check(POLICY, 1 << 40, 1.0, fake.host)
    assert environment.noisy is False
    for name, seen in environment.checks.items():
        assert (seen.value is None) is (seen.why is not None), name
    assert preconditions.strict_error(environment) is None


def test_skipping_is_recorded(fake: Any) -> None:
    environment = preconditions.skipped("--skip-preconditions", fake.host)
    assert environment.skipped is True
    assert environment.noisy is False
    assert environment.checks["cpu_busy"].value is None
    assert environment.checks["cpu_busy"].why == "--skip-preconditions"
    assert environment.checks["cpu_limits"].value["threads"] == 2
    measured = preconditions.check(POLICY, None, 1.0, fake.host)
    assert set(measured.checks) == set(environment.checks)
    assert fake.now == 1.0  # skipping waits for nothing


def test_every_violation_is_said_with_what_to_do(fake: Any) -> None:
    fake.load = 2.0
    fake.tree(
        {
            **_ac(0),
            **_battery("Discharging"),
            **GROUP,
            "/sys/firmware/acpi/platform_profile": "low-power",
            "/proc/meminfo": "MemAvailable: 1024 kB",
            f"{ZONE}/temp": 99000,
            f"{ZONE}/trip_point_0_type": "hot",
            f"{ZONE}/trip_point_0_temp": 90000,
            "/sys/fs/cgroup/cpu.stat": "nr_throttled 7\nthrottled_usec 70",
        }
    )
    fake.on_sleep = lambda _: fake.write(
        "/sys/fs/cgroup/cpu.stat", "nr_throttled 8\nthrottled_usec 90"
    )
    environment = preconditions.check(POLICY, 3 << 30, 1.0, fake.host)
    said = preconditions.violations(environment)
    judged = [n for n, c in environment.checks.items() if c.violation]
    assert len(said) == len(judged) == 6
    assert "its processor is 100% busy: stop other programs, or use --wait-idle" in said
    assert any("3.9 GB of memory are needed and 0.0 GB are free" in text for text in said)
    fault = preconditions.strict_error(environment)
    assert fault is not None
    assert fault.exit_code == 2
    assert all(text in fault.message for text in said)
    json.dumps(environment.model_dump(), allow_nan=False)


def test_throttling_seen_while_measuring_is_said() -> None:
    late = Check(value={"nr_throttled": 3}, why=None, violation=True)
    environment = Environment(
        checks={"throttling_while_measuring": late}, noisy=True, skipped=False, facts={}
    )
    (said,) = preconditions.violations(environment)
    assert said.startswith("its processor time was throttled while it measured: ")


def test_load_beside_the_measurement_is_said() -> None:
    late = Check(value=0.42, why=None, violation=True)
    environment = Environment(
        checks={"load_beside_measuring": late}, noisy=True, skipped=False, facts={}
    )
    (said,) = preconditions.violations(environment)
    assert said.startswith("other programs took 42% of its processor while it measured: ")


def test_waiting_ends_when_the_machine_is_idle(fake: Any) -> None:
    fake.load = 2.0
    seen: list[tuple[float, float | None]] = []

    def calm(_: float) -> None:
        if fake.now >= 60:
            fake.load = 0.0

    fake.on_sleep = calm
    assert preconditions.wait_idle(
        POLICY, 30.0, progress=lambda *said: seen.append(said), host=fake.host
    )
    assert seen == [(30.0, 1.0), (60.0, 1.0), (90.0, 0.0)]


def test_waiting_has_an_end(fake: Any) -> None:
    fake.load = 2.0
    assert not preconditions.wait_idle(POLICY, 30.0, limit_s=100.0, host=fake.host)
    assert fake.now == 90.0


def test_an_unreadable_load_is_not_waited_for(fake: Any) -> None:
    fake.on_sleep = lambda _: (fake.root / "proc/stat").unlink()
    assert preconditions.wait_idle(POLICY, 5.0, host=fake.host)
    assert fake.now == 5.0


def test_two_samples_tell_what_other_programs_took(fake: Any) -> None:
    first = sensors.load_sample(fake.host)
    fake.load, fake.steal, fake.own = 1.5, 0.1, 10.0
    fake.sleep(10.0)
    between = sensors.load_between(first, sensors.load_sample(fake.host))
    assert between["seconds"] == 10.0
    assert between["busy"] == pytest.approx(0.75)
    assert between["own"] == pytest.approx(0.5)
    assert between["others"] == pytest.approx(0.25)
    assert between["steal"] == pytest.approx(0.05)


def test_own_time_that_is_not_known_is_not_laid_on_others(fake: Any) -> None:
    times = iter([CpuTimes(0.0, 0.0, None), CpuTimes(9.0, 1.0, None)])
    host = fake.other("win32", {}, cpu_times=lambda: next(times), own_cpu_s=lambda: None)
    first = sensors.load_sample(host)
    between = sensors.load_between(first, sensors.load_sample(host))
    assert between["busy"] == pytest.approx(0.9)
    assert between["own"] is between["others"] is None
    assert "workers' own" in between["why"]


def test_samples_without_counters_tell_nothing(fake: Any) -> None:
    fake.write("/proc/stat", "")
    sample = sensors.load_sample(fake.host)
    between = sensors.load_between(sample, sample)
    assert between["busy"] is between["own"] is between["others"] is between["steal"] is None
    assert "counters" in between["why"]


def test_a_mac_or_windows_machine_counts_with_the_library(fake: Any) -> None:
    times = iter([CpuTimes(0.0, 0.0, None), CpuTimes(1.0, 9.0, None)])
    host = fake.other("win32", {}, cpu_times=lambda: next(times))
    environment = preconditions.check(POLICY, 1 << 30, 1.0, host)
    assert environment.checks["cpu_busy"].value == pytest.approx(0.1)
    assert environment.checks["memory"].value["available_bytes"] == 4 << 30
    assert environment.noisy is False
