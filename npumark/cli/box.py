"""``npumark box``: measure all cards of a role at once, and save a record."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from npumark.cli import complete
from npumark.cli.options import (
    Force,
    Json,
    Manifest,
    Out,
    SkipPreconditions,
    Strict,
    TimeBudget,
    Virtual,
    WaitIdle,
)
from npumark.cli.run import carry_out, known_budget, refuse_with_skip

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def box(
    role: Annotated[
        list[str] | None,
        typer.Option(
            "--role",
            metavar="ROLE",
            help="Sum the cards of this role: iGPU, dGPU or NPU. May be repeated; without it, "
            "every role with two or more cards.",
            autocompletion=complete.roles,
        ),
    ] = None,
    cards: Annotated[
        list[str] | None,
        typer.Option(
            "--cards",
            metavar="IDS",
            help="Sum these cards only: `dgpu-1,dgpu-3`, or `1,3` with one --role. May be "
            "repeated.",
        ),
    ] = None,
    from_: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="RECORD",
            help="Take what each card reaches alone from this record (a file, a run's id or "
            "`last`) instead of measuring it first.",
            autocompletion=complete.runs,
        ),
    ] = None,
    engine: Annotated[
        list[str] | None,
        typer.Option(
            "--engine",
            "-e",
            metavar="ID",
            help="Use this engine only, or all of a runtime or provider: `ort`, `ort-cuda`. May "
            "be repeated.",
            autocompletion=complete.engines,
        ),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="A first look: one short attempt of each card alone, one of all at once.",
        ),
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Show the cards, the plan and the time it needs; stop."),
    ] = False,
    time_budget: TimeBudget = None,
    out: Out = None,
    force: Force = False,
    json: Json = False,
    wait_idle: WaitIdle = False,
    strict: Strict = False,
    skip_preconditions: SkipPreconditions = False,
    manifest: Manifest = None,
    virtual: Virtual = None,
) -> None:
    """Measure all cards of a role at once, and what share of their solo peaks is left.

    What each card reaches alone is measured first, or taken from another record (--from) where
    that one recomputes and is of these very cards and engines. Then each card's best
    configuration runs on all cards in one shared window, three times. The CPU is never summed.

    Progress goes to standard error; the report (or, with --json, the record) to standard output.
    The record is one like any other: `npumark history`, `report` and `verify` take it, and
    `npumark run --resume` completes it where it was stopped.

    Exit status: 0 every role has its total; 1 there is a total, but an attempt of all cards is
    void, one of a card alone crashed, or another role that was begun has none; 2 the
    request cannot be carried out; 3 nothing to sum: no role has two cards that engines reach and
    can tell apart, all cards at once do not fit into memory, or the time was up before; 4 there
    is no total because attempts are void or a card failed and has no peak; 5 a file or the other
    record is not what it should be; 130 stopped, what was measured is saved. A failed gate of a
    card that has a peak is a result.
    """
    from npumark.orchestrator.box_choice import role_named
    from npumark.orchestrator.request import RunRequest
    from npumark.record.history import locate

    if skip_preconditions:
        refuse_with_skip("--strict", strict)
        refuse_with_skip("--wait-idle", wait_idle)
    request = RunRequest(
        quick=quick,
        engines=tuple(engine) if engine else None,
        box="only",
        box_roles=tuple(dict.fromkeys(map(role_named, role))) if role else None,
        box_cards=_listed(cards),
        box_from=locate(from_) if from_ is not None else None,
        time_budget_s=known_budget(time_budget),
        wait_idle=wait_idle,
        strict=strict,
        skip_preconditions=skip_preconditions,
        out=out,
        force=force,
        manifest=manifest,
        virtual=virtual,
        argv=tuple(sys.argv[1:]),
    )
    raise typer.Exit(carry_out(request, dry_run=dry_run, as_json=json))


def _listed(words: list[str] | None) -> tuple[str, ...] | None:
    """Return the cards that were named, whatever separates them. Raises a usage error where an
    option names none."""
    if not words:
        return None
    names = [name for word in words for name in word.replace(",", " ").split()]
    if not names:
        raise typer.BadParameter("it names no card", param_hint="--cards")
    return tuple(names)
