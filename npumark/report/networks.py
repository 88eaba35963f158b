"""The networks: a table per engine with speed, gate margin, stability and placement."""

from __future__ import annotations

from collections.abc import Sequence

from npumark.record.model import Entry, Payload
from npumark.report.catalog import Catalog
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
from npumark.report.sheet import DIM, GOOD, STRONG, WARN, Column, Part, Row, Sheet
from npumark.report.words import figure, tops
from npumark.score.labels import engine_marks

_COLUMNS = (
    Column("", right=False),
    Column("inf/s", right=True, unit=" inf/s"),
    Column("TOPS", right=True, unit=" TOPS"),
    Column("gate margin"),
    Column("CV", right=True),
    Column("ran on"),
)

SCREENED = "screened: one attempt, too far below the best one to be repeated"


def networks(sheet: Sheet, run: Payload, catalog: Catalog) -> None:
    """Add a table per engine of its networks, then of its chains beside the peak test."""
    networks_ = [e for e in run.entries if catalog.kind(e.workload) == "network"]
    chains = [e for e in run.entries if e not in networks_ and catalog.tier(e.workload) != "peak"]
    _tables(sheet, run, networks_, "Networks", catalog)
    if networks_:
        sheet.say("* counts towards delivered TOPS", style=DIM)
    if any(e.stats.screened for e in (*networks_, *chains)):
        sheet.say(SCREENED, style=DIM)
    _tables(sheet, run, chains, "Other chains", catalog)


def _tables(
    sheet: Sheet, run: Payload, shown: Sequence[Entry], title: str, catalog: Catalog
) -> None:
    processors = {p.id: p.role for p in run.processors}
    for engine in run.engines:
        entries = [e for e in shown if e.engine == engine.id]
        if not entries:
            continue
        named = ", ".join((engine.id, *engine_marks(engine)))
        sheet.heading(f"{title} · {engine.runtime_title} ({named})")
        picked = engine.delivered.networks if engine.delivered else {}
        rows: list[Row] = []
        for workload in dict.fromkeys(e.workload for e in entries):
            rows.append(Row(((catalog.title(workload), STRONG),)))
            mine = [e for e in entries if e.workload == workload]
            twice = {label(e) for e in mine if sum(label(e) == label(x) for x in mine) > 1}
            for entry in mine:
                chosen = workload in picked and picked[workload].variant == entry.variant
                flagged = chosen and picked[workload].screened_outlier
                role = processors.get(engine.processor, "")
                name = (
                    f"{label(entry)} ({entry.variant})" if label(entry) in twice else label(entry)
                )
                rows.append(_row(entry, name, role, chosen=chosen, outlier=flagged))
        sheet.table(_COLUMNS, rows)


def _row(entry: Entry, name: str, role: str, *, chosen: bool, outlier: bool) -> Row:
    cells: tuple[Part, ...] = (
        (f"{'*' if chosen else ' '} {name}", GOOD if chosen else ""),
        figure(entry.figure.ips if entry.figure else None),
        tops(entry.figure.tops if entry.figure else None),
        gate_margin(entry),
        stability(entry),
        place(entry, role),
    )
    notes = []
    if known := pieces(entry, role):
        notes.append(f"{known}.")
    if outlier:
        notes.append("A screened encoding's single attempt was faster than this median.")
    if entry.stats.unstable:
        notes.append("Unstable: the attempts differ by more than 5 % (robust CV).")
    notes += deaths(entry)
    if not entry.counts and not entry.stats.screened:
        notes.append(f"{state(entry)}: {reason(entry)}")
    return Row(cells, (" ".join(notes), WARN) if notes else None)
