"""The run's clock goes on through kills and reboots; a suspend is noticed."""

from __future__ import annotations

import time

import pytest

from npumark.orchestrator import clock as clocks
from npumark.orchestrator.clock import NS, RunClock, SleepWatch


@pytest.fixture
def monotonic(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    now = [1000 * NS]
    monkeypatch.setattr(time, "monotonic_ns", lambda: now[0])
    return now


def test_a_clock_starts_at_zero_and_stamps_children(monotonic: list[int]) -> None:
    clock = RunClock.start()
    assert clock.now_ns() == 0
    monotonic[0] += 5
    assert (clock.now_ns(), clock.at(1000 * NS + 3), clock.at(0)) == (5, 3, 0)


def test_on_the_same_boot_it_is_the_same_clock(monotonic: list[int]) -> None:
    began = RunClock.start()
    monotonic[0] += 60 * NS
    assert RunClock.resume(began.origin_ns, 20 * NS, 40 * NS, rebooted=False) == began


@pytest.mark.parametrize(("gap", "expected"), [(30 * NS, 50 * NS), (-5 * NS, 20 * NS)])
def test_after_a_reboot_it_never_runs_backwards(
    monotonic: list[int], gap: int, expected: int
) -> None:
    monotonic[0] = 7 * NS
    clock = RunClock.resume(900 * NS, 20 * NS, gap, rebooted=True)
    assert clock.now_ns() == expected


def test_a_boot_that_looks_the_same_and_is_not_is_noticed(monotonic: list[int]) -> None:
    monotonic[0] = 905 * NS
    clock = RunClock.resume(900 * NS, 20 * NS, 0, rebooted=False)
    assert clock.now_ns() == 20 * NS


def test_a_suspend_is_told_from_two_readings(monkeypatch: pytest.MonkeyPatch) -> None:
    assert SleepWatch().slept_ns() == 0
    offset = [5]
    monkeypatch.setattr(clocks, "_sleep_offset", lambda: offset[0])
    watch = SleepWatch()
    offset[0] += 1000
    assert watch.slept_ns() == 0
    offset[0] += 3 * NS
    assert watch.slept_ns() == 3 * NS + 1000
