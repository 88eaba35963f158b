"""The last lines of a report: what the harness costs, where the time went, where it is kept."""

from __future__ import annotations

from pathlib import Path

from npumark.record.model import Payload
from npumark.report.charts import bar
from npumark.report.page import width_of
from npumark.report.sheet import DIM, Sheet
from npumark.report.words import count, duration, percent

_BAR = 24


def harness(sheet: Sheet, run: Payload) -> None:
    """Add the harness's own cost per call, as measured in this run."""
    overhead = run.harness.get("overhead_ns")
    if isinstance(overhead, dict):
        costs = [f"{name} {ns / 1000:.1f} µs" for name, ns in overhead.items() if _is_number(ns)]
        if costs:
            sheet.blank()
            sheet.say(f"Harness overhead per call, measured: {', '.join(costs)}", hang=2)
    elif why := run.harness.get("why"):
        sheet.blank()
        sheet.say(f"Harness overhead per call: — ({why})", hang=2)


def time_spent(sheet: Sheet, run: Payload) -> None:
    """Add where the run's time went; none of it is part of a score."""
    spent = {k: v for k, v in run.where_time_went_ns.items() if v > 0}
    total = sum(spent.values())
    if not total:
        return
    sheet.heading(f"Where the time went: {duration(total / 1e9)}")
    names = {k: k.removesuffix("_ns").replace("_", " ") for k in spent}
    lead = max(map(width_of, names.values()))
    for name, ns in sorted(spent.items(), key=lambda item: -item[1]):
        words = f"{names[name].ljust(lead)}  {percent(ns / total):>6}  {duration(ns / 1e9):>8}"
        drawn = bar(ns / total, _BAR, unicode=sheet.page.unicode)
        if not sheet.page.fits(2 + width_of(words) + 2 + _BAR):
            drawn = ""
        sheet.line(f"{words}  ", (drawn, "cyan"), indent=2)


def measured_and_derived(sheet: Sheet) -> None:
    """Add which figures were measured and which follow from them."""
    sheet.blank()
    sheet.say(
        "Measured: inferences per second, latencies, answers, placement. Derived: TOPS (2 × MACs "
        "× inferences per second), delivered (geometric mean). Nothing is projected.",
        style=DIM,
    )


def saved(sheet: Sheet, run: Payload, where: Path | None) -> None:
    """Add where the record lies and what else can be done with it."""
    if where is None:
        return
    sheet.blank()
    sheet.path("Record:", str(where))
    attempts = sum(len(e.attempts) for e in run.entries)
    sheet.say(
        f"{count(attempts, 'attempt')} kept. Recompute every figure from them with "
        f"`npumark verify {run.run_id}`.",
        style=DIM,
    )


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
