"""``npumark doctor``: what on this computer would spoil a measurement, and what fixes it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from npumark.cli import output

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def doctor(
    json: Annotated[
        bool, typer.Option("--json", help="Put one JSON document on standard output.")
    ] = False,
    machine_root: Annotated[
        Path | None,
        typer.Option(
            "--machine-root",
            metavar="DIR",
            hidden=True,
            help="Read the files of a machine (/sys, /proc) below this folder.",
        ),
    ] = None,
) -> None:
    """Look for what would spoil a measurement on this computer, and tell what fixes it.

    Power, background load, heat, container limits, memory, disks, drivers and packages are
    looked at for a few seconds. Nothing is changed. Exit status: 0 nothing was found, 1
    something would spoil a measurement.
    """
    import os
    from dataclasses import replace

    from npumark.doctor.examine import document, examine
    from npumark.errors import UsageError
    from npumark.machine.host import THIS
    from npumark.report.doctor import render_doctor
    from npumark.report.page import page_of

    host = THIS
    if machine_root is not None:
        if not os.path.isdir(machine_root):  # noqa: PTH112 - Path raises where it may not look
            raise UsageError(f"there is no folder {machine_root}", "Name a folder that is there.")
        host = replace(THIS, root=machine_root)
    found = examine(host)
    if json:
        output.put_json(document(found, host))
    else:
        output.put(render_doctor(found, page_of(sys.stdout)))
    if any(one.state == "problem" for one in found):
        raise typer.Exit(1)
