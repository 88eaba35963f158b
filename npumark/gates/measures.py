"""The accuracy measures: which way each one is bounded, and how much error it stands for.

The one place that knows a measure's direction. An *error* is 0 where the answer is perfect and
grows in proportion to the power of the noise, for every measure, so that errors of different
measures can be compared as shares of what their bounds allow: the noise-to-signal power of an
SNR, the gap to 1 of a cosine (half that power for small noise) or of a mean IoU, the KL
divergence itself (quadratic in the disturbance of the logits), the number of flips.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

SNR_CAP_DB = 200.0
"""What an exact match is reported as: JSON has no infinity. Beyond what float64 sums resolve."""


@dataclass(frozen=True, slots=True)
class Measure:
    """One measure. ``floor``: a bound is the least value that passes, else the greatest.

    ``unit`` is the unit of values, bounds and margins. A measure that is not ``continuous`` counts
    single decisions; the strict gate leaves it out.
    """

    name: str
    unit: str
    floor: bool
    continuous: bool
    error: Callable[[float], float]

    def slack(self, value: float, bound: float) -> float:
        """Return how far ``value`` lies inside ``bound``, in the measure's unit; 0 passes."""
        return value - bound if self.floor else bound - value

    def used(self, value: float, bound: float) -> float:
        """Return the share of the error that ``bound`` allows which ``value`` uses up.

        At most 1 where the value passes. Where the bound allows no error at all: 0 for a
        perfect value, else infinite.
        """
        error, allowed = self.error(value), self.error(bound)
        if allowed <= 0:
            return 0.0 if error <= 0 else float("inf")
        return max(0.0, error / allowed)


def _noise(snr_db: float) -> float:
    # Beyond 3000 dB of noise a float overflows; the order of two such values is lost, no more.
    return float(10.0 ** min(-snr_db / 10, 300.0))


def _gap(value: float) -> float:
    return 1.0 - value


def _itself(value: float) -> float:
    return value


MEASURES = {
    m.name: m
    for m in (
        Measure("snr_db", "dB", floor=True, continuous=True, error=_noise),
        Measure("cosine_mean", "", floor=True, continuous=True, error=_gap),
        Measure("cosine_p10", "", floor=True, continuous=True, error=_gap),
        Measure("token_cosine", "", floor=True, continuous=True, error=_gap),
        Measure("token_cosine_p10", "", floor=True, continuous=True, error=_gap),
        Measure("miou", "", floor=True, continuous=True, error=_gap),
        # Only pixels decided by a margin: like flips, it says nothing until one of them turns.
        Measure("miou_decisive", "", floor=True, continuous=False, error=_gap),
        Measure("kl", "nat", floor=False, continuous=True, error=_itself),
        Measure("flips", "samples", floor=False, continuous=False, error=_itself),
    )
}
"""Every measure that a gate may bound, by name."""

REPORTED_ONLY = ("decisive", "recall_at_1")
"""Measures that say something about the eval set or the task and are never bounded."""
