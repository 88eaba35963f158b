from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npumark.errors import EngineError
from npumark.gates.draw import drawn
from npumark.worker import timed_loop
from npumark.worker.protocol import TimingOptions
from npumark.worker.timed_loop import require_arrays, run_timed, timer_overhead_ns, warm_up


class FakeEngine:
    """Doubles its input; each call takes the next of ``latencies`` on its own clock."""

    def __init__(self, latencies: list[int]) -> None:
        self.latencies = latencies
        self.calls = 0
        self.now = 0
        self.buffer = np.zeros(3)
        self.output = np.zeros(3)
        self.seen: list[float] = []
        self.gc: list[bool] = []

    def clock(self) -> int:
        return self.now

    def step(self) -> None:
        self.now += self.latencies[self.calls % len(self.latencies)]
        self.calls += 1
        self.seen.append(float(self.buffer[0]))
        self.gc.append(gc.isenabled())
        np.multiply(self.buffer, 2, out=self.output)

    def run(self, timing: TimingOptions, samples: int = 3, seed: int = 1) -> timed_loop.Loop:
        return run_timed(
            self.step,
            [self.buffer],
            [self.output],
            [(np.full(3, float(i)),) for i in range(samples)],
            timing,
            seed=seed,
            fastest_ns=min(self.latencies),
            clock=self.clock,
        )


def test_durations_are_those_of_the_calls_and_nothing_else(timing: TimingOptions) -> None:
    engine = FakeEngine([5_000_000, 7_000_000])
    loop = engine.run(timing)
    assert loop.durations.tolist() == ([5_000_000, 7_000_000] * 9)[: len(loop.durations)]
    assert loop.durations.dtype == np.int64


@given(
    st.lists(st.integers(100_000, 30_000_000), min_size=1, max_size=8),
    st.integers(1, 40),
)
def test_ends_at_the_first_call_that_fills_both_time_and_count(
    latencies: list[int], least: int
) -> None:
    timing = replace(TIMING, min_iterations=least)
    loop = FakeEngine(latencies).run(timing)
    ends = np.cumsum(loop.durations)
    n = len(loop.durations)
    limit = round(timing.loop_s * 1e9)
    assert n >= least
    assert ends[-1] >= limit
    assert n == least or ends[-2] < limit


def test_inputs_cycle_so_that_no_two_calls_in_a_row_see_the_same(timing: TimingOptions) -> None:
    engine = FakeEngine([1_000_000])
    engine.run(timing, samples=3)
    assert engine.seen == [float(i % 3) for i in range(engine.calls)]


def test_checks_hold_the_outputs_of_their_iteration(timing: TimingOptions) -> None:
    engine = FakeEngine([1_000_000])
    loop = engine.run(timing, samples=3, seed=5)
    assert len(loop.checks) == timing.timed_checks
    for check in loop.checks:
        assert check.sample == check.iteration % 3
        assert check.outputs[0].tolist() == [2.0 * check.sample] * 3


def test_the_seed_and_the_length_alone_draw_the_checks(timing: TimingOptions) -> None:
    loop = FakeEngine([1_000_000]).run(timing, samples=3, seed=9)
    again = drawn(9, timing.timed_checks, 3, len(loop.durations))
    assert tuple(c.iteration for c in loop.checks) == again
    assert again != drawn(10, timing.timed_checks, 3, len(loop.durations))


def test_a_loop_that_outgrows_its_estimate_goes_on(
    timing: TimingOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timed_loop, "BLOCK", 7)
    engine = FakeEngine([1_000_000])
    loop = engine.run(timing, samples=3)
    assert len(loop.durations) == 50
    assert engine.seen == [float(i % 3) for i in range(50)]
    assert tuple(c.iteration for c in loop.checks) == drawn(1, timing.timed_checks, 3, 50)


@given(st.integers(0, 2**32), st.integers(1, 6), st.integers(1, 9), st.integers(1, 300))
def test_draws_are_distinct_in_range_and_as_many_as_there_are(
    seed: int, slots: int, inputs: int, iterations: int
) -> None:
    found = drawn(seed, slots, inputs, iterations)
    assert len(set(found)) == len(found)
    assert all(0 <= i < iterations for i in found)
    groups = min(slots, inputs)
    expected = 0
    for group in range(groups):
        members = sum(1 for i in range(iterations) if i % inputs % groups == group)
        expected += min(members, len(range(group, slots, groups)))
    assert len(found) == expected


@given(st.integers(0, 2**32), st.integers(2, 6), st.integers(2, 9))
def test_draws_see_as_many_different_inputs_as_can_be(seed: int, slots: int, inputs: int) -> None:
    found = drawn(seed, slots, inputs, 500)
    assert len({i % inputs for i in found}) == min(slots, inputs)


def test_every_iteration_is_equally_likely_to_be_drawn() -> None:
    counts = np.zeros(40)
    for seed in range(4000):
        for i in drawn(seed, 4, 2, 40):
            counts[i] += 1
    # 400 expected each, standard deviation 19: five of them is one in two million.
    assert np.all(np.abs(counts - 400) < 95)


def test_no_slots_draw_nothing(timing: TimingOptions) -> None:
    assert FakeEngine([1_000_000]).run(replace(timing, timed_checks=0)).checks == ()


def test_garbage_collection_is_off_inside_and_back_on_after(timing: TimingOptions) -> None:
    engine = FakeEngine([10_000_000])
    assert gc.isenabled()
    engine.run(timing)
    assert gc.isenabled()
    assert not any(engine.gc)


def test_garbage_collection_is_back_on_after_a_fault(timing: TimingOptions) -> None:
    engine = FakeEngine([10_000_000])

    def broken() -> None:
        raise RuntimeError("a fault")

    with pytest.raises(RuntimeError):
        run_timed(
            broken,
            [engine.buffer],
            [engine.output],
            [(np.zeros(3),)],
            timing,
            seed=1,
            fastest_ns=1000,
            clock=engine.clock,
        )
    assert gc.isenabled()


@pytest.mark.parametrize("sample", [np.zeros(3, np.float32), np.zeros(1), np.zeros((1, 3))])
def test_an_input_that_would_be_cast_inside_the_timed_region_is_refused(
    timing: TimingOptions, sample: np.ndarray
) -> None:
    engine = FakeEngine([1])
    with pytest.raises(ValueError, match="does not fit"):
        warm_up(engine.step, [engine.buffer], [engine.output], [(sample,)], timing, engine.clock)


def test_warm_up_ends_when_steady_and_tells_the_first_call_apart(timing: TimingOptions) -> None:
    engine = FakeEngine([9_000_000, 3_000_000, 1_000_000, 1_000_000, 1_010_000, 1_000_000])
    warm = warm_up(
        engine.step,
        [engine.buffer],
        [engine.output],
        [(np.zeros(3),)],
        replace(timing, warmup_max_s=10),
        engine.clock,
    )
    assert warm.steady
    assert warm.calls == 5
    assert warm.first_call_ns == 9_000_000
    assert warm.fastest_ns == 1_000_000
    assert warm.total_ns == 15_010_000


def test_warm_up_that_never_settles_is_capped_and_says_so(timing: TimingOptions) -> None:
    engine = FakeEngine([1_000_000, 2_000_000])
    warm = warm_up(
        engine.step, [engine.buffer], [engine.output], [(np.zeros(3),)], timing, engine.clock
    )
    assert not warm.steady
    assert warm.total_ns >= timing.warmup_max_s * 1e9
    assert warm.total_ns - 2_000_000 < timing.warmup_max_s * 1e9


def test_warm_up_makes_its_least_calls_even_past_the_cap(timing: TimingOptions) -> None:
    engine = FakeEngine([50_000_000, 90_000_000, 20_000_000])
    warm = warm_up(
        engine.step, [engine.buffer], [engine.output], [(np.zeros(3),)], timing, engine.clock
    )
    assert warm.calls == timing.warmup_min_calls


def test_timer_overhead_is_the_median_of_pairs() -> None:
    readings = iter(range(0, 1_000_000, 7))
    assert timer_overhead_ns(lambda: next(readings)) == 7


TIMING = TimingOptions(
    loop_s=0.05,
    min_iterations=5,
    burst_s=0.01,
    drift_window_s=0.005,
    warmup_min_calls=3,
    warmup_max_s=0.01,
    warmup_steady_window=3,
    warmup_steady_cv=0.05,
    timed_checks=4,
    timed_check_min_snr_db=60.0,
)


def test_outputs_that_each_call_replaces_are_copied_as_they_are_then(
    timing: TimingOptions,
) -> None:
    buffer, outputs, now = np.zeros(3), [np.zeros(3)], [0]

    def step() -> None:
        now[0] += 1_000_000
        outputs[0] = buffer * 2

    loop = run_timed(
        step,
        [buffer],
        outputs,
        [(np.full(3, float(i)),) for i in range(3)],
        timing,
        seed=1,
        fastest_ns=1_000_000,
        clock=lambda: now[0],
    )
    assert len(loop.checks) == timing.timed_checks
    assert all((c.outputs[0] == 2.0 * c.sample).all() for c in loop.checks)


class Lazy(Sequence[np.ndarray]):
    """Outputs that are computed when they are looked at, for ``cost`` ns of the engine's clock."""

    def __init__(self, engine: FakeEngine, cost: int) -> None:
        self.engine, self.cost, self.due = engine, cost, False

    def call(self) -> None:
        self.engine.step()
        self.due = True

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: Any) -> Any:
        if index:
            raise IndexError(index)
        if self.due:
            self.engine.now += self.cost
            self.due = False
        return self.engine.output


def test_what_is_computed_when_it_is_looked_at_is_paid_for_in_the_call(
    timing: TimingOptions,
) -> None:
    engine = FakeEngine([1_000])
    outputs = Lazy(engine, 10_000_000)
    common: tuple[Any, Any, Any, Any] = ([engine.buffer], outputs, [(np.zeros(3),)], timing)
    warm = warm_up(outputs.call, *common, clock=engine.clock)
    assert warm.fastest_ns == 10_001_000
    loop = run_timed(outputs.call, *common, seed=1, fastest_ns=1_000, clock=engine.clock)
    assert set(loop.durations.tolist()) == {10_001_000}


class Proxy(np.ndarray):
    """An array that could compute when it is copied."""


@pytest.mark.parametrize(
    ("output", "why"),
    [
        (np.zeros(3).view(Proxy), "test_timed_loop.Proxy"),
        ([0.0], "builtins.list"),
        (None, "builtins.NoneType"),
        (np.zeros((0, 3)), "no element"),
    ],
)
def test_an_output_that_is_no_plain_array_is_refused(
    output: Any, why: str, timing: TimingOptions
) -> None:
    engine = FakeEngine([1_000_000])
    common: tuple[Any, Any, Any, Any] = ([engine.buffer], [output], [(np.zeros(3),)], timing)
    with pytest.raises(EngineError, match=why):
        warm_up(engine.step, *common, clock=engine.clock)
    with pytest.raises(EngineError, match=why):
        run_timed(engine.step, *common, seed=1, fastest_ns=1_000, clock=engine.clock)
    require_arrays([engine.output])


def test_an_array_that_turns_into_something_else_later_has_no_figure(
    timing: TimingOptions,
) -> None:
    engine, outputs = FakeEngine([1_000_000]), [np.zeros(3)]

    def step() -> None:
        engine.step()
        outputs[0] = [0.0]  # type: ignore[call-overload]

    with pytest.raises(EngineError, match=r"output 0 is a builtins\.list"):
        run_timed(
            step,
            [engine.buffer],
            outputs,
            [(np.zeros(3),)],
            timing,
            seed=1,
            fastest_ns=1_000,
            clock=engine.clock,
        )
