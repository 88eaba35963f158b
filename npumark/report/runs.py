"""The history as a table."""

from __future__ import annotations

from collections.abc import Sequence

from npumark.record.history import BoxTotal
from npumark.record.history import Row as Run
from npumark.report.page import Page
from npumark.report.sheet import BAD, DIM, STRONG, WARN, Column, Part, Row, Sheet
from npumark.report.words import DASH, count, figure, plainly, tops

_COLUMNS = (Column("run"), Column("when (UTC)"), Column("state"), Column("comparable"))


def render_runs(runs: Sequence[Run], page: Page) -> str:
    """Return the runs as a table, each with its headline or the reason it has none."""
    sheet = Sheet(page)
    sheet.table(_COLUMNS, [_row(run) for run in runs])
    sheet.blank()
    sheet.say(f"{count(len(runs), 'run')}. `npumark report RUN` shows one.", style=DIM)
    return sheet.text()


def _row(run: Run) -> Row:
    headline = _headline(run)
    state_style = BAD if run.state == "unreadable" else WARN if run.state != "complete" else ""
    when = run.created.replace("T", " ").removesuffix("Z")[:16]
    return Row(
        ((run.folder.run_id, ""), when, (run.state, state_style), _standing(run)), note=headline
    )


def _headline(run: Run) -> Part:
    """Return the score, the box totals beside it; of a run of cards alone the totals alone."""
    totals = [_total(box) for box in run.box if box.tops is not None]
    if run.box_only:
        lacking = [f"no {box.role} box total: {box.why or DASH}" for box in run.box if not box.tops]
        if told := totals + lacking:
            return (plainly(" · ".join(told)), STRONG if totals else WARN)
        return (f"no box total: {plainly(run.why or DASH)}", WARN)
    score = run.label or plainly(run.why or DASH)
    return (" · ".join([score, *totals]), STRONG if run.label or totals else WARN)


def _total(box: BoxTotal) -> str:
    return f"box {tops(box.tops)} TOPS {box.role}, scaling {figure(box.scaling)}"


def _standing(run: Run) -> Part:
    if run.comparable is None:
        return (DASH, DIM)
    marks = [mark for mark, on in (("quick", run.quick), ("noisy", run.noisy)) if on]
    said = ", ".join(["yes" if run.comparable else "no", *marks])
    return (said, "" if run.comparable and not run.noisy else WARN)
