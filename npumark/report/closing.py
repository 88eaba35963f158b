"""The last lines of a report: what the harness costs, where the time went, where it is kept."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Final

from npumark.record.model import Payload
from npumark.report.charts import bar
from npumark.report.page import width_of
from npumark.report.sheet import DIM, Sheet
from npumark.report.words import DASH, count, duration, percent

_BAR = 24
STAGES: Final = {
    "import": "importing runtimes",
    "verify": "checking files",
    "load": "loading",
    "warmup": "warm-up",
    "loop": "timed loops",
    "accuracy": "accuracy passes",
    "placement": "placement runs",
    "process": "starting workers",
    "unfinished": "fruitless attempts",
    "discover": "finding engines",
    "pack": "checking the pack",
    "preconditions": "watching the machine",
    "compile": "preparing compiled models",
    "box": "all cards at once",
    "spacing": "waits between attempts",
    "overhead": "measuring the harness",
}
"""The parts of a run's time, in words."""


def harness(sheet: Sheet, run: Payload) -> None:
    """Add the harness's own cost per call, as measured in this run."""
    cost = run.harness.get("overhead_ns")
    added = cost.get("added") if isinstance(cost, dict) else None
    sheet.blank()
    if not isinstance(cost, dict) or added is None:
        why = run.harness.get("why") or "not measured"
        sheet.say(f"Harness overhead per call: {DASH} ({why})", hang=2)
        return
    rest = [
        f"{name.replace('_', ' ')} {_brief(ns)}" for name, ns in cost.items() if name != "added"
    ]
    sheet.say(
        f"Harness overhead per call, measured on a trivial graph: {_brief(added)} "
        f"({', '.join(rest)}). Nothing is subtracted.",
        hang=2,
    )


def time_spent(sheet: Sheet, run: Payload) -> None:
    """Add where the run's time went; none of it is part of a score."""
    beside = run.environment.facts.get("spent_ns")
    every = {**run.where_time_went_ns, **(beside if isinstance(beside, dict) else {})}
    spent = {STAGES.get(name, name.replace("_", " ")): ns for name, ns in every.items() if ns > 0}
    total = sum(spent.values())
    if not total:
        return
    sheet.heading(f"Where the time went: {duration(total / 1e9)}")
    rows = [
        (name, percent(ns / total), duration(ns / 1e9), ns / total)
        for name, ns in sorted(spent.items(), key=lambda item: -item[1])
    ]
    lead, first, second = (max(width_of(str(row[i])) for row in rows) for i in range(3))
    for name, part, long, share in rows:
        took = f"{part:>{first}}  {long:>{second}}"
        words = f"{name.ljust(lead)}  {took}"
        if not sheet.page.fits(2 + width_of(words)):
            sheet.line(name, indent=2)
            sheet.line(took, indent=4)
            continue
        drawn = bar(share, _BAR, unicode=sheet.page.unicode)
        if not sheet.page.fits(2 + width_of(words) + 2 + _BAR):
            drawn = ""
        sheet.line(f"{words}  ", (drawn, "cyan"), indent=2)


def measured_and_derived(sheet: Sheet, run: Payload) -> None:
    """Add which figures were measured and which follow from them."""
    sheet.blank()
    total = ", box total (median of the sums over cards)" if run.box else ""
    sheet.say(
        "Measured: inferences per second, latencies, answers, placement. Derived: TOPS (2 × MACs "
        f"× inferences per second), delivered (geometric mean){total}. Nothing is projected.",
        style=DIM,
    )


def saved(sheet: Sheet, run: Payload, where: Path | None, *, kept: bool = True) -> None:
    """Add where the record lies and what else can be done with it. ``kept``: the run is in the
    history of this computer, which knows it by its id and has its raw samples."""
    if where is None:
        return
    sheet.blank()
    sheet.path("Record:", str(where))
    attempts = sum(len(e.attempts) for e in run.entries)
    attempts += sum(len(role.attempts) for role in run.box.roles) if run.box else 0
    told = f"{count(attempts, 'attempt')} kept. Recompute every figure from them with"
    if kept:
        sheet.say(f"{told} `npumark verify {run.run_id}`.", style=DIM)
    else:
        sheet.say(f"{told}:", style=DIM)
        sheet.path("npumark verify", shlex.quote(str(where)), indent=2)


def _brief(ns: float) -> str:
    if ns <= 0:
        return "below what can be told apart"
    return f"{ns:.0f} ns" if ns < 1000 else f"{ns / 1000:.1f} µs"
