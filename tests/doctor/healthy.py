"""Whole computers that nothing is wrong with, as their /sys and /proc show them.

Each holds what made a simpler check cry wolf: the battery of a mouse, cores that clock lower than
others, counters that once moved, a page that comes back from the swap, a driver that is old for
what nobody installed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from npumark.machine import nvidia, nvidia_sensors
from npumark.machine.host import Host, Reading
from tests.machine.conftest import Fake

_CPU = "/sys/devices/system/cpu"
_THERMAL = "/sys/class/thermal"
_SUPPLY = "/sys/class/power_supply"


def laptop(root: Path) -> Host:
    """A laptop on mains: slower cores besides the fast ones, a full battery, a mouse's, zram."""
    fake = _computer(root, cpus=22, load=0.8, flags="avx2 fma avx_vnni")
    supplies = {
        "AC": {"type": "Mains", "online": 1},
        "BAT0": {"type": "Battery", "present": 1, "status": "Not charging"},
        "ucsi-source": {"type": "USB", "online": 0},
        "hidpp_battery_0": {"type": "Battery", "scope": "Device", "status": "Discharging"},
    }
    for name, told in supplies.items():
        fake.tree({f"{_SUPPLY}/{name}/{key}": text for key, text in told.items()})
    fake.write("/sys/firmware/acpi/platform_profile", "balanced")
    fake.write(f"{_CPU}/intel_pstate/no_turbo", 0)
    for cpu in range(22):
        most = 4_800_000 if cpu < 12 else 3_800_000 if cpu < 20 else 2_500_000
        _policy(fake, cpu, "intel_pstate", "powersave", "balance_performance", most)
        fake.write(f"{_CPU}/cpu{cpu}/thermal_throttle/package_throttle_count", 12)
    _zone(fake, 0, "INT3400 Thermal", 20_000)
    _zone(fake, 1, "acpitz", 27_800, critical=105_000)
    _zone(fake, 2, "x86_pkg_temp", 52_000, passive=0)
    _zone(fake, 3, "TCPU", 52_000, passive=97_000, critical=110_000)
    _card(fake, "0000:00:02.0", "030000", "8086:7d55", "i915")
    _card(fake, "0000:00:0b.0", "120000", "8086:7d1d", "intel_vpu")
    graphics = "/sys/class/drm/card1"
    fake.tree({f"{graphics}/device/vendor": "0x8086"})
    fake.tree({f"{graphics}/gt/gt0/throttle_reason_{name}": 0 for name in ("status", "thermal")})
    fake.write(
        "/proc/meminfo",
        "MemTotal: 32000000 kB\nMemAvailable: 20000000 kB\nSwapTotal: 8000000 kB\n"
        "SwapFree: 7900000 kB",
    )
    fake.write("/proc/vmstat", "pswpin 1200\npswpout 9000")
    fake.on_sleep = lambda _: fake.write("/proc/vmstat", "pswpin 1203\npswpout 9000")
    return replace(fake.host, release=lambda: "6.14.0-24-generic")


def desktop(root: Path) -> Host:
    """A desktop: no supply but a UPS, and a card of NVIDIA whose driver is older than CUDA 13's."""
    fake = _computer(root, cpus=32, load=1.0, flags="avx2 fma avx512f avx512_vnni")
    fake.tree({f"{_SUPPLY}/hiddev0/type": "UPS", f"{_SUPPLY}/hiddev0/status": "Full"})
    fake.write(f"{_CPU}/cpufreq/boost", 1)
    for cpu in range(32):
        _policy(fake, cpu, "amd-pstate-epp", "powersave", "balance_performance", 5_759_000)
    _zone(fake, 0, "acpitz", 16_800, critical=20_800)
    bus = "0000:01:00.0"
    _card(fake, bus, "030000", "10de:2204", "nvidia")
    fake.write("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 570.86.15")
    card = {
        "name": "NVIDIA GeForce RTX 3090",
        "uuid": "GPU-1",
        "bus": bus,
        "device_id": 0x2204,
        "vbios": "94.02",
    }
    cards = {"driver": "570.86.15", "cuda": 12080, "cards": [card]}
    sensed = {"card": bus, "vendor": "NVIDIA", "celsius": 41, "reasons": []}
    answers = {
        nvidia.COMMAND: json.dumps(cards),
        nvidia_sensors.COMMAND: json.dumps({"at_ns": 1, "gpus": [sensed]}),
    }
    return replace(fake.host, output=lambda argv: Reading(answers.get(argv), "not recorded"))


def container(root: Path) -> Host:
    """A container without limits in a virtual machine that hides VNNI."""
    fake = _computer(root, cpus=8, load=0.2, flags="avx2 fma hypervisor", clock="kvm-clock")
    group = "/sys/fs/cgroup"
    fake.write("/.dockerenv", "")
    fake.tree(
        {
            "/proc/self/cgroup": "0::/",
            "/proc/self/mountinfo": f"30 23 0:26 / {group} ro - cgroup2 cgroup2 ro",
            f"{group}/cpu.max": "max 100000",
            f"{group}/memory.max": "max",
            f"{group}/cpuset.cpus.effective": "0-7",
            f"{group}/cpu.stat": "nr_throttled 0\nthrottled_usec 0",
        }
    )
    return fake.host


def server(root: Path) -> Host:
    """A server of 64 CPUs, two of them busy, its display the board's own."""
    fake = _computer(root, cpus=64, load=2.0, flags="avx2 fma avx512f avx512_vnni amx_int8")
    for cpu in range(64):
        _policy(fake, cpu, "intel_cpufreq", "performance", None, 3_800_000)
        fake.write(f"{_CPU}/cpu{cpu}/thermal_throttle/core_throttle_count", 0)
    fake.write(f"{_CPU}/intel_pstate/no_turbo", 0)
    _zone(fake, 0, "x86_pkg_temp", 61_000, passive=0)
    _card(fake, "0000:03:00.0", "030000", "1a03:2000", "ast")
    group = "/sys/fs/cgroup/user.slice/user-1000.slice"
    fake.tree({f"{group}/memory.max": "max", "/proc/vmstat": "pswpin 0\npswpout 0"})
    return fake.host


MACHINES: dict[str, tuple[Callable[[Path], Host], set[str], set[str]]] = {
    "laptop": (laptop, {"swap", "throttling"}, set()),
    "desktop": (desktop, {"driver_1"}, {"power_source", "swap", "throttling"}),
    "container": (
        container,
        {"container", "virtual_machine", "int8_instructions"},
        {"power_source", "power_profile", "clocks", "thermal", "swap"},
    ),
    "server": (server, set(), {"power_source"}),
}
"""Each computer, what the doctor notes of it, and what it does not tell besides the drivers."""


def _computer(root: Path, cpus: int, load: float, flags: str, clock: str = "tsc") -> Fake:
    fake = Fake(root, cpus=cpus, load=load)
    fake.stat()
    source = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
    fake.tree(
        {
            "/proc/meminfo": "MemTotal: 64000000 kB\nMemAvailable: 50000000 kB",
            "/proc/cpuinfo": f"model name\t: A processor\nflags\t\t: {flags}",
            source: clock,
            "/proc/self/cgroup": "0::/user.slice/user-1000.slice/session-1.scope",
            "/proc/self/mountinfo": "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw",
        }
    )
    return fake


def _policy(
    fake: Fake, number: int, driver: str, governor: str, preference: str | None, most_khz: int
) -> None:
    folder = f"{_CPU}/cpufreq/policy{number}"
    fake.tree(
        {
            f"{folder}/scaling_driver": driver,
            f"{folder}/scaling_governor": governor,
            f"{folder}/scaling_cur_freq": 1_200_000,
            f"{folder}/scaling_max_freq": most_khz,
            f"{folder}/cpuinfo_max_freq": most_khz,
        }
    )
    if preference is not None:
        fake.write(f"{folder}/energy_performance_preference", preference)


def _zone(fake: Fake, number: int, kind: str, milli: int, **trips: int) -> None:
    folder = f"{_THERMAL}/thermal_zone{number}"
    fake.tree({f"{folder}/type": kind, f"{folder}/temp": milli})
    for n, (trip, at) in enumerate(trips.items()):
        fake.tree({f"{folder}/trip_point_{n}_type": trip, f"{folder}/trip_point_{n}_temp": at})


def _card(fake: Fake, bus: str, code: str, ids: str, driver: str) -> None:
    folder = f"/sys/bus/pci/devices/{bus}"
    vendor, device = ids.split(":")
    fake.tree({f"{folder}/class": f"0x{code}", f"{folder}/vendor": f"0x{vendor}"})
    fake.write(f"{folder}/device", f"0x{device}")
    (fake.root / folder.lstrip("/") / "driver").symlink_to(fake.root / "sys/drivers" / driver)
