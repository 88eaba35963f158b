"""The history as a table."""

from __future__ import annotations

from collections.abc import Sequence

from npumark.record.history import Row as Run
from npumark.report.page import Page
from npumark.report.sheet import BAD, DIM, STRONG, WARN, Column, Part, Row, Sheet
from npumark.report.words import DASH, count, plainly

_COLUMNS = (Column("run"), Column("when (UTC)"), Column("state"), Column("comparable"))


def render_runs(runs: Sequence[Run], page: Page) -> str:
    """Return the runs as a table, each with its headline or the reason it has none."""
    sheet = Sheet(page)
    sheet.table(_COLUMNS, [_row(run) for run in runs])
    sheet.blank()
    sheet.say(f"{count(len(runs), 'run')}. `npumark report RUN` shows one.", style=DIM)
    return sheet.text()


def _row(run: Run) -> Row:
    headline: Part = (run.label, STRONG) if run.label else (plainly(run.why or DASH), WARN)
    state_style = BAD if run.state == "unreadable" else WARN if run.state != "complete" else ""
    when = run.created.replace("T", " ").removesuffix("Z")[:16]
    return Row(
        ((run.folder.run_id, ""), when, (run.state, state_style), _standing(run)), note=headline
    )


def _standing(run: Run) -> Part:
    if run.comparable is None:
        return (DASH, DIM)
    marks = [mark for mark, on in (("quick", run.quick), ("noisy", run.noisy)) if on]
    said = ", ".join(["yes" if run.comparable else "no", *marks])
    return (said, "" if run.comparable and not run.noisy else WARN)
