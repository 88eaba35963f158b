"""One block per processor: its engines, their peaks by format, what real networks get."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from npumark.record.model import Delivered, EngineRecord, Entry, Payload, Processor
from npumark.report.catalog import Catalog
from npumark.report.charts import bar
from npumark.report.entries import (
    deaths,
    gate_margin,
    label,
    pieces,
    place,
    reason,
    stability,
    state,
)
from npumark.report.page import Page, width_of
from npumark.report.sheet import DIM, GOOD, STRONG, WARN, Part, Sheet
from npumark.report.words import DASH, count, percent, shape, tops
from npumark.score.labels import engine_marks

_WIDEST_BAR = 40


def processor_name(processor: Processor, among: Iterable[Processor]) -> str:
    """Return ``CPU · Intel Xeon``; identical cards get their number, what an emulator stands
    for is called so."""
    emulated = processor.details.get("emulated", False)
    twins = [
        p
        for p in among
        if (p.role, p.name) == (processor.role, processor.name)
        and p.details.get("emulated", False) == emulated
    ]
    number = f" #{processor.number}" if len(twins) > 1 else ""
    lead = "emulated " if emulated else ""
    return f"{lead}{processor.role} · {processor.name}{number}"


def processors(sheet: Sheet, run: Payload, catalog: Catalog) -> None:
    """Add a block per processor, in the record's order."""
    roles = {p.id: p.role for p in run.processors}
    bars = {e.id: list(_bars(run, e, roles[e.processor], catalog)) for e in run.engines}
    best = max((b.tops or 0.0 for found in bars.values() for b in found), default=0.0)
    for processor in run.processors:
        engines = _ranked([e for e in run.engines if e.processor == processor.id])
        if engines:
            _processor(sheet, run, processor, engines)
        for engine in engines:
            _engine(sheet, run, engine, catalog)
            _chart(sheet, bars[engine.id], best)
    _idle(sheet, run)


def _ranked(engines: Sequence[EngineRecord]) -> list[EngineRecord]:
    """Return the engines of one processor, the best peak first, those without one last."""
    return sorted(engines, key=lambda e: e.peak.tops if e.peak else -1.0, reverse=True)


def _processor(
    sheet: Sheet, run: Payload, processor: Processor, engines: Sequence[EngineRecord]
) -> None:
    """Add a processor's name, its driver, and its engines beside each other where several have
    a peak."""
    sheet.heading(processor_name(processor, run.processors))
    told = [str(v) for k in ("driver", "firmware") if (v := processor.details.get(k))]
    if told:
        sheet.say(" · ".join(told), indent=2, style=DIM)
    if doubt := processor.details.get("identity"):
        sheet.say(f"In doubt: {doubt}.", indent=2, hang=2, style=WARN)
    led = [(e, e.peak) for e in engines if e.peak is not None]
    if len(led) > 1:
        (best, peak), *others = led
        beside = ", ".join(f"{e.id} {tops(p.tops)}" for e, p in others)
        parts: list[Part] = [
            (f"best {tops(peak.tops)} TOPS", STRONG),
            f"{best.id}, {peak.label}",
            (f"beside it: {beside}", DIM),
        ]
        sheet.parts(parts, indent=2)


def _idle(sheet: Sheet, run: Payload) -> None:
    """Add the processors that a whole run measured nothing on; one of cards alone leaves out the
    others on purpose."""
    used = {e.processor for e in run.engines}
    idle = [p for p in run.processors if p.id not in used and not p.details.get("emulated")]
    if run.plan.engines is not None or run.plan.box.mode == "only" or not idle:
        return
    names = ", ".join(processor_name(p, run.processors) for p in idle)
    sheet.blank()
    sheet.say(f"Not measured: {names}. `npumark engines` says what would drive it.", style=WARN)


class _Bar:
    """A format's best peak figure on one engine; ``note`` says where it ran on another processor
    than a CPU, and why it does not count."""

    def __init__(self, entry: Entry, role: str) -> None:
        screened = entry.stats.screened
        self.label = f"{label(entry)}, screened" if screened else label(entry)
        self.tops = entry.figure.tops if entry.figure else None
        self.counts = entry.counts
        self.margin = gate_margin(entry)
        self.cv: Part = (DASH, DIM) if screened else stability(entry)
        notes = [f"{place(entry, role)[0]}."] if role != "CPU" and _placed(entry) else []
        if known := pieces(entry, role):
            notes.append(f"{known}.")
        notes += deaths(entry)
        if not entry.counts and not screened:
            notes.append(f"{state(entry)}: {reason(entry)}")
        self.note = " ".join(notes)


def _engine(sheet: Sheet, run: Payload, engine: EngineRecord, catalog: Catalog) -> None:
    version = f" {engine.version}" if engine.version else ""
    title: list[Part] = [f"{engine.runtime_title}{version}", (engine.id, DIM)]
    title += [(", ".join(marks), WARN)] if (marks := engine_marks(engine)) else []
    sheet.parts(title, indent=2)
    facts: list[tuple[str, list[Part]]] = [("peak", _peak(run, engine, catalog))]
    if (large := _large(run, engine)) is not None:
        facts.append(("large batch", large))
    facts.append(("delivered", _delivered(run, engine, catalog)))
    if engine.peak and engine.delivered and engine.delivered.complete:
        reached = percent(engine.delivered.tops / engine.peak.tops)
        facts.append(("gap", [f"real networks get {reached} of the peak"]))
    if engine.high_accuracy is not None:
        facts.append(("near-lossless", _mean(engine.high_accuracy, catalog)))
    sheet.facts(facts, indent=4)


def _peak(run: Payload, engine: EngineRecord, catalog: Catalog) -> list[Part]:
    peak = engine.peak
    if peak is None:
        return [DASH, (_why_no_peak(run, engine, catalog), WARN)]
    parts: list[Part] = [(f"{tops(peak.tops)} TOPS", STRONG), peak.label, shape(peak.workload)]
    if peak.unstable:
        parts.append((f"unstable (robust CV {percent(peak.robust_cv)})", WARN))
    elif peak.robust_cv is not None and peak.attempts > 1:
        parts.append((f"stable ({percent(peak.robust_cv)})", GOOD))
    parts.append((_attempts(peak.counted, peak.attempts), DIM))
    return parts


def _attempts(counted: int, attempts: int) -> str:
    if counted == attempts:
        return count(attempts, "attempt")
    return f"fastest {counted} of {attempts} attempts"


def _large(run: Payload, engine: EngineRecord) -> list[Part] | None:
    """Return the engine's large-batch peak, a labelled figure beside the score."""
    found = ((run.large_peak or {}).get("engines") or {}).get(engine.id)
    if found is None:
        return None
    return [f"{tops(found['tops'])} TOPS", found["label"], ("beside the score", DIM)]


def _why_no_peak(run: Payload, engine: EngineRecord, catalog: Catalog) -> str:
    tried = [e for e in run.entries if e.engine == engine.id and catalog.tier(e.workload) == "peak"]
    if not tried:
        return "the peak test was not part of this run"
    return "no configuration of the peak test counted: " + reason(tried[0])


def _delivered(run: Payload, engine: EngineRecord, catalog: Catalog) -> list[Part]:
    if engine.delivered is not None:
        return _mean(engine.delivered, catalog)
    mine = (e.workload for e in run.entries if e.engine == engine.id)
    if any(catalog.kind(workload) == "network" for workload in mine):
        return [DASH, ("no network counted", WARN)]
    return [DASH, ("networks were not part of this run", DIM)]


def _mean(delivered: Delivered, catalog: Catalog) -> list[Part]:
    parts: list[Part] = [(f"{tops(delivered.tops)} TOPS", STRONG)]
    if delivered.complete:
        parts.append(f"all {count(len(delivered.networks), 'network')}")
    else:
        missing = ", ".join(map(catalog.title, delivered.missing))
        parts.append((f"partial, never ranked: without {missing}", WARN))
    if delivered.unstable:
        parts.append(("unstable", WARN))
    return parts


def _bars(run: Payload, engine: EngineRecord, role: str, catalog: Catalog) -> Iterable[_Bar]:
    """Yield the best peak entry of each label, those that count first, the fastest first."""
    best: dict[str, Entry] = {}
    for entry in run.entries:
        if entry.engine != engine.id or catalog.tier(entry.workload) != "peak":
            continue
        held = best.get(label(entry))
        if held is None or _rank(entry) > _rank(held):
            best[label(entry)] = entry
    for entry in sorted(best.values(), key=_rank, reverse=True):
        yield _Bar(entry, role)


def _placed(entry: Entry) -> bool:
    return entry.placement.verdict is not None


def _rank(entry: Entry) -> tuple[bool, float]:
    return (entry.counts, entry.figure.tops if entry.figure else -1.0)


def _chart(sheet: Sheet, bars: list[_Bar], best: float) -> None:
    """Add a bar per format, with its gate margin and CV. All engines share one scale, so that
    their bars compare."""
    if not bars:
        return
    page = sheet.page
    lead = _widest("", *(b.label for b in bars), page=page)
    value = _widest("TOPS", *(tops(b.tops) for b in bars), page=page)
    slack = _widest("gate margin", *(b.margin[0] for b in bars), page=page)
    cv = _widest("CV", *(b.cv[0] for b in bars), page=page)
    room = (page.width or 80 + slack + cv) - 4 - lead - value - slack - cv - 4 * 2
    stacked = room < 8
    width = min(_WIDEST_BAR, (page.width or 80) - 6 if stacked else room)
    if not stacked:
        titles = f"{'TOPS':>{value}}  {'gate margin':{slack}}  {'CV':>{cv}}"
        sheet.line((f"{'':{lead}}  {titles}", DIM), indent=4)
    for b in bars:
        name = page.plain(b.label)
        drawn = (
            "" if b.tops is None or not best else bar(b.tops / best, width, unicode=page.unicode)
        )
        style = "cyan" if b.counts else DIM
        if stacked:
            sheet.parts([name, f"{tops(b.tops)} TOPS" if b.tops is not None else DASH], indent=4)
            if b.tops is not None:
                told = (f"margin {b.margin[0]}", b.margin[1]), (f"CV {b.cv[0]}", b.cv[1])
                sheet.parts(told, indent=6)
            if drawn:
                sheet.line((drawn, style), indent=4)
        else:
            sheet.line(
                f"{_padded(name, lead, page)}  {tops(b.tops):>{value}}  ",
                (f"{_padded(b.margin[0], slack, page)}  ", b.margin[1]),
                (f"{b.cv[0]:>{cv}}  ", b.cv[1]),
                (drawn, style),
                indent=4,
            )
        if b.note:
            sheet.say(b.note, indent=6, hang=2, style=DIM)


def _widest(*texts: str, page: Page) -> int:
    return max(width_of(page.plain(text)) for text in texts)


def _padded(text: str, width: int, page: Page) -> str:
    return text + " " * (width - width_of(page.plain(text)))
