"""Opening the book of a stopped run again, from its journal."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from npumark.errors import IntegrityError, SetupError, UsageError
from npumark.orchestrator import resume
from npumark.orchestrator.attempts import killed_attempt
from npumark.orchestrator.book import Book, suite_of
from npumark.orchestrator.box_attempts import killed_box_attempt
from npumark.orchestrator.box_plan import BoxAhead
from npumark.orchestrator.clock import RunClock
from npumark.orchestrator.discover import Found, Runtime
from npumark.orchestrator.environments import standing
from npumark.orchestrator.journal import (
    Journal,
    Replay,
    broken,
    entry_key,
    lack,
    misfit,
    read_journal,
    replay,
)
from npumark.orchestrator.opening import engine_records, used_engines
from npumark.orchestrator.request import RunRequest
from npumark.orchestrator.surroundings import Part, Parts, rejoin
from npumark.orchestrator.survey import Survey
from npumark.pack.manifest import Manifest
from npumark.pack.verify import EnsureResult
from npumark.policy import Policy
from npumark.record.box import BoxAttempt, BoxSolo
from npumark.record.history import LATEST, RunFolder, find, list_runs
from npumark.record.model import (
    Attempt,
    Environment,
    Preparation,
    Processor,
    ResumeEvent,
    Suite,
)
from npumark.score.attempt import Role
from npumark.score.box import judged
from npumark.score.planned import Planned
from npumark.worker.protocol import EngineInfo

_CHANGEABLE = frozenset(
    {"resume", "out", "force", "time_budget_s", "strict", "wait_idle", "skip_preconditions", "argv"}
)
"""What a resumption may ask for itself; all else is as the run was begun."""

_ODD = (ValueError, KeyError, TypeError, AttributeError, OverflowError)
"""What reading a journal of another form raises; a ValidationError is a ValueError."""

_OPTIONS = {
    "engines": "--engine",
    "workloads": "--workload",
    "variants": "--variant",
    "box_roles": "--role",
    "box_cards": "--cards",
    "box_from": "--from",
}
"""The options that are not called as the request calls them."""


def stopped_run(request: RunRequest) -> tuple[RunFolder, Replay]:
    """Return the run that ``--resume`` means and what its journal says.

    ``last`` is the newest that is not complete. Raises UsageError where there is none, where
    it is complete, or where the request would change what it was begun as.
    """
    odd = [
        "--no-box" if value == "off" else _OPTIONS.get(name, f"--{name.replace('_', '-')}")
        for name, value in asdict(request).items()
        if name not in _CHANGEABLE and value != getattr(RunRequest(), name)
    ]
    if odd:
        raise UsageError(
            f"--resume completes a run as it was begun; it cannot take {', '.join(sorted(odd))}",
            "Leave that out, or start a new run.",
        )
    folder = _newest_stopped() if request.resume == LATEST else find(str(request.resume))
    if not folder.journal.exists():
        raise UsageError(
            f"the run {folder.run_id} has no journal to resume from",
            "`npumark history` lists the saved runs; a whole new one is `npumark run`.",
        )
    told = replay(read_journal(folder.journal), folder.journal)
    _check_header(folder, told)
    if told.finished:
        raise UsageError(
            f"the run {folder.run_id} is complete",
            f"`npumark report {folder.run_id}` shows it.",
        )
    return folder, told


def _check_header(folder: RunFolder, told: Replay) -> None:
    """Raise IntegrityError unless the header, and all that resuming reads of it, is whole."""
    header = told.header
    if header.get("run_id") != folder.run_id:
        raise broken(folder.journal, f"line 1 is of another run, {header.get('run_id')!r:.60}")
    try:
        str(header["created"])
        resume.request_from_json(header["request"])
        plan = {p.key for p in resume.plan_from_json(header["plan"])}
        _box_before(header)
        for engine in header["engines"]:
            _found(engine)
        dict(header["owner"]), dict(header["machine"]), dict(header["state"])
        for processor in header["processors"]:
            Processor.model_validate(processor)
        Suite.model_validate(header["suite"])
        if int(header["threads"]) < 1:
            raise ValueError("threads is not a count")
        _check_stamps(header)
    except _ODD as fault:
        raise misfit(folder.journal, f"line 1 {lack(fault)}", header) from fault
    try:
        for part in told.resumed:
            ResumeEvent(at_ns=part["at_ns"], changed=part["changed"])
            _check_stamps(part)
        dict(told.facts.get("harness", {}))
        for seen in told.parts:
            Part(**seen)
        for made in told.prepared:
            Preparation.model_validate(made)
        for attempt in told.box:
            BoxAttempt.model_validate(attempt)
        if (flown := told.box_in_flight) is not None:
            killed_box_attempt(flown["role"], flown["n"], flown["started_ns"], 0.0)
    except _ODD as fault:
        why = f"a line after the first {lack(fault)}"
        raise misfit(folder.journal, why, header) from fault
    for key, attempts in told.attempts.items():
        for number, attempt in zip(told.numbers[key], attempts, strict=True):
            if key not in plan:
                raise broken(folder.journal, f"line {number} is of no entry of the plan")
            try:
                Attempt.model_validate(attempt)
            except _ODD as fault:
                raise misfit(folder.journal, f"line {number} {lack(fault)}", header) from fault
    if told.in_flight is not None and entry_key(told.in_flight) not in plan:
        raise broken(folder.journal, "its last attempt is of no entry of the plan")


def _check_stamps(body: Mapping[str, Any]) -> None:
    int(body["origin_ns"]), int(body["wall_ns"])
    Environment.model_validate(body["environment"])


def resumed_request(request: RunRequest, told: Replay) -> RunRequest:
    """Return what a resumed run asks for: as it was begun, but for what may change."""
    try:
        begun = resume.request_from_json(told.header["request"])
    except _ODD as fault:
        raise _unreadable(fault) from fault
    return replace(
        begun,
        resume=request.resume,
        out=request.out or begun.out,
        force=request.force or begun.force,
        time_budget_s=request.time_budget_s,
        strict=request.strict,
        wait_idle=request.wait_idle,
        skip_preconditions=request.skip_preconditions or begun.skip_preconditions,
    )


def planned_before(told: Replay, manifest: Manifest) -> tuple[Planned, ...]:
    """Return a stopped run's plan. Raises UsageError where the pack no longer has all of it."""
    try:
        plan = resume.plan_from_json(told.header["plan"])
        box = box_before(told)
    except _ODD as fault:
        raise _unreadable(fault) from fault
    for planned in (*plan, *box.plan):
        workload = manifest.workloads.get(planned.workload)
        if workload is None or planned.graph_variant not in {v.id for v in workload.variants}:
            raise UsageError(
                f"the pack no longer has {planned.workload}/{planned.graph_variant}, "
                "which this run measures",
                "Start a new run.",
            )
    return plan


def box_before(told: Replay) -> BoxAhead:
    """Return what another record gave the box stage of a stopped run."""
    return _box_before(told.header)


def _box_before(header: Mapping[str, Any]) -> BoxAhead:
    box = header["box"]
    solo = tuple(BoxSolo.model_validate(s) for s in box["solo"])
    return BoxAhead((), solo, resume.plan_from_json(box["plan"]))


def reopen(
    folder: RunFolder,
    told: Replay,
    request: RunRequest,
    policy: Policy,
    manifest: Manifest,
    plan: tuple[Planned, ...],
    survey: Survey,
    pack: EnsureResult,
    environment: Environment,
) -> tuple[Book, RunClock]:
    """Open a stopped run's book again: attempts replayed, the resumption written down.

    The attempt that was in flight when npumark ended, of an entry or of the box stage, is
    entered as interrupted.
    """
    header = told.header
    try:
        box = box_before(told)
        used = used_engines((*plan, *box.plan))
        state = resume.state_now(manifest, policy, survey.found)
        changed = resume.changes(header["state"], state, used)
        clock = _clock(told, rebooted="boot" in changed)
        at_ns = max(clock.now_ns(), told.last_ns)
        before = Suite.model_validate(header["suite"])
        book = Book(
            folder=folder,
            journal=Journal(folder.journal),
            run_id=header["run_id"],
            created=header["created"],
            request=request,
            policy=policy,
            manifest=manifest,
            plan=plan,
            engines=engine_records(engines_before(told).values(), header["owner"], threads(told)),
            processors=tuple(Processor.model_validate(p) for p in header["processors"]),
            machine=header["machine"],
            suite=suite_of(
                manifest,
                policy,
                verified=before.verified and pack.verified,
                why_not=before.why_not or pack.why_not,
            ),
            environment=rejoin(_environment(told), environment),
            parts=Parts([Part(**p) for p in told.parts], watched=not environment.skipped),
            resumed=[
                *(ResumeEvent(at_ns=r["at_ns"], changed=r["changed"]) for r in told.resumed),
                ResumeEvent(at_ns=at_ns, changed=changed),
            ],
            prepared=[Preparation.model_validate(made) for made in told.prepared],
            box=[judged(BoxAttempt.model_validate(a), manifest, policy) for a in told.box],
            box_solo=box.solo,
            box_plan=box.plan,
            harness=told.facts.get("harness", {}),
            spent_ns=dict(told.spent_ns),
        )
        by_key = {p.key: p for p in plan}
        for key, attempts in told.attempts.items():
            for attempt in attempts:
                book.take(by_key[key], Attempt.model_validate(attempt))
    except _ODD as fault:
        raise _unreadable(fault) from fault
    book.journal.append(
        "resumed",
        {
            "at_ns": at_ns,
            "changed": changed,
            "origin_ns": clock.origin_ns,
            "wall_ns": time.time_ns() - clock.now_ns(),
            "environment": book.environment.model_dump(mode="json"),
        },
    )
    if told.in_flight is not None:
        flown = told.in_flight
        killed = killed_attempt(flown["n"], flown["seed"], flown["started_ns"])
        book.enter(by_key[entry_key(flown)], killed)
    if told.box_in_flight is not None:
        flown = told.box_in_flight
        lost = killed_box_attempt(
            flown["role"], flown["n"], flown["started_ns"], policy.box.window_s
        )
        book.enter_box(judged(lost, manifest, policy))
    return book, clock


def require_engines(
    folder: RunFolder,
    told: Replay,
    request: RunRequest,
    policy: Policy,
    manifest: Manifest,
    plan: tuple[Planned, ...],
    survey: Survey,
) -> None:
    """Raise SetupError, with what to do, where an engine that still has attempts to run is not
    available now: they would all fail for what is no fault of the engine's. Nothing is written.
    """
    try:
        roles: dict[str, Role] = {p["id"]: p["role"] for p in told.header["processors"]}
        wanted = resume.wanting(
            plan,
            {k: [Attempt.model_validate(a) for a in made] for k, made in told.attempts.items()},
            [Preparation.model_validate(made) for made in told.prepared],
            {engine: roles[processor] for engine, processor in told.header["owner"].items()},
            manifest,
            policy,
            quick=request.quick,
        )
    except _ODD as fault:
        raise _unreadable(fault) from fault
    gone = sorted(wanted - {f.info.id for f in survey.found if f.info.available})
    if not gone:
        return
    name = gone[0]
    lines = (f.info for f in survey.found if name == f.info.id or name.startswith(f"{f.info.id}-"))
    reason = next((info.reason for info in lines if info.reason), "nothing is known of it")
    many = f", as are {', '.join(gone[1:])}" if len(gone) > 1 else ""
    environment = engines_before(told)[name].runtime.environment
    first = "Make it available again (`npumark engines` lists what there is)"
    if environment is not None and standing(environment).installed is None:
        first = f"Run `npumark engines install {environment}`"
    raise SetupError(
        f"the engine {name} has attempts left to run and is not available{many}: {reason}",
        f"{first}, then `npumark run --resume {folder.run_id}`; what was measured is kept.",
    )


def engines_before(told: Replay) -> dict[str, Found]:
    """Return the engines that a stopped run measures, as its first probes described them."""
    try:
        return {e["info"]["id"]: _found(e) for e in told.header["engines"]}
    except _ODD as fault:
        raise _unreadable(fault) from fault


def threads(told: Replay) -> int:
    return int(told.header["threads"])


def _clock(told: Replay, *, rebooted: bool) -> RunClock:
    last = told.resumed[-1] if told.resumed else told.header
    then = int(last["wall_ns"]) + told.last_ns
    return RunClock.resume(
        int(last["origin_ns"]), told.last_ns, time.time_ns() - then, rebooted=rebooted
    )


def _environment(told: Replay) -> Environment:
    last = told.resumed[-1] if told.resumed else told.header
    return Environment.model_validate(last["environment"])


def _found(doc: Mapping[str, Any]) -> Found:
    info = dict(doc["info"])
    for name in ("variants", "extra_variants"):
        info[name] = tuple(info[name])
    return Found(EngineInfo(**info), Runtime(**doc["runtime"]))


def _newest_stopped() -> RunFolder:
    for row in list_runs():
        if row.state != "complete" and row.folder.journal.exists():
            return row.folder
    raise UsageError("there is no stopped run to resume", "`npumark run` starts a new one.")


def _unreadable(fault: Exception) -> IntegrityError:
    return IntegrityError(
        f"the journal of this run does not fit this version of npumark: it {lack(fault)}"[:300],
        "It cannot be resumed; start a new run.",
    )
