"""Bars for a terminal: eighths of a block where the encoding has them, ``#`` where not."""

from __future__ import annotations

import math

_EIGHTHS = " ▏▎▍▌▋▊▉█"


def bar(share: float, width: int, *, unicode: bool) -> str:
    """Return a bar of ``share`` (0 to 1) of ``width`` columns, never longer than its share.

    Anything above nothing shows at least its thinnest mark, so that a small figure does not look
    like one that was never measured. Raises ValueError where ``share`` is not in range.
    """
    if not 0.0 <= share <= 1.0:
        raise ValueError(f"a bar's share lies between 0 and 1, not {share!r}")
    if share == 0.0 or width < 1:
        return ""
    if not unicode:
        return "#" * max(1, math.floor(share * width))
    eighths = max(1, math.floor(share * width * 8))
    whole, rest = divmod(eighths, 8)
    return "█" * whole + (_EIGHTHS[rest] if rest else "")
