"""How a pack tells what it is doing, one call at a time whatever the number of threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Stage = Literal["wait", "verify", "write"]


@dataclass(frozen=True, slots=True)
class Progress:
    """``done`` of ``total`` bytes of a stage; ``file`` was worked on last.

    While another process holds the pack (``wait``) both are 0 and ``note`` names it.
    """

    stage: Stage
    done: int
    total: int
    file: str | None = None
    note: str | None = None


Listener = Callable[[Progress], None]


def silent(_: Progress) -> None:
    """A listener for those who want none."""


class Meter:
    """Adds up the bytes of one stage from several threads and passes them on in turn."""

    def __init__(self, stage: Stage, total: int, listener: Listener) -> None:
        self._stage: Stage = stage
        self._total = total
        self._listener = listener
        self._done = 0
        self._lock = threading.Lock()

    def add(self, count: int, file: str) -> None:
        with self._lock:
            self._done = min(self._done + count, self._total)
            self._listener(Progress(self._stage, self._done, self._total, file))
