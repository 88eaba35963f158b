"""``npumark engines``: what can be measured here, and why the rest cannot."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from npumark.cli import output

if TYPE_CHECKING:
    from npumark.record.model import Processor
    from npumark.worker.protocol import EngineInfo

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def engines(
    json: Annotated[
        bool, typer.Option("--json", help="Put one JSON document on standard output.")
    ] = False,
    virtual: Annotated[
        Path | None,
        typer.Option("--virtual", metavar="SCRIPT", hidden=True, help="List virtual engines."),
    ] = None,
) -> None:
    """List every engine: those that work here, and why each other one does not.

    Each runtime runs a one-node model on each of its devices in a process of its own: what a
    runtime lists is not always what works.
    """
    import sys

    from npumark.orchestrator.survey import survey
    from npumark.report.engines import render_engines
    from npumark.report.page import page_of

    found = survey(virtual)
    by_id = {p.id: p for p in found.processors}
    processors = {engine: by_id[owner] for engine, owner in found.owner.items()}
    if json:
        listed = [_document(info, processors.get(info.id)) for info in found.infos]
        output.put_json({"engines": listed})
    else:
        output.put(render_engines(found.infos, processors, page_of(sys.stdout)))


def _document(info: EngineInfo, processor: Processor | None) -> dict[str, Any]:
    """Return what a script may know of an engine; hardware keys and probe options stay out."""
    known = asdict(info)
    known.pop("options")
    known["processor"] = processor and {"role": processor.role, "name": processor.name}
    return known
