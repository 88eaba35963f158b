"""``npumark diagnose``: what engines do when they are shared, batched, woken or worn."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from npumark.cli import complete, output
from npumark.cli.options import Force, Manifest, SkipPreconditions, Virtual

if TYPE_CHECKING:
    from npumark.diagnose.document import Document
    from npumark.orchestrator.diagnose_request import DiagnoseRequest

app = typer.Typer(rich_markup_mode=None, add_completion=False)

_LONGEST_S = 86_400.0


@app.command()
def diagnose(
    engine: Annotated[
        list[str] | None,
        typer.Option(
            "--engine",
            "-e",
            metavar="ID",
            help="Diagnose this engine only, or all of a runtime or provider. May be repeated.",
            autocompletion=complete.engines,
        ),
    ] = None,
    workload: Annotated[
        list[str] | None,
        typer.Option(
            "--workload",
            "-w",
            metavar="ID",
            help="Diagnose on this network only. May be repeated.",
            autocompletion=complete.workloads,
        ),
    ] = None,
    probe: Annotated[
        list[str] | None,
        typer.Option(
            "--probe",
            metavar="NAME",
            help="Run this probe only, a deep one too. May be repeated.",
            autocompletion=complete.probes,
        ),
    ] = None,
    deep: Annotated[
        bool, typer.Option("--deep", help="Run the probes that take minutes each, too.")
    ] = False,
    sustained_s: Annotated[
        float | None,
        typer.Option(
            "--sustained-s",
            metavar="SECONDS",
            min=1.0,
            help="Keep up sustained load for so long: two windows of the pace at the least (20 s).",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="Also write the document to this file."),
    ] = None,
    force: Force = False,
    json: Annotated[
        bool, typer.Option("--json", help="Write the document, as JSON, to standard output.")
    ] = False,
    check: Annotated[
        Path | None,
        typer.Option(
            "--check",
            metavar="FILE",
            help="Read each finding of a saved document again from the samples beside it; stop.",
        ),
    ] = None,
    skip_preconditions: SkipPreconditions = False,
    include_emulated: Annotated[
        bool,
        typer.Option("--include-emulated", help="Also diagnose engines that emulate a device."),
    ] = False,
    manifest: Manifest = None,
    virtual: Virtual = None,
) -> None:
    """Probe what each engine does when it is shared, batched, woken or kept busy.

    One attempt per engine and network, on the fastest passing variant of the last benchmark
    (where there is none, the variants are measured first, quickly), and each probe against it.
    The document is saved on this computer: it is never comparable, and not in the history.

    Exit status: 0 diagnosed; 1 a worker crashed, hung or left nothing; 2 the request cannot be
    carried out; 3 nothing of what was asked for can be diagnosed here; 5 a file is not what it
    should be; 130 stopped, what was measured is saved.
    """
    from npumark.orchestrator.diagnose_request import DiagnoseRequest

    if check is not None:
        _check(check)
        return
    request = DiagnoseRequest(
        engines=tuple(engine) if engine else None,
        workloads=tuple(workload) if workload else None,
        probes=tuple(probe) if probe else None,
        deep=deep,
        sustained_s=_known_seconds(sustained_s),
        include_emulated=include_emulated,
        skip_preconditions=skip_preconditions,
        out=out,
        force=force,
        manifest=manifest,
        virtual=virtual,
        argv=tuple(sys.argv[1:]),
    )
    raise typer.Exit(_diagnose(request, as_json=json))


def _known_seconds(seconds: float | None) -> float | None:
    """Return the length; a number that is none (``nan``, ``inf``) passes Typer's own limit."""
    if seconds is None or 1.0 <= seconds <= _LONGEST_S:
        return seconds
    raise typer.BadParameter(
        f"{seconds} is not a number of seconds from 1 to {_LONGEST_S:.0f} (a day)",
        param_hint="--sustained-s",
    )


def _diagnose(request: DiagnoseRequest, *, as_json: bool) -> int:
    from npumark.cli.faults import INTERRUPTED, tell
    from npumark.cli.output import OutputError
    from npumark.diagnose.document import encode
    from npumark.orchestrator.diagnosing import execute
    from npumark.report.live import LiveView

    with LiveView(sys.stderr, attempts=False) as view:
        outcome = execute(request, view)
    document, path = outcome.document, request.out or outcome.path
    try:
        output.put(encode(document).decode() if as_json else _text(document, path))
    except OutputError as fault:
        raise OutputError(fault.message, f"The document is saved at {outcome.path}.") from None
    if as_json and outcome.exit_code == INTERRUPTED:
        tell("stopped; what was measured is saved", f"See {outcome.path}.")
    return outcome.exit_code


def _check(path: Path) -> None:
    """Raise IntegrityError naming what the raw samples beside a document do not give."""
    from npumark.diagnose.document import read_document
    from npumark.diagnose.reading import differences
    from npumark.diagnose.registry import PROBES
    from npumark.errors import IntegrityError
    from npumark.report.words import count

    payload = read_document(path).payload
    folder = path if path.is_dir() else path.parent
    found = differences(payload, folder, PROBES)
    if found:
        raise IntegrityError(
            "the raw samples beside it do not give what the document says: " + "; ".join(found),
            "Check the document in the run's own folder, where its samples lie.",
        )
    findings = sum(len(target.findings) for target in payload.targets)
    output.put(f"{count(findings, 'finding')}, each as its raw samples give it\n")


def _text(document: Document, path: Path) -> str:
    from npumark.cli.report import known_names
    from npumark.report.diagnose import render
    from npumark.report.page import page_of

    return render(document, page_of(sys.stdout), catalog=known_names(), where=path)
