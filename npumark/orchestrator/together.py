"""Several workers in one shared window: all ready, released together, and all back, or none.

Each worker has a thread that supervises it. The first that fails by itself ends the others: what
they would still measure is no attempt of all cards at once.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from npumark.orchestrator.containment import kill_strays
from npumark.orchestrator.held import HeldSupervision
from npumark.orchestrator.interrupts import Interrupts
from npumark.orchestrator.supervisor import Outcome, worker_command
from npumark.orchestrator.threads import start_thread
from npumark.orchestrator.worker_env import worker_environment
from npumark.policy import BoxRules, WorkerLimits
from npumark.worker.protocol import Job


@dataclass(frozen=True, slots=True)
class Member:
    """One worker of several: ``name`` is what others are told where it fails, ``job`` one of kind
    ``window``. ``marker``, ``python``, ``log_path`` and ``command`` are as for ``supervise``; no
    member's marker may be that of another."""

    name: str
    job: Job
    marker: str
    python: str | None = None
    log_path: Path | None = None
    command: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Together:
    """How all ended, in the order of the members. ``released`` says whether a window was begun.
    ``at_fault`` are the indexes of those that failed by themselves, the first one first; it is
    empty where all are ``ok``, or the user stopped them."""

    outcomes: tuple[Outcome, ...]
    released: bool
    at_fault: tuple[int, ...]


_Event = tuple[Literal["ready", "ended"], int, Outcome | BaseException | None]


def run_together(
    members: Sequence[Member],
    *,
    limits: WorkerLimits,
    rules: BoxRules,
    window_s: float,
    ready_deadline_s: float,
    interrupts: Interrupts,
    clock: Callable[[], int] = time.perf_counter_ns,
) -> Together:
    """Run the members' jobs in a window of ``window_s`` that begins ``rules.lead_s`` after the
    last of them is ready; return how each ended.

    A member that is not ready ``ready_deadline_s`` after its start, or not back
    ``rules.overrun_s`` after the window, has failed, as has one whose outcome is not ``ok``. The
    others are then stopped (within twice the grace of ``limits``) and are ``interrupted``. A
    signal stops all; it is left set in ``interrupts``. Raises ValueError where there is no member,
    and SetupError where workers cannot be started or handed their jobs.
    """
    if not members:
        raise ValueError("nobody to run together")
    events: queue.SimpleQueue[_Event] = queue.SimpleQueue()
    held = [
        HeldSupervision(
            member.job, limits, ready_deadline_s, partial(events.put, ("ready", i, None))
        )
        for i, member in enumerate(members)
    ]

    def follow(i: int) -> None:
        member = members[i]
        try:
            ended: Outcome | BaseException = held[i].run(
                interrupts,
                member.command or worker_command(member.python),
                worker_environment(os.environ, member.marker, apart=member.python is not None),
                member.log_path,
            )
        except BaseException as fault:  # noqa: BLE001 - it is raised where all have ended
            ended = fault
        events.put(("ended", i, ended))

    group = _Group(members, held, rules, window_s, clock)
    following: list[threading.Thread] = []
    with interrupts.deferred():
        try:
            for i in range(len(members)):
                thread = start_thread(partial(follow, i), f"npumark-member_{i}")
                following.append(thread)
            return group.conduct(events)
        finally:
            group.stop("stopped because their window was given up")  # nobody is left waiting
            for thread in following:
                thread.join()
            kill_strays([member.marker for member in members])


class _Group:
    """Hears of the members and tells them; the one place that knows of all."""

    def __init__(
        self,
        members: Sequence[Member],
        held: Sequence[HeldSupervision],
        rules: BoxRules,
        window_s: float,
        clock: Callable[[], int],
    ) -> None:
        self._members = members
        self._held = held
        self._rules = rules
        self._window_s = window_s
        self._clock = clock
        self._outcomes: dict[int, Outcome] = {}
        self._at_fault: list[int] = []
        self._fault: BaseException | None = None
        self._released = False

    def conduct(self, events: queue.SimpleQueue[_Event]) -> Together:
        """Return when all have ended. Raises what a supervision raised."""
        ready, running = 0, len(self._held)
        while running:
            said, i, ended = events.get()
            if said == "ready":
                ready += 1
                if ready == len(self._held) == running:
                    self._release()
                continue
            running -= 1
            if isinstance(ended, Outcome):
                self._take(i, ended)
            elif ended is not None:
                self._fault = self._fault or ended
                self.stop("stopped because another worker could not be started")
        if self._fault is not None:
            raise self._fault
        outcomes = tuple(self._outcomes[i] for i in range(len(self._held)))
        return Together(outcomes, self._released, tuple(self._at_fault))

    def _release(self) -> None:
        self._released = True
        start = self._clock() + round(self._rules.lead_s * 1e9)
        within = self._rules.lead_s + self._window_s + self._rules.overrun_s
        late = f"not back {self._rules.overrun_s:g} s after the window"
        for one in self._held:
            one.release(start, within, late)

    def _take(self, i: int, outcome: Outcome) -> None:
        self._outcomes[i] = outcome
        if outcome.status in ("ok", "interrupted"):
            return
        self._at_fault.append(i)
        what = outcome.why or outcome.status
        self.stop(f"stopped because {self._members[i].name} failed: {what}")

    def stop(self, why: str) -> None:
        """Stop all that still run; only the first reason reaches them."""
        for one in self._held:
            one.stop(why)
