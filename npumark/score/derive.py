"""From attempts to everything a record says about them: the one arithmetic.

``npumark run``, ``npumark verify`` and the results server all call ``derive``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from npumark.pack.manifest import Manifest
from npumark.policy import Policy
from npumark.record.box import Box, BoxAttempt
from npumark.record.model import (
    Attempt,
    EngineEnvironment,
    EngineRecord,
    Entry,
    Environment,
    Plan,
    Preparation,
    Processor,
    ResumeEvent,
    Score,
    Suite,
)
from npumark.score.attempt import Role, tera_operations
from npumark.score.box import BoxFacts, box_stage
from npumark.score.comparability import RunState, not_comparable_because, warnings
from npumark.score.delivered import delivered, winner
from npumark.score.demand import Key, hangs_of
from npumark.score.entry import JudgedRun, derive_entry, judge_run
from npumark.score.labels import engine_marks
from npumark.score.peak import engine_peak, large_peak, no_score_reason, run_score
from npumark.score.planned import Planned
from npumark.worker.protocol import EngineInfo

STAGES = ("import", "verify", "load", "warmup", "loop", "accuracy", "placement")


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What was asked for, found and measured: the inputs of every derived field.

    ``engines`` hold what their probes said; figures in them are ignored. ``attempts`` maps an
    entry's key to its attempts in order; ``box_attempts`` are those of the box stage, of each
    role in order.
    """

    plan: tuple[Planned, ...]
    attempts: Mapping[Key, Sequence[Attempt]]
    engines: Sequence[EngineRecord]
    processors: Sequence[Processor]
    options: Plan
    suite: Suite
    environment: Environment
    resumed: Sequence[ResumeEvent]
    prepared: Sequence[Preparation] = ()
    box_attempts: Sequence[BoxAttempt] = ()

    def roles(self) -> dict[str, Role]:
        """Return each engine's processor role. Raises KeyError for an unknown processor."""
        roles: dict[str, Role] = {p.id: p.role for p in self.processors}
        return {e.id: roles[e.processor] for e in self.engines}


@dataclass(frozen=True, slots=True)
class Derived:
    """Every derived field of a payload, under its name there."""

    entries: list[Entry]
    engines: list[EngineRecord]
    score: Score | None
    score_why: str | None
    complete: bool
    comparable: bool
    not_comparable_because: list[str]
    warnings: list[str]
    large_peak: dict[str, Any] | None
    box: Box | None
    box_why: str | None
    where_time_went_ns: dict[str, int]

    def fields(self) -> dict[str, Any]:
        """Return the fields as keyword arguments of ``Payload``."""
        return {name: getattr(self, name) for name in self.__slots__}


def engine_facts(
    info: EngineInfo,
    processor: str,
    requested: dict[str, Any],
    environment: dict[str, Any] | None = None,
) -> EngineRecord:
    """Return an engine's record from its probe, before any figure is derived.

    ``processor`` is the run-local id of the device, ``requested`` what attempts ask of it,
    ``environment`` what its environment holds, null where it lives in npumark's own.
    """
    return EngineRecord(
        id=info.id,
        runtime=info.runtime,
        runtime_title=info.runtime_title,
        version=info.version,
        versions=dict(info.versions),
        processor=processor,
        requested=requested,
        emulated=info.emulated,
        virtual=info.virtual,
        local_only=info.local_only,
        environment=EngineEnvironment.model_validate(environment) if environment else None,
        package=info.package,
        peak=None,
        delivered=None,
        high_accuracy=None,
    )


def derive(facts: RunFacts, manifest: Manifest, policy: Policy) -> Derived:
    """Return everything that follows from a run's facts.

    Pure: the same facts, manifest and policy give the same bits on every platform. Raises
    KeyError where the facts name an engine, processor, workload or variant there is none of.
    """
    quick = facts.options.quick
    roles = facts.roles()
    marks = {e.id: engine_marks(e) for e in facts.engines}
    hangs = hangs_of(facts.prepared)
    run = judge_run(facts.plan, facts.attempts, roles, manifest, policy, quick=quick, hangs=hangs)
    entries = [
        derive_entry(
            p,
            facts.attempts.get(p.key, ()),
            run,
            roles[p.engine],
            manifest,
            policy,
            quick=quick,
            marks=marks[p.engine],
        )
        for p in facts.plan
    ]
    entries = _mark_outliers(facts.plan, entries, run, manifest)
    engines = [_with_figures(e, entries, manifest) for e in facts.engines]
    score = run_score(engines, facts.processors, quick=quick)
    box_facts = BoxFacts(facts.options, engines, facts.processors, entries, facts.box_attempts)
    box, box_why = box_stage(box_facts, manifest, policy, measured=run.state.finished)
    complete = run.state.finished and (box is None or all(r.finished for r in box.roles))
    state = RunState(
        options=facts.options,
        suite=facts.suite,
        environment=facts.environment,
        resumed=facts.resumed,
        engines=engines,
        entries=entries,
        score=score,
        complete=complete,
        box=box,
        policy=policy,
    )
    reasons = not_comparable_because(state)
    return Derived(
        entries=entries,
        engines=engines,
        score=score,
        score_why=None if score else no_score_reason(entries, engines, manifest),
        complete=complete,
        comparable=not reasons,
        not_comparable_because=reasons,
        warnings=warnings(state),
        large_peak=large_peak(engines, entries, facts.processors, manifest),
        box=box,
        box_why=box_why,
        where_time_went_ns=_where_time_went(entries, facts.box_attempts),
    )


def _where_time_went(
    entries: Sequence[Entry], box_attempts: Sequence[BoxAttempt]
) -> dict[str, int]:
    went = time_by_stage([a for e in entries for a in e.attempts])
    if box_attempts:
        went["box"] = sum(a.wall_ns for a in box_attempts)
    return went


def time_by_stage(attempts: Sequence[Attempt]) -> dict[str, int]:
    """Return where the attempts' wall time went, in nanoseconds.

    ``process`` is what no stage accounts for (starting and ending workers); ``unfinished`` the
    whole time of attempts that measured nothing.
    """
    went = dict.fromkeys((*STAGES, "process", "unfinished"), 0)
    for attempt in attempts:
        if attempt.measurement is None:
            went["unfinished"] += attempt.wall_ns
            continue
        staged = {stage: getattr(attempt.measurement, f"{stage}_ns") for stage in STAGES}
        for stage, spent in staged.items():
            went[stage] += spent
        went["process"] += max(0, attempt.wall_ns - sum(staged.values()))
    return went


def _with_figures(
    engine: EngineRecord, entries: Sequence[Entry], manifest: Manifest
) -> EngineRecord:
    return engine.model_copy(
        update={
            "peak": engine_peak(engine.id, entries, manifest),
            "delivered": delivered(engine.id, entries, manifest),
            "high_accuracy": delivered(engine.id, entries, manifest, strict=True),
        }
    )


def _mark_outliers(
    plan: Sequence[Planned], entries: Sequence[Entry], run: JudgedRun, manifest: Manifest
) -> list[Entry]:
    """Flag the screened entries whose one attempt beat the winner's median."""
    marked = []
    for planned, entry in zip(plan, entries, strict=True):
        beaten = _winning_tops(planned, entries, manifest) if entry.stats.screened else None
        if beaten is not None and entry.figure is not None:
            flops = manifest.workloads[planned.workload].flops
            first = next(a.ips for a in run.history[planned.key] if a.ips is not None)
            if tera_operations(flops, first) > beaten:
                stats = entry.stats.model_copy(update={"screened_outlier": True})
                marked.append(entry.model_copy(update={"stats": stats}))
                continue
        marked.append(entry)
    return marked


def _winning_tops(planned: Planned, entries: Sequence[Entry], manifest: Manifest) -> float | None:
    if planned.kind == "peak":
        peak = engine_peak(planned.engine, entries, manifest, planned.tier)
        return peak.tops if peak else None
    best = winner(planned.engine, planned.workload, entries)
    return best.figure.tops if best and best.figure else None
