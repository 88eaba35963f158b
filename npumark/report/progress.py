"""The state of a run as its events tell it, and the words for each event: no input, no output."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from npumark.machine.preconditions import violations
from npumark.orchestrator.events import (
    AttemptEnded,
    AttemptStarted,
    BoxEnded,
    BoxStarted,
    Checked,
    Event,
    Note,
    PlanMade,
    Saved,
    Stage,
)
from npumark.record.box import BoxAttempt
from npumark.report.sheet import BAD, DIM, GOOD, WARN, Part
from npumark.report.words import count, duration, percent, plainly, size, tops

ON_TOP = "starting workers, loading and checking answers come on top and can take longer than those"
"""What a projection from the policy alone leaves out."""


@dataclass(slots=True)
class Progress:
    """What the events so far add up to.

    ``best`` is the fastest attempt that counts, of an engine that is not emulated, one of the
    peak test where there is any: whether it is of the peak test, its TOPS and its entry.
    ``left`` is the scheduler's lower bound on the attempts, ``left_s`` that on their time,
    loading and answers aside. ``exact`` says that ``left`` is no bound but the number: in a
    quick run each entry has one attempt. ``walls_ns`` are the wall times of the attempts that
    have ended. ``box`` is the attempt at all cards at once that runs now.
    """

    exact: bool = False
    stage: Stage | None = None
    now: AttemptStarted | None = None
    box: BoxStarted | None = None
    done: int = 0
    left: int | None = None
    left_s: float | None = None
    walls_ns: list[int] = field(default_factory=list)
    best: tuple[bool, float, str] | None = None
    faults: list[str] = field(default_factory=list)
    saved: Saved | None = None

    def take(self, event: Event) -> None:
        """Take one event into account."""
        if isinstance(event, Stage):
            self.stage, self.now, self.box = event, None, None
        elif isinstance(event, BoxStarted):
            self.stage, self.now, self.box = None, None, event
        elif isinstance(event, BoxEnded):
            self.box = None
            if event.attempt.status == "ran" and not event.attempt.counts:
                why = plainly("; ".join(event.attempt.void_because))
                self.faults.append(f"{boxed(event.attempt)}: {why}")
        elif isinstance(event, AttemptStarted):
            self.stage, self.now, self.box = None, event, None
            self.done, self.left, self.left_s = event.done, event.left, event.left_s
        elif isinstance(event, AttemptEnded):
            self._ended(event)
        elif isinstance(event, PlanMade):
            self.left_s = event.estimate_s
        elif isinstance(event, Saved):
            self.saved = event

    @property
    def total(self) -> int | None:
        """How many attempts the run will have made, at the least."""
        return None if self.left is None else self.done + self.left

    @property
    def projected_s(self) -> float | None:
        """How long the attempts that are left take if they are like those that have ended, and
        never less than the scheduler's bound; None before one has ended or where none is left."""
        if not self.left or not self.walls_ns:
            return None
        alike = self.left * sum(self.walls_ns) / len(self.walls_ns) / 1e9
        return max(alike, self.left_s or 0.0)

    def _ended(self, event: AttemptEnded) -> None:
        self.now = None
        self.done += 1
        if event.attempt.status != "interrupted":
            self.walls_ns.append(event.attempt.wall_ns)
        if self.left is not None:
            if self.left_s is not None:
                self.left_s *= max(0, self.left - 1) / max(1, self.left)
            self.left = max(0, self.left - 1)
        if event.counts and event.tops is not None and "emulated" not in event.marks:
            found = (event.entry.kind == "peak", event.tops, marked(event))
            self.best = max(self.best or found, found)
        ended = _ending(event)
        if ended not in ("ok", "gate_failed", "unsupported", "interrupted"):
            self.faults.append(f"{event.entry}: {ended.replace('_', ' ')}")


def words(event: Event, progress: Progress) -> list[Part] | None:
    """Return a line for a log about ``event``, or None where there is nothing to add."""
    if isinstance(event, PlanMade):
        skipped = sum(p.skip is not None for p in event.plan)
        text = f"plan: {count(len(event.plan) - skipped, 'entry', 'entries')}"
        text += f", {skipped} skipped" if skipped else ""
        if event.estimate_s is not None:
            least = duration(event.estimate_s + event.beside_s)
            text += f", at least {least} of watching, warm-ups and timed loops; {ON_TOP}"
        return [text]
    if isinstance(event, Checked):
        found = violations(event.environment)
        if found:
            return [("noisy: " + "; ".join(found), WARN)]
        return ["checks: skipped" if event.environment.skipped else "checks: the machine is quiet"]
    if isinstance(event, AttemptEnded):
        return _ended(event, progress)
    if isinstance(event, BoxEnded):
        return _boxed(event)
    if isinstance(event, Note):
        return [(event.text, WARN)]
    if isinstance(event, Stage):
        return [(event.text, DIM)]
    return None


def marked(event: AttemptStarted | AttemptEnded) -> str:
    """Return an attempt's entry with its engine's marks."""
    marks = f" ({', '.join(event.marks)})" if event.marks else ""
    return f"{event.entry}{marks}"


def boxed(attempt: BoxStarted | BoxAttempt) -> str:
    """Return which attempt of the box stage this is: ``8 dGPUs at once · 2``."""
    return f"{count(len(attempt.cards), attempt.role)} at once · {attempt.n}"


def amount(stage: Stage) -> str | None:
    """Return how far a stage has come, in its own unit, or None where it has no count."""
    if stage.done is None or stage.total is None:
        return None
    if stage.total >= 1 << 20:
        return f"{size(stage.done)} of {size(stage.total)}"
    return f"{stage.done} of {stage.total}"


def _ending(event: AttemptEnded) -> str:
    """Return what became of an attempt: work that ran elsewhere is known only by judging it."""
    elsewhere = event.why_not == "wrong_device"
    return "wrong_device" if elsewhere else event.attempt.status


def _ended(event: AttemptEnded, progress: Progress) -> list[Part]:
    total = progress.total
    more = "" if progress.exact else "+"
    number = str(progress.done) if total is None else f"{progress.done}/{total}{more}"
    attempt = event.attempt
    parts: list[Part] = [(f"[{number}]", DIM), f"{marked(event)} · {attempt.n}"]
    if event.tops is not None:
        parts.append((f"{tops(event.tops)} TOPS", GOOD if event.counts else ""))
    else:
        parts.append((_ending(event).replace("_", " "), BAD))
    if not event.counts and event.why_not and event.why_not != _ending(event):
        parts.append((f"not counted: {event.why_not.replace('_', ' ')}", WARN))
    if why := attempt.why or (event.why if event.tops is None else None):
        parts.append((plainly(why), WARN))
    return parts


def _boxed(event: BoxEnded) -> list[Part]:
    attempt = event.attempt
    parts: list[Part] = [("[box]", DIM), boxed(attempt)]
    if attempt.tops is None:
        ended = "void" if attempt.status == "ran" else attempt.status
        why = "; ".join(attempt.void_because) or attempt.why
        return [*parts, (ended, BAD), *([(plainly(why), WARN)] if why else [])]
    solo = math.fsum(card.tops for card in event.cards)
    kept = f"{percent(attempt.tops / solo)} of the solo peaks" if solo else ""
    return [*parts, (f"{tops(attempt.tops)} TOPS", GOOD), *([kept] if kept else [])]
