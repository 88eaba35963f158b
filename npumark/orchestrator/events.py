"""What a run tells its audience while it goes on; the live view and the tests listen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from npumark.record.box import BoxAttempt, BoxRoleName, BoxSolo
from npumark.record.model import Attempt, Environment
from npumark.score.planned import Planned


@dataclass(frozen=True, slots=True)
class Stage:
    """A stretch of work before or between attempts (``discover``, ``materialise``, ``verify``,
    ``preconditions``, ``spacing`` …); ``done`` and ``total`` are null where there is no count."""

    name: str
    text: str
    done: int | None = None
    total: int | None = None
    until_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Note:
    """Something the user should know and a passing view must not take away."""

    text: str


@dataclass(frozen=True, slots=True)
class PlanMade:
    """``estimate_s`` is the least time of the plan's entries, null where nothing is projected;
    ``beside_s`` that of watching the machine before and of all cards at once after them."""

    plan: tuple[Planned, ...]
    estimate_s: float | None
    beside_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Checked:
    environment: Environment


@dataclass(frozen=True, slots=True)
class AttemptStarted:
    """``done`` attempts so far; ``left`` is the scheduler's present lower bound. ``marks`` are
    the engine's (score.labels.engine_marks)."""

    entry: Planned
    n: int
    done: int
    left: int
    left_s: float | None
    marks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AttemptEnded:
    """``tops`` is this attempt's own rate, null where it measured nothing or ran elsewhere;
    ``counts`` says whether its gates and placement let it count, ``why_not`` and ``why`` what
    keeps it from that (score.attempt.JudgedAttempt). ``marks`` are the engine's."""

    entry: Planned
    attempt: Attempt
    tops: float | None
    counts: bool
    why_not: str | None
    why: str | None = None
    marks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BoxStarted:
    """Attempt ``n`` at measuring ``cards`` (processor ids), all of a role, at once."""

    role: BoxRoleName
    n: int
    cards: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BoxEnded:
    """What such an attempt came to, judged, and what ``cards`` reached alone."""

    attempt: BoxAttempt
    cards: tuple[BoxSolo, ...]


@dataclass(frozen=True, slots=True)
class Saved:
    path: Path
    complete: bool


Event = (
    Stage
    | Note
    | PlanMade
    | Checked
    | AttemptStarted
    | AttemptEnded
    | BoxStarted
    | BoxEnded
    | Saved
)
Listener = Callable[[Event], None]
