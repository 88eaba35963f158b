"""What of a record goes into the database's rows: its figures for the board, and its summary."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from npumark.pack.manifest import load_manifest
from npumark.plain import one_line
from npumark.record.model import EngineRecord, Entry, Payload, Processor
from npumark.score.peak import best_engine
from npumark.server.facets import ELSE, ENGINE, FORMAT, ROLE, RUN

_NOT_SLUG: Final = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True)
class Device:
    """A kind of processor as the board knows it: its role, and its model's name."""

    role: str
    name: str

    @property
    def folded(self) -> str:
        """The name as it is searched."""
        return self.name.casefold()[:200]

    @property
    def slug(self) -> str:
        """Its place among the pages; two devices may have the same."""
        parted = unicodedata.normalize("NFKD", f"{self.role} {self.name}")
        plain = parted.encode("ascii", "ignore").decode().lower()
        return _NOT_SLUG.sub("-", plain)[:100].strip("-")

    @property
    def own_slug(self) -> str:
        """A slug that no other device has: no ``slug`` has two hyphens together."""
        named = hashlib.sha256(f"{self.role}\n{self.name}".encode()).hexdigest()[:10]
        return f"{self.slug}--{named}"


def device_of(processor: Processor) -> Device:
    return Device(processor.role, _short(processor.name, 200) or "unnamed")


def figures_of(payload: Payload) -> list[dict[str, Any]]:
    """Return a row for each engine that has a counted peak and each number format of it: the best
    that it reached in that format, in the order of ``payload.engines``, its best format first.

    A row holds the columns of ``figures`` and of its facet (``facets.put``) that the payload
    decides; ``device`` (a ``Device``) stands for the processor. ``result_id``, ``received_at``
    and ``ranked`` are the result's. Pure.
    """
    processors = {p.id: p for p in payload.processors}
    leading = {
        best.id
        for role in {p.role for p in payload.processors}
        if (best := best_engine([e for e in payload.engines if _role(e, processors) == role]))
    }
    score = payload.score.engine if payload.score else None
    series = _series(payload)
    rows = []
    for engine in payload.engines:
        top = RUN if engine.id == score else ROLE if engine.id in leading else ENGINE
        for place, entry in enumerate(_best_by_format(engine, payload.entries)):
            rows.append(
                {
                    **series,
                    "device": device_of(processors[engine.processor]),
                    "role": processors[engine.processor].role,
                    "runtime": _short(engine.runtime_title, 60),
                    "engine": _short(engine.id, 60),
                    "format": _short(entry.format or entry.declared_format, 12),
                    "label": _short(entry.label, 120),
                    "workload": _short(entry.workload, 60),
                    "level": FORMAT if place else top,
                    "tops": entry.figure.tops if entry.figure else None,
                    "unstable": entry.stats.unstable,
                    "delivered": None if place else _delivered(engine),
                }
            )
    return rows


def summary_of(payload: Payload) -> dict[str, Any]:
    """Return the columns of ``results`` that the payload decides. Pure."""
    score = payload.score
    return {
        **_series(payload),
        "run_id": payload.run_id,
        "created": _short(payload.created, 40),
        "tool_version": _short(payload.tool.version, 40),
        "tops": score.tops if score else None,
        "label": _short(score.label, 500) if score else None,
        "quick": payload.plan.quick,
        "comparable": payload.comparable,
        "unstable": score.unstable if score else False,
    }


def system_of(os: object) -> str:
    """Return the family of an operating system's name, as a record's ``machine`` states it: a
    Linux goes by its distribution's name."""
    if not isinstance(os, str) or not os.strip():
        return ELSE
    first = os.split()[0].casefold()
    return first if first in ("windows", "macos", "android", "ios") else "linux"


def _series(payload: Payload) -> dict[str, Any]:
    suite = payload.suite
    return {
        "score_version": _short(payload.score_version, 12),
        "suite": _short(f"{suite.name} {suite.version}", 60),
        "edition": _short(suite.edition, 20),
        "os": system_of(payload.machine.get("os")),
    }


def _best_by_format(engine: EngineRecord, entries: list[Entry]) -> list[Entry]:
    """Return the engine's best counted peak entry of each format, the engine's peak first."""
    peak = engine.peak
    if peak is None:
        return []
    best: dict[str, Entry] = {}
    for entry in entries:
        if entry.engine != engine.id or not entry.counts or entry.figure is None:
            continue
        if entry.workload != peak.workload and entry.workload not in _peak_workloads():
            continue
        family = entry.format or entry.declared_format
        held = best.get(family)
        if held is None or held.figure is None or entry.figure.tops > held.figure.tops:
            best[family] = entry
    return sorted(best.values(), key=lambda e: -(e.figure.tops if e.figure else 0.0))


@cache
def _peak_workloads() -> frozenset[str]:
    """The workloads that the score is made of; the large-batch peak is beside it."""
    return frozenset(w.id for w in load_manifest().workloads.values() if w.tier == "peak")


def _delivered(engine: EngineRecord) -> float | None:
    found = engine.delivered
    return found.tops if found and found.complete and not found.unstable else None


def _role(engine: EngineRecord, processors: dict[str, Processor]) -> str:
    return processors[engine.processor].role


def _short(text: str, most: int) -> str:
    line = one_line(text)
    return line if len(line) <= most else line[: most - 1] + "…"
