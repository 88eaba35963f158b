"""The box stage: every card of a role at once, after everything else (methodology §3b)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from npumark.errors import SetupError
from npumark.machine.numa import Near, near
from npumark.machine.sensors import available_memory
from npumark.orchestrator.box_attempts import box_attempt_of, unmade_box_attempt
from npumark.orchestrator.box_plan import attempt_s
from npumark.orchestrator.clock import NS, SleepWatch
from npumark.orchestrator.events import BoxEnded, BoxStarted
from npumark.orchestrator.measuring import Measuring
from npumark.orchestrator.memory import lack_of_memory, needed_bytes
from npumark.orchestrator.redaction import redact, replacements
from npumark.orchestrator.survey import Survey
from npumark.orchestrator.together import Member, run_together
from npumark.record.box import BoxAttempt, BoxSolo
from npumark.score.box import RoleCards, judged, role_cards, stage_why, wants_attempt
from npumark.worker.protocol import Job


def places(survey: Survey) -> Callable[[str], Near]:
    """Return what tells the NUMA node nearest to the card of an available engine."""

    def place(engine: str) -> Near:
        if survey.engine(engine).info.virtual:
            return Near(None, None, "a virtual card is near no node")
        return near(survey.bus.get(survey.owner[engine]))

    return place


@dataclass(slots=True)
class BoxStage:
    """Carries the box stage of a run, whose scored stages ``measuring`` has ended, to its end.

    ``near`` tells which CPUs are nearest to an engine's card, ``here`` are the engines that are
    available now: of a run that is resumed one may be gone.
    """

    measuring: Measuring
    near: Callable[[str], Near]
    here: Collection[str]

    def run(self) -> None:
        """Make attempts until no role wants another one, or the time budget ends the run.

        Raises KeyboardInterrupt as soon as a signal has come, SetupError where an engine that is
        wanted is gone; what was measured until then is on the disk.
        """
        book = self.measuring.book
        stands = book.payload()
        if stage_why(stands.plan) is not None:
            return
        for cards in role_cards(
            stands.engines, stands.processors, stands.plan.box, stands.entries, book.manifest
        ):
            if not self._role(cards):
                book.end_by_budget()
                return

    def _role(self, cards: RoleCards) -> bool:
        """Return whether the role was brought to its end within the time budget."""
        run, book = self.measuring, self.measuring.book
        while True:
            run.interrupts.check()
            own = [a for a in book.box if a.role == cards.role]
            if not wants_attempt(cards, own, book.policy, quick=book.request.quick):
                return True
            self._require(cards.solos)
            now, due = run.clock.now_ns(), self._due_ns()
            ends = max(now, due) + self._expected_ns(cards, own)
            if run.deadline_ns is not None and ends > run.deadline_ns:
                return False
            if due > now:
                run.wait_until(due, f"two attempts at all {cards.role} cards start apart")
                continue
            wanting = [p for s in cards.solos if run.models.wants(p := book.planned_of(s))]
            for planned in wanting:
                run.prepare(planned, len(book.attempts.get(planned.key, ())) + 1)
            if wanting:
                continue  # compiling takes time: whether an attempt still fits is asked again
            if lack := self._no_memory(cards.solos):
                window_s = book.policy.box.window_s
                unmade = unmade_box_attempt(cards.role, len(own) + 1, now, window_s, lack)
                self._enter(cards, unmade)
            else:
                self._attempt(cards, len(own) + 1)

    def _no_memory(self, solos: Sequence[BoxSolo]) -> str | None:
        """Return why the sessions of all cards would not fit into memory, null where they may."""
        book = self.measuring.book
        needed = sum(
            needed_bytes(book.planned_of(solo), book.manifest, book.policy) for solo in solos
        )
        lack = lack_of_memory(needed, available_memory())
        return lack and f"all cards at once: {lack}"

    def _require(self, solos: Sequence[BoxSolo]) -> None:
        gone = sorted({s.engine for s in solos} - set(self.here))
        if gone:
            raise SetupError(
                f"all cards are to be measured at once, and {', '.join(gone)} "
                f"{'is' if len(gone) == 1 else 'are'} not available any more",
                "`npumark engines` tells why.",
            )

    def _due_ns(self) -> int:
        """Return when an attempt may start: the spacing after the last one, void or not."""
        book = self.measuring.book
        starts = [a.started_ns for a in book.box]
        return max(starts) + round(book.policy.repetition.spacing_s * NS) if starts else 0

    def _expected_ns(self, cards: RoleCards, own: Sequence[BoxAttempt]) -> int:
        """Return how long an attempt is expected to take: as long as the longest of those from
        which every card came back, before that what the policy fixes of it after the longest
        start of one of its cards alone."""
        whole = [a.wall_ns for a in own if a.cards and all(c.status == "ok" for c in a.cards)]
        if whole:
            return max(whole)
        book = self.measuring.book
        alone = [
            attempt.measurement
            for solo in cards.solos
            for attempt in book.attempts.get(book.planned_of(solo).key, ())
            if attempt.measurement is not None
        ]
        started = max((m.import_ns + m.verify_ns + m.load_ns for m in alone), default=0)
        return started + round(attempt_s(book.policy) * NS)

    def _attempt(self, cards: RoleCards, n: int) -> None:
        run, book = self.measuring, self.measuring.book
        nodes = [self.near(solo.engine) for solo in cards.solos]
        jobs = [
            self._job(cards, n, solo, node) for solo, node in zip(cards.solos, nodes, strict=True)
        ]
        started = run.clock.now_ns()
        book.journal.append("box_starting", {"role": cards.role, "n": n, "started_ns": started})
        run.tell(BoxStarted(cards.role, n, tuple(s.card for s in cards.solos)))
        watch, rules = SleepWatch(), book.policy
        together = run_together(
            [
                Member(
                    solo.card,
                    job,
                    f"{run.marker}/box/{cards.role}/{solo.card}/{n}",
                    run.python(book.planned_of(solo)),
                    self._path("logs", cards, n, solo, "log"),
                )
                for solo, job in zip(cards.solos, jobs, strict=True)
            ],
            limits=rules.worker,
            rules=rules.box,
            window_s=rules.box.window_s,
            ready_deadline_s=rules.worker.attempt_deadline_s,
            interrupts=run.interrupts,
        )
        known = replacements()
        attempt = box_attempt_of(
            cards,
            n,
            together,
            jobs,
            nodes,
            started_ns=started,
            wall_ns=run.clock.now_ns() - started,
            stopped=run.interrupts.seen,
            slept_ns=watch.slept_ns(),
            redact=lambda text: redact(text, known),
        )
        with run.interrupts.deferred():
            for solo, outcome in zip(cards.solos, together.outcomes, strict=True):
                if outcome.result is not None:
                    run.stamps.update(outcome.result.stamps)
                run.models.attempted(book.planned_of(solo), outcome)
            self._enter(cards, attempt)

    def _enter(self, cards: RoleCards, attempt: BoxAttempt) -> None:
        run, book = self.measuring, self.measuring.book
        with run.interrupts.deferred():
            attempt = judged(attempt, book.manifest, book.policy)
            book.enter_box(attempt)
        run.tell(BoxEnded(attempt, cards.solos))

    def _job(self, cards: RoleCards, n: int, solo: BoxSolo, node: Near) -> Job:
        run, planned = self.measuring, self.measuring.book.planned_of(solo)
        return run.jobs.window(
            planned,
            run.stamps,
            self._path("samples", cards, n, solo, "i64"),
            run.models.stamps(planned),
            seconds=run.book.policy.box.window_s,
            cpus=node.cpus or (),
        )

    def _path(self, kind: str, cards: RoleCards, n: int, solo: BoxSolo, suffix: str) -> Path:
        folder = self.measuring.book.folder
        place = folder.samples if kind == "samples" else folder.logs
        return place / f"box-{cards.role}-{n}-{solo.card}.{suffix}"
