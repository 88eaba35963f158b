"""A run from request to record: what ``npumark run`` calls.

Order: the output is checked, the machine locked, engines probed, the plan made, the pack
verified, the machine watched; then attempts run one by one, each on the disk before the next; the
last record is signed.
"""

from __future__ import annotations

import shlex
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from npumark import paths
from npumark.errors import Interrupted, NpumarkError, SetupError, UsageError
from npumark.machine import cpu_limits
from npumark.orchestrator import compiled, opening, reopening, surroundings
from npumark.orchestrator.awake import KeepAwake
from npumark.orchestrator.book import Book, machine_facts
from npumark.orchestrator.box import BoxStage, places
from npumark.orchestrator.box_plan import BoxAhead, stage_attempts, stage_s
from npumark.orchestrator.clock import NS, RunClock
from npumark.orchestrator.discover import Found
from npumark.orchestrator.events import Checked, Listener, PlanMade, Saved, Stage
from npumark.orchestrator.exit_code import box_exit_code, exit_code
from npumark.orchestrator.interrupts import Interrupts
from npumark.orchestrator.jobs import JobMaker
from npumark.orchestrator.journal import Replay
from npumark.orchestrator.lock import Holder, measuring_with
from npumark.orchestrator.measuring import Measuring
from npumark.orchestrator.plan import Estimate
from npumark.orchestrator.preparation import (
    ensure_pack,
    manifest_of,
    missing_bytes,
    prepare,
    resident_bytes,
    tell_failed,
    watching_s,
)
from npumark.orchestrator.request import RunRequest
from npumark.orchestrator.signature import sign_saved
from npumark.orchestrator.survey import Survey, probe_all
from npumark.orchestrator.teller import Teller
from npumark.pack import store
from npumark.pack.verify import EnsureResult
from npumark.policy import Policy, load_policy
from npumark.record.files import check_output, read_record, write_record
from npumark.record.history import RunFolder
from npumark.record.model import Record
from npumark.score.planned import Planned


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run came to. ``path`` is the record in the run's own folder."""

    record: Record
    path: Path
    exit_code: int


@dataclass(frozen=True, slots=True)
class DryRun:
    """What a run would do. ``missing_bytes`` would be written to ``pack_root``, whose disk has
    ``free_bytes`` left. ``box_s`` is how long all cards at once take, at the least and at the
    most, ``box_attempts`` how many attempts that is. ``large_why`` says why ``--large-peak`` adds
    nothing, null where it does or was not given."""

    plan: tuple[Planned, ...]
    survey: Survey
    estimate: Estimate
    idle_window_s: float
    missing_bytes: int
    free_bytes: int
    pack_root: Path
    box: BoxAhead
    box_s: tuple[float, float]
    box_attempts: tuple[int, int]
    large_why: str | None


def execute(
    request: RunRequest, listen: Listener = lambda _: None, *, policy: Policy | None = None
) -> Outcome:
    """Carry out a run, or complete a stopped one, and return its record.

    A signal ends the workers within two seconds; what was measured is saved, and the outcome's
    exit code is 130. ``policy`` replaces the shipped one (its hash is in the record, which is
    then never comparable). Raises UsageError, SetupError, NothingToMeasure, PackError before
    anything is measured, Interrupted where a signal came before then, and SetupError where the
    disk fails later.
    """
    rules = policy or load_policy()
    tell = Teller(listen)
    stopped = reopening.stopped_run(request) if request.resume is not None else None
    asked = reopening.resumed_request(request, stopped[1]) if stopped else request
    _check_out(asked, stopped[0].run_id if stopped else None)
    words = shlex.join(("npumark", *(request.argv or ("run",))))
    try:
        with Interrupts() as interrupts, measuring_with(paths.engines_dir(), words) as holder:
            if stopped:
                parts = _resumed(*stopped, asked, rules, interrupts, holder, tell)
            else:
                parts = _new(asked, rules, interrupts, holder, tell)
            return _measure(parts, asked, interrupts, tell)
    except KeyboardInterrupt:
        raise Interrupted(
            "stopped before anything was measured", "Nothing is saved; start it again."
        ) from None


def dry_run(
    request: RunRequest, listen: Listener = lambda _: None, *, policy: Policy | None = None
) -> DryRun:
    """Return what a run would do, without writing or measuring anything.

    Raises as ``execute`` does before it measures.
    """
    rules = policy or load_policy()
    if request.resume is not None:
        raise UsageError(
            "--dry-run shows what a new run would do; it cannot take --resume",
            "Leave one of the two out.",
        )
    _check_out(request, None)
    try:
        with (
            Interrupts() as interrupts,
            measuring_with(paths.engines_dir(), "npumark run --dry-run") as holder,
        ):
            prepared = prepare(request, rules, interrupts, holder.marker, Teller(listen))
    except KeyboardInterrupt:
        raise Interrupted("stopped before the plan was made", "Start it again.") from None
    root = store.pack_root(prepared.manifest)
    place = next(p for p in (root, *root.parents) if p.exists())
    return DryRun(
        plan=prepared.plan,
        survey=prepared.survey,
        estimate=prepared.estimate,
        idle_window_s=watching_s(request, rules),
        missing_bytes=missing_bytes(prepared.manifest, prepared.runs),
        free_bytes=shutil.disk_usage(place).free,
        pack_root=root,
        box=prepared.box,
        box_s=stage_s(prepared.box, rules, quick=request.quick),
        box_attempts=stage_attempts(prepared.box, rules, quick=request.quick),
        large_why=prepared.large_why,
    )


class _Spent:
    """Time spent before the book of a run is open, by stage."""

    def __init__(self) -> None:
        self.ns: dict[str, int] = {}

    @contextmanager
    def on(self, stage: str) -> Iterator[None]:
        began = time.monotonic_ns()
        yield
        self.ns[stage] = self.ns.get(stage, 0) + time.monotonic_ns() - began


def _check_out(request: RunRequest, run_id: str | None) -> None:
    if request.out is not None:
        check_output(request.out, force=request.force or _is_of_run(request.out, run_id))
    paths.make(paths.data_dir())


def _is_of_run(path: Path, run_id: str | None) -> bool:
    """Say whether a file is an earlier record of the very run that is being completed."""
    if run_id is None or not path.exists():
        return False
    try:
        return read_record(path).payload.run_id == run_id
    except NpumarkError:
        return False


def _new(
    request: RunRequest, policy: Policy, interrupts: Interrupts, holder: Holder, tell: Teller
) -> BoxStage:
    spent = _Spent()
    with spent.on("discover"):
        prepared = prepare(request, policy, interrupts, holder.marker, tell)
    with spent.on("pack"):
        pack = ensure_pack(prepared.manifest, prepared.runs, tell)
    with spent.on("preconditions"):
        resident = resident_bytes(prepared.manifest, prepared.runs)
        environment = surroundings.look(request, policy, resident, tell)
    environment = surroundings.with_rebuilt(environment, pack.rebuilt)
    environment = surroundings.with_unavailable(environment, prepared.survey.failed)
    tell(Checked(environment))
    interrupts.check()
    clock, threads = RunClock.start(), cpu_limits.thread_count()
    with interrupts.deferred():
        book = opening.begin(prepared, pack, environment, clock, threads, spent.ns)
        book.save()
    engines = {p.engine: prepared.survey.engine(p.engine) for p in prepared.runs}
    return _measuring(
        book, clock, engines, prepared.survey, pack, threads, interrupts, holder, tell, spent
    )


def _resumed(
    folder: RunFolder,
    told: Replay,
    request: RunRequest,
    policy: Policy,
    interrupts: Interrupts,
    holder: Holder,
    tell: Teller,
) -> BoxStage:
    spent = _Spent()
    manifest = manifest_of(request)
    plan = reopening.planned_before(told, manifest)
    runs = (*plan, *reopening.box_before(told).plan)
    tell(Stage("discover", "Looking for engines"))
    with spent.on("discover"):
        survey = probe_all(request.virtual, policy, interrupts, holder.marker)
    tell_failed(survey, tell, request)
    reopening.require_engines(folder, told, request, policy, manifest, plan, survey)
    tell(PlanMade(plan, None))
    with spent.on("pack"):
        pack = ensure_pack(manifest, runs, tell)
    with spent.on("preconditions"):
        environment = surroundings.look(request, policy, resident_bytes(manifest, runs), tell)
    environment = surroundings.with_rebuilt(environment, pack.rebuilt)
    environment = surroundings.with_unavailable(environment, survey.failed)
    tell(Checked(environment))
    interrupts.check()
    with interrupts.deferred():
        book, clock = reopening.reopen(
            folder, told, request, policy, manifest, plan, survey, pack, environment
        )
        for stage, ns in spent.ns.items():
            book.spent_ns[stage] = book.spent_ns.get(stage, 0) + ns
        book.save()
    # One that is gone has no attempts left; what it was is known of its entries all the same.
    engines = reopening.engines_before(told)
    engines.update({f.info.id: f for f in survey.found if f.info.available})
    threads = reopening.threads(told)
    return _measuring(book, clock, engines, survey, pack, threads, interrupts, holder, tell, spent)


def _measuring(
    book: Book,
    clock: RunClock,
    engines: dict[str, Found],
    survey: Survey,
    pack: EnsureResult,
    threads: int,
    interrupts: Interrupts,
    holder: Holder,
    tell: Teller,
    spent: _Spent,
) -> BoxStage:
    jobs = JobMaker(
        manifest=book.manifest,
        policy=book.policy,
        engines=engines,
        pack_root=pack.root,
        cache_root=compiled.root(),
        run_id=book.run_id,
        quick=book.request.quick,
        threads=threads,
        # As the computer is now: a run that is resumed may have met another system or driver.
        host=compiled.host_facts(machine_facts()),
        drivers=survey.details(),
    )
    runs = [p for p in (*book.plan, *book.box_plan) if p.skip is None]
    compiled.prune(jobs.cache_root, [jobs.cache_dir(p) for p in runs])
    budget = book.request.time_budget_s
    # The budget is the whole command's: what came before has used some of it.
    used = sum(spent.ns.values())
    deadline = None if budget is None else clock.now_ns() + round(budget * NS) - used
    measuring = Measuring(
        book, jobs, clock, interrupts, holder.marker, tell, dict(pack.stamps), deadline
    )
    return BoxStage(measuring, places(survey), survey.owner.keys())


def _measure(box: BoxStage, request: RunRequest, interrupts: Interrupts, tell: Teller) -> Outcome:
    """Run the attempts, and the box stage after them, and save what came of them, whatever ends
    them.

    Signals are deferred throughout: the loops look for them themselves wherever they wait.
    """
    run, book = box.measuring, box.measuring.book
    interrupted = False
    with interrupts.deferred(), book.journal:
        try:
            with KeepAwake() as awake:
                book.parts.notes["sleep_held_off"] = awake.state()
                book.parts.begin()
                try:
                    run.overhead()
                    if run.run():
                        box.run()
                except KeyboardInterrupt:
                    interrupted = True
                book.parts.notes["sleep_held_off"] = awake.state()
                book.end_part()
            record = book.save()
            if record.payload.complete:
                book.journal.append("finished", {"at_ns": run.clock.now_ns()})
            record = sign_saved(book.folder, record, tell)
        except SetupError as fault:
            raise _kept(fault, book) from fault
        if request.out is not None:
            try:
                mine = _is_of_run(request.out, book.run_id)
                write_record(request.out, record, force=request.force or mine)
            except NpumarkError as fault:
                tell(Saved(book.folder.record, record.payload.complete))
                raise _not_written(fault, book, complete=record.payload.complete) from fault
        tell(Saved(request.out or book.folder.record, record.payload.complete))
    return Outcome(
        record, book.folder.record, Interrupted.exit_code if interrupted else _code(book, record)
    )


def _code(book: Book, record: Record) -> int:
    if book.request.box == "only":
        return box_exit_code(record.payload)
    peaks = {p.workload for p in book.plan if p.kind == "peak" and p.tier == "peak"}
    return exit_code(record.payload, peaks)


def _kept(fault: SetupError, book: Book) -> SetupError:
    """Tell, beside what went wrong, that what was measured until then is kept."""
    hint = f"{fault.hint} " if fault.hint else ""
    return SetupError(
        fault.message,
        f"{hint}What was measured is in {book.folder.path}; "
        f"`npumark run --resume {book.run_id}` completes it.",
    )


def _not_written(fault: NpumarkError, book: Book, *, complete: bool) -> NpumarkError:
    """Tell, beside why the output was not written, that the record is kept and where."""
    hint = f"The record is saved at {book.folder.record} and can be copied from there."
    if not complete:
        hint += f" `npumark run --resume {book.run_id}` completes the run."
    kind = SetupError if isinstance(fault, SetupError) else UsageError
    return kind(fault.message, hint)
