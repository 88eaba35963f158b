"""Real work under a virtual card: a fixed amount of CPU time per call, on one core.

So that contention is real where cards are tested: two cards on one core share what it can do, as
no scripted latency would. What they measure is this computer's CPU, and never a figure of it.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from typing import Any

from npumark.errors import EngineError

_BLOCK = bytes(range(256)) * 64
"""What a round hashes: 16 KiB, so that cards share cores and not the memory behind them."""


@dataclass(frozen=True, slots=True)
class Work:
    """``rounds`` of hashing per call. Each round needs the one before it, so that no runtime,
    compiler or core can leave one out. ``core`` is the CPU it is done on, None: any."""

    rounds: int
    core: int | None = None

    def __call__(self) -> None:
        chain = hashlib.sha256()
        for _ in range(self.rounds):
            chain.update(_BLOCK)
        chain.digest()

    def times(self, factor: float) -> Work:
        """Return ``factor`` times this work, at least a round."""
        return Work(max(1, round(self.rounds * factor)), self.core)

    def bind(self) -> None:
        """Bind the calling thread, and those it starts, to the core.

        Raises EngineError where the system cannot, or this process may not run there.
        """
        if self.core is None:
            return
        if not hasattr(os, "sched_setaffinity"):
            raise EngineError(
                "this system does not bind a thread to a core; virtual cards with work need "
                'Linux for that, or "core": null'
            )
        allowed = sorted(os.sched_getaffinity(0))
        if self.core not in allowed:
            raise EngineError(
                f"core {self.core} is not among those that this process may run on: "
                f"{', '.join(map(str, allowed))}"
            )
        os.sched_setaffinity(0, {self.core})


def read_work(doc: dict[str, Any]) -> Work:
    """Return the work that a script's ``work`` states: ``rounds``, and ``core`` or null.

    Raises ValueError where it is not one.
    """
    unknown = set(doc) - {"core", "rounds"}
    rounds, core = doc.get("rounds"), doc.get("core")
    if unknown:
        raise ValueError(f"unknown keys of work: {sorted(unknown)}")
    if type(rounds) is not int or rounds < 1:
        raise ValueError(f"rounds of work is a number from 1, not {rounds!r}")
    if core is not None and (type(core) is not int or core < 0):
        raise ValueError(f"core of work is a CPU's number or null, not {core!r}")
    return Work(rounds, core)
