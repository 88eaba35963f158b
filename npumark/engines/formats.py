"""Which number format did the multiplying: the label that a figure may claim.

Every layer that multiplies votes for its format with its multiply-accumulates, counted from the
shapes that the runtime reports. One compiled graph then always gets one label, however the
machine was disturbed; shares of time would let a graph near a tie change its label from attempt
to attempt. Where the shapes of a layer that multiplies are not told, all vote with their time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

WEIGHT_ONLY = frozenset({"W8", "W4", "INT4"})
"""Families that store weights in few bits and multiply in floating point."""

NO_WORK = "the profile shows no multiply-accumulate work"

Shape = Sequence[int]


@dataclass(frozen=True, slots=True)
class Work:
    """What one layer multiplied: its format, its time, its multiply-accumulates (null: untold)."""

    family: str
    microseconds: int
    macs: int | None


@dataclass(frozen=True, slots=True)
class Formats:
    """``ran`` is the family of the largest share, null with ``why``. ``by`` says what the shares
    are of: ``macs``, ``time``, or ``operators`` where the kernels are hidden. ``counts`` is the
    evidence: kernels or primitives by name."""

    ran: str | None
    why: str | None
    share: dict[str, float]
    by: str
    counts: dict[str, int]

    def unknown(self, why: str) -> Formats:
        """Return the same shares without a claim."""
        return Formats(None, why, self.share, self.by, self.counts)


def weigh(work: Iterable[Work], counts: dict[str, int]) -> Formats:
    """Return the shares of each family, largest first; of equal ones the first by name leads."""
    layers = list(work)
    told = [layer.macs for layer in layers]
    by = "time" if None in told else "macs"
    votes: Counter[str] = Counter()
    for layer in layers:
        votes[layer.family] += (
            layer.microseconds if layer.macs is None or by == "time" else (layer.macs)
        )
    total = sum(votes.values())
    if total == 0:
        return Formats(None, NO_WORK, {}, by, counts)
    ranked = sorted(votes.items(), key=lambda vote: (-vote[1], vote[0]))
    shares = {family: vote / total for family, vote in ranked}
    return Formats(ranked[0][0], None, shares, by, counts)


def product_macs(first: Shape, output: Shape) -> int | None:
    """Return the multiply-accumulates of a matrix product whose first operand isn't broadcast:
    each of its elements meets every column of the output. Null where a shape is not one."""
    if not first or not output or not _known(first, output):
        return None
    return prod(first) * output[-1]


def convolution_macs(weights: Shape, output: Shape) -> int | None:
    """Return the multiply-accumulates of a convolution: every output element meets the weights
    of its channel. ``weights`` begin with the output channels, or with groups and the output
    channels of one. Null where the shapes are not those of a convolution.
    """
    grouped = len(weights) - len(output)
    if len(output) < 3 or grouped not in (0, 1) or not _known(weights, output):
        return None
    return prod(output) * prod(weights[1 + grouped :])


def _known(*shapes: Shape) -> bool:
    return all(side > 0 for shape in shapes for side in shape)
