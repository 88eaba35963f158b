"""The measuring loop: ask the scheduler, run one worker, write it down, ask again."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from npumark.orchestrator.attempts import attempt_of
from npumark.orchestrator.book import Book
from npumark.orchestrator.clock import RunClock, SleepWatch
from npumark.orchestrator.compiled import CompiledModels
from npumark.orchestrator.events import AttemptEnded, AttemptStarted, Event, Stage
from npumark.orchestrator.interrupts import Interrupts
from npumark.orchestrator.jobs import JobMaker
from npumark.orchestrator.redaction import redact, replacements
from npumark.orchestrator.schedule import Done, Run, Wait, next_action, time_left
from npumark.orchestrator.supervisor import Outcome, supervise
from npumark.record.model import Preparation
from npumark.score.demand import hangs_of
from npumark.score.labels import engine_marks
from npumark.score.planned import Planned
from npumark.worker.protocol import Job, Stamp

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")

Tell = Callable[[Event], None]


@dataclass(slots=True)
class Measuring:
    """Carries a run from where its book stands to its end.

    ``stamps`` are those of the pack's files as this run hashed them. ``deadline_ns``, on the
    run's clock, is where a time budget ends.
    """

    book: Book
    jobs: JobMaker
    clock: RunClock
    interrupts: Interrupts
    marker: str
    tell: Tell
    stamps: dict[str, Stamp] = field(default_factory=dict)
    deadline_ns: int | None = None
    models: CompiledModels = field(init=False)

    def __post_init__(self) -> None:
        self.models = CompiledModels(self.jobs)

    def overhead(self) -> None:
        """Measure once per run what the harness itself costs per call."""
        if self.book.harness:
            return
        plan = (*self.book.plan, *self.book.box_plan)
        planned = next((p for p in plan if p.skip is None), None)
        if planned is None:
            self.book.harness = {"overhead_ns": None, "why": "nothing is measured"}
            return
        self.tell(Stage("overhead", "Measuring the harness itself"))
        found = self.jobs.engines[planned.engine]
        job = Job(
            kind="overhead",
            engine_ref=found.runtime.ref,
            engine_id=planned.engine,
            options=found.info.options,
            threads=self.jobs.threads,
        )
        with self.spending("overhead"):
            outcome = supervise(
                job,
                limits=self.book.policy.worker,
                deadline_s=self.book.policy.worker.probe_deadline_s,
                interrupts=self.interrupts,
                marker=f"{self.marker}/overhead",
                python=found.runtime.python,
                log_path=self.book.folder.logs / "overhead.log",
            )
        self.interrupts.check()
        result = outcome.result
        harness: dict[str, Any]
        if result is not None and outcome.status == "ok" and result.harness:
            harness = {"overhead_ns": dict(result.harness), "engine": planned.engine}
        else:
            harness = {"overhead_ns": None, "why": outcome.why or "nothing was measured"}
        self.book.harness = harness
        self.book.fact("harness", harness)

    def run(self) -> bool:
        """Run attempts until every entry is done or the time budget ends the run; return whether
        every entry is.

        Raises KeyboardInterrupt as soon as a signal has come; what was measured until then is
        on the disk.
        """
        book = self.book
        while True:
            self.interrupts.check()
            action = next_action(
                book.plan,
                book.judged,
                self.clock.now_ns(),
                book.policy,
                quick=book.request.quick,
                deadline_ns=self.deadline_ns,
                hangs=hangs_of(book.prepared),
            )
            if isinstance(action, Done):
                if not action.complete:
                    book.end_by_budget()
                return action.complete
            if isinstance(action, Wait):
                self.wait_until(action.until_ns, f"two attempts of {action.entry} start apart")
            elif self.models.wants(action.entry):
                # Compiling takes time, so whether an attempt still fits is asked again after it.
                self.prepare(action.entry, action.n)
            else:
                self._attempt(action)

    @contextmanager
    def spending(self, stage: str) -> Iterator[None]:
        """Count the time of a stretch outside attempts under ``stage``."""
        began = time.monotonic_ns()
        try:
            yield
        finally:
            spent = self.book.spent_ns
            spent[stage] = spent.get(stage, 0) + time.monotonic_ns() - began

    def wait_until(self, until_ns: int, why: str) -> None:
        """Wait until an instant of the run's clock and tell ``why``. Raises KeyboardInterrupt as
        soon as a signal comes."""
        left_ns = until_ns - self.clock.now_ns()
        self.tell(
            Stage(
                "spacing",
                f"Waiting: {why}",
                until_ns=time.monotonic_ns() + max(0, left_ns),
            )
        )
        with self.spending("spacing"):
            self.interrupts.wait(left_ns / 1e9)

    def prepare(self, planned: Planned, before: int) -> None:
        """See to it that the entry's compiled model is there and loads, and write down what it
        took. Where that fails, the attempt fails too and says why; nothing is decided here."""
        book = self.book
        doing = "Checking the compiled model of" if self.models.kept(planned) else "Compiling for"
        self.tell(Stage("compile", f"{doing} {planned}"))
        started, spent = self.clock.now_ns(), book.spent_ns.get("compile", 0)
        with self.spending("compile"):
            made = self.models.prepare(planned, self.stamps, partial(self._compile, planned))
        known = replacements()
        preparation = Preparation(
            engine=planned.engine,
            workload=planned.workload,
            variant=planned.variant,
            before=before,
            started_ns=started,
            wall_ns=book.spent_ns["compile"] - spent,
            **{**asdict(made), "why": redact(made.why, known) if made.why else None},
        )
        with self.interrupts.deferred():
            book.enter_preparation(preparation)

    def _compile(self, planned: Planned, job: Job) -> Outcome:
        outcome = supervise(
            job,
            limits=self.book.policy.worker,
            deadline_s=self.book.policy.worker.attempt_deadline_s,
            interrupts=self.interrupts,
            marker=f"{self.marker}/{'/'.join(planned.key)}/0",
            python=self.python(planned),
            log_path=self._path("logs", planned, 0, "log"),
        )
        self.interrupts.check()
        if outcome.result is not None:
            self.stamps.update(outcome.result.stamps)
        return outcome

    def _attempt(self, action: Run) -> None:
        book, planned, n = self.book, action.entry, action.n
        job = self.jobs.measure(
            planned,
            n,
            self.stamps,
            self._path("samples", planned, n, "i64"),
            self.models.stamps(planned),
        )
        left = time_left(
            book.plan,
            book.judged,
            self.clock.now_ns(),
            book.policy,
            quick=book.request.quick,
            hangs=hangs_of(book.prepared),
        )
        book.journal.append(
            "starting",
            {
                "entry": list(planned.key),
                "n": n,
                "seed": job.seed,
                "started_ns": self.clock.now_ns(),
            },
        )
        marks = next(engine_marks(e) for e in book.engines if e.id == planned.engine)
        self.tell(AttemptStarted(planned, n, book.done(), left.attempts, left.seconds, marks))
        watch = SleepWatch()
        outcome = supervise(
            job,
            limits=book.policy.worker,
            deadline_s=book.policy.worker.attempt_deadline_s,
            interrupts=self.interrupts,
            marker=f"{self.marker}/{'/'.join(planned.key)}/{n}",
            python=self.python(planned),
            log_path=self._path("logs", planned, n, "log"),
        )
        known = replacements()
        attempt = attempt_of(
            n,
            job.seed,
            outcome,
            self.clock,
            slept_ns=watch.slept_ns(),
            redact=lambda text: redact(text, known),
        )
        with self.interrupts.deferred():
            if outcome.result is not None:
                self.stamps.update(outcome.result.stamps)
            self.models.attempted(planned, outcome)
            judged = book.enter(planned, attempt)
        self.tell(
            AttemptEnded(
                planned,
                attempt,
                judged.tops,
                judged.can_count,
                judged.why_not,
                judged.why,
                marks,
            )
        )

    def python(self, planned: Planned) -> str | None:
        """Return the interpreter of the entry's engine where it is not this one."""
        return self.jobs.engines[planned.engine].runtime.python

    def _path(self, kind: str, planned: Planned, n: int, suffix: str) -> Path:
        name = _UNSAFE.sub("-", ".".join(planned.key))
        folder = self.book.folder.samples if kind == "samples" else self.book.folder.logs
        return folder / f"{name}.{n}.{suffix}"
