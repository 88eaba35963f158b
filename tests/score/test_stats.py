from __future__ import annotations

import math
import random
import statistics
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npumark.score import stats

RATES = st.floats(min_value=1e-6, max_value=1e9)


@given(st.lists(RATES, min_size=1, max_size=12))
def test_median_is_the_middle(values: list[float]) -> None:
    assert stats.median(values) == statistics.median(values)


def test_spread_and_robust_cv_of_known_values() -> None:
    values = [100.0, 102.0, 98.0, 101.0, 140.0]
    assert stats.spread(values) == (140.0 - 98.0) / 101.0
    assert stats.robust_cv(values) == 1.4826 * 1.0 / 101.0


def test_a_majority_of_equal_values_has_no_robust_cv_but_a_spread() -> None:
    values = [100.0, 100.0, 100.0, 900.0, 5.0]
    assert stats.robust_cv(values) == 0.0
    assert stats.spread(values) == 8.95


def test_fastest_takes_what_there_is() -> None:
    assert stats.fastest([3.0, 9.0, 1.0, 7.0], 3) == [9.0, 7.0, 3.0]
    assert stats.fastest([3.0], 3) == [3.0]


def test_tail_ratio() -> None:
    assert stats.tail_ratio(150, 100) == 1.5
    assert stats.tail_ratio(None, 100) is None


@pytest.mark.parametrize("bad", [[], [1.0, math.nan], [math.inf, 1.0]])
@pytest.mark.parametrize(
    "function",
    [
        stats.median,
        stats.spread,
        stats.robust_cv,
        stats.geometric_mean,
        lambda v: stats.fastest(v, 2),
    ],
)
def test_nothing_is_computed_from_nothing_or_nan(function, bad) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError):
        function(bad)


def test_a_relative_spread_needs_a_median() -> None:
    with pytest.raises(ValueError):
        stats.spread([-1.0, 0.0, 1.0])


@pytest.mark.parametrize("value", [0.0, -1.0])
def test_a_geometric_mean_needs_positive_values(value: float) -> None:
    with pytest.raises(ValueError):
        stats.geometric_mean([1.0, value])


@given(st.floats(min_value=1e-300, max_value=1e300))
def test_the_geometric_mean_of_one_value_or_of_equals_is_it(value: float) -> None:
    assert stats.geometric_mean([value]) == value
    assert stats.geometric_mean([value] * 4) == value


def test_the_geometric_mean_of_powers_of_two_is_exact() -> None:
    assert stats.geometric_mean([2.0, 8.0]) == 4.0
    assert stats.geometric_mean([2.0**-40, 2.0**40, 2.0**3]) == 2.0


@given(st.lists(RATES, min_size=1, max_size=6))
def test_the_geometric_mean_is_correctly_rounded(values: list[float]) -> None:
    """No neighbouring double is nearer to the real root: checked in exact fractions."""
    n = len(values)
    mean = stats.geometric_mean(values)
    product = math.prod(map(Fraction, values))
    low = (Fraction(mean) + Fraction(math.nextafter(mean, 0))) / 2
    high = (Fraction(mean) + Fraction(math.nextafter(mean, math.inf))) / 2
    assert low**n <= product <= high**n
    assert math.isclose(mean, math.exp(math.fsum(map(math.log, values)) / n), rel_tol=1e-12)


@given(st.lists(RATES, min_size=2, max_size=6), st.randoms(use_true_random=False))
def test_the_geometric_mean_does_not_depend_on_the_order(
    values: list[float], rng: random.Random
) -> None:
    mixed = values.copy()
    rng.shuffle(mixed)
    assert stats.geometric_mean(mixed) == stats.geometric_mean(values)
