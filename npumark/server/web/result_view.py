"""What a result's page shows of its record: plain values for the template, nothing decided anew.

A record's strings are anybody's. They pass through as they are and are escaped where they are
written; numbers are the record's own, which were recomputed when it was accepted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from npumark.plain import count
from npumark.record.box import BoxCard, BoxRole
from npumark.record.model import Delivered, EngineRecord, Entry, Payload, Processor
from npumark.report import entries as words_of
from npumark.report.advice import WARNINGS, advice
from npumark.report.catalog import Catalog
from npumark.report.closing import STAGES
from npumark.report.words import duration, percent, shape
from npumark.score.labels import engine_marks, role_text
from npumark.server.figures import Device, device_of
from npumark.server.web.computer import facts, state, violations
from npumark.server.web.entry_view import EntryView, entry_view, title_of


@dataclass(frozen=True, slots=True)
class EngineView:
    """An engine of a processor: its peaks by format and its networks. ``gap`` is what share of
    the peak real networks get, null where delivered is not complete; the other shares are of the
    greatest peak of the run."""

    id: str
    title: str
    marks: tuple[str, ...]
    record: EngineRecord
    peaks: tuple[EntryView, ...]
    counted: tuple[EntryView, ...]
    others: tuple[EntryView, ...]
    large: tuple[EntryView, ...]
    large_tops: float | None
    missing: tuple[str, ...]
    gap: float | None
    share: float
    delivered_share: float


@dataclass(frozen=True, slots=True)
class ProcessorView:
    """``device`` is its kind, which a page of its own may be of; ``again`` says that another one
    of that kind stands before it."""

    title: str
    role: str
    device: Device
    emulated: bool
    engines: tuple[EngineView, ...]
    again: bool = False


@dataclass(frozen=True, slots=True)
class CardView:
    """A card alone and in the box; shares are of the greatest figure of its role."""

    name: str
    solo: float
    solo_share: float
    box: float | None
    box_share: float
    of_solo: float | None
    slow: str
    ran: str


@dataclass(frozen=True, slots=True)
class BoxView:
    role: BoxRole
    title: str
    cards: tuple[CardView, ...]
    counted: int
    made: int


@dataclass(frozen=True, slots=True)
class ResultView:
    """``machine``, ``state`` and ``went`` are pairs of words, ``warnings`` sentences."""

    payload: Payload
    processors: tuple[ProcessorView, ...]
    boxes: tuple[BoxView, ...]
    machine: tuple[tuple[str, str], ...]
    state: tuple[tuple[str, str], ...]
    violations: tuple[str, ...]
    warnings: tuple[str, ...]
    went: tuple[tuple[str, str], ...]


def result_view(payload: Payload, catalog: Catalog) -> ResultView:
    """Return what the page of ``payload`` shows."""
    best = max(
        (e.figure.tops for e in payload.entries if e.figure and catalog.tier(e.workload) == "peak"),
        default=0.0,
    )
    found = []
    for processor in payload.processors:
        engines = [e for e in payload.engines if e.processor == processor.id]
        views = tuple(_engine(payload, e, processor.role, best, catalog) for e in _ranked(engines))
        if views:
            found.append(
                ProcessorView(
                    title=_processor_title(processor, payload),
                    role=processor.role,
                    device=device_of(processor),
                    emulated=processor.details.get("emulated") is True,
                    engines=views,
                )
            )
    found.sort(key=lambda p: _peak(p.engines[0].record), reverse=True)
    checks = payload.environment.checks
    violated = tuple(violations(checks))
    told = {"noisy"} if violated else set()
    return ResultView(
        payload=payload,
        processors=tuple(_after_first(found)),
        boxes=tuple(_box(payload, role) for role in (payload.box.roles if payload.box else ())),
        machine=tuple(facts(payload.machine)),
        state=tuple(state(checks, beside=payload.machine)),
        violations=violated,
        warnings=tuple(advice(WARNINGS, c).says for c in payload.warnings if c not in told),
        went=tuple(_went(payload.where_time_went_ns)),
    )


def _after_first(found: Iterable[ProcessorView]) -> Iterable[ProcessorView]:
    """Yield processors, those marked that are of a kind which came before."""
    seen = set()
    for processor in found:
        yield replace(processor, again=processor.device in seen)
        seen.add(processor.device)


def _engine(
    payload: Payload, engine: EngineRecord, role: str, best: float, catalog: Catalog
) -> EngineView:
    mine = [e for e in payload.entries if e.engine == engine.id]
    peaks = [e for e in mine if catalog.tier(e.workload) == "peak"]
    large = [e for e in mine if catalog.tier(e.workload) == "large"]
    networks = [e for e in mine if catalog.kind(e.workload) == "network"]
    chosen = engine.delivered.networks if engine.delivered else {}

    lead = (engine.peak.workload, engine.peak.variant) if engine.peak else None

    def views(shown: Iterable[Entry], greatest: float) -> tuple[EntryView, ...]:
        return tuple(
            entry_view(
                e, title_of(e, catalog), role, greatest, best=(e.workload, e.variant) == lead
            )
            for e in shown
        )

    picked = [(workload, f.variant) for workload, f in chosen.items()]
    counted = [e for e in networks if _key(e) in picked]
    fastest = max((e.figure.tops for e in networks if e.figure), default=0.0)
    widest = max((e.figure.tops for e in large if e.figure), default=0.0)
    others = [e for e in networks if _key(e) not in picked]
    large_peak = ((payload.large_peak or {}).get("engines") or {}).get(engine.id)
    complete = engine.delivered is not None and engine.delivered.complete
    return EngineView(
        id=engine.id,
        title=f"{engine.runtime_title} {engine.version or ''}".strip(),
        marks=engine_marks(engine),
        record=engine,
        peaks=views(_by_rate(_best_of_label(peaks)), best),
        counted=views(counted, fastest),
        others=views(others, fastest),
        large=views(_by_rate(_best_of_label(large)), widest),
        large_tops=large_peak["tops"] if large_peak else None,
        missing=tuple(map(catalog.title, _missing(engine.delivered))),
        gap=(
            engine.delivered.tops / engine.peak.tops
            if complete and engine.delivered and engine.peak
            else None
        ),
        share=engine.peak.tops / best if engine.peak and best else 0.0,
        delivered_share=engine.delivered.tops / best if engine.delivered and best else 0.0,
    )


def _key(entry: Entry) -> tuple[str, str]:
    return entry.workload, entry.variant


def _best_of_label(entries: Iterable[Entry]) -> list[Entry]:
    """Return the best entry of each format and shape: those that count go before others."""
    best: dict[str, Entry] = {}
    for entry in entries:
        held = best.get(words_of.label(entry))
        if held is None or _rank(entry) > _rank(held):
            best[words_of.label(entry)] = entry
    return list(best.values())


def _by_rate(entries: Iterable[Entry]) -> list[Entry]:
    return sorted(entries, key=_rank, reverse=True)


def _rank(entry: Entry) -> tuple[bool, float]:
    return entry.counts, entry.figure.tops if entry.figure else -1.0


def _ranked(engines: Iterable[EngineRecord]) -> list[EngineRecord]:
    return sorted(engines, key=_peak, reverse=True)


def _peak(engine: EngineRecord) -> float:
    return engine.peak.tops if engine.peak else -1.0


def _missing(delivered: Delivered | None) -> Sequence[str]:
    return delivered.missing if delivered else ()


def _box(payload: Payload, role: BoxRole) -> BoxView:
    figures = [t for c in role.cards for t in (c.solo.tops, c.in_box_tops) if t is not None]
    best = max(figures, default=0.0) or 1.0
    names = list(dict.fromkeys(card.name for card in role.cards))
    title = f"{count(len(role.cards), role.role)}{f' · {names[0]}' if len(names) == 1 else ''}"
    return BoxView(
        role=role,
        title=title,
        cards=tuple(_card(payload, card, best) for card in role.cards),
        counted=sum(a.counts for a in role.attempts),
        made=sum(a.status == "ran" for a in role.attempts),
    )


def _card(payload: Payload, card: BoxCard, best: float) -> CardView:
    modes = (("alone", card.slow_alone), ("in the box", card.slow_in_box))
    solo = card.solo
    runtime = next((e.runtime_title for e in payload.engines if e.id == solo.engine), solo.engine)
    return CardView(
        name=f"{card.name} #{card.number}",
        solo=solo.tops,
        solo_share=solo.tops / best,
        box=card.in_box_tops,
        box_share=(card.in_box_tops or 0.0) / best,
        of_solo=card.of_solo,
        slow=" and ".join(mode for mode, slow in modes if slow),
        ran=f"{runtime}, {solo.label}, {shape(solo.workload)}",
    )


def _processor_title(processor: Processor, payload: Payload) -> str:
    return f"{role_text(processor, payload.processors)} · {processor.name}"


def _went(spent: Mapping[str, int]) -> Iterable[tuple[str, str]]:
    """Yield what the run's time was spent on, most first."""
    for name, ns in sorted(spent.items(), key=lambda item: -item[1]):
        if ns > 0:
            share = percent(ns / sum(spent.values()))
            yield STAGES.get(name, name.replace("_", " ")), f"{duration(ns / 1e9)} ({share})"
