"""Raw samples of the box stage: begin and end of every call of a card in the shared window.

Pairs of little-endian int64, nanoseconds after the window's start, in the order of the calls. What
a record says of a window is derived from them again, apart from the worker's own code.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from npumark.errors import IntegrityError
from npumark.record.box import BoxAttempt, BoxCardRun, BoxWindow
from npumark.record.model import Payload

Call = tuple[int, int]


def windows(payload: Payload) -> Iterator[tuple[str, BoxAttempt, BoxCardRun, BoxWindow]]:
    """Yield each window that a card of the box stage ran to its end, with words for where."""
    for role in payload.box.roles if payload.box else []:
        for attempt in role.attempts:
            for run in attempt.cards:
                if run.window is not None:
                    where = f"all {role.role} cards at once, attempt {attempt.n}, {run.card}"
                    yield where, attempt, run, run.window


def calls_of(times: list[int]) -> list[Call]:
    """Return the calls in a file of raw times. Raises IntegrityError where they are no calls
    that follow one another."""
    if len(times) % 2:
        raise IntegrityError("a file of a window's raw samples holds a begin without an end")
    if any(later < earlier for earlier, later in pairwise(times)):
        raise IntegrityError("a file of a window's raw samples holds calls that overlap")
    return list(zip(times[::2], times[1::2], strict=True))


def window_differences(seen: BoxWindow, window_ns: int, calls: list[Call]) -> Iterator[str]:
    """Yield what a record says of a window and its raw calls do not give."""
    inside = [begin >= 0 and end <= window_ns for begin, end in calls]
    across = [
        (begin, end)
        for (begin, end), whole in zip(calls, inside, strict=True)
        if not whole and begin < window_ns and end > 0
    ]
    derived: dict[str, object] = {
        "late_ns": calls[0][0],
        "inside": sum(inside),
        "straddling": across,
        "calls": len(calls),
    }
    for name, again in derived.items():
        stated = getattr(seen, name)
        if stated != again:
            yield f"{name} is {stated}, the samples give {again}"
