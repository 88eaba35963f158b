"""How the ends of several workers become an attempt of the box stage: stamped, nothing invented."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Literal

from pydantic import ValidationError

from npumark.machine.numa import Near
from npumark.orchestrator.attempts import UNSEEN, Redact
from npumark.orchestrator.supervisor import Outcome
from npumark.orchestrator.together import Together
from npumark.record.box import (
    BoxAttempt,
    BoxCardRun,
    BoxPin,
    BoxRoleName,
    BoxSolo,
    BoxWindow,
)
from npumark.score.box import RoleCards
from npumark.worker.protocol import Job, Window

NS = 1_000_000_000


def box_attempt_of(
    cards: RoleCards,
    n: int,
    together: Together,
    jobs: Sequence[Job],
    near: Sequence[Near],
    *,
    started_ns: int,
    wall_ns: int,
    stopped: bool,
    slept_ns: int,
    redact: Redact,
) -> BoxAttempt:
    """Return the record's attempt, its derived fields left empty.

    It is void where the machine slept meanwhile, or where a signal ``stopped`` it before all
    cards were back; a card that failed before the signal came is told all the same.
    """
    why = None
    if slept_ns:
        why = f"the machine slept for {slept_ns / NS:.1f} s during the attempt"
    elif stopped and not together.at_fault and any(o.status != "ok" for o in together.outcomes):
        why = "stopped by the user"
    window = jobs[0].window
    return BoxAttempt(
        role=cards.role,
        n=n,
        status="ran" if why is None else "interrupted",
        why=why,
        started_ns=started_ns,
        wall_ns=wall_ns,
        window_ns=round(window.seconds * NS) if window else 0,
        cards=[
            _run(solo, outcome, place, redact)
            for solo, outcome, place in zip(cards.solos, together.outcomes, near, strict=True)
        ],
        counts=False,
        void_because=[],
        skew_ns=None,
        tops=None,
    )


def unmade_box_attempt(
    role: BoxRoleName, n: int, at_ns: int, window_s: float, why: str
) -> BoxAttempt:
    """Return the attempt that stands for one that was not made, and none after it will be."""
    return _without_cards(role, n, at_ns, window_s, "skipped", why)


def killed_box_attempt(role: BoxRoleName, n: int, started_ns: int, window_s: float) -> BoxAttempt:
    """Return the attempt that ran, or was about to, when npumark itself ended: nobody saw what
    its cards did, nor its end, so its length is not known and stands as 0."""
    return _without_cards(role, n, started_ns, window_s, "interrupted", UNSEEN)


def _without_cards(
    role: BoxRoleName,
    n: int,
    started_ns: int,
    window_s: float,
    status: Literal["interrupted", "skipped"],
    why: str,
) -> BoxAttempt:
    return BoxAttempt(
        role=role,
        n=n,
        status=status,
        why=why,
        started_ns=started_ns,
        wall_ns=0,
        window_ns=round(window_s * NS),
        cards=[],
        counts=False,
        void_because=[],
        skew_ns=None,
        tops=None,
    )


def _run(solo: BoxSolo, outcome: Outcome, near: Near, redact: Redact) -> BoxCardRun:
    status, why = outcome.status, outcome.why
    seen = outcome.result.window if outcome.result is not None and status == "ok" else None
    window = None
    try:
        window = None if seen is None else _window(seen, redact)
    except ValidationError as fault:
        what = str(fault).splitlines()
        why = "the worker reported impossible values: " + "; ".join(what[1:3] or what)
    if status == "ok" and window is None:
        status = "no_result"
        why = why or "the worker ended without telling what it did in the window"
    return BoxCardRun(
        card=solo.card,
        engine=solo.engine,
        workload=solo.workload,
        variant=solo.variant,
        status=status,
        why=redact(why) if why else None,
        pid_exit=outcome.exit_code,
        window=window,
        pin=_pin(near, seen),
        log_tail=redact(outcome.log_tail) if status != "ok" and outcome.log_tail else None,
        passed=None,
        counted=None,
        tops=None,
    )


def _window(seen: Window, redact: Redact) -> BoxWindow:
    fields = asdict(seen)
    del fields["cpus"]
    fields["straddling"] = list(seen.straddling)
    if seen.check.why:
        fields["check"]["why"] = redact(seen.check.why)
    return BoxWindow(**fields)


def _pin(near: Near, seen: Window | None) -> BoxPin:
    """Return what the worker was bound to, by its own word."""
    cpus = list(seen.cpus) if seen is not None and seen.cpus is not None else None
    if near.cpus is None:
        return BoxPin(numa_node=near.node, cpus=None, why=near.why)
    why = None if cpus is not None else "the worker did not tell which CPUs it ran on"
    return BoxPin(numa_node=near.node, cpus=cpus, why=why)
