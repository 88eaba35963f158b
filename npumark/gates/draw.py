"""Which timed iterations have their outputs checked: drawn from a seed, the same everywhere.

The worker draws them while the loop runs; whoever verifies a record draws them again.
"""

from __future__ import annotations

import random


class Reservoir:
    """A random sample of iterations from a loop whose length nobody knows beforehand.

    Iteration i computes on input i % ``inputs``. The inputs are dealt out to as many groups as
    there are slots (or inputs, if fewer), and each group samples its own iterations: so the
    checks see different inputs, and one answer given to all of them cannot slip through.
    Within a group every iteration, the last one too, is equally likely to be kept: Algorithm R
    (Vitter 1985), one call of ``random`` per iteration and no logarithm, so that a seed draws
    the same iterations on every platform.
    """

    def __init__(self, seed: int, slots: int, inputs: int) -> None:
        self._random = random.Random(seed).random  # noqa: S311 - a draw to repeat, not a secret
        self._slots, self._inputs = slots, inputs
        self._seen = [0] * min(slots, inputs)
        self._next = 0

    def takes(self, count: int) -> list[tuple[int, int]]:
        """Return (iteration, slot) of each take among the next ``count`` iterations."""
        found = []
        groups = len(self._seen)
        for i in range(self._next, self._next + count if groups else self._next):
            group = i % self._inputs % groups
            own = len(range(group, self._slots, groups))
            seen = self._seen[group]
            self._seen[group] = seen + 1
            place = seen if seen < own else int(self._random() * (seen + 1))
            if place < own:
                found.append((i, group + place * groups))
        self._next += count
        return found


def drawn(seed: int, slots: int, inputs: int, iterations: int) -> tuple[int, ...]:
    """Return the iterations that ``seed`` draws from a loop of ``iterations`` calls, ascending."""
    kept = {slot: i for i, slot in Reservoir(seed, slots, inputs).takes(iterations)}
    return tuple(sorted(kept.values()))
