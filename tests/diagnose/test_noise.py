"""The bound that a gain must pass, by hand, and what is said of others on the machine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from npumark.diagnose.noise import Noise, median_limit, noise, spread
from npumark.diagnose.probe import Seen, Step
from npumark.policy import load_policy

RULES = load_policy().diagnose
MS = 1_000_000
SINGLE = Seen(Step("single", "single"), "ok", None, {"calls": np.full(40, 10 * MS)}, {})
STEADY = Noise(0.05, 0.05, 1.0, None, None, None)


def again(ms: float = 10.0, **over: Any) -> Seen:
    step = Step("again", "single", {"seconds": 1.0})
    return replace(Seen(step, "ok", None, {"calls": np.full(40, round(ms * MS))}, {}), **over)


def loaded(others: float | None, steal: float | None = 0.0) -> dict[str, Any]:
    return {"load": {"busy": 1.0, "own": 0.5, "others": others, "steal": steal}}


def test_two_steady_loops_differ_by_what_the_rules_call_notable() -> None:
    strays = noise(SINGLE, {"again": again()}, RULES)
    assert (strays.share, strays.again, strays.lacks) == (RULES.notable, 1.0, None)
    assert strays.gain() == pytest.approx(1 + RULES.notable)
    assert strays.loss() == pytest.approx(1 - RULES.notable)


def test_the_repetition_widens_the_bound_on_the_side_that_it_moved_to() -> None:
    faster = noise(SINGLE, {"again": again(8)}, RULES)
    assert faster.share == pytest.approx(0.25)
    assert faster.gain() == pytest.approx(1.25 * 1.25)
    assert faster.loss() == pytest.approx(0.75)
    slower = noise(SINGLE, {"again": again(12.5)}, RULES)
    assert slower.share == pytest.approx(0.2)
    assert slower.gain() == pytest.approx(1.2)
    assert slower.loss() == pytest.approx(0.8 * 0.8)


def test_the_quarters_of_either_loop_widen_it() -> None:
    quarters = np.repeat([8 * MS, 10 * MS, 10 * MS, 12 * MS], 10)
    # 125, 100, 100 and 83.3 of 100 calls a second.
    assert spread(quarters) == pytest.approx(1.25 - 10 / 12)
    for single, repeated in ((quarters, again()), (SINGLE.samples["calls"], None)):
        loop = replace(SINGLE, samples={"calls": single})
        repeated = repeated or again(samples={"calls": quarters})
        assert noise(loop, {"again": repeated}, RULES).share == pytest.approx(1.25 - 10 / 12)


def test_too_few_calls_have_no_parts() -> None:
    assert spread(np.array([10, 90, 20])) == 0
    assert spread(np.array([10, 10, 20, 20])) > 0.5


def test_the_best_of_many_strays_further_than_one() -> None:
    assert STEADY.stray(1) == pytest.approx(0.05)
    assert 0.05 < STEADY.stray(2) < STEADY.stray(6) < 0.1


def test_the_fewest_that_give_as_much_as_any_are_a_gain_themselves() -> None:
    assert STEADY.fewest({2: 1.04, 4: 1.08}, 1) == 4
    assert STEADY.fewest({2: 1.06, 4: 1.08}, 1) == 2
    assert STEADY.fewest({2: 1.03, 4: 1.04}, 1) == 1
    assert STEADY.fewest({2: 1.06, 4: 2.0, 8: 2.05}, 1) == 4


@pytest.mark.parametrize(
    ("step", "lacks"),
    [
        (None, "the single loop was not repeated after it"),
        (again(status="timeout", why=None), "the single loop could not be repeated: timeout"),
        (again(samples={}), "the single loop's repetition timed no call"),
        (again(samples={"calls": np.zeros(0, np.int64)}), "the single loop's repetition timed no"),
    ],
)
def test_without_a_repetition_the_rules_bound_it_and_it_is_said(
    step: Seen | None, lacks: str
) -> None:
    strays = noise(SINGLE, {} if step is None else {"again": step}, RULES)
    assert (strays.share, strays.again) == (RULES.notable, None)
    assert (strays.lacks or "").startswith(lacks)
    assert strays.told("It goes.", "Let it.") == (f"It goes; {strays.lacks}.", "Let it.")
    assert noise(SINGLE, {}, RULES, repeated=False).lacks is None


def test_who_else_took_the_processor_is_said_and_the_advice_is_to_measure_again() -> None:
    seen = {
        "quiet": replace(again(facts=loaded(0.01)), step=Step("quiet", "threads")),
        "loud": replace(again(facts=loaded(0.35, 0.1)), step=Step("loud", "threads")),
        "again": again(facts=loaded(0.02)),
    }
    strays = noise(SINGLE, seen, RULES)
    assert strays.others == pytest.approx(0.25)
    said, advice = strays.told("It goes.", "Let it.")
    assert said == (
        "It goes; other programs took 25 % of the processor meanwhile; other virtual machines took "
        "10 % of the processor meanwhile."
    )
    assert advice == "This machine was busy with other things: run it again on a quiet machine."
    assert noise(replace(SINGLE, facts=loaded(0.4)), {"again": again()}, RULES).disturbed


@pytest.mark.parametrize("load", [loaded(0.04), loaded(None, None), {"load": None}, {}])
def test_little_or_unknown_load_is_not_told_of(load: dict[str, Any]) -> None:
    strays = noise(SINGLE, {"again": again(facts=load)}, RULES)
    assert strays.told("It goes.", "Let it.") == ("It goes.", "Let it.")


def test_a_load_that_the_step_asked_for_is_nobody_elses() -> None:
    asked = Seen(Step("cpu", "single", beside="cpu"), "ok", None, {}, loaded(0.9))
    assert not noise(SINGLE, {"cpu": asked, "again": again()}, RULES).disturbed


def test_a_median_passes_its_limit_as_seldom_as_it_says() -> None:
    draw = np.random.default_rng(8)
    busy = np.arange(1, 1001)
    for calls in (5, 15, 30):
        limit = median_limit(busy, calls, 1)
        medians = np.median(draw.integers(1, 1001, (20_000, calls)), axis=1)
        assert 0.02 < (medians > limit).mean() < 0.06
    assert median_limit(np.full(9, 7), 5, 4) == 7


def test_a_limit_holds_for_few_known_calls_as_well() -> None:
    draw = np.random.default_rng(9)
    passed = 0
    for known, calls in zip(
        draw.lognormal(size=(4000, 12)), draw.lognormal(size=(4000, 7)), strict=True
    ):
        limit = median_limit(np.round(1e6 * known).astype(np.int64), 7, 1)
        passed += np.median(calls) * 1e6 > limit
    assert 0.02 < passed / 4000 < 0.06


def test_of_too_few_calls_the_limit_is_as_far_off_again_as_they_are_apart() -> None:
    assert median_limit(np.array([4, 2, 3]), 30, 1) == 6
    with pytest.raises(ValueError, match="no call"):
        median_limit(np.zeros(0, np.int64), 5, 1)
