"""``npumark report``: show a record as a report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from npumark.cli import complete, output

if TYPE_CHECKING:
    from pathlib import Path

    from npumark.record.model import Record
    from npumark.report.catalog import Catalog

app = typer.Typer(rich_markup_mode=None, add_completion=False)

RecordArgument = Annotated[
    str,
    typer.Argument(
        metavar="RECORD",
        help="A record's file, a run's id or the start of it, or `last`.",
        autocompletion=complete.runs,
    ),
]


@app.command()
def report(
    record: RecordArgument = "last",
    json: Annotated[
        bool, typer.Option("--json", help="Put the record itself, as JSON, on standard output.")
    ] = False,
) -> None:
    """Show a record as a report: the score, every engine, what failed and what to do about it."""
    from npumark.record.files import read_record
    from npumark.record.history import locate

    path = locate(record)
    show(read_record(path), path, as_json=json)


def show(record: Record, path: Path, *, as_json: bool) -> None:
    """Put ``record`` on standard output, as a report or as its JSON document."""
    import sys

    from npumark.record.files import encode
    from npumark.record.history import run_folder
    from npumark.report.page import page_of
    from npumark.report.terminal import render

    if as_json:
        output.put(encode(record).decode())
        return
    logs = run_folder(record.payload.run_id).logs
    output.put(
        render(
            record,
            page_of(sys.stdout),
            catalog=known_names(),
            where=path,
            logs=logs if logs.is_dir() else None,
        )
    )


def known_names() -> Catalog:
    """Return what the pack calls its workloads; nothing where it cannot be read."""
    from npumark.errors import NpumarkError
    from npumark.pack.manifest import load_manifest
    from npumark.report.catalog import Catalog, catalog_of

    try:
        return catalog_of(load_manifest())
    except (NpumarkError, OSError):
        return Catalog()  # a record can be shown without the pack; its ids stand for the names
