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
    """Show a record as a report: the score, every engine, what failed and what to do about it.

    What `npumark diagnose` saved is shown too: its file, or its id.
    """
    from npumark.record.files import read_record
    from npumark.record.history import locate

    if (found := diagnostics_of(record)) is not None:
        _show_diagnostics(found, as_json=json)
        return
    path = locate(record)
    show(read_record(path), path, as_json=json)


def diagnostics_of(name: str) -> Path | None:
    """Return the diagnostics document that ``name`` means, by its file, folder or id; null where
    it means something else."""
    import os
    from pathlib import Path

    from npumark import paths
    from npumark.diagnose.document import NAME

    path = Path(name)
    own = paths.data_dir() / "diagnostics" / name / NAME
    # The functions of os.path raise nowhere, whatever the name holds.
    if len(path.parts) == 1 and not os.path.exists(path) and os.path.isfile(own):  # noqa: PTH110, PTH113
        return own
    found = path / NAME if os.path.isdir(path) else path  # noqa: PTH112
    return found if _is_diagnostics(found) else None


def _is_diagnostics(path: Path) -> bool:
    import json
    import os

    from npumark.diagnose.document import SCHEMA
    from npumark.record.model import MAX_RECORD_BYTES

    if not os.path.isfile(path):  # noqa: PTH113 - a pipe is read once, by whoever takes it for a record
        return False
    try:
        with path.open("rb") as file:
            document = json.loads(file.read(MAX_RECORD_BYTES + 1))
        return bool(document["payload"]["schema"] == SCHEMA)
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return False  # whoever reads it as a record says what is wrong with it


def _show_diagnostics(path: Path, *, as_json: bool) -> None:
    import sys

    from npumark.diagnose.document import encode, read_document
    from npumark.report.diagnose import render
    from npumark.report.page import page_of

    document = read_document(path)
    if as_json:
        output.put(encode(document).decode())
    else:
        output.put(render(document, page_of(sys.stdout), catalog=known_names(), where=path))


def show(record: Record, path: Path, *, as_json: bool) -> None:
    """Put ``record`` on standard output, as a report or as its JSON document."""
    import sys

    from npumark.record.files import encode
    from npumark.record.history import run_folder
    from npumark.report.page import page_of
    from npumark.report.terminal import render
    from npumark.upload.links import uploaded

    if as_json:
        output.put(encode(record).decode())
        return
    folder = run_folder(record.payload.run_id)
    output.put(
        render(
            record,
            page_of(sys.stdout),
            catalog=known_names(),
            where=path,
            logs=folder.logs if folder.logs.is_dir() else None,
            kept=folder.record.is_file(),
            uploads=uploaded(record.payload.run_id),
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
