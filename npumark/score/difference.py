"""What a check returns: one value of a record that is not what it must be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Difference:
    """A value that is not what it must be. ``path`` is where it stands in the payload."""

    path: str
    recorded: Any
    recomputed: Any
    why: str | None = None

    def __str__(self) -> str:
        text = f"{self.path}: recorded {self.recorded!r}, recomputed {self.recomputed!r}"
        return f"{text} ({self.why})" if self.why else text
