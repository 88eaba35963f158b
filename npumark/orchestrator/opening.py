"""Opening the book of a new run from its preparation."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from npumark import paths
from npumark.orchestrator import resume
from npumark.orchestrator.book import Book, machine_facts, now, suite_of
from npumark.orchestrator.clock import RunClock
from npumark.orchestrator.discover import Found
from npumark.orchestrator.journal import (
    SCHEMA,
    Journal,
)
from npumark.orchestrator.preparation import Prepared
from npumark.orchestrator.surroundings import Parts
from npumark.pack.verify import EnsureResult
from npumark.record.history import RunFolder, run_folder, runs_dir
from npumark.record.model import (
    EngineRecord,
    Environment,
)
from npumark.score.derive import engine_facts
from npumark.score.planned import Planned


def begin(
    prepared: Prepared,
    pack: EnsureResult,
    environment: Environment,
    clock: RunClock,
    threads: int,
    spent_ns: dict[str, int],
) -> Book:
    """Make a new run's folder with its journal's header in it, whole or not at all."""
    root = paths.make(runs_dir())
    created = now()
    run_id = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"
    used = used_engines(prepared.runs)
    found = [f for f in prepared.survey.found if f.info.available and f.info.id in used]
    suite = suite_of(
        prepared.manifest, prepared.policy, verified=pack.verified, why_not=pack.why_not
    )
    machine = machine_facts()
    header: dict[str, Any] = {
        "schema": SCHEMA,
        "run_id": run_id,
        "created": created,
        "origin_ns": clock.origin_ns,
        "wall_ns": time.time_ns() - clock.now_ns(),
        "request": resume.request_to_json(prepared.request),
        "plan": resume.plan_to_json(prepared.plan),
        "box": {
            "solo": [s.model_dump(mode="json") for s in prepared.box.solo],
            "plan": resume.plan_to_json(prepared.box.plan),
        },
        "engines": [asdict(f) for f in found],
        "owner": {f.info.id: prepared.survey.owner[f.info.id] for f in found},
        "processors": [p.model_dump(mode="json") for p in prepared.survey.processors],
        "machine": machine,
        "suite": suite.model_dump(mode="json"),
        "environment": environment.model_dump(mode="json"),
        "threads": threads,
        "state": resume.state_now(prepared.manifest, prepared.policy, prepared.survey.found),
    }
    unborn = RunFolder(root / f".{run_id}")
    try:
        for place in (unborn.path, unborn.samples, unborn.logs):
            place.mkdir()
        with Journal(unborn.journal) as journal:
            journal.append("header", header)
        folder = run_folder(run_id)
        unborn.path.rename(folder.path)
    except OSError as fault:
        raise paths.unwritable(root / run_id, fault) from fault
    return Book(
        folder=folder,
        journal=Journal(folder.journal),
        run_id=run_id,
        created=created,
        request=prepared.request,
        policy=prepared.policy,
        manifest=prepared.manifest,
        plan=prepared.plan,
        engines=engine_records(found, prepared.survey.owner, threads),
        processors=prepared.survey.processors,
        machine=machine,
        suite=suite,
        environment=environment,
        parts=Parts((), watched=not environment.skipped),
        box_solo=prepared.box.solo,
        box_plan=prepared.box.plan,
        spent_ns=spent_ns,
    )


def engine_records(
    found: Iterable[Found], owner: Mapping[str, str], thread_count: int
) -> tuple[EngineRecord, ...]:
    """Return the engines of a run as its record tells them before anything is measured."""
    requested = {"threads": thread_count}
    return tuple(engine_facts(f.info, owner[f.info.id], requested, f.runtime.held()) for f in found)


def used_engines(plan: tuple[Planned, ...]) -> set[str]:
    """Return the ids of the engines that a plan measures."""
    return {p.engine for p in plan}
