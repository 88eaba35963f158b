"""What a record says of its engines, held to the catalogue and to what their attempts observed.

A built-in engine is known beforehand: its runtime, its name, the environments that it may live
in, the words it proves by. A third party's is not, and only what it says twice is compared.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from npumark.engines.catalogue import Provider, environment
from npumark.record.model import Attempt, EngineRecord, Payload, Processor
from npumark.score.catalogued import evidence_of, row_of
from npumark.score.difference import Difference

_SHA256 = re.compile(r"[0-9a-f]{64}")
_X86 = ("x86_64", "amd64", "i386", "i686", "x86")
_COMPILED = "EPContext"
"""Stands in an assignment for operators that nobody recorded."""

_UNTOLD = ("ort-webgpu",)
"""Providers of which ONNX Runtime may list only what others were given."""


def testimony(payload: Payload) -> Iterator[Difference]:
    """Yield every statement about an engine that the catalogue, its processor, its environment
    or one of its attempts contradicts."""
    processors = {p.id: p for p in payload.processors}
    for i, processor in enumerate(payload.processors):
        yield from _processor(f"processors[{i}]", processor)
    changed = {what for event in payload.resumed for what in event.changed}
    for i, engine in enumerate(payload.engines):
        path, processor = f"engines[{i}]", processors[engine.processor]
        steady = f"engine {engine.id}" not in changed
        row = row_of(engine)
        yield from _emulated(path, engine, processor, row, payload.machine)
        if not engine.virtual:
            yield from _catalogued(path, engine, row)
        yield from _housed(path, engine, row, steady=steady)
        for j, entry in enumerate(payload.entries):
            if entry.engine != engine.id:
                continue
            for k, attempt in enumerate(entry.attempts):
                where = f"entries[{j}].attempts[{k}]"
                if steady:
                    yield from _versions(where, engine, attempt)
                if row is not None:
                    yield from _proof(where, row, processor.role, attempt)


def _processor(path: str, processor: Processor) -> Iterator[Difference]:
    named = "emulated" in processor.id.split("-")
    if _is_emulated(processor) != named:
        why = "an emulated processor is named so, and no other is"
        yield Difference(f"{path}.details.emulated", not named, named, why)


def _is_emulated(processor: Processor) -> bool:
    return processor.details.get("emulated") is True


def _emulated(
    path: str,
    engine: EngineRecord,
    processor: Processor,
    row: Provider | None,
    machine: Mapping[str, Any],
) -> Iterator[Difference]:
    """Check that an emulator is one wherever it is told of, and that QNN is one on x86."""
    path = f"{path}.emulated"
    emulated = _is_emulated(processor)
    if engine.emulated != emulated:
        is_it = "is" if emulated else "is not"
        why = f"its processor {processor.id} {is_it} emulated"
        yield Difference(path, engine.emulated, emulated, why)
    elif row is not None and row.id == "ort-qnn" and not emulated:
        told = machine.get("architecture")
        real = processor.details.get("maker") == "Qualcomm"
        if isinstance(told, str) and told.lower() in _X86 and not real:
            why = "on an x86 processor QNN is an emulator, and no device of Qualcomm's is named"
            yield Difference(path, False, True, why)


def _catalogued(path: str, engine: EngineRecord, row: Provider | None) -> Iterator[Difference]:
    if engine.package is not None:
        if row is not None:
            why = f"a built-in engine's id, and {engine.package} is said to bring it"
            yield Difference(f"{path}.id", engine.id, None, why)
        return
    if row is None:
        # ONNX Runtime takes plug-ins that the catalogue does not know; no other runtime does.
        if engine.runtime != "ort":
            why = "no built-in engine has this id, and no package is named that brings it"
            yield Difference(f"{path}.id", engine.id, None, why)
        return
    for name, said, due in (
        ("runtime", engine.runtime, row.runtime),
        ("runtime_title", engine.runtime_title, row.runtime_title),
        ("local_only", engine.local_only, row.local_only),
    ):
        if said != due:
            yield Difference(f"{path}.{name}", said, due, f"{engine.id} is {row.title}")


def _housed(
    path: str, engine: EngineRecord, row: Provider | None, *, steady: bool
) -> Iterator[Difference]:
    """Check the environment that an engine says it lives in."""
    held = engine.environment
    if held is None:
        return
    path = f"{path}.environment"
    if not _SHA256.fullmatch(held.sha256):
        yield Difference(f"{path}.sha256", held.sha256, None, "not a sha256 in hexadecimal")
    known = environment(held.name)
    if known is None or (row is not None and row.id not in known.providers):
        yield Difference(f"{path}.name", held.name, None, f"it does not bring {engine.id}")
    if steady:
        for name, version in engine.versions.items():
            installed = held.packages.get(name)
            if installed is not None and installed != version:
                why = "the engine found another version"
                yield Difference(f"{path}.packages.{name}", installed, version, why)


def _versions(path: str, engine: EngineRecord, attempt: Attempt) -> Iterator[Difference]:
    seen = {} if attempt.observed is None else attempt.observed.versions
    for name, version in seen.items():
        probed = engine.versions.get(name)
        if probed is not None and probed != version:
            why = "the probe found another version"
            yield Difference(f"{path}.observed.versions.{name}", version, probed, why)


def _proof(path: str, row: Provider, role: str, attempt: Attempt) -> Iterator[Difference]:
    """Check a placement against the words its runtime has, and against what it was assigned."""
    placed, seen = attempt.placement, attempt.observed
    if placed is None:
        return
    proved = placed.verdict == "proved"
    words = evidence_of(row, role)
    if proved and placed.evidence not in words:
        why = f"{row.title} proves by {' or '.join(words)}"
        yield Difference(f"{path}.placement.evidence", placed.evidence, None, why)
    if seen is None or row.provider_name is None:
        return
    if seen.device != row.provider_name:
        why = "the provider that the engine is named after"
        yield Difference(f"{path}.observed.device", seen.device, row.provider_name, why)
    if row.id in _UNTOLD:
        return
    assigned = _assigned(seen.details.get("assigned"))
    if assigned is None:
        if proved and role != "CPU":
            why = "a proof needs the list of what was assigned"
            yield Difference(f"{path}.observed.details.assigned", None, None, why)
        return
    own, whole = assigned.get(row.provider_name, 0), sum(assigned.values())
    if whole and not own and placed.share:
        why = f"{row.provider_name} was assigned nothing"
        yield Difference(f"{path}.placement.share", placed.share, 0.0, why)
    if any(_COMPILED in operators for operators in seen.details["assigned"].values()):
        return
    due = own / whole if whole else None
    if not _same(placed.op_share, due):
        why = f"{own} of {whole} operators were assigned to {row.provider_name}"
        yield Difference(f"{path}.placement.op_share", placed.op_share, due, why)


def _assigned(told: Any) -> dict[str, int] | None:
    """Return how many operators each provider was given; null where that is not told."""
    if not isinstance(told, dict):
        return None
    counted = {}
    for name, operators in told.items():
        if not isinstance(operators, dict):
            return None
        counted[str(name)] = sum(v for v in operators.values() if isinstance(v, int))
    return counted


def _same(said: float | None, due: float | None) -> bool:
    if said is None or due is None:
        return said is due
    return math.isclose(said, due, rel_tol=0, abs_tol=1e-9)
