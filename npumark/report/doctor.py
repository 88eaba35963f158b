"""What the doctor found: what would spoil a measurement first, each with what fixes it."""

from __future__ import annotations

from collections.abc import Sequence

from npumark.doctor.examined import Examined, State
from npumark.report.page import Page
from npumark.report.sheet import BAD, DIM, STRONG, WARN, Sheet
from npumark.report.words import count

_HEADINGS: dict[State, tuple[str, str]] = {
    "problem": ("Would spoil a measurement", BAD),
    "note": ("Worth knowing", WARN),
    "unknown": ("Not known", DIM),
    "ok": ("Well", DIM),
}


def render_doctor(found: Sequence[Examined], page: Page) -> str:
    """Return the checks by state, problems first."""
    sheet = Sheet(page)
    problems = sum(one.state == "problem" for one in found)
    if problems:
        things = count(problems, "thing")
        sheet.say(f"{things} here would spoil a measurement; nothing was changed.", style=STRONG)
    else:
        sheet.say("Nothing that would spoil a measurement was found.", style=STRONG)
    for state, (title, style) in _HEADINGS.items():
        mine = [one for one in found if one.state == state]
        if not mine:
            continue
        sheet.heading(title)
        if state == "problem":
            for one in mine:
                _problem(sheet, one, style)
        else:
            for one in mine:
                sheet.say(f"{one.title}: {_said(one)}", indent=2, hang=2, style=style)
    return sheet.text()


def _problem(sheet: Sheet, one: Examined, style: str) -> None:
    sheet.line((one.title, style), indent=2)
    sheet.say(one.sentence, indent=4)
    sheet.say(f"Fix: {one.fix}", indent=4, hang=5)


def _said(one: Examined) -> str:
    if one.state == "unknown":
        return f"{one.why}."
    return one.sentence if one.fix is None else f"{one.sentence} {one.fix}"
