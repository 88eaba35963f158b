"""Pass or fail, and the margin: a gate passes only what is finite and within its bound."""

from __future__ import annotations

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from npumark.gates.judge import judge
from npumark.gates.measures import MEASURES, SNR_CAP_DB
from npumark.pack.manifest import GateSpec

GOOD = {"snr_db": 30.0, "cosine_mean": 0.99, "kl": 0.01, "flips": 1.0, "decisive": 28.0}
SPEC = GateSpec("a rule", {"snr_db": 20.0, "cosine_mean": 0.95, "kl": 0.05, "flips": 2.0})


def test_a_good_answer_passes_with_its_margin() -> None:
    gate = judge(GOOD, SPEC)
    assert gate.passed
    assert gate.why is None
    assert gate.basis == "a rule"
    assert gate.bounds == SPEC.bounds
    assert gate.measures == GOOD
    # Shares used: SNR 0.1, cosine 0.2, KL 0.2, flips 0.5.
    assert gate.binding == "flips"
    assert gate.margin == 1.0


@pytest.mark.parametrize(
    ("name", "value"),
    [("snr_db", 19.99), ("cosine_mean", 0.9499), ("kl", 0.0501), ("flips", 3.0)],
)
def test_one_measure_beyond_its_bound_fails(name: str, value: float) -> None:
    gate = judge({**GOOD, name: value}, SPEC)
    assert not gate.passed
    assert gate.binding == name
    assert gate.margin is not None
    assert gate.margin < 0
    assert gate.why is not None
    assert name in gate.why


@pytest.mark.parametrize("name", list(SPEC.bounds))
@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf])
def test_a_value_that_is_no_finite_number_fails(name: str, value: float | None) -> None:
    gate = judge({**GOOD, name: value}, SPEC)
    assert not gate.passed
    assert (gate.binding, gate.margin) == (name, None)
    assert gate.measures[name] is None
    assert gate.why == f"{name} is not a finite number"


@pytest.mark.parametrize("name", list(SPEC.bounds))
def test_a_missing_measure_fails(name: str) -> None:
    gate = judge({k: v for k, v in GOOD.items() if k != name}, SPEC)
    assert not gate.passed
    assert gate.why == f"{name} is missing"


@pytest.mark.parametrize(
    ("bounds", "text"),
    [
        ({}, "bounds no measure"),
        ({"decisive": 24.0}, "cannot be judged"),
        ({"snr_db": math.nan}, "cannot be judged"),
        ({"snr_db": -math.inf}, "cannot be judged"),
        ({"kl": math.inf}, "cannot be judged"),
    ],
)
def test_a_gate_that_cannot_judge_passes_nothing(bounds: dict[str, float], text: str) -> None:
    gate = judge(GOOD, GateSpec("odd", bounds))
    assert not gate.passed
    assert text in str(gate.why)


def test_a_bound_without_room_for_error_passes_perfection_only() -> None:
    spec = GateSpec("tight", {"cosine_mean": 1.0, "kl": 0.0})
    assert judge({"cosine_mean": 1.0, "kl": 0.0}, spec).passed
    gate = judge({"cosine_mean": 1.0, "kl": 1e-9}, spec)
    assert not gate.passed
    assert gate.binding == "kl"


VALUES = {"dB": st.floats(-400, SNR_CAP_DB), "": st.floats(-1, 1), "nat": st.floats(0, 1e4)}
NAMES = sorted(MEASURES)


@st.composite
def answers(draw: st.DrawFn) -> tuple[dict[str, float], dict[str, float]]:
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, unique=True))
    kinds = {n: VALUES.get(MEASURES[n].unit, st.integers(0, 40).map(float)) for n in names}
    return {n: draw(kinds[n]) for n in names}, {n: draw(kinds[n]) for n in names}


@given(answers())
def test_passing_means_every_measure_is_on_the_right_side(
    case: tuple[dict[str, float], dict[str, float]],
) -> None:
    measures, bounds = case
    inside = [
        measures[n] >= b if n.startswith(("snr", "cosine", "token", "miou")) else measures[n] <= b
        for n, b in bounds.items()
    ]
    gate = judge(measures, GateSpec("drawn", bounds))
    assert gate.passed == all(inside)
    assert gate.margin is not None
    assert (gate.margin >= 0) == gate.passed


@given(answers(), st.sampled_from(NAMES), st.floats(1e-6, 1))
def test_a_bound_tightened_past_the_value_fails(
    case: tuple[dict[str, float], dict[str, float]], name: str, step: float
) -> None:
    measures, _ = case
    assume(name in measures)
    tight = measures[name] + step if MEASURES[name].floor else measures[name] - step
    at_value = {name: measures[name]}
    assert judge(measures, GateSpec("at the value", at_value)).passed
    gate = judge(measures, GateSpec("past it", {name: tight}))
    assert not gate.passed
    assert gate.margin == pytest.approx(-step, rel=1e-3)


def test_every_bounded_measure_has_a_direction() -> None:
    floors = {name for name, measure in MEASURES.items() if measure.floor}
    assert floors == {
        "snr_db",
        "cosine_mean",
        "cosine_p10",
        "token_cosine",
        "token_cosine_p10",
        "miou",
        "miou_decisive",
    }
