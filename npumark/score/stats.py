"""Statistics of attempts: medians, robust spread, the geometric mean.

Every function here refuses an empty sample and a value that is not finite, because a NaN makes
a sort, a median and every comparison silently wrong. All results are the same bits on every
platform: IEEE arithmetic in a fixed order and, for the geometric mean, integers; no logarithm
or power whose last bit a C library may choose.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

MAD_TO_SIGMA = 1.4826
"""Scales a median absolute deviation to a standard deviation (methodology §7)."""


def median(values: Sequence[float]) -> float:
    """Return the middle value, or the mean of the middle two. Raises ValueError."""
    ordered = sorted(checked(values))
    half = len(ordered) // 2
    if len(ordered) % 2:
        return float(ordered[half])
    return (ordered[half - 1] + ordered[half]) / 2


def spread(values: Sequence[float]) -> float:
    """Return (max - min) / median: what "agree within 2 %" is judged by. Raises ValueError."""
    middle = median(values)
    return (max(values) - min(values)) / _nonzero(middle)


def robust_cv(values: Sequence[float]) -> float:
    """Return 1.4826 x the median absolute deviation / the median. Raises ValueError.

    It is 0 where more than half of the values are equal, however far off the rest are: the
    definition cannot see them. The spread, published beside it, can.
    """
    middle = median(values)
    deviation = median([abs(v - middle) for v in values])
    return MAD_TO_SIGMA * deviation / abs(_nonzero(middle))


def fastest(values: Sequence[float], k: int) -> list[float]:
    """Return the ``k`` greatest values (all, where there are fewer), greatest first."""
    return sorted(checked(values), reverse=True)[:k]


def tail_ratio(p95: float | None, middle: float) -> float | None:
    """Return p95 / median of a latency distribution, null where p95 is. Raises ValueError."""
    if p95 is None:
        return None
    checked((p95, middle))
    return p95 / _nonzero(middle)


def geometric_mean(values: Sequence[float]) -> float:
    """Return the geometric mean of positive values, correctly rounded. Raises ValueError.

    The product is an exact fraction; its root is taken in integers with more bits than a
    double holds, then rounded once. The order of the values cannot matter.
    """
    product = Fraction(1)
    for value in checked(values):
        if value <= 0:
            raise ValueError(f"a geometric mean needs positive values, not {value!r}")
        product *= Fraction(value)
    n = len(values)
    # Scale by 2**(n * shift) so that the integer root keeps at least 80 bits.
    size = product.numerator.bit_length() - product.denominator.bit_length()
    shift = 80 - size // n
    scaled = product * Fraction(2) ** (n * shift)
    whole = scaled.numerator // scaled.denominator
    root = _integer_root(whole, n)
    # A sticky half keeps an inexact root from being taken for a tie.
    exact = scaled.denominator == 1 and root**n == whole
    return float(Fraction(2 * root + (0 if exact else 1), 2) / Fraction(2) ** shift)


def checked(values: Sequence[float]) -> Sequence[float]:
    """Return ``values`` if there are any and each is finite. Raises ValueError."""
    if not values:
        raise ValueError("no values to take a statistic of")
    for value in values:
        if not math.isfinite(value):
            raise ValueError(f"a statistic needs finite values, not {value!r}")
    return values


def _nonzero(middle: float) -> float:
    if middle == 0:
        raise ValueError("a relative spread needs a median other than 0")
    return middle


def _integer_root(value: int, n: int) -> int:
    """Return the greatest integer whose ``n``-th power does not exceed ``value``."""
    if value < 2 or n == 1:
        return value
    guess = 1 << -(-value.bit_length() // n)
    while True:
        better = ((n - 1) * guess + value // guess ** (n - 1)) // n
        if better >= guess:
            return guess
        guess = better
