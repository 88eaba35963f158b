"""The options that several commands take, each stated once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

TimeBudget = Annotated[
    float | None,
    typer.Option(
        "--time-budget",
        metavar="SECONDS",
        min=1.0,
        help="Start no attempt that would end after this many seconds.",
    ),
]
Out = Annotated[
    Path | None,
    typer.Option("--out", "-o", metavar="FILE", help="Also write the record to this file."),
]
Force = Annotated[bool, typer.Option("--force", help="Let --out replace a file that exists.")]
Json = Annotated[
    bool, typer.Option("--json", help="Write the record, as JSON, to standard output.")
]
WaitIdle = Annotated[
    bool, typer.Option("--wait-idle", help="Wait until the machine is idle, then measure.")
]
Strict = Annotated[
    bool,
    typer.Option("--strict", help="Stop, rather than flag the run, if the machine is noisy."),
]
SkipPreconditions = Annotated[
    bool, typer.Option("--skip-preconditions", help="Measure without looking (recorded).")
]
Manifest = Annotated[
    Path | None,
    typer.Option(
        "--manifest", metavar="FILE", help="Use another pack's manifest; never comparable."
    ),
]
Virtual = Annotated[
    Path | None,
    typer.Option("--virtual", metavar="SCRIPT", hidden=True, help="Measure virtual engines."),
]
Server = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="URL",
        help="The results server: https://results.example. Without it, NPUMARK_SERVER or the one "
        "used last.",
    ),
]
Yes = Annotated[bool, typer.Option("--yes", help="Agree to what is sent, without being asked.")]
InsecureHttp = Annotated[
    bool,
    typer.Option("--insecure-http", help="Allow a server on another computer in plain text."),
]
