"""A box of 8 to 64 cards that exists nowhere: what its cards would do together, by a plain model.

Cards differ a little by nature. All at once they share a power budget, which slows every card
alike where they would draw more, and their cooling: a card in the warm air of others slows by
``heating`` for each of them. Call lengths vary. With the true rates known, what is made of
measured windows can be held to them, far beyond the computers at hand.

The model is no claim about a real box; only the arithmetic of the box total is tested with it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Pairs = npt.NDArray[np.int64]
Values = npt.NDArray[np.float64]

_SHORTEST = 0.1
"""Of its mean: no call is shorter, however the noise falls."""


@dataclass(frozen=True, slots=True)
class VirtualBox:
    """``alone`` [cards] is each card's rate by itself in calls/s, at which it draws ``watts``.

    ``before`` [cards] counts the cards whose warm air reaches it. ``budget_w`` is what all may
    draw together. ``noise`` is the coefficient of variation of call lengths, ``late_ns`` the
    latest that a card's first call begins. ``slow`` are the planted cards.
    """

    alone: Values
    watts: Values
    before: npt.NDArray[np.int64]
    budget_w: float
    heating: float
    noise: float
    late_ns: int
    slow: frozenset[int]

    def together(self) -> Values:
        """Return each card's true rate while all of them work, calls/s [cards]."""
        warm = self.alone * (1.0 - self.heating) ** self.before
        drawn = float(np.sum(self.watts * warm / self.alone))
        return warm * min(1.0, self.budget_w / drawn)

    def calls(self, window_ns: int, draw: np.random.Generator) -> list[Pairs]:
        """Return what each card does in one window: begin and end of its calls, int64 [calls, 2],
        nanoseconds after the window's start. One follows the other, until one ends at or after
        the window's end."""
        rates = self.together()
        late = draw.integers(0, self.late_ns + 1, rates.size)
        ends = late[:, None].astype(np.int64)
        while np.any(ends[:, -1] < window_ns):
            left = (window_ns - ends[:, -1]) * rates / 1e9
            size = (rates.size, math.ceil(max(1.0, float(left.max()) * 1.05)))
            varied = np.maximum(1.0 + self.noise * draw.standard_normal(size), _SHORTEST)
            lengths = np.rint(varied * (1e9 / rates)[:, None]).astype(np.int64)
            ends = np.concatenate((ends, ends[:, -1:] + np.cumsum(lengths, axis=1)), axis=1)
        pairs = np.stack((ends[:, :-1], ends[:, 1:]), axis=2)
        last = np.argmax(pairs[:, :, 1] >= window_ns, axis=1)
        return [own[: k + 1] for own, k in zip(pairs, last, strict=True)]


def make_box(cards: int, seed: int, *, slow: int | None = None) -> VirtualBox:
    """Return a box of ``cards`` identical cards whose rates, power, air and faults ``seed`` draws.

    ``slow`` cards run at 0.6 to 0.82 of their kind, null: none to an eighth of them, as drawn.
    All others lie within 4 % of it, and lose 1 % to each of at most three cards before them.
    The budget is 0.6 to 0.9 of what all would draw.
    """
    draw = np.random.default_rng(seed)
    count = int(draw.integers(0, cards // 8 + 1)) if slow is None else slow
    planted = draw.choice(cards, count, replace=False)
    base = draw.uniform(8.0, 30.0)
    alone = base * (1.0 + np.clip(0.02 * draw.standard_normal(cards), -0.04, 0.04))
    alone[planted] *= draw.uniform(0.6, 0.82, count)
    watts = draw.uniform(290.0, 310.0, cards)
    return VirtualBox(
        alone=alone,
        watts=watts,
        before=np.arange(cards, dtype=np.int64) % 4,
        budget_w=float(watts.sum() * draw.uniform(0.6, 0.9)),
        heating=0.01,
        noise=float(draw.uniform(0.0, 0.05)),
        late_ns=1_000_000,
        slow=frozenset(planted.tolist()),
    )
