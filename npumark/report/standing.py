"""The first lines of a report: the headline, what it may be compared with, what disturbed it."""

from __future__ import annotations

from npumark.machine.preconditions import violations
from npumark.record.model import Payload
from npumark.report.advice import (
    NOT_ASKED_FOR,
    NOT_COMPARABLE,
    WARNINGS,
    Advice,
    advice,
    void_attempts,
)
from npumark.report.box import box_lines, void_of_all
from npumark.report.sheet import BAD, DIM, GOOD, STRONG, WARN, Sheet
from npumark.report.words import plainly

_TOLD_ABOVE = frozenset({"noisy", "preconditions_skipped"})


def headline(sheet: Sheet, run: Payload) -> None:
    """Add the score's label, or why there is none, the totals beside it, and the series they
    belong to."""
    if run.score is not None:
        sheet.say(run.score.label, hang=2, style=STRONG)
        if run.score.unstable:
            sheet.say("Unstable: its attempts differ by more than noise should.", style=WARN)
    else:
        sheet.say(f"No score: {plainly(run.score_why or 'the reason was not recorded')}", style=BAD)
    for line in box_lines(run):
        sheet.say(line, hang=2)
    series = [
        f"{run.suite.edition} weights",
        f"suite {run.suite.name} {run.suite.version}",
        f"score {run.score_version}",
        f"run {run.run_id}",
        run.created,
    ]
    if run.plan.quick:
        series.insert(0, "quick run")
    if run.plan.ladder:
        series.insert(0, f"ladder {run.plan.ladder}")
    sheet.parts([(part, DIM) for part in series])


def standing(sheet: Sheet, run: Payload, *, kept: bool = True) -> None:
    """Add whether the run is comparable, with each reason against it, and what to do. ``kept``:
    the run is in the history of this computer."""
    if run.comparable:
        sheet.blank()
        sheet.say("Comparable within its series.", style=GOOD)
    else:
        sheet.heading("Not comparable")
        for code in run.not_comparable_because:
            sheet.say(f"- {advice(NOT_COMPARABLE, code)}", hang=2)
        if not run.suite.verified and run.suite.why_not:
            sheet.say(f"- The pack: {run.suite.why_not}", hang=2)
    if not run.complete:
        sheet.blank()
        said = "Stopped before its end: what follows is what was measured until then."
        where = "" if kept else ", on the computer that measured it,"
        said += f" Complete it{where} with `npumark run --resume {run.run_id}`."
        sheet.say(said, style=WARN)
    _noise(sheet, run)
    told = [code for code in run.warnings if code not in _TOLD_ABOVE]
    if told:
        sheet.heading("Take note")
        for code in told:
            sheet.say(f"- {_warning(code, run)}", hang=2)


def _warning(code: str, run: Payload) -> Advice:
    if code == "delivered_partial" and not _lost_a_network(run):
        return NOT_ASKED_FOR
    return void_attempts(*void_of_all(run)) if code == "box_void" else advice(WARNINGS, code)


def _lost_a_network(run: Payload) -> bool:
    """Whether a network that is missing from a delivered figure was part of the run."""
    planned = {(e.engine, e.workload) for e in run.entries}
    return any(
        (engine.id, network) in planned
        for engine in run.engines
        if engine.delivered is not None
        for network in engine.delivered.missing
    )


def _noise(sheet: Sheet, run: Payload) -> None:
    environment = run.environment
    if environment.skipped:
        sheet.blank()
        sheet.say("The machine's state was not looked at (--skip-preconditions).", style=WARN)
    if not environment.noisy:
        return
    sheet.heading("Noisy: something besides the engines may have moved these figures")
    for sentence in violations(environment):
        sheet.say(f"- {sentence[0].upper()}{sentence[1:]}.", hang=2)
