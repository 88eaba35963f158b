"""Peaks: an engine's best configuration of a tier, the run's score, the large-batch peak."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from npumark.pack.manifest import Manifest, Tier
from npumark.record.model import EngineRecord, Entry, Peak, Processor, Score
from npumark.score.labels import score_label


def engine_peak(
    engine: str, entries: Sequence[Entry], manifest: Manifest, tier: Tier = "peak"
) -> Peak | None:
    """Return the peak of an engine: its counting configuration of a tier with the most TOPS.

    Figures are compared, never single attempts; the earlier in the plan wins a tie. Null where
    none counts.
    """
    best: Entry | None = None
    for entry in entries:
        if entry.engine != engine or not entry.counts or entry.figure is None:
            continue
        if manifest.workloads[entry.workload].tier != tier:
            continue
        if best is None or best.figure is None or entry.figure.tops > best.figure.tops:
            best = entry
    if best is None or best.figure is None:
        return None
    return Peak(
        tops=best.figure.tops,
        format=best.format or best.label,
        label=best.label,
        workload=best.workload,
        variant=best.variant,
        unstable=best.stats.unstable,
        robust_cv=best.stats.robust_cv,
        attempts=best.stats.attempts,
        counted=best.stats.counted,
    )


def best_engine(engines: Sequence[EngineRecord]) -> EngineRecord | None:
    """Return the engine that leads: the highest peak, the first found on a tie.

    An emulated engine never leads: what an emulator produces is no property of the device. A
    virtual one leads no engine that measures; among nothing but virtual engines, which only the
    tests of this program run, one does, and its label says what it is.
    """
    scripted = all(e.virtual for e in engines)
    led = [
        e for e in engines if e.peak is not None and not e.emulated and (scripted or not e.virtual)
    ]
    return max(led, key=lambda e: e.peak.tops if e.peak else 0.0, default=None)


def run_score(
    engines: Sequence[EngineRecord], processors: Sequence[Processor], *, quick: bool
) -> Score | None:
    """Return the run's score: the best engine's measured peak. Null where there is none."""
    best = best_engine(engines)
    if best is None or best.peak is None:
        return None
    processor = next(p for p in processors if p.id == best.processor)
    return Score(
        tops=best.peak.tops,
        label=score_label(
            best.peak.tops,
            processor,
            processors,
            best.runtime_title,
            best.peak.label,
            quick=quick,
        ),
        engine=best.id,
        processor=processor.id,
        format=best.peak.format,
        workload=best.peak.workload,
        variant=best.peak.variant,
        unstable=best.peak.unstable,
    )


def no_score_reason(
    entries: Sequence[Entry], engines: Sequence[EngineRecord], manifest: Manifest
) -> str:
    """Return a sentence that says why a run has no score."""
    peaks = [e for e in entries if manifest.workloads[e.workload].tier == "peak"]
    if not peaks:
        beside = {e.workload for e in entries}
        if beside and all(manifest.workloads[w].tier == "extra" for w in beside):
            one = len(beside) == 1
            return f"{', '.join(sorted(beside))} {'is' if one else 'are'} not scored"
        return "the peak test, which the score is made of, was not part of this run"
    if any(e.peak for e in engines):
        return "only emulated or virtual engines have a peak, and those never make the score"
    counts: dict[str, int] = {}
    for entry in peaks:
        code = entry.why_not or entry.status
        counts[code] = counts.get(code, 0) + 1
    reasons = ", ".join(f"{code} ({n})" for code, n in counts.items())
    return f"no configuration of the peak test counts: {reasons}"


def large_peak(
    engines: Sequence[EngineRecord],
    entries: Sequence[Entry],
    processors: Sequence[Processor],
    manifest: Manifest,
) -> dict[str, Any] | None:
    """Return the large-batch peak per engine and the best per role; null where none was run.

    A labelled figure beside the score, never part of it (methodology §3a).
    """
    peaks = {e.id: peak for e in engines if (peak := engine_peak(e.id, entries, manifest, "large"))}
    if not peaks:
        return None
    roles = {p.id: p.role for p in processors}
    best: dict[str, dict[str, Any]] = {}
    for engine in engines:
        peak = peaks.get(engine.id)
        if peak is None or engine.emulated or engine.virtual:
            continue
        role = roles[engine.processor]
        if role not in best or peak.tops > best[role]["tops"]:
            best[role] = {"engine": engine.id, "tops": peak.tops, "label": peak.label}
    return {"engines": {k: p.model_dump() for k, p in peaks.items()}, "roles": best}
