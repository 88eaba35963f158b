"""``npumark history``: list the runs kept on this computer."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from npumark.cli import output

if TYPE_CHECKING:
    from npumark.record.history import Row

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def history(
    json: Annotated[
        bool, typer.Option("--json", help="Put one JSON document on standard output.")
    ] = False,
) -> None:
    """List the runs kept on this computer, the newest first."""
    import sys

    from npumark.record.history import list_runs
    from npumark.report.page import page_of
    from npumark.report.runs import render_runs

    rows = list_runs()
    if json:
        output.put_json({"runs": [_document(row) for row in rows]})
    elif rows:
        output.put(render_runs(rows, page_of(sys.stdout)))
    else:
        output.put("No runs yet. `npumark run --quick` makes a first one.\n")


def _document(row: Row) -> dict[str, Any]:
    return {
        "run_id": row.folder.run_id,
        "created": row.created,
        "state": row.state,
        "tops": row.tops,
        "label": row.label,
        "edition": row.edition,
        "quick": row.quick,
        "comparable": row.comparable,
        "noisy": row.noisy,
        "why": row.why,
        "box": [asdict(total) for total in row.box],
        "box_only": row.box_only,
        "record": str(row.folder.record),
    }
