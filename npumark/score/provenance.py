"""What a record says it is: its series, its engines, its surroundings; each held to the rest.

These lead to no figure, and that is the danger: a seeded record relabelled as trained, or a CPU
presented as a card, recomputes to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from npumark.pack.manifest import Manifest
from npumark.policy import Policy
from npumark.record.model import Check, Payload
from npumark.score.difference import Difference
from npumark.score.testimony import testimony

ROLES_BY_WORD = {
    "cpu": ("CPU",),
    "npu": ("NPU",),
    "ane": ("NPU",),
    "gpu": ("iGPU", "dGPU"),
    "igpu": ("iGPU",),
    "dgpu": ("dGPU",),
}
"""The word of an engine's id, ``<runtime>-<role>[-n]`` -> the roles it may stand for."""


def provenance(payload: Payload, manifest: Manifest, policy: Policy) -> list[Difference]:
    """Return every statement about the run that contradicts the manifest, the policy or another
    statement; empty where none does."""
    return [
        *_suite(payload, manifest),
        *_engines(payload),
        *testimony(payload),
        *_variants(payload, manifest),
        *_environment(payload, policy),
    ]


def _suite(payload: Payload, manifest: Manifest) -> Iterator[Difference]:
    for name, said in manifest.suite.items():
        recorded = getattr(payload.suite, name, None)
        if recorded != said:
            yield Difference(f"suite.{name}", recorded, said, "the manifest names another series")
    if payload.suite.verified and payload.suite.why_not is not None:
        yield Difference("suite.why_not", payload.suite.why_not, None, "the suite is verified")


def _engines(payload: Payload) -> Iterator[Difference]:
    roles = {p.id: p.role for p in payload.processors}
    changed = {what for event in payload.resumed for what in event.changed}
    for i, engine in enumerate(payload.engines):
        role = roles[engine.processor]
        words = [w for w in engine.id.split("-")[1:] if w in ROLES_BY_WORD]
        if words and role not in ROLES_BY_WORD[words[-1]]:
            why = f"{engine.id} does not run on a {role}"
            yield Difference(f"engines[{i}].processor", engine.processor, None, why)
        ran = any(e.attempts for e in payload.entries if e.engine == engine.id)
        if engine.emulated and ran and not payload.plan.include_emulated:
            why = f"{engine.id} is emulated, and no emulator was asked for"
            yield Difference("plan.include_emulated", False, True, why)
        if engine.virtual or f"engine {engine.id}" in changed:
            continue
        for j, entry in enumerate(payload.entries):
            if entry.engine != engine.id:
                continue
            for k, attempt in enumerate(entry.attempts):
                seen = attempt.observed.version if attempt.observed else None
                if None not in (seen, engine.version) and seen != engine.version:
                    path = f"entries[{j}].attempts[{k}].observed.version"
                    yield Difference(path, seen, engine.version, "the probe found another version")


def _variants(payload: Payload, manifest: Manifest) -> Iterator[Difference]:
    """An encoding that an engine derives has a name of its own, which no other engine denies."""
    for i, entry in enumerate(payload.entries):
        if entry.variant == entry.graph_variant:
            continue
        stored = {v.id for v in manifest.workloads[entry.workload].variants}
        if entry.variant in stored or not entry.variant.isalnum():
            why = f"no encoding of that name is derived from {entry.graph_variant}"
            yield Difference(f"entries[{i}].variant", entry.variant, entry.graph_variant, why)


def _environment(payload: Payload, policy: Policy) -> Iterator[Difference]:
    bound = policy.preconditions.max_busy
    for name, check in payload.environment.checks.items():
        path = f"environment.checks.{name}.violation"
        if check.value is None and check.violation:
            yield Difference(path, True, False, "what was not read is no violation")
        expected = _violated(name, check, bound)
        if expected is not None and check.violation != expected:
            yield Difference(path, check.violation, expected)


def _violated(name: str, check: Check, max_busy: float) -> bool | None:
    """Return the verdict that a check's value gives by the policy; None where it has no rule
    here, or nothing was read."""
    value: Any = check.value
    if value is None:
        return None
    if name in ("cpu_busy", "load_beside_measuring") and isinstance(value, float | int):
        return bool(value > max_busy)
    if name == "memory" and isinstance(value, dict):
        free, needed = value.get("available_bytes"), value.get("needed_bytes")
        if isinstance(free, int | float) and isinstance(needed, int | float):
            return free < needed
    return None
