from __future__ import annotations

import os
import struct
from dataclasses import replace
from typing import Any

import pytest

from npumark.machine import cgroup, cpu_limits
from npumark.machine.host import Host, cpu_list
from npumark.machine.windows import core_classes

CPU = "/sys/devices/system/cpu"
V2 = {
    "/proc/self/mountinfo": "31 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw",
    "/proc/self/cgroup": "0::/system.slice/run.scope",
}
V1 = {
    "/proc/self/mountinfo": (
        "30 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"
        "32 30 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n"
        "33 30 0:30 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory"
    ),
    "/proc/self/cgroup": "4:memory:/app\n3:cpuacct,cpu:/app/job\n0::/",
}
LEAF = "/sys/fs/cgroup/system.slice/run.scope"


def _cpus(fake: Any, count: int) -> Host:
    fake.cpus = count
    return fake.host


@pytest.mark.parametrize(
    ("files", "quota", "usable"),
    [
        pytest.param({}, None, 8, id="no cgroup at all"),
        pytest.param(V2, None, 8, id="v2 without a cpu.max"),
        pytest.param({**V2, f"{LEAF}/cpu.max": "max 100000"}, None, 8, id="v2 unlimited"),
        pytest.param({**V2, f"{LEAF}/cpu.max": "50000 100000"}, 0.5, 1, id="v2 half a CPU"),
        pytest.param({**V2, f"{LEAF}/cpu.max": "399000 100000"}, 3.99, 3, id="v2 399 %"),
        pytest.param(
            {
                **V2,
                f"{LEAF}/cpu.max": "400000 100000",
                "/sys/fs/cgroup/system.slice/cpu.max": "200000 100000",
            },
            2.0,
            2,
            id="v2, the parent is tighter",
        ),
        pytest.param({**V2, f"{LEAF}/cpu.max": "rubbish"}, None, 8, id="v2 unreadable"),
        pytest.param({**V2, f"{LEAF}/cpu.max": "100 0"}, None, 8, id="v2 with a zero period"),
        pytest.param({**V1}, None, 8, id="v1 without files"),
        pytest.param(
            {
                **V1,
                "/sys/fs/cgroup/cpu,cpuacct/app/job/cpu.cfs_quota_us": -1,
                "/sys/fs/cgroup/cpu,cpuacct/app/job/cpu.cfs_period_us": 100000,
            },
            None,
            8,
            id="v1 unlimited",
        ),
        pytest.param(
            {
                **V1,
                "/sys/fs/cgroup/cpu,cpuacct/app/job/cpu.cfs_quota_us": -1,
                "/sys/fs/cgroup/cpu,cpuacct/app/job/cpu.cfs_period_us": 100000,
                "/sys/fs/cgroup/cpu,cpuacct/app/cpu.cfs_quota_us": 150000,
                "/sys/fs/cgroup/cpu,cpuacct/app/cpu.cfs_period_us": 50000,
            },
            3.0,
            3,
            id="v1, the parent limits",
        ),
        pytest.param(
            {
                "/proc/self/mountinfo": (
                    "32 30 0:29 /docker/abc /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu"
                ),
                "/proc/self/cgroup": "3:cpu:/docker/abc",
                "/sys/fs/cgroup/cpu/cpu.cfs_quota_us": 250000,
                "/sys/fs/cgroup/cpu/cpu.cfs_period_us": 100000,
            },
            2.5,
            2,
            id="v1 in a container: the group is the mount's root",
        ),
        pytest.param(
            {
                **V2,
                "/proc/self/cgroup": "0::/../sibling",
                "/sys/fs/cgroup/cpu.max": "100000 100000",
            },
            1.0,
            1,
            id="v2, a group outside what is shown",
        ),
        pytest.param(
            {"/proc/self/mountinfo": "nonsense", "/proc/self/cgroup": "x\n::\n0:"},
            None,
            8,
            id="rubbish in proc",
        ),
    ],
)
def test_usable_cpus_respect_the_quota(
    fake: Any, files: dict[str, str | int], quota: float | None, usable: int
) -> None:
    fake.tree(files)
    seen = cpu_limits.limits(_cpus(fake, 8))
    assert (seen.logical, seen.affinity, seen.quota, seen.usable) == (8, 8, quota, usable)
    assert seen.threads == usable


def test_the_three_numbers_are_recorded_apart(fake: Any) -> None:
    fake.tree({**V2, f"{LEAF}/cpu.max": "600000 100000"})
    host = replace(_cpus(fake, 8), affinity=lambda: frozenset({0, 5, 6}))
    fields = cpu_limits.limits(host).fields()
    assert (fields["logical"], fields["affinity"], fields["quota"]) == (8, 3, 6.0)
    assert fields["usable"] == 3


def test_two_hardware_threads_of_a_core_get_one_thread(fake: Any) -> None:
    fake.topology({0: (0, 0), 1: (0, 1), 2: (0, 0), 3: (0, 1)})
    seen = cpu_limits.limits(_cpus(fake, 4))
    assert (seen.usable, seen.physical, seen.threads) == (4, 2, 2)
    # Only one core is allowed: its two hardware threads are one thread.
    host = replace(fake.host, affinity=lambda: frozenset({1, 3}))
    assert cpu_limits.thread_count(host) == 1
    # Cores of two packages may share a number.
    fake.topology({2: (1, 0), 3: (1, 1)})
    assert cpu_limits.thread_count(fake.host) == 4


HYBRID = {n: (0, n // 2) for n in range(4)} | {n: (0, 10 + n) for n in range(4, 8)}
"""Two performance cores with two threads each, four efficiency cores."""


@pytest.mark.parametrize("source", ["pmu", "core_type"])
def test_on_a_hybrid_processor_only_the_fast_cores_count(fake: Any, source: str) -> None:
    fake.topology(HYBRID)
    if source == "pmu":
        fake.tree({"/sys/devices/cpu_core/cpus": "0-3", "/sys/devices/cpu_atom/cpus": "4-7"})
    else:
        for cpu in range(8):
            kind = "intel_core" if cpu < 4 else "intel_atom"
            fake.write(f"{CPU}/cpu{cpu}/topology/core_type", kind)
    host = _cpus(fake, 8)
    seen = cpu_limits.limits(host)
    assert seen.core_types == {"performance": 4, "efficiency": 4}
    assert (seen.physical, seen.fast, seen.threads) == (6, 2, 2)
    # Confined to efficiency cores, those are the fastest there are.
    confined = replace(host, affinity=lambda: frozenset({4, 5, 6}))
    assert cpu_limits.thread_count(confined) == 3


def test_equal_cores_have_no_types_and_capacities_decide_nothing(fake: Any) -> None:
    fake.topology({n: (0, n) for n in range(4)})
    fake.write("/sys/devices/cpu_core/cpus", "0-3")
    for cpu, capacity in enumerate((1024, 1024, 512, 512)):
        fake.write(f"{CPU}/cpu{cpu}/cpu_capacity", capacity)
    seen = cpu_limits.limits(_cpus(fake, 4))
    assert seen.core_types == {}
    assert seen.capacities == {"1024": 2, "512": 2}
    assert seen.threads == 4


def test_a_mac_reports_performance_levels(fake: Any) -> None:
    answers = {
        ("sysctl", "-n", "hw.physicalcpu"): "14\n",
        ("sysctl", "-n", "hw.perflevel0.logicalcpu"): "10\n",
        ("sysctl", "-n", "hw.perflevel1.logicalcpu"): "4\n",
        ("sysctl", "-n", "hw.perflevel0.physicalcpu"): "10\n",
    }
    host = fake.other("darwin", answers, affinity=lambda: None, logical=lambda: 14)
    seen = cpu_limits.limits(host)
    assert seen.core_types == {"performance": 10, "efficiency": 4}
    assert (seen.affinity, seen.usable, seen.threads) == (None, 14, 10)
    silent = fake.other("darwin", {}, affinity=lambda: None, logical=lambda: 8)
    assert cpu_limits.thread_count(silent) == 8


def _core(kind: int, *masks: int) -> bytes:
    body = struct.pack("<BB20xH", 0, kind, len(masks))
    body += b"".join(struct.pack("<QH6x", mask, group) for group, mask in enumerate(masks))
    return struct.pack("<II", 0, 8 + len(body)) + body


def test_windows_reports_efficiency_classes(fake: Any) -> None:
    blob = _core(1, 0b11) + _core(1, 0b1100) + b"".join(_core(0, 1 << n) for n in range(4, 8))
    host = fake.other("win32", {}, windows_cores=lambda: blob, logical=lambda: 8)
    host = replace(host, affinity=lambda: frozenset(range(8)))
    seen = cpu_limits.limits(host)
    assert seen.core_types == {"performance": 4, "efficiency": 4}
    assert (seen.physical, seen.fast, seen.threads) == (6, 2, 2)
    silent = replace(host, windows_cores=lambda: b"", physical=lambda: 4)
    assert cpu_limits.thread_count(silent) == 4


@pytest.mark.parametrize("cut", range(0, 60, 7))
def test_a_cut_windows_answer_is_read_as_far_as_it_goes(cut: int) -> None:
    blob = _core(1, 0b11) + _core(0, 1, 1)
    assert core_classes(blob) == [(1, 2), (0, 2)]
    assert core_classes(blob[:cut]) == ([(1, 2)] if cut >= 48 else [])


def test_throttling_is_summed_over_levels_and_compared(fake: Any) -> None:
    fake.tree(
        {
            **V2,
            f"{LEAF}/cpu.stat": "usage_usec 5\nnr_periods 9\nnr_throttled 3\nthrottled_usec 700",
            "/sys/fs/cgroup/system.slice/cpu.stat": "nr_throttled 1\nthrottled_usec 50",
            "/sys/fs/cgroup/cpu.stat": "usage_usec 5",
            f"{CPU}/cpu0/thermal_throttle/core_throttle_count": 4,
            f"{CPU}/cpu1/thermal_throttle/core_throttle_count": 6,
        }
    )
    before = cpu_limits.throttling(fake.host)
    assert before == {
        "nr_throttled": 4,
        "throttled_usec": 750,
        "thermal_core": 6,
        "thermal_package": None,
    }
    fake.write(f"{LEAF}/cpu.stat", "nr_throttled 5\nthrottled_usec 900")
    moved = cpu_limits.throttling_delta(before, cpu_limits.throttling(fake.host))
    assert moved == {
        "nr_throttled": 2,
        "throttled_usec": 200,
        "thermal_core": 0,
        "thermal_package": None,
    }
    # A counter that runs backwards is another group's: nothing is known of the time between.
    fake.write(f"{LEAF}/cpu.stat", "nr_throttled 0\nthrottled_usec 0")
    moved = cpu_limits.throttling_delta(before, cpu_limits.throttling(fake.host))
    assert moved["nr_throttled"] is None


def test_version_1_counts_nanoseconds(fake: Any) -> None:
    fake.tree(
        {
            **V1,
            "/sys/fs/cgroup/cpu,cpuacct/app/job/cpu.stat": "nr_throttled 2\nthrottled_time 9000",
        }
    )
    assert cgroup.throttled(fake.host) == (2, 9)


def test_without_counters_throttling_is_unknown_not_zero(fake: Any) -> None:
    assert set(cpu_limits.throttling(fake.host).values()) == {None}


def test_the_memory_limit_leaves_room_for_what_can_be_dropped(fake: Any) -> None:
    fake.tree(
        {
            **V2,
            f"{LEAF}/memory.max": 1000,
            f"{LEAF}/memory.current": 900,
            f"{LEAF}/memory.stat": "anon 500\ninactive_file 300",
            "/sys/fs/cgroup/system.slice/memory.max": "max",
        }
    )
    assert cgroup.memory_room(fake.host) == 400
    fake.write(f"{LEAF}/memory.max", "max")
    assert cgroup.memory_room(fake.host) is None


def test_version_1_spells_no_memory_limit_as_a_huge_number(fake: Any) -> None:
    folder = "/sys/fs/cgroup/memory/app"
    fake.tree(
        {
            **V1,
            f"{folder}/memory.limit_in_bytes": 9223372036854771712,
            f"{folder}/memory.usage_in_bytes": 5,
        }
    )
    assert cgroup.memory_room(fake.host) is None
    fake.tree({f"{folder}/memory.limit_in_bytes": 100, f"{folder}/memory.stat": "x y\n"})
    assert cgroup.memory_room(fake.host) == 95


@pytest.mark.parametrize(
    ("text", "cpus"), [("0-3,8", {0, 1, 2, 3, 8}), ("5", {5}), ("", set()), ("0,\n", {0})]
)
def test_kernel_lists(text: str, cpus: set[int]) -> None:
    assert cpu_list(text) == cpus


def test_a_broken_type_list_is_passed_over(fake: Any) -> None:
    fake.tree({"/sys/devices/cpu_core/cpus": "a-b", "/sys/devices/cpu_atom/cpus": "4-7"})
    assert cpu_limits.limits(fake.host).core_types == {}


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity on this system")
def test_a_real_affinity_mask_is_seen() -> None:
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        seen = cpu_limits.limits()
        assert (seen.affinity, seen.usable, seen.threads) == (1, 1, 1)
    finally:
        os.sched_setaffinity(0, allowed)
