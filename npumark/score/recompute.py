"""Rebuild a record's figures from its attempts and name everything that differs."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from npumark.pack.manifest import Manifest
from npumark.policy import Policy
from npumark.record.model import Entry, Payload
from npumark.score.checks import consistency, not_finite, structure
from npumark.score.derive import RunFacts, derive
from npumark.score.difference import Difference
from npumark.score.planned import Planned
from npumark.score.provenance import provenance


def recompute(
    payload: Payload,
    manifest: Manifest,
    policy: Policy,
    *,
    pinned_sha256: str | None = None,
    now: datetime | None = None,
) -> list[Difference]:
    """Return every derived value of ``payload`` that its own facts do not give, and every fact
    that contradicts another; empty where the record recomputes exactly.

    Numbers are compared to the last bit. ``pinned_sha256`` is the manifest this build pins: a
    suite that claims to be verified must be that one. ``now`` is the present: a record from the
    future is named. A payload of another pack, policy or
    formula is not compared further: those differences come alone.
    """
    document = payload.model_dump(mode="python", by_alias=True)
    found = [*not_finite(document), *structure(payload, manifest, policy)]
    if found:
        return found
    if payload.suite.verified and pinned_sha256 not in (None, manifest.sha256):
        why = "a verified pack has the pinned manifest"
        found.append(Difference("suite.verified", True, False, why))
    facts = facts_of(payload, manifest)
    found += consistency(payload, facts, manifest, policy, now=now)
    found += provenance(payload, manifest, policy)
    derived = derive(facts, manifest, policy).fields()
    expected = {name: _plain(value) for name, value in derived.items()}
    for name in expected:
        if name == "where_time_went_ns":
            continue
        found += compare(document[name], expected[name], name)
    for stage, spent in expected["where_time_went_ns"].items():
        recorded = document["where_time_went_ns"].get(stage)
        found += compare(recorded, spent, f"where_time_went_ns.{stage}")
    return found


def facts_of(payload: Payload, manifest: Manifest) -> RunFacts:
    """Return the facts that a payload states, stripped of all that is derived."""
    plan = tuple(planned_of(entry, manifest) for entry in payload.entries)
    return RunFacts(
        plan=plan,
        attempts={p.key: e.attempts for p, e in zip(plan, payload.entries, strict=True)},
        engines=payload.engines,
        processors=payload.processors,
        options=payload.plan,
        suite=payload.suite,
        environment=payload.environment,
        resumed=payload.resumed,
        prepared=payload.prepared,
        box_attempts=[a for role in payload.box.roles for a in role.attempts]
        if payload.box
        else [],
    )


def planned_of(entry: Entry, manifest: Manifest) -> Planned:
    """Return the line of the plan that an entry was made from."""
    workload = manifest.workloads[entry.workload]
    skipped = entry.status == "skipped" and not entry.attempts
    return Planned(
        engine=entry.engine,
        workload=entry.workload,
        variant=entry.variant,
        graph_variant=entry.graph_variant,
        declared_format=entry.declared_format,
        kind=workload.kind,
        tier=workload.tier,
        skip=(entry.why or "") if skipped else None,
    )


def compare(recorded: Any, expected: Any, path: str) -> list[Difference]:
    """Return the leaves at which two plain documents differ; numbers to the last bit."""
    found: list[Difference] = []
    if isinstance(recorded, dict) and isinstance(expected, dict):
        for key in {**expected, **recorded}:
            left, right = recorded.get(key), expected.get(key)
            if left is not right:  # most values are one object
                found += compare(left, right, f"{path}.{key}")
    elif (
        isinstance(recorded, list) and isinstance(expected, list) and len(recorded) == len(expected)
    ):
        for i, (left, right) in enumerate(zip(recorded, expected, strict=True)):
            found += compare(left, right, f"{path}[{i}]")
    elif recorded != expected or isinstance(recorded, bool) != isinstance(expected, bool):
        found.append(Difference(path, recorded, expected))
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(v) for v in value]
    return value.model_dump(mode="python", by_alias=True) if hasattr(value, "model_dump") else value
