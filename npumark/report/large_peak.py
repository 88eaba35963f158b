"""The large-batch peak of each role: a figure beside the score, never part of it."""

from __future__ import annotations

from npumark.record.model import Payload
from npumark.report.sheet import DIM, STRONG, Part, Sheet
from npumark.report.words import tops


def large_peak(sheet: Sheet, run: Payload) -> None:
    """Add the best large-batch peak of each role; nothing where none was measured."""
    if run.large_peak is None:
        return
    best = run.large_peak["roles"]
    sheet.heading("Large-batch peak, beside the score and never part of it")
    rows: list[tuple[str, list[Part]]] = [
        (role, [(f"{tops(one['tops'])} TOPS", STRONG), one["label"], (one["engine"], DIM)])
        for role, one in best.items()
    ]
    sheet.facts(rows, indent=2)
    if not best:
        sheet.say("Only emulated or virtual engines have one, and those lead no role.", indent=2)
