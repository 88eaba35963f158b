"""A worker that is held back once it is ready, until it is released or stopped from outside."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from npumark.orchestrator.capture import ResultReader
from npumark.orchestrator.containment import Contained
from npumark.orchestrator.feeding import LineFeed
from npumark.orchestrator.interrupts import Interrupts
from npumark.orchestrator.supervisor import Event, Outcome, Supervision, open_pipe
from npumark.policy import WorkerLimits
from npumark.worker.barrier import start_line
from npumark.worker.protocol import MAX_RESULT_BYTES, Job


class HeldSupervision(Supervision):
    """Supervises the worker of a ``window`` job.

    It must be ready ``deadline_s`` after its start; from then on it has all the time until it is
    released. ``ready`` is called once, from the thread that runs this. ``release`` and ``stop``
    may be called from any thread, at any time.
    """

    def __init__(
        self, job: Job, limits: WorkerLimits, deadline_s: float, ready: Callable[[], object]
    ) -> None:
        super().__init__(job, limits, deadline_s)
        self._ready = ready
        self._feed: LineFeed | None = None
        self._back_within_s = 0.0
        self._late = ""
        self._released = False

    def run(
        self,
        interrupts: Interrupts,
        command: Sequence[str],
        env: dict[str, str],
        log_path: Path | None,
        cwd: Path | None = None,
    ) -> Outcome:
        try:
            outcome = super().run(interrupts, command, env, log_path, cwd)
        finally:
            if self._feed is not None:
                self._feed.close()
        if outcome.status == "ok" and not self._released:
            why = "the result came before the window"
            return replace(outcome, status="no_result", why=why, result=None)
        return outcome

    def release(self, start_ns: int, back_within_s: float, late: str) -> None:
        """Tell the worker when the window begins; ``late`` says what it is that it has not done
        where it is not back ``back_within_s`` from now."""
        self._back_within_s, self._late = back_within_s, late
        self._inbox.put(("released", start_ns))

    def stop(self, why: str) -> None:
        """End the worker: its outcome is then ``interrupted``, with the reason ``why``."""
        self._inbox.put(("stop", why))

    def _stdin(self, handed: ExitStack) -> int:
        with ExitStack() as kept:
            read, write = open_pipe(handed, kept)
            self._feed = LineFeed(write)
            kept.pop_all()  # the feed closes it from here on
        self._feed.put(self._job.encode() + b"\n")
        return read

    def _reader(self, fd: int) -> ResultReader:
        return ResultReader(
            fd, MAX_RESULT_BYTES, self._too_large, lambda: self._inbox.put(("ready", 0))
        )

    def _kill(self, child: Contained) -> None:
        child.kill_group()  # what left it is looked for once, when all have ended (see together)

    def _await_ending(self, started: int) -> Event:
        late = f"not ready within {self._deadline_s:g} s"
        until: float | None = started / 1e9 + self._deadline_s
        while True:
            left = None if until is None else max(0.0, until - time.monotonic())
            try:
                said, detail = self._inbox.get(timeout=left)
            except queue.Empty:
                return "deadline", late
            if said == "ready":
                until = None
                self._ready()
            elif said == "released":
                until, late = time.monotonic() + self._back_within_s, self._late
                self._released = True
                if self._feed is not None:
                    self._feed.put(start_line(int(detail)))
            else:
                return said, detail
