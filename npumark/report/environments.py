"""The environments of engines as a table, and what an installation came to."""

from __future__ import annotations

from collections.abc import Sequence

from npumark.engines import catalogue
from npumark.engines.catalogue import Environment
from npumark.orchestrator.environments import Standing, runs_here
from npumark.orchestrator.install import Made
from npumark.report.page import Page
from npumark.report.sheet import BAD, DIM, GOOD, WARN, Column, Part, Row, Sheet
from npumark.report.words import size

_STYLES = {
    "installed": GOOD,
    "outdated": WARN,
    "broken": BAD,
    "half-made": BAD,
    "absent": DIM,
    "foreign": WARN,
}

_LARGE = "several GB"
"""What the note of an environment calls a size that was not measured."""


def render_environments(
    standings: Sequence[Standing], sizes: dict[str, int], folder: str, page: Page
) -> str:
    """Return what can be installed here, with its state, then what cannot be.

    ``sizes`` maps the installed ones to their bytes on the disk.
    """
    sheet = Sheet(page)
    rows = {row.name: row for row in catalogue.ENVIRONMENTS}
    shown = [s for s in standings if s.name not in rows or runs_here(rows[s.name])]
    columns = (Column("environment"), Column("state"), Column("size", right=True))
    sheet.table(columns, [_row(s, rows.get(s.name), sizes.get(s.name)) for s in shown])
    elsewhere = [row.name for row in rows.values() if not runs_here(row)]
    if elsewhere:
        sheet.blank()
        sheet.say(f"Not for this computer: {', '.join(elsewhere)}.")
    sheet.blank()
    sheet.path("Folder:", folder)
    return sheet.text()


def _row(standing: Standing, row: Environment | None, held: int | None) -> Row:
    words = {"absent": "not installed", "foreign": "in the way"}
    state = words.get(standing.state, standing.state)
    known = "—"
    if held is not None:
        known = size(held)
    elif row and row.megabytes:
        known = f"about {row.megabytes} MB"
    elif row and _LARGE in row.note:
        known = _LARGE
    note = f"{row.title}{'; ' if row.note else ''}{row.note}" if row else ""
    if standing.why:
        note = f"{standing.why}; {standing.remedy}"
    cells: tuple[Part, ...] = (standing.name, (state, _STYLES[standing.state]), known)
    return Row(cells, (note, DIM))


def render_made(made: Made, held: int, page: Page) -> str:
    """Return what an installation came to and what its engines say."""
    sheet = Sheet(page)
    name = made.standing.name
    if made.already:
        sheet.say(f"{name} is installed and up to date.")
    else:
        sheet.say(f"{name} is installed ({size(held)}).", style=GOOD)
    if made.note:
        sheet.say(made.note, style=WARN)
    for found in made.engines:
        info = found.info
        if info.available:
            words = "works here" + (", as an emulator" if info.emulated else "")
            sheet.line((f"  {info.id}", GOOD), f"  {words}")
        else:
            sheet.say(f"{info.id}: {info.reason or 'no reason was given'}", indent=2, hang=2)
    return sheet.text()
