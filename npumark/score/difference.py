"""What a check returns: one value of a record that is not what it must be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from npumark.plain import bounded

_SHOWN = 300
"""Characters of a value in a sentence; a document holds all of it."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A value that is not what it must be. ``path`` is where it stands in the payload."""

    path: str
    recorded: Any
    recomputed: Any
    why: str | None = None

    def __str__(self) -> str:
        recorded, recomputed = (
            bounded(repr(value), _SHOWN) for value in (self.recorded, self.recomputed)
        )
        text = f"{self.path}: recorded {recorded}, recomputed {recomputed}"
        return f"{text} ({self.why})" if self.why else text
