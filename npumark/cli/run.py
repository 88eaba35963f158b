"""``npumark run``: measure this computer and save a record."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from npumark.cli import complete, output
from npumark.cli.options import (
    Force,
    InsecureHttp,
    Json,
    Manifest,
    Out,
    Server,
    SkipPreconditions,
    Strict,
    TimeBudget,
    Virtual,
    WaitIdle,
    Yes,
)

if TYPE_CHECKING:
    from npumark.orchestrator.request import RunRequest
    from npumark.orchestrator.run import DryRun
    from npumark.record.model import Payload
    from npumark.upload.address import Address

app = typer.Typer(rich_markup_mode=None, add_completion=False)

_LONGEST_S = 365 * 86_400.0


_OF_BOX = ("--role", "--cards", "--from")


class RunCommand(TyperCommand):
    """Lets ``--resume`` stand without a value: it then means the last run. Refuses ``--box``
    beside ``--no-box``, and points options of ``npumark box`` to it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if "--box" in args and "--no-box" in args:
            raise typer.BadParameter(
                "--box and --no-box contradict each other; give one of the two", ctx=ctx
            )
        option = next((o for o in _OF_BOX for a in args if a == o or a.startswith(f"{o}=")), None)
        if option is not None:
            raise typer.BadParameter(
                f"{option} is an option of `npumark box`, which measures all cards at once", ctx=ctx
            )
        return super().parse_args(ctx, named(args))


def named(words: list[str]) -> list[str]:
    """Return ``words`` with ``last`` put after each ``--resume`` that no run follows."""
    found: list[str] = []
    for i, word in enumerate(words):
        found.append(word)
        follows = words[i + 1] if i + 1 < len(words) else "-"
        if word == "--resume" and follows.startswith("-"):
            found.append("last")
    return found


@app.command(cls=RunCommand)
def run(
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="A first look: one short attempt each. Labelled, never comparable."
        ),
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Show the plan, the space and the time it needs; stop."),
    ] = False,
    engine: Annotated[
        list[str] | None,
        typer.Option(
            "--engine",
            "-e",
            metavar="ID",
            help="Measure this engine only, or all of a runtime or provider: `ort`, `ort-qnn`, "
            "`openvino`. May be repeated; those that are not here are told and left out.",
            autocompletion=complete.engines,
        ),
    ] = None,
    workload: Annotated[
        list[str] | None,
        typer.Option(
            "--workload",
            "-w",
            metavar="ID",
            help="Measure this workload only. May be repeated.",
            autocompletion=complete.workloads,
        ),
    ] = None,
    variant: Annotated[
        list[str] | None,
        typer.Option(
            "--variant",
            metavar="ID",
            help="Measure this encoding only, or all of a format: `INT8`. May be repeated.",
            autocompletion=complete.variants,
        ),
    ] = None,
    all_variants: Annotated[
        bool,
        typer.Option("--all-variants", help="Measure every encoding, also those left out."),
    ] = False,
    ladder: Annotated[
        str | None,
        typer.Option(
            "--ladder",
            metavar="NAME",
            help="Measure one encoding per number family of each network: `default`.",
            autocompletion=complete.ladders,
        ),
    ] = None,
    large_peak: Annotated[
        bool,
        typer.Option("--large-peak", help="Also run the large-batch peak on every GPU."),
    ] = False,
    box: Annotated[
        bool | None,
        typer.Option(
            "--box/--no-box",
            help="Measure all cards of a role at once after everything else, or leave that out. "
            "By default a whole run does, where a role has two or more cards.",
            show_default=False,
        ),
    ] = None,
    time_budget: TimeBudget = None,
    out: Out = None,
    force: Force = False,
    json: Json = False,
    resume: Annotated[
        str | None,
        typer.Option(
            "--resume",
            metavar="[RUN]",
            help="Complete a run that was stopped: its id, the start of it, or the last one.",
            autocompletion=complete.runs,
        ),
    ] = None,
    wait_idle: WaitIdle = False,
    strict: Strict = False,
    skip_preconditions: SkipPreconditions = False,
    include_known_crashes: Annotated[
        bool,
        typer.Option("--include-known-crashes", help="Also try what is known to crash."),
    ] = False,
    include_emulated: Annotated[
        bool,
        typer.Option("--include-emulated", help="Also measure engines that emulate a device."),
    ] = False,
    manifest: Manifest = None,
    virtual: Virtual = None,
    submit: Annotated[
        bool,
        typer.Option(
            "--submit",
            help="Upload the result to a results server afterwards, as `npumark submit` does.",
        ),
    ] = False,
    server: Server = None,
    yes: Yes = False,
    insecure_http: InsecureHttp = False,
) -> None:
    """Measure what every engine of this computer delivers, and save a record.

    Progress goes to standard error; the report (or, with --json, the record) to standard
    output. The record is saved before anything of it is shown.

    With --submit you are asked before anything is measured, and no connection is opened until the
    record is saved. An upload that fails waits for `npumark submit` and changes no exit status.
    What is uploaded needs a score, so the peak test has to be among what is measured.

    An engine that is named and cannot be measured here is told and left out; the others run.

    Exit status: 0 measured; 1 measured, but an attempt crashed, timed out or ran on the wrong
    device, or one of all cards at once is void; 2 the request cannot be carried out; 3 nothing of
    what was asked for can be measured here; 4 workers failed and left no score; 5 a file is not
    what it should be; 130 stopped, what was measured is saved.
    """
    from npumark.orchestrator.request import RunRequest

    if skip_preconditions:
        refuse_with_skip("--strict", strict)
        refuse_with_skip("--wait-idle", wait_idle)
    request = RunRequest(
        quick=quick,
        engines=tuple(engine) if engine else None,
        workloads=tuple(workload) if workload else None,
        variants=tuple(variant) if variant else None,
        all_variants=all_variants,
        ladder=_known_ladder(ladder),
        large_peak=large_peak,
        box="auto" if box is None else "on" if box else "off",
        time_budget_s=known_budget(time_budget),
        include_known_crashes=include_known_crashes,
        include_emulated=include_emulated,
        wait_idle=wait_idle,
        strict=strict,
        skip_preconditions=skip_preconditions,
        resume=resume,
        out=out,
        force=force,
        manifest=manifest,
        virtual=virtual,
        argv=tuple(sys.argv[1:]),
    )
    if not submit:
        raise typer.Exit(carry_out(request, dry_run=dry_run, as_json=json))
    if dry_run:
        raise typer.BadParameter("--dry-run measures nothing that could be submitted")
    _check_scored(request)
    address = _agreed(server, yes=yes, insecure_http=insecure_http)
    status, run_id = _measure(request, json)
    _upload(run_id, address)
    raise typer.Exit(status)


def carry_out(request: RunRequest, *, dry_run: bool, as_json: bool) -> int:
    """Measure, or show what would be measured; return the exit status."""
    return _plan(request, as_json) if dry_run else _measure(request, as_json)[0]


def _check_scored(request: RunRequest) -> None:
    """Raise UsageError where a request leaves out what a score is made of, without which nothing
    can be uploaded. What a resumed run was asked for is known only from its record."""
    from npumark.errors import UsageError
    from npumark.orchestrator.select import select_workloads
    from npumark.pack.manifest import load_manifest

    if request.workloads is None or request.box == "on" or request.resume is not None:
        return
    chosen = select_workloads(load_manifest(request.manifest), request.workloads)
    if not any(workload.tier == "peak" for workload, _ in chosen):
        raise UsageError(
            "without the peak test the run has no score, and only a run with one is uploaded",
            "Add `--workload peak`, or leave --submit out.",
        )


def _agreed(server: str | None, *, yes: bool, insecure_http: bool) -> Address:
    """Return the server that the result goes to, once somebody agreed to it."""
    from npumark.cli.submit import agree, chosen
    from npumark.upload.listing import general

    address = chosen(server, insecure_http=insecure_http)
    agree(address, general(), yes=yes)
    return address


def _upload(run_id: str, address: Address) -> None:
    """Upload a saved run and say on standard error what became of it, whatever it was."""
    from npumark.cli.submit import failure, send, tell
    from npumark.errors import NpumarkError, UsageError
    from npumark.report.page import page_of
    from npumark.report.uploads import render

    try:
        done = send(run_id, address)
        fault = failure(done, address)
    except UsageError as why:
        tell(f"note: the run is saved, and it was not uploaded: {why.message}")
        if why.hint:
            tell(why.hint)
        return
    except NpumarkError as early:
        done, fault = None, early
    if done is not None and done.items:
        print(render(done.items, page_of(sys.stderr)), end="", file=sys.stderr, flush=True)
    if fault is not None:
        tell(f"note: the run is saved, and its upload is not complete: {fault.message}")
        tell(f"`npumark submit {run_id} --server {address.url}` goes on with it.")


def _known_ladder(name: str | None) -> str | None:
    if name is None or name in complete.LADDERS:
        return name
    raise typer.BadParameter(
        f"there is no ladder {name!r}; there is: {', '.join(complete.LADDERS)}",
        param_hint="--ladder",
    )


def known_budget(seconds: float | None) -> float | None:
    """Return the budget; a number that is none (``nan``, ``inf``) passes Typer's own limit."""
    if seconds is None or 1.0 <= seconds <= _LONGEST_S:
        return seconds
    raise typer.BadParameter(
        f"{seconds} is not a number of seconds from 1 to {_LONGEST_S:.0f} (a year)",
        param_hint="--time-budget",
    )


def refuse_with_skip(option: str, given: bool) -> None:
    from npumark.errors import UsageError

    if given:
        raise UsageError(
            f"{option} acts on the state of the machine, and --skip-preconditions does not look "
            "at it",
            "Leave one of the two out.",
        )


def _measure(request: RunRequest, as_json: bool) -> tuple[int, str]:
    """Measure and show the report; return the exit status and the run's id."""
    from npumark.cli.faults import INTERRUPTED, tell
    from npumark.cli.output import OutputError
    from npumark.cli.report import show
    from npumark.errors import NoScore, NothingToMeasure
    from npumark.orchestrator.run import execute
    from npumark.report.live import LiveView

    with LiveView(sys.stderr, quick=request.quick) as view:
        outcome = execute(request, view)
    try:
        show(outcome.record, request.out or outcome.path, as_json=as_json)
    except OutputError as fault:
        run_id = outcome.record.payload.run_id
        raise OutputError(
            fault.message, f"The run is saved; see `npumark report {run_id}`."
        ) from None
    run_id = outcome.record.payload.run_id
    if lost := _lost(outcome.record.payload):
        print(f"note: {lost}", file=sys.stderr, flush=True)
    if as_json and outcome.exit_code == INTERRUPTED:
        tell(
            "stopped; what was measured is saved", f"`npumark run --resume {run_id}` completes it."
        )
    elif outcome.exit_code in (NothingToMeasure.exit_code, NoScore.exit_code):
        tell(_lacking(outcome.record.payload), f"`npumark report {run_id}` shows what there is.")
    return outcome.exit_code, run_id


def _lost(run: Payload) -> str | None:
    """Return a sentence where raw samples could not be kept, which `verify` will lack."""
    from npumark.record.samples import without_samples

    lost, of = without_samples(run)
    if not lost:
        return None
    return f"{lost} of {of} attempts kept no raw samples; the logs of the run say why"


def _lacking(run: Payload) -> str:
    """Return why a run has no figure of what it was made for."""
    from npumark.report.words import plainly

    if run.plan.box.mode != "only":
        return plainly(f"no score: {run.score_why or 'the reason was not recorded'}")
    whys = [r.why for r in run.box.roles if r.why] if run.box else [run.box_why]
    why = "; ".join(filter(None, whys)) or "the reason was not recorded"
    return plainly(f"no box total: {why}")


def _plan(request: RunRequest, as_json: bool) -> int:
    from npumark.errors import SetupError
    from npumark.orchestrator.lock import Taken
    from npumark.orchestrator.run import dry_run
    from npumark.report.live import LiveView
    from npumark.report.page import page_of
    from npumark.report.plan import render_plan

    with LiveView(sys.stderr, quick=request.quick) as view:
        try:
            found = dry_run(request, view)
        except Taken as fault:
            hint = "A dry run runs small models on the engines too, which would disturb it."
            raise SetupError(fault.message, f"{hint} {fault.hint}") from None
    if as_json:
        output.put_json(_document(found))
    else:
        output.put(render_plan(found, page_of(sys.stdout)))
    return 0


def _document(found: DryRun) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "plan": [asdict(entry) for entry in found.plan],
        "estimate": {
            "attempts": list(found.estimate.attempts),
            "seconds": list(found.estimate.seconds),
            "pack_bytes": found.estimate.pack_bytes,
        },
        "box": {
            "roles": [
                {"role": c.role, "cards": [p.id for p in c.cards], "why": c.why}
                for c in found.box.choices
            ],
            "attempts": list(found.box_attempts),
            "seconds": list(found.box_s),
        },
        "large_peak_left_out": found.large_why,
        "idle_window_s": found.idle_window_s,
        "missing_bytes": found.missing_bytes,
        "free_bytes": found.free_bytes,
        "pack_root": str(found.pack_root),
        "fits": found.missing_bytes <= found.free_bytes,
    }
