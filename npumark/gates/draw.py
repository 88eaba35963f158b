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
        self._inputs = inputs
        self._groups = groups = min(slots, inputs)
        self._own = [len(range(group, slots, groups)) for group in range(groups)]
        self._seen = [0] * groups
        self._next = 0

    def takes(self, count: int) -> list[tuple[int, int]]:
        """Return (iteration, slot) of each take among the next ``count`` iterations."""
        found: list[tuple[int, int]] = []
        first, self._next = self._next, self._next + count
        if not self._groups:
            return found
        # Looked up once: whoever verifies a record draws as often as its loops called.
        random, inputs, groups = self._random, self._inputs, self._groups
        own, seen = self._own, self._seen
        for i in range(first, self._next):
            group = i % inputs % groups
            before = seen[group]
            seen[group] = before + 1
            place = before if before < own[group] else random() * (before + 1)
            if place < own[group]:
                found.append((i, group + int(place) * groups))
        return found


def drawn(seed: int, slots: int, inputs: int, iterations: int) -> tuple[int, ...]:
    """Return the iterations that ``seed`` draws from a loop of ``iterations`` calls, ascending."""
    kept = {slot: i for i, slot in Reservoir(seed, slots, inputs).takes(iterations)}
    return tuple(sorted(kept.values()))
