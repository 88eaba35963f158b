"""What compiling took beside loading, for the engines that compile; no part of any score."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from npumark.record.model import Attempt, Entry, Payload, Preparation
from npumark.report.sheet import DIM, WARN, Column, Part, Row, Sheet
from npumark.report.words import DASH, duration, size

_COLUMNS = (
    Column("", right=False),
    Column("compiling", right=True),
    Column("loading", right=True),
    Column("size", right=True),
    Column("compiled model"),
)

_STATES = {
    "built": "compiled in this run",
    "rebuilt": "compiled again",
    "reused": "kept from an earlier run",
    "unkept": "none kept",
}

_NS = 1e9


def compiled(sheet: Sheet, run: Payload) -> None:
    """Add a table of the compiled models of each engine that keeps them; nothing without one."""
    for engine in run.engines:
        entries = [e for e in run.entries if e.engine == engine.id]
        rows = [_row(e, made) for e in entries if (made := _prepared(run, e))]
        if rows:
            sheet.heading(f"Compiled models · {engine.runtime_title} ({engine.id})")
            sheet.table(_COLUMNS, rows)
    if run.prepared:
        sheet.say(
            "Compiling is done before the first attempt and is not timed; loading is the median "
            "over the attempts. Neither is part of a score.",
            style=DIM,
        )


def _prepared(run: Payload, entry: Entry) -> list[Preparation]:
    key = (entry.engine, entry.workload, entry.variant)
    return [p for p in run.prepared if (p.engine, p.workload, p.variant) == key]


def _row(entry: Entry, made: Sequence[Preparation]) -> Row:
    compile_ns = [p.compile_ns for p in made if p.compile_ns is not None]
    compile_ns += [a.cache.compile_ns for a in entry.attempts if a.cache and a.cache.compile_ns]
    load_ns = [a.measurement.load_ns for a in entry.attempts if a.measurement and _loaded(a)]
    last, states = made[-1], [p.state for p in made]
    state = "not prepared" if last.state is None else _STATES[last.state]
    if last.state == "reused":
        # A run that was resumed finds what it compiled itself.
        state = next((_STATES[s] for s in ("rebuilt", "built") if s in states), state)
    cells: tuple[Part, ...] = (
        f"{entry.workload} · {entry.variant}",
        duration(max(compile_ns) / _NS) if compile_ns else DASH,
        duration(median(load_ns) / _NS) if load_ns else DASH,
        size(last.bytes),
        (state, "" if last.state in ("built", "reused") else WARN),
    )
    notes = [p.why for p in made if p.why]
    notes += [f"attempt {a.n}: {a.cache.why}" for a in entry.attempts if a.cache and a.cache.why]
    return Row(cells, ("; ".join(dict.fromkeys(notes)), WARN) if notes else None)


def _loaded(attempt: Attempt) -> bool:
    """Say whether what the attempt loaded was compiled before."""
    return attempt.cache is not None and attempt.cache.state == "reused"
