"""Two to four results side by side, and what sets them apart. Figures of different series are
shown beside each other and never ranked (methodology §10)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from npumark.record.model import EngineRecord, Payload
from npumark.report.words import shape
from npumark.score.labels import engine_marks
from npumark.server.figures import figures_of

MOST_COMPARED = 4


@dataclass(frozen=True, slots=True)
class Compared:
    """One figure of each result (TOPS), null where it has none. ``best`` is the place of the
    greatest, null where they may not be ranked or none stands out."""

    name: str
    values: tuple[float | None, ...]
    shares: tuple[float, ...]
    best: int | None


@dataclass(frozen=True, slots=True)
class Apart:
    """Something that differs: what each result has."""

    what: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """``noisy``: which of the computers were not quiet. ``one_series``: the figures may be ranked.
    ``apart`` lists what keeps them from being one series first, then what may explain a
    difference."""

    noisy: tuple[bool, ...]
    one_series: bool
    score: Compared
    peaks: tuple[Compared, ...]
    delivered: tuple[Compared, ...]
    apart: tuple[Apart, ...]


_SERIES: Sequence[tuple[str, Callable[[Payload], str]]] = (
    ("score version", lambda run: run.score_version),
    ("suite", lambda run: f"{run.suite.name} {run.suite.version}"),
    ("edition", lambda run: run.suite.edition),
)
_CIRCUMSTANCES: Sequence[tuple[str, Callable[[Payload], str]]] = (
    ("score's engine", lambda run: _scored(run)[0]),
    ("score's format", lambda run: _scored(run)[1]),
    ("score's shape", lambda run: _scored(run)[2]),
    ("quick run", lambda run: "yes" if run.plan.quick else "no"),
    ("operating system", lambda run: _fact(run, "os")),
    ("kernel", lambda run: _fact(run, "kernel")),
    ("npumark", lambda run: run.tool.version),
    ("quiet computer", lambda run: "no" if run.environment.noisy else "yes"),
)


def compare(runs: Sequence[Payload]) -> Comparison:
    """Return what runs have in common and what sets them apart. Pure."""
    series = [_apart(what, [of(run) for run in runs]) for what, of in _SERIES]
    beside = [_apart(what, [of(run) for run in runs]) for what, of in _CIRCUMSTANCES]
    one_series = not any(series)
    peaks: list[Mapping[str, float]] = [_peaks(run) for run in runs]
    delivered = [_delivered(run) for run in runs]
    score = [run.score.tops if run.score else None for run in runs]
    return Comparison(
        noisy=tuple(run.environment.noisy for run in runs),
        one_series=one_series,
        score=_compared("score", score, ranked=one_series),
        peaks=tuple(_table(peaks, ranked=one_series)),
        delivered=tuple(_table(delivered, ranked=one_series)),
        apart=tuple(a for a in (*series, *beside, *_versions(runs)) if a is not None),
    )


def _table(of: Sequence[Mapping[str, float]], *, ranked: bool) -> list[Compared]:
    """Return a line for each name that any run has, in order of the first run's."""
    names = dict.fromkeys(name for found in of for name in found)
    return [_compared(name, [found.get(name) for found in of], ranked=ranked) for name in names]


def _compared(name: str, values: Sequence[float | None], *, ranked: bool) -> Compared:
    known = [v for v in values if v is not None]
    greatest = max(known, default=0.0)
    stands_out = ranked and len(known) > 1 and known.count(greatest) == 1
    return Compared(
        name=name,
        values=tuple(values),
        shares=tuple((v or 0.0) / greatest if greatest else 0.0 for v in values),
        best=values.index(greatest) if stands_out else None,
    )


def _peaks(run: Payload) -> dict[str, float]:
    """Return the best counted peak of each role, runtime and format."""
    found: dict[str, float] = {}
    for row in sorted(figures_of(run), key=lambda row: -row["tops"]):
        found.setdefault(f"{row['role']} · {row['runtime']} · {row['format']}", row["tops"])
    return found


def _delivered(run: Payload) -> dict[str, float]:
    """Return the best delivered figure of each role and runtime: complete and stable ones."""
    found: dict[str, float] = {}
    for engine in sorted(run.engines, key=lambda e: -(e.delivered.tops if e.delivered else 0.0)):
        mean = engine.delivered
        if mean and mean.complete and not mean.unstable:
            found.setdefault(f"{_role(run, engine)} · {engine.runtime_title}", mean.tops)
    return found


def _versions(runs: Sequence[Payload]) -> Iterable[Apart | None]:
    """Yield the runtimes that more than one run measured, in different versions."""
    seen = [_runtimes(run) for run in runs]
    for title in dict.fromkeys(title for found in seen for title in found):
        having = [found[title] for found in seen if title in found]
        if len(having) > 1 and len(set(having)) > 1:
            yield _apart(title, [found.get(title, "not measured") for found in seen])


def _runtimes(run: Payload) -> dict[str, str]:
    measured = [e for e in run.engines if e.peak or e.delivered]
    return {
        e.runtime_title: " ".join((e.version or "of unknown version", *engine_marks(e)))
        for e in measured
    }


def _role(run: Payload, engine: EngineRecord) -> str:
    return next(p.role for p in run.processors if p.id == engine.processor)


def _apart(what: str, values: Sequence[str]) -> Apart | None:
    return Apart(what, tuple(values)) if len(set(values)) > 1 else None


def _scored(run: Payload) -> tuple[str, str, str]:
    """Return what reached the score: its runtime, number format and shape."""
    score = run.score
    if score is None:
        return ("no score", "no score", "no score")
    runtime = next((e.runtime_title for e in run.engines if e.id == score.engine), score.engine)
    return (runtime, score.format, shape(score.workload))


def _fact(run: Payload, name: str) -> str:
    value: Any = run.machine.get(name)
    return "unknown" if value is None else str(value)
