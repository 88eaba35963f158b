"""What must not change between the parts of one run, and what did (pure but for ``state_now``)."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import npumark
from npumark.machine import identity, power
from npumark.orchestrator.discover import Found
from npumark.orchestrator.request import RunRequest
from npumark.pack.manifest import Manifest
from npumark.policy import Policy
from npumark.record.model import Attempt, Preparation
from npumark.score.attempt import Role, judge_attempt
from npumark.score.demand import Key, demand, hangs_of
from npumark.score.planned import Planned

_PATHS = ("out", "manifest", "virtual", "box_from")
_LISTS = ("engines", "workloads", "variants", "box_roles", "box_cards", "argv")


def state_now(manifest: Manifest, policy: Policy, engines: Iterable[Found]) -> dict[str, Any]:
    """Return what two parts of a run must share: boot, versions, power state, pack, policy."""
    return {
        "boot": identity.boot().value,
        "power": {"source": power.source().value, "profile": power.profile().value},
        "pack": manifest.sha256,
        "policy": policy.sha256,
        "npumark": npumark.__version__,
        "python": sys.version.split()[0],
        "engines": {
            f.info.id: {
                "version": f.info.version,
                "versions": dict(f.info.versions),
                "device": f.info.processor,
                "environment": f.runtime.held(),
            }
            for f in engines
            if f.info.available
        },
    }


def changes(before: Mapping[str, Any], now: Mapping[str, Any], used: Iterable[str]) -> list[str]:
    """Return what changed, by name; only engines that the plan ``used`` matter.

    A boot that cannot be identified counts as another one: it is not known to be the same.
    """
    changed = [
        name
        for name in ("boot", "power", "pack", "policy", "npumark", "python")
        if before.get(name) != now.get(name)
    ]
    if now.get("boot") is None and "boot" not in changed:
        changed.insert(0, "boot")
    old, new = before.get("engines", {}), now.get("engines", {})
    changed += [f"engine {e}" for e in sorted(set(used)) if old.get(e) != new.get(e)]
    return changed


def request_to_json(request: RunRequest) -> dict[str, Any]:
    """Return a request as JSON values, its paths absolute."""
    doc = asdict(request)
    for name in _PATHS:
        if doc[name] is not None:
            doc[name] = str(Path(doc[name]).absolute())
    return doc


def request_from_json(doc: Mapping[str, Any]) -> RunRequest:
    """Return the request that ``request_to_json`` wrote. Raises TypeError for another form."""
    fields = dict(doc)
    for name in _PATHS:
        fields[name] = Path(fields[name]) if fields[name] is not None else None
    for name in _LISTS:
        fields[name] = tuple(fields[name]) if fields[name] is not None else None
    return RunRequest(**fields)


def plan_to_json(plan: Iterable[Planned]) -> list[dict[str, Any]]:
    return [asdict(planned) for planned in plan]


def plan_from_json(doc: Iterable[Mapping[str, Any]]) -> tuple[Planned, ...]:
    """Return the plan that ``plan_to_json`` wrote. Raises TypeError for another form."""
    return tuple(Planned(**entry) for entry in doc)


def wanting(
    plan: Sequence[Planned],
    attempts: Mapping[Key, Sequence[Attempt]],
    prepared: Sequence[Preparation],
    roles: Mapping[str, Role],
    manifest: Manifest,
    policy: Policy,
    *,
    quick: bool,
) -> set[str]:
    """Return the engines that still have attempts to run after those that were made.

    ``roles`` are the engines' processors'.
    """
    history = {
        entry.key: [
            judge_attempt(entry, made, manifest, policy, roles[entry.engine], quick=quick)
            for made in attempts.get(entry.key, ())
        ]
        for entry in plan
    }
    state = demand(plan, history, policy, quick=quick, hangs=hangs_of(prepared))
    return {entry.engine for entry in plan if state.wants[entry.key]}
