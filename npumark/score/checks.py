"""What must hold among a record's raw facts, whatever figures they lead to.

``structure`` is what deriving needs at all; ``consistency`` is what a run by this program's
rules cannot break: rates that follow from durations, attempts in the order and distance that
the methodology asks for, percentiles that the sample supports.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any

from npumark.gates.draw import drawn
from npumark.pack.manifest import Manifest
from npumark.policy import Policy
from npumark.record.box import BoxAttempt
from npumark.record.model import Attempt, Entry, MeasurementFields, Payload
from npumark.score.attempt import (
    JudgedAttempt,
    inferences_per_second,
    judge_attempt,
    least_iterations,
    timed_check_passes,
)
from npumark.score.bounds import bounds
from npumark.score.box_checks import box_consistency, box_structure
from npumark.score.compiled import compiled
from npumark.score.demand import NO_HANGS, Key, hangs_of
from npumark.score.derive import STAGES, RunFacts
from npumark.score.difference import Difference
from npumark.score.formula import is_known_formula
from npumark.score.planned import Planned, attempt_seed, derived_format
from npumark.score.turns import Turns

NS = 1_000_000_000

_HOLDS_MORE = (dict, list)

MAX_DRAWS = 1 << 21
"""So many timed calls of a record are drawn again for their checks (about half a second of work);
a stranger's record may claim any number. Attempts beyond that keep the checks they state."""

MAX_SECONDS = 86_400.0
"""Of a timed loop, and between two attempts: what is far more fits no clock of nanoseconds."""


def structure(payload: Payload, manifest: Manifest, policy: Policy) -> list[Difference]:
    """Return what keeps a payload from being recomputed at all; empty where nothing does."""
    found = [
        Difference(path, recorded, expected, why)
        for path, recorded, expected, why in (
            ("score_version", payload.score_version, policy.score_version, "another score version"),
            ("policy_sha256", payload.policy_sha256, policy.sha256, "another policy"),
            (
                "suite.manifest_sha256",
                payload.suite.manifest_sha256,
                manifest.sha256,
                "another pack; give its manifest",
            ),
        )
        if recorded != expected
    ]
    if not is_known_formula(payload.formula_sha256):
        why = "another formula; verify with the version of npumark that made the record"
        found.append(Difference("formula_sha256", payload.formula_sha256, None, why))
    found += [
        Difference(f"plan.{name}", seconds, None, "no time that a run takes")
        for name, seconds in (
            ("loop_s", payload.plan.loop_s),
            ("spacing_s", payload.plan.spacing_s),
        )
        if not 0 <= seconds <= MAX_SECONDS
    ]
    found += _named_once("processors", [p.id for p in payload.processors])
    found += _named_once("engines", [e.id for e in payload.engines])
    found += _named_once("entries", [(e.engine, e.workload, e.variant) for e in payload.entries])
    processors = {p.id for p in payload.processors}
    for i, engine in enumerate(payload.engines):
        if engine.processor not in processors:
            found.append(_unknown(f"engines[{i}].processor", engine.processor))
    engines = {e.id for e in payload.engines}
    for i, entry in enumerate(payload.entries):
        if entry.engine not in engines:
            found.append(_unknown(f"entries[{i}].engine", entry.engine))
        found += _pack_names(f"entries[{i}]", entry, manifest)
    found += box_structure(payload, manifest)
    return found


def consistency(
    payload: Payload,
    facts: RunFacts,
    manifest: Manifest,
    policy: Policy,
    *,
    now: datetime | None = None,
) -> list[Difference]:
    """Return every fact that contradicts another or the rules a run follows.

    ``now`` is the present, which no record may lie beyond; without it that is not looked at.
    """
    found: list[Difference] = []
    entries = zip(facts.plan, payload.entries, strict=True)
    virtual = {e.id for e in payload.engines if e.virtual}
    for i, (planned, entry) in enumerate(entries):
        path = f"entries[{i}]"
        found += _declared(path, planned, entry, manifest)
        found += _numbering(f"{path}.attempts", entry.attempts, payload.plan.spacing_s)
        for j, attempt in enumerate(entry.attempts):
            found += _attempt(f"{path}.attempts[{j}]", planned, attempt, payload, policy)
            # A virtual engine's calls are timed on a clock of its own.
            if entry.engine not in virtual:
                found += _stages(f"{path}.attempts[{j}]", attempt)
    found += _one_at_a_time(payload)
    for i, role in enumerate(payload.box.roles if payload.box else []):
        path = f"box.roles[{i}].attempts"
        found += _numbering(path, role.attempts, payload.plan.spacing_s, of="role")
    found += box_consistency(payload, manifest, policy)
    found += bounds(payload)
    found += compiled(payload, facts)
    if not found:
        found += _order(payload, facts, manifest, policy)
    found += _timed_checks(payload, facts, manifest, policy)
    violated = any(c.violation for c in payload.environment.checks.values())
    if payload.environment.noisy != violated:
        found.append(Difference("environment.noisy", payload.environment.noisy, violated))
    found += _instants(payload, now)
    return found


def not_finite(document: Any, path: str = "") -> Iterator[Difference]:
    """Yield every number in a plain document, a dict or a list, that is not finite."""
    for key, value in document.items() if isinstance(document, dict) else enumerate(document):
        if isinstance(value, float) and not math.isfinite(value):
            yield Difference(_step(path, key), repr(value), None, "not a finite number")
        elif isinstance(value, _HOLDS_MORE):
            yield from not_finite(value, _step(path, key))


def _step(path: str, key: str | int) -> str:
    if isinstance(key, int):
        return f"{path}[{key}]"
    return f"{path}.{key}" if path else key


def _named_once(path: str, names: Sequence[Any]) -> list[Difference]:
    seen: set[Any] = set()
    found = []
    for i, name in enumerate(names):
        if name in seen:
            found.append(Difference(f"{path}[{i}]", name, None, "listed twice"))
        seen.add(name)
    return found


def _unknown(path: str, name: str) -> Difference:
    return Difference(path, name, None, "names nothing that the record or the manifest holds")


def _pack_names(path: str, entry: Entry, manifest: Manifest) -> list[Difference]:
    workload = manifest.workloads.get(entry.workload)
    if workload is None:
        return [_unknown(f"{path}.workload", entry.workload)]
    ids = {v.id for v in workload.variants}
    if entry.graph_variant not in ids:
        return [_unknown(f"{path}.graph_variant", entry.graph_variant)]
    if entry.variant in ids and entry.variant != entry.graph_variant:
        why = "a variant of the pack is measured on its own graph"
        return [Difference(f"{path}.graph_variant", entry.graph_variant, entry.variant, why)]
    return []


def _declared(
    path: str, planned: Planned, entry: Entry, manifest: Manifest
) -> Iterator[Difference]:
    graph = manifest.workloads[planned.workload].variant(planned.graph_variant)
    own = planned.variant == planned.graph_variant
    declared = graph.format if own else derived_format(planned.variant)
    if entry.declared_format != declared:
        yield Difference(f"{path}.declared_format", entry.declared_format, declared)


def _numbering(
    path: str, attempts: Sequence[Attempt | BoxAttempt], spacing_s: float, *, of: str = "entry"
) -> Iterator[Difference]:
    for j, attempt in enumerate(attempts):
        if attempt.n != j + 1:
            yield Difference(f"{path}[{j}].n", attempt.n, j + 1)
    for j, (before, after) in enumerate(pairwise(attempts), start=1):
        due = before.started_ns + round(spacing_s * NS)
        if after.started_ns < due:
            why = f"attempts of one {of} start {spacing_s:g} s apart"
            yield Difference(f"{path}[{j}].started_ns", after.started_ns, due, why)


def _attempt(
    path: str, planned: Planned, attempt: Attempt, payload: Payload, policy: Policy
) -> Iterator[Difference]:
    measured = attempt.measurement
    if (measured is not None) != (attempt.status == "ok"):
        why = "an attempt is ok if, and only if, it measured"
        yield Difference(f"{path}.status", attempt.status, None, why)
        return
    if measured is None:
        return
    for name in ("why", "log_tail"):
        if getattr(attempt, name) is not None:
            why = "an attempt that measured failed for no reason"
            yield Difference(f"{path}.{name}", getattr(attempt, name), None, why)
    placed = attempt.placement
    if placed is not None and placed.verdict == "proved" and placed.share is None:
        why = "a proof states a share"
        yield Difference(f"{path}.placement.share", None, 1.0, why)
    if attempt.pid_exit not in (0, None):
        yield Difference(f"{path}.pid_exit", attempt.pid_exit, 0, "a failed worker has no result")
    path = f"{path}.measurement"
    least = least_iterations(planned, policy, quick=payload.plan.quick)
    if measured.iterations < least:
        yield Difference(f"{path}.iterations", measured.iterations, least, "too few timed calls")
    if measured.iterations < 1 or measured.timed_ns < 1:
        yield Difference(f"{path}.timed_ns", measured.timed_ns, None, "nothing was timed")
        return
    ips = inferences_per_second(measured.iterations, measured.timed_ns)
    if measured.ips != ips:
        yield Difference(f"{path}.ips", measured.ips, ips, "iterations / timed_ns")
    if measured.timed_ns < round(payload.plan.loop_s * NS):
        why = "the timed loop is shorter than the plan says"
        yield Difference(f"{path}.timed_ns", measured.timed_ns, payload.plan.loop_s * NS, why)
    if measured.loop_ns < measured.timed_ns:
        yield Difference(f"{path}.loop_ns", measured.loop_ns, measured.timed_ns, "less than timed")
    if attempt.wall_ns < measured.loop_ns:
        yield Difference(f"{path}.loop_ns", measured.loop_ns, attempt.wall_ns, "more than all")
    yield from _latency(f"{path}.latency_ns", measured, policy)


def _stages(path: str, attempt: Attempt) -> Iterator[Difference]:
    """Check that the stages, one after the other, fit into the attempt; the first call into the
    warm-up."""
    measured = attempt.measurement
    if measured is None:
        return
    staged = sum(getattr(measured, f"{stage}_ns") for stage in STAGES)
    if staged > attempt.wall_ns:
        yield Difference(f"{path}.wall_ns", attempt.wall_ns, staged, "less than its stages")
    path = f"{path}.measurement.first_call_ns"
    if measured.first_call_ns > measured.warmup_ns:
        why = "longer than the warm-up that it began"
        yield Difference(path, measured.first_call_ns, measured.warmup_ns, why)


def _timed_checks(
    payload: Payload, facts: RunFacts, manifest: Manifest, policy: Policy
) -> Iterator[Difference]:
    """Check each attempt's seed, which calls it drew from it, and the verdict on their outputs."""
    left = MAX_DRAWS
    for i, (planned, entry) in enumerate(zip(facts.plan, payload.entries, strict=True)):
        inputs = manifest.workloads[planned.workload].eval.n
        for j, attempt in enumerate(entry.attempts):
            path = f"entries[{i}].attempts[{j}]"
            seed = attempt_seed(payload.run_id, planned, attempt.n)
            if attempt.seed != seed:
                yield Difference(f"{path}.seed", attempt.seed, seed)
            if attempt.measurement is None:
                continue
            calls, check = attempt.measurement.iterations, attempt.measurement.timed_check
            path = f"{path}.measurement.timed_check"
            passed = timed_check_passes(check, policy)
            if check.passed != passed:
                yield Difference(f"{path}.passed", check.passed, passed)
            if 0 <= calls <= left:
                left -= calls
                due = list(drawn(seed, policy.timing.timed_checks, inputs, calls))
                if check.iterations != due:
                    yield Difference(f"{path}.iterations", check.iterations, due, "by its seed")


def _latency(path: str, measured: MeasurementFields, policy: Policy) -> Iterator[Difference]:
    """Check order, support and sum: n calls between min and max, half of them at the median
    or above, last for timed_ns together."""
    latency, n = measured.latency_ns, measured.iterations
    support = policy.percentiles
    tails = {
        "p90": (latency.p90, support.p90),
        "p95": (latency.p95, support.p95),
        "p99": (latency.p99, support.p99),
        "p999": (latency.p999, support.p999),
    }
    for name, (value, needed) in tails.items():
        if (value is not None) != (n >= needed):
            yield Difference(f"{path}.{name}", value, None, f"{n} samples; it needs {needed}")
    known = [latency.min, latency.median, *(v for v, _ in tails.values() if v is not None)]
    if any(a > b for a, b in pairwise([*known, latency.max])):
        yield Difference(path, [*known, latency.max], None, "not in ascending order")
    # Of n calls n - n//2 last the median or longer, and (n + 1)//2 that or less.
    least = max(n // 2 * latency.min + (n - n // 2) * latency.median, n * latency.min)
    most = min((n + 1) // 2 * latency.median + n // 2 * latency.max, n * latency.max)
    if not least <= measured.timed_ns <= most:
        why = "the durations cannot sum to this"
        yield Difference(f"{path}.median", latency.median, measured.timed_ns, why)


def _instants(payload: Payload, now: datetime | None) -> Iterator[Difference]:
    """Check that the run's start and end are instants, in order, and not in the future."""
    before: datetime | None = None
    for name in ("created", "finished"):
        stamp = getattr(payload, name)
        if stamp is None:
            continue
        try:
            at = datetime.fromisoformat(stamp)
        except ValueError:
            at = None
        if at is None or at.tzinfo is None:
            yield Difference(name, stamp, None, "not an instant in ISO 8601 with its offset")
            continue
        if before is not None and at < before:
            yield Difference(name, stamp, payload.created, "before its start")
        if now is not None and at > now:
            yield Difference(name, stamp, now.isoformat(), "in the future")
        before = at


def _one_at_a_time(payload: Payload) -> Iterator[Difference]:
    """Check that no attempt, and nothing that was prepared, began before the last had ended."""
    placed = [
        (a.started_ns, a.wall_ns, f"entries[{i}].attempts[{j}]", "attempt")
        for i, e in enumerate(payload.entries)
        for j, a in enumerate(e.attempts)
    ]
    placed += [
        (made.started_ns, made.wall_ns, f"prepared[{i}]", "preparation")
        for i, made in enumerate(payload.prepared)
    ]
    placed += [
        (a.started_ns, a.wall_ns, f"box.roles[{i}].attempts[{j}]", "attempt")
        for i, role in enumerate(payload.box.roles if payload.box else [])
        for j, a in enumerate(role.attempts)
    ]
    for (start, wall, _, what), (following, _, path, _) in pairwise(sorted(placed)):
        if following < start + wall:
            why = f"it overlaps the {what} before it"
            yield Difference(f"{path}.started_ns", following, start + wall, why)


def _order(
    payload: Payload, facts: RunFacts, manifest: Manifest, policy: Policy
) -> list[Difference]:
    """Replay the run: each attempt must be of the entry whose turn it was.

    So an entry that stopped early or went on too long, a screened one that was repeated and a
    pass out of order all show. Only the first is named: what follows it follows from it.
    """
    quick, roles = payload.plan.quick, facts.roles()
    paths = {p.key: f"entries[{i}]" for i, p in enumerate(facts.plan)}
    history: dict[Key, tuple[JudgedAttempt, ...]] = {}
    turns = Turns(facts.plan, policy, quick=quick)
    hangs = NO_HANGS
    ran = sorted(
        (
            (a.started_ns, i, j)
            for i, e in enumerate(payload.entries)
            for j, a in enumerate(e.attempts)
        ),
    )
    for started, i, j in ran:
        planned, attempt = facts.plan[i], payload.entries[i].attempts[j]
        # What hung before this attempt began, as the run knew it.
        before, hangs = hangs, hangs_of(p for p in payload.prepared if p.started_ns < started)
        if hangs != before:
            for p in facts.plan:
                turns.put(p, history.get(p.key, ()), hangs.get(p.key, 0))
        turn = turns.next()
        if turn is None or turn.key != planned.key:
            expected = None if turn is None else paths[turn.key]
            why = "it was another entry's turn" if turn else "no entry wanted another attempt"
            return [Difference(f"{paths[planned.key]}.attempts[{j}]", planned.key, expected, why)]
        judged = judge_attempt(
            planned, attempt, manifest, policy, roles[planned.engine], quick=quick
        )
        history[planned.key] = (*history.get(planned.key, ()), judged)
        turns.put(planned, history[planned.key], hangs.get(planned.key, 0))
    return []
