"""``npumark engines``: what can be measured here, why the rest cannot, and how to get more."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from npumark.cli import complete, output

if TYPE_CHECKING:
    from npumark.orchestrator.environments import Standing
    from npumark.orchestrator.install import Made
    from npumark.orchestrator.survey import Survey
    from npumark.record.model import Processor
    from npumark.worker.protocol import EngineInfo

app = typer.Typer(rich_markup_mode=None, add_completion=False)

JsonOption = Annotated[
    bool, typer.Option("--json", help="Put one JSON document on standard output.")
]


@app.callback(invoke_without_command=True)
def engines(
    context: typer.Context,
    json: JsonOption = False,
    virtual: Annotated[
        Path | None,
        typer.Option("--virtual", metavar="SCRIPT", hidden=True, help="List virtual engines."),
    ] = None,
) -> None:
    """List every engine: those that work here, and why each other one does not.

    Each runtime runs a one-node model on each of its devices in a process of its own: what a
    runtime lists is not always what works. Runtimes that cannot share an interpreter live in
    environments of their own, which `npumark engines install` lists and makes.
    """
    if context.invoked_subcommand is not None:
        return

    from npumark.orchestrator.survey import survey
    from npumark.report.engines import render_engines
    from npumark.report.page import page_of

    _doubt()
    found = survey(virtual)
    if json:
        output.put_json(
            {
                "engines": [_document(info, found) for info in found.infos],
                "processors": [_processor(p, found) for p in found.processors],
                "processors_may_be_missing": list(found.lacks),
            }
        )
    else:
        output.put(render_engines(found, page_of(sys.stdout)))


@app.command()
def install(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME",
            help="The name of an environment; without one, all are listed.",
            autocompletion=complete.environments,
        ),
    ] = None,
    again: Annotated[
        bool,
        typer.Option("--again", help="Make it anew, even where it is installed and up to date."),
    ] = False,
    anyway: Annotated[
        bool,
        typer.Option("--anyway", help="Make it though the card that it needs is not listed here."),
    ] = False,
    json: JsonOption = False,
) -> None:
    """Make the environment of each NAME, or list those there are.

    An environment holds pinned packages beside npumark's own, under the data folder or in
    NPUMARK_ENGINES. pip fetches them from where it is set up to; NPUMARK_MIRROR names a folder
    of wheels, or a URL, that is searched first. What is installed and up to date stays as it is,
    unless --again is given.
    """
    from npumark import paths
    from npumark.errors import UsageError
    from npumark.orchestrator.environments import size_of, standings
    from npumark.orchestrator.install import check
    from npumark.orchestrator.install import install as make
    from npumark.report.environments import render_environments, render_made
    from npumark.report.page import page_of

    if names:
        for name in names:
            check(name)
        made = []
        for name in dict.fromkeys(names):
            with _progress(name) as tell:
                made.append(make(name, tell, again=again, anyway=anyway))
            if not json:
                held = size_of(made[-1].standing)
                output.put(render_made(made[-1], held, page_of(sys.stdout)))
        if json:
            output.put_json({"environments": [_made(m) for m in made]})
        return
    if again:
        raise UsageError(
            "--again makes an environment anew, and none is named",
            "`npumark engines install` lists them.",
        )
    _doubt()
    found = standings()
    sizes = {s.name: size_of(s) for s in found if s.installed}
    folder = str(paths.engines_dir())
    if json:
        listed = [_environment(s, sizes.get(s.name)) for s in found]
        output.put_json({"folder": folder, "environments": listed})
    else:
        output.put(render_environments(found, sizes, folder, page_of(sys.stdout)))


@app.command()
def remove(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME",
            help="The name of an environment.",
            autocompletion=complete.installed,
        ),
    ],
    json: JsonOption = False,
) -> None:
    """Remove the environment of each NAME.

    A folder of that name that npumark did not make stays, and so does what a link leads to.
    """
    from npumark.orchestrator.install import remove as take_away

    removed = {name: take_away(name) for name in dict.fromkeys(names)}
    if json:
        output.put_json(
            {
                "removed": [name for name, one in removed.items() if one.there],
                "stays": {name: one.stays for name, one in removed.items() if one.stays},
            }
        )
        return
    for name, one in removed.items():
        told = f"{name} is removed" if one.there else f"{name} was not installed"
        output.put(f"{told}; {one.stays}\n" if one.stays else f"{told}\n")


def _document(info: EngineInfo, found: Survey) -> dict[str, Any]:
    """Return what a script may know of an engine; hardware keys and probe options stay out.

    ``processor`` is null where it is not available; ``lack`` says why: ``broken`` (it is here
    and fails), ``absent`` (``npumark engines install`` brings it) or ``elsewhere`` (it is for
    other systems), ``installed_by`` which environment brings it and ``also_needs`` what it takes
    beside that.
    """
    from npumark.orchestrator.reach import environment_for, lack, needs_of

    known = asdict(info)
    known.pop("options")
    processors = {p.id: p for p in found.processors}
    mine = processors.get(found.owner.get(info.id, ""))
    known["processor"] = mine and {"id": mine.id, "role": mine.role, "name": mine.name}
    known["lack"] = None if info.available else lack(info)
    known["installed_by"] = None if info.available else environment_for(info)
    known["also_needs"] = None if info.available else needs_of(info) or None
    return known


def _processor(processor: Processor, found: Survey) -> dict[str, Any]:
    """Return a processor, which engines drive it and, where none does, what would."""
    from npumark.orchestrator.reach import remedies

    engines = [engine for engine, owner in found.owner.items() if owner == processor.id]
    ways = remedies(processor, found.infos) if not engines else ()
    return {
        **processor.model_dump(mode="json"),
        "engines": engines,
        "remedies": [asdict(way) for way in ways],
    }


def _environment(standing: Standing, held: int | None) -> dict[str, Any]:
    from npumark.engines import catalogue
    from npumark.orchestrator.environments import runs_here

    row = catalogue.environment(standing.name)
    whole = standing.installed
    return {
        "name": standing.name,
        "title": row.title if row else None,
        "note": row.note if row else None,
        "requirements": list(row.requirements) if row else None,
        "for_this_computer": bool(row and runs_here(row)),
        "state": standing.state,
        "why": standing.why,
        "bytes": held,
        "needs_card_of": row.maker if row else None,
        "megabytes_expected": row.megabytes if row else None,
        "python": whole.seal.python if whole else None,
        "packages": whole.packages if whole else None,
        "sha256": whole.sha256 if whole else None,
    }


def _made(made: Made) -> dict[str, Any]:
    from npumark.orchestrator.environments import size_of

    return {
        **_environment(made.standing, size_of(made.standing)),
        "already": made.already,
        "note": made.note,
        "engines": [
            {"id": f.info.id, "available": f.info.available, "reason": f.info.reason}
            for f in made.engines
        ],
    }


def _doubt() -> None:
    """Tell on stderr where the folder of environments is none: nothing else would say so."""
    from npumark import paths

    said = paths.engines_doubt()
    if said is not None:
        with contextlib.suppress(OSError, ValueError):
            print(f"note: {said}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def _progress(name: str) -> Iterator[Callable[[str], None]]:
    """Tell on stderr what is being done and for how long: one line that changes where that is a
    terminal, plain lines elsewhere."""
    import time

    from npumark.orchestrator.pip import elapsed

    if not sys.stderr.isatty():
        began = time.monotonic()

        def say(doing: str) -> None:
            with contextlib.suppress(OSError, ValueError):  # nobody reads; the work goes on
                print(f"{name}: {doing} ({elapsed(began)})", file=sys.stderr, flush=True)

        yield say
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(name, total=None)
        yield lambda doing: bar.update(task, description=f"{name}: {doing}")
