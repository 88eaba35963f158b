"""The loop of a shared window: where it begins, where it ends, what it counts and leaves."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npumark.errors import EngineError
from npumark.worker import window_loop
from npumark.worker.window_loop import Pairs, cut, run_window_loop

WINDOW = 1_000


@pytest.fixture(scope="module", autouse=True)
def no_collections() -> Iterator[None]:
    """Spare thousands of loops their collection of what all the tests have left."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gc, "collect", lambda: 0)
        yield


class FakeEngine:
    """Doubles its input; each call takes the next of ``latencies`` on its own clock, on which
    looking at it takes ``tick``. The window begins at ``start``, told at ``release``."""

    def __init__(
        self, latencies: Sequence[int], *, release: int = 0, start: int = 0, tick: int = 0
    ) -> None:
        self.latencies = latencies
        self.release, self.start, self.tick = release, start, tick
        self.now = 0
        self.buffer, self.output = np.zeros(3), np.zeros(3)
        self.began: list[int] = []
        self.seen: list[float] = []
        self.gc: list[bool] = []
        self.slept: list[float] = []

    def clock(self) -> int:
        self.now += self.tick
        return self.now

    def step(self) -> None:
        self.began.append(self.now)
        self.seen.append(float(self.buffer[0]))
        self.gc.append(gc.isenabled())
        self.now += self.latencies[(len(self.began) - 1) % len(self.latencies)]
        np.multiply(self.buffer, 2, out=self.output)

    def barrier(self) -> int:
        self.now = max(self.now, self.release)
        return self.start

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += round(seconds * 1e9)

    def run(
        self,
        *,
        window_ns: int = WINDOW,
        samples: int = 3,
        outputs: list[npt.NDArray[np.float64]] | None = None,
    ) -> Pairs:
        return run_window_loop(
            self.step,
            [self.buffer],
            [self.output] if outputs is None else outputs,
            [(np.full(3, float(i)),) for i in range(samples)],
            window_ns=window_ns,
            fastest_ns=min(self.latencies),
            clock=self.clock,
            start=self.barrier,
            sleep=self.sleep,
        )


class Looked(list[npt.NDArray[np.float64]]):
    """Outputs that note how many ``calls`` had begun each time that somebody went through them."""

    def __init__(self, output: npt.NDArray[np.float64], calls: Sequence[int]) -> None:
        super().__init__([output])
        self.calls, self.at = calls, list[int]()

    def __iter__(self) -> Iterator[npt.NDArray[np.float64]]:
        self.at.append(len(self.calls))
        return super().__iter__()


def brute_force(pairs: Sequence[tuple[int, int]], window_ns: int) -> tuple[int, list[Any]]:
    """Count nanosecond by nanosecond: a call is inside where each of its nanoseconds is, and
    straddles where some are and some are not."""
    inside, straddling = 0, []
    for begin, end in pairs:
        lies = [0 <= t < window_ns for t in range(begin, end)]
        if all(lies):
            inside += 1
        elif any(lies):
            straddling.append((begin, end))
    return inside, straddling


@given(
    st.integers(1, 60),
    st.integers(-40, 40),
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 30)), min_size=1, max_size=20),
)
def test_calls_are_inside_or_straddle_as_a_count_of_every_nanosecond_says(
    window_ns: int, first: int, calls: list[tuple[int, int]]
) -> None:
    pairs, now = [], first
    for gap, length in calls:
        pairs.append((now + gap, now + gap + length))
        now += gap + length
    lie = cut(np.array(pairs, np.int64), window_ns)
    inside, straddling = brute_force(pairs, window_ns)
    assert lie.inside == inside
    assert list(lie.straddling) == straddling


def test_a_call_over_the_whole_window_straddles_it() -> None:
    assert cut(np.array([[-5, 15]]), 10).straddling == ((-5, 15),)
    assert cut(np.array([[-5, 15]]), 10).inside == 0


@given(st.lists(st.integers(1, 700), min_size=1, max_size=8))
def test_calls_go_on_until_one_ended_at_or_after_the_end(latencies: list[int]) -> None:
    pairs = FakeEngine(latencies).run()
    assert pairs[0, 0] == 0
    assert pairs[-1, 1] >= WINDOW
    assert len(pairs) == 1 or pairs[-2, 1] < WINDOW
    assert (pairs[1:, 0] == pairs[:-1, 1]).all()
    assert pairs[:, 1].tolist() == np.cumsum((latencies * WINDOW)[: len(pairs)]).tolist()


def test_the_call_that_the_end_cuts_is_kept_whole() -> None:
    lie = cut(FakeEngine([300]).run(), WINDOW)
    assert (lie.inside, lie.straddling) == (3, ((900, 1200),))


@given(st.integers(1, 400), st.integers(0, 3_000), st.integers(1, 7))
def test_the_first_call_never_begins_before_the_start(latency: int, start: int, tick: int) -> None:
    engine = FakeEngine([latency], start=start, tick=tick)
    pairs = engine.run()
    assert pairs[0, 0] >= 0
    calls = len(pairs)
    assert all(begin < start for begin in engine.began[:-calls])
    assert all(begin >= start for begin in engine.began[-calls:])


def test_calls_go_on_untimed_until_the_start_is_near() -> None:
    engine = FakeEngine([100], release=5_000, start=6_000, tick=1)
    pairs = engine.run()
    warm = len(engine.began) - len(pairs)
    assert warm == 8
    assert engine.began[0] > 5_000
    assert pairs[0, 0] <= 2


def test_a_call_that_may_outlast_the_wait_is_not_begun() -> None:
    engine = FakeEngine([100, 900], release=0, start=2_000, tick=1)
    pairs = engine.run()
    assert len(engine.began) - len(pairs) == 2
    assert pairs[0, 0] <= 2


def test_the_wait_is_slept_but_for_its_last_part() -> None:
    engine = FakeEngine([60_000_000], start=100_000_000, tick=1_000)
    pairs = engine.run(window_ns=100_000_000)
    assert engine.slept == [pytest.approx(0.098, abs=1e-5)]
    assert 0 <= pairs[0, 0] <= 2_000


def test_a_worker_told_too_late_begins_at_once_and_says_so() -> None:
    engine = FakeEngine([100], release=450, start=0)
    pairs = engine.run()
    assert pairs[0].tolist() == [450, 550]
    assert engine.slept == []


def test_a_start_so_late_that_the_window_has_passed_leaves_one_call_outside() -> None:
    pairs = FakeEngine([100], release=5 * WINDOW, start=0).run()
    assert pairs.tolist() == [[5 * WINDOW, 5 * WINDOW + 100]]
    assert cut(pairs, WINDOW) == window_loop.Cut(0, ())


@pytest.mark.parametrize("latency", [10, 11, 300, 2 * WINDOW])
def test_the_outputs_are_left_as_the_last_call_answered(latency: int) -> None:
    engine = FakeEngine([latency])
    calls = len(engine.run())
    assert len(engine.began) == calls
    assert engine.output.tolist() == [2.0 * ((calls - 1) % 3)] * 3


def test_outputs_are_looked_at_once_a_call() -> None:
    """Whatever else was done with them in the window, no solo peak has lost time to."""
    engine = FakeEngine([10])
    outputs = Looked(engine.output, engine.began)
    engine.run(outputs=outputs)
    assert outputs.at == list(range(len(engine.began) + 1))  # once before the start


def test_a_loop_that_outgrows_its_block_loses_no_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window_loop, "BLOCK", 7)
    pairs = FakeEngine([10]).run()
    assert pairs.tolist() == [[i * 10, i * 10 + 10] for i in range(100)]


def test_inputs_cycle_and_garbage_is_left_alone() -> None:
    assert gc.isenabled()
    engine = FakeEngine([100])
    engine.run()
    assert engine.seen == [float(i % 3) for i in range(10)]
    assert not any(engine.gc)
    assert gc.isenabled()


def test_an_output_that_is_no_array_is_refused() -> None:
    engine = FakeEngine([100])
    engine.output = [1.0]  # type: ignore[assignment]
    with pytest.raises(EngineError, match=r"must be numpy\.ndarray"):
        engine.run()
