"""An entry of a record in words, with its attempts as dots."""

from __future__ import annotations

from dataclasses import dataclass

from npumark.plain import count
from npumark.record.model import Entry
from npumark.report import entries as words_of
from npumark.report.advice import ENTRIES
from npumark.report.catalog import Catalog
from npumark.report.sheet import Part
from npumark.report.words import DASH, figure, part, shape
from npumark.server.charts import Dot


@dataclass(frozen=True, slots=True)
class EntryView:
    """An entry in words. ``share`` is of the greatest TOPS beside it, for its bar; ``middle`` is
    what its dots lie around (inferences/s), ``note`` why it does not count, or what to know."""

    name: str
    label: str
    variant: str
    tops: float | None
    ips: float | None
    share: float
    counts: bool
    best: bool
    margin: str
    cv: str
    unstable: bool
    place: str
    evidence: str
    latency: str
    dots: tuple[Dot, ...]
    middle: float | None
    attempts: str
    note: str


def entry_view(entry: Entry, name: str, role: str, greatest: float, *, best: bool) -> EntryView:
    found = entry.figure
    median = _median_latency(entry)
    return EntryView(
        name=name,
        label=words_of.label(entry),
        variant=entry.variant,
        tops=found.tops if found else None,
        ips=found.ips if found else None,
        share=found.tops / greatest if found and greatest else 0.0,
        counts=entry.counts,
        best=best,
        margin=_text(words_of.gate_margin(entry)),
        cv=_text(words_of.stability(entry)),
        unstable=entry.stats.unstable,
        place=_place(entry),
        evidence=_evidence(entry, role),
        latency=latency(median) if median is not None else "",
        dots=tuple(_dots(entry)),
        middle=found.ips if found else None,
        attempts=_attempts(entry),
        note=_note(entry),
    )


def title_of(entry: Entry, catalog: Catalog) -> str:
    network = catalog.kind(entry.workload) == "network"
    return catalog.title(entry.workload) if network else shape(entry.workload)


def _dots(entry: Entry) -> list[Dot]:
    """Return the attempts of an entry: those that its figure is the median of are its fastest
    ``stats.counted`` (all of a network's; methodology §3, §7). Of one that does not count none
    does."""
    landed = {a.n: a.measurement.ips for a in entry.attempts if a.measurement is not None}
    fastest = sorted(landed, key=lambda n: (-landed[n], n))
    counted = set(fastest[: entry.stats.counted] if entry.counts else ())
    return [Dot(a.n, landed.get(a.n), a.n in counted) for a in entry.attempts]


def _attempts(entry: Entry) -> str:
    if not entry.attempts:
        return ""
    counted, of = entry.stats.counted, len(entry.attempts)
    if not entry.counts or counted in (0, of):
        return count(of, "attempt")
    return f"{counted} of {of} attempts"


def _place(entry: Entry) -> str:
    """Return the share of time that was spent where the entry ran, and whether it is proved."""
    placement = entry.placement
    if placement.verdict is None:
        return DASH
    return f"{part(placement.share)} {placement.verdict}"


def _evidence(entry: Entry, role: str) -> str:
    """Return what proves where an entry ran, and what else is known of it."""
    evidence = entry.placement.evidence
    told = [evidence] if role != "CPU" and evidence not in (None, "none") else []
    told += [known] if (known := words_of.pieces(entry, role)) else []
    return ", ".join(text for text in told if text)


def _note(entry: Entry) -> str:
    """Return what else there is to say of an entry: who died, why it does not count."""
    notes = words_of.deaths(entry)
    if entry.stats.screened_outlier:
        notes.append("A screened encoding's single attempt was faster than this median.")
    if not entry.counts and not entry.stats.screened:
        code = entry.why_not or entry.status
        told = words_of.reason(entry)
        notes.append(f"{words_of.state(entry)}: {told}")
        if told.replace(" ", "_") == code and code in ENTRIES:
            notes[-1] = ENTRIES[code].says
    return " ".join(note for note in notes if note)


def _median_latency(entry: Entry) -> int | None:
    """Return the median latency of the attempt in the middle, in nanoseconds."""
    landed = sorted(
        (a.measurement for a in entry.attempts if a.measurement is not None), key=lambda m: m.ips
    )
    return landed[(len(landed) - 1) // 2].latency_ns.median if landed else None


def latency(ns: int) -> str:
    """Return a latency to three significant digits."""
    return f"{figure(ns / 1e9)} s" if ns >= 1e9 else f"{figure(ns / 1e6)} ms"


def _text(part: Part) -> str:
    return part if isinstance(part, str) else part[0]
