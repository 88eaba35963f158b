"""The first lines of a report: the headline, what it may be compared with, what disturbed it."""

from __future__ import annotations

from npumark.machine.preconditions import violations
from npumark.record.model import Payload
from npumark.report.advice import NOT_COMPARABLE, WARNINGS, advice
from npumark.report.sheet import BAD, DIM, GOOD, STRONG, WARN, Sheet

_TOLD_ABOVE = frozenset({"noisy", "preconditions_skipped"})


def headline(sheet: Sheet, run: Payload) -> None:
    """Add the score's label, or why there is none, and the series it belongs to."""
    if run.score is not None:
        sheet.say(run.score.label, hang=2, style=STRONG)
        if run.score.unstable:
            sheet.say("Unstable: its attempts differ by more than noise should.", style=WARN)
    else:
        sheet.say(f"No score: {run.score_why or 'the reason was not recorded'}", style=BAD)
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


def standing(sheet: Sheet, run: Payload) -> None:
    """Add whether the run is comparable, with each reason against it, and what to do."""
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
        sheet.say(
            "Stopped before its end: what follows is what was measured until then. Complete it "
            f"with `npumark run --resume {run.run_id}`.",
            style=WARN,
        )
    _noise(sheet, run)
    told = [code for code in run.warnings if code not in _TOLD_ABOVE]
    if told:
        sheet.heading("Take note")
        for code in told:
            sheet.say(f"- {advice(WARNINGS, code)}", hang=2)


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
