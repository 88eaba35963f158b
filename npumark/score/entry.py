"""An entry of the record, derived from its attempts: status, figure, statistics, verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from npumark.pack.manifest import Manifest
from npumark.policy import Policy
from npumark.record.model import (
    Attempt,
    CrashedAttempt,
    Entry,
    EntryGates,
    EntryPlacement,
    Figure,
    Gate,
    Stats,
)
from npumark.score import repetition, stats
from npumark.score.attempt import (
    DEATHS,
    JudgedAttempt,
    Role,
    judge_attempt,
    tera_operations,
)
from npumark.score.demand import NO_HANGS, Demand, Hangs, Key, demand, formats, hung, tried
from npumark.score.labels import format_label
from npumark.score.planned import Planned
from npumark.worker.protocol import Status


@dataclass(frozen=True, slots=True)
class JudgedRun:
    """Every attempt of a run judged, and what the plan still wants."""

    history: Mapping[Key, tuple[JudgedAttempt, ...]]
    state: Demand
    hangs: Hangs


@dataclass(frozen=True, slots=True)
class _Verdict:
    status: Status
    counts: bool
    why_not: str | None
    why: str | None


def judge_run(
    plan: Sequence[Planned],
    attempts: Mapping[Key, Sequence[Attempt]],
    roles: Mapping[str, Role],
    manifest: Manifest,
    policy: Policy,
    *,
    quick: bool,
    hangs: Hangs = NO_HANGS,
) -> JudgedRun:
    """Judge all attempts of a plan. ``roles`` maps each engine to its processor's role, and
    ``hangs`` counts the preparations of each entry that timed out."""
    history = {
        p.key: tuple(
            judge_attempt(p, a, manifest, policy, roles[p.engine], quick=quick)
            for a in attempts.get(p.key, ())
        )
        for p in plan
    }
    state = demand(plan, history, policy, quick=quick, hangs=hangs)
    return JudgedRun(history, state, hangs)


def derive_entry(
    planned: Planned,
    attempts: Sequence[Attempt],
    run: JudgedRun,
    role: Role,
    manifest: Manifest,
    policy: Policy,
    *,
    quick: bool,
    marks: Sequence[str] = (),
) -> Entry:
    """Return the record's entry. Its ``screened_outlier`` is set once the winners are known.

    ``marks`` are its engine's (labels.engine_marks). What ran on the wrong device is given no
    figure: a rate that another processor produced must not stand where this one's would.
    """
    judged = run.history[planned.key]
    standing = tried(judged)
    landed = [a for a in standing if a.ips is not None]
    ran = _format_that_ran(landed)
    verdict = _verdict(planned, standing, landed, run, policy, quick=quick)
    tally = repetition.tally([a.ips for a in standing], planned.kind, policy.repetition)
    strict = _deciding(landed, [a.strict for a in landed])
    flops = manifest.workloads[planned.workload].flops
    figure = None
    if tally.ips is not None and verdict.status != "wrong_device":
        figure = Figure(ips=tally.ips, tops=tera_operations(flops, tally.ips))
    return Entry(
        engine=planned.engine,
        workload=planned.workload,
        variant=planned.variant,
        graph_variant=planned.graph_variant,
        declared_format=planned.declared_format,
        format=ran,
        label=format_label(planned.declared_format, ran, marks, variant=planned.variant),
        status=verdict.status,
        why=verdict.why,
        figure=figure,
        counts=verdict.counts,
        why_not=verdict.why_not,
        high_accuracy=verdict.counts and all(a.strict and a.strict.passed for a in landed),
        stats=_stats(
            planned,
            standing,
            landed,
            attempts,
            run.state,
            policy,
            counted=len(tally.counted) if figure else 0,
            agreed=tally.agreed,
        ),
        gates=EntryGates(
            standard=_deciding(landed, [a.standard for a in landed]),
            strict=strict,
            timed_check=all(a.timed_check for a in landed) if landed else None,
        ),
        placement=_placement(judged, attempts, role),
        crashed_attempts=[
            CrashedAttempt(attempt=a.n, why=a.why or a.status)
            for a in standing
            if a.status in DEATHS
        ],
        attempts=list(attempts),
    )


def _verdict(
    planned: Planned,
    standing: Sequence[JudgedAttempt],
    landed: Sequence[JudgedAttempt],
    run: JudgedRun,
    policy: Policy,
    *,
    quick: bool,
) -> _Verdict:
    """Return the entry's status and the first reason for which it cannot count."""
    if planned.skip is not None:
        return _Verdict("skipped", counts=False, why_not="skipped", why=planned.skip)
    if not standing:
        return _Verdict(
            "interrupted",
            counts=False,
            why_not="not_started",
            why="the run ended before this entry was measured",
        )
    dead = next((a for a in standing if a.dead), None)
    if dead is not None:
        return _Verdict(dead.status, counts=False, why_not=dead.why_not, why=dead.why)
    if hung(standing, policy, run.hangs.get(planned.key, 0)) and len(landed) < 2:
        last = next((a for a in reversed(standing) if a.status == "timeout"), None)
        why = "preparing it timed out" if last is None else last.why
        return _Verdict("timeout", counts=False, why_not="timeout", why=why)
    if not landed:
        last = standing[-1]
        return _Verdict(last.status, counts=False, why_not=last.why_not, why=last.why)
    reason = _hindrance(planned, landed, run.state, quick=quick)
    if reason:
        return _Verdict("ok", counts=False, why_not=reason[0], why=reason[1])
    return _Verdict("ok", counts=True, why_not=None, why=None)


def _hindrance(
    planned: Planned, landed: Sequence[JudgedAttempt], state: Demand, *, quick: bool
) -> tuple[str, str] | None:
    seen_formats = formats(landed)
    if len(seen_formats) > 1:
        seen = ", ".join(sorted(seen_formats))
        return "format_changed", f"attempts were computed in different formats: {seen}"
    if planned.key in state.screened:
        return "screened", "its first attempt is too far below the best one to be repeated"
    if state.wants[planned.key]:
        return "incomplete", "the run ended before its attempts were complete"
    if len(landed) < 2 and not quick:
        return "too_few_attempts", "only one attempt gave a result"
    return None


def _stats(
    planned: Planned,
    standing: Sequence[JudgedAttempt],
    landed: Sequence[JudgedAttempt],
    attempts: Sequence[Attempt],
    state: Demand,
    policy: Policy,
    *,
    counted: int,
    agreed: bool,
) -> Stats:
    """Return the statistics; spread and robust CV are of all attempts that landed, of two or
    more: one alone says nothing of either."""
    values = [a.ips for a in landed if a.ips is not None]
    several = len(values) > 1
    cv = stats.robust_cv(values) if several else None
    return Stats(
        attempts=len(standing),
        counted=counted,
        spread=stats.spread(values) if several else None,
        robust_cv=cv,
        unstable=cv is not None and cv > policy.repetition.unstable_robust_cv,
        screened=planned.key in state.screened,
        screened_outlier=False,
        agreed=agreed,
        tail_ratio=_tail_ratio(landed, attempts),
    )


def _tail_ratio(landed: Sequence[JudgedAttempt], attempts: Sequence[Attempt]) -> float | None:
    """Return p95 / median latency of the median attempt (the lower of two middle ones)."""
    if not landed:
        return None
    ranked = sorted(landed, key=lambda a: (a.ips or 0.0, a.n))
    middle = ranked[(len(ranked) - 1) // 2]
    measured = next(a.measurement for a in attempts if a.n == middle.n)
    if measured is None or measured.latency_ns.median == 0:
        return None
    return stats.tail_ratio(measured.latency_ns.p95, measured.latency_ns.median)


def _format_that_ran(landed: Sequence[JudgedAttempt]) -> str | None:
    """Return the format all landed attempts report, null where one does not or they differ."""
    formats = {a.format for a in landed}
    return formats.pop() if len(formats) == 1 else None


def _deciding(landed: Sequence[JudgedAttempt], gates: Sequence[Gate | None]) -> Gate | None:
    """Return the first failed gate, else the first attempt's."""
    failed = (g for g in gates if g is not None and not g.passed)
    return next(failed, gates[0] if landed else None)


def _placement(
    judged: Sequence[JudgedAttempt], attempts: Sequence[Attempt], role: Role
) -> EntryPlacement:
    """Return the placement of the first attempt that is not eligible, else of the least share."""
    reports = [(j, a.placement) for j, a in zip(judged, attempts, strict=True) if j.ips is not None]
    if not reports:
        return _nowhere("nothing was measured", eligible=False)
    misplaced = [(j, p) for j, p in reports if not j.placed]
    _, placement = min(
        misplaced[:1] or reports,
        key=lambda r: r[1].share if r[1] and r[1].share is not None else -1.0,
    )
    if placement is None:
        return _nowhere("the attempt reports no placement", eligible=role == "CPU")
    return EntryPlacement(
        verdict=placement.verdict,
        share=placement.share,
        op_share=placement.op_share,
        partitions=placement.partitions,
        evidence=placement.evidence,
        why=placement.why,
        eligible=not misplaced,
    )


def _nowhere(why: str, *, eligible: bool) -> EntryPlacement:
    return EntryPlacement(
        verdict=None,
        share=None,
        op_share=None,
        partitions=None,
        evidence=None,
        why=why,
        eligible=eligible,
    )
