"""The ``npumark`` command: finds a command's module when it is called, and ends every error well.

Showing the help reads one table and imports no command. A command's module imports what it
needs inside its function, so completing a word or showing its options stays cheap too.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, MutableMapping
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from npumark import __version__
from npumark.cli import output

COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("npumark.cli.run", "Measure this computer and save a record."),
    "box": ("npumark.cli.box", "Measure all cards of a role at once."),
    "engines": ("npumark.cli.engines", "List what can be measured here, and why the rest cannot."),
    "report": ("npumark.cli.report", "Show a record as a report."),
    "verify": ("npumark.cli.verify", "Recompute a record and name each difference."),
    "submit": ("npumark.cli.submit", "Upload a record to a results server, signed."),
    "keys": ("npumark.cli.keys", "Show or replace the key that signs this computer's records."),
    "history": ("npumark.cli.history", "List the runs kept on this computer."),
    "diagnose": (
        "npumark.cli.diagnose",
        "Probe what engines do when shared, batched, woken or worn.",
    ),
    "doctor": ("npumark.cli.doctor", "Look for what would spoil a measurement, with its fix."),
    "pack": ("npumark.cli.pack", "List, check, make and remove the files that runs read."),
    "serve": ("npumark.cli.serve", "Run a results server with a public leaderboard."),
}
"""Each command's module, which holds its Typer ``app``, and its line in the overview."""


class LazyCommands(MutableMapping[str, Any]):
    """The commands by name; reading one imports its module."""

    def __init__(self) -> None:
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            module, _ = COMMANDS[name]
            self._loaded[name] = command_of(importlib.import_module(module).app, name)
        return self._loaded[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        del self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class LazyGroup(TyperGroup):
    """A group that lists its commands without importing them."""

    def __init__(self, **settings: Any) -> None:
        settings["commands"] = {}
        super().__init__(**settings)
        self.commands = LazyCommands()

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - the base class's signature
        return list(COMMANDS)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - likewise
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_) for name, (_, help_) in COMMANDS.items()])


app = typer.Typer(
    cls=LazyGroup,
    name="npumark",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        output.put(f"npumark {__version__}\n")
        raise typer.Exit


@app.callback()
def npumark(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version and exit.", callback=_show_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Measure what every AI engine in this computer really delivers, in every number format.

    `npumark run` measures everything; `npumark run --quick` takes a first look.
    """


def command_of(typer_app: typer.Typer, name: str) -> Any:
    """Return the command that a module's Typer app defines, under its public name."""
    command = typer.main.get_command(typer_app)
    command.name = name
    # A command taken from an app of its own would offer to install completion once more.
    command.params = [p for p in command.params if not p.name.endswith("_completion")]
    return command


def main(argv: list[str] | None = None) -> int:
    """Run the command line (``argv`` without the program's name); return the exit status."""
    from npumark.cli.faults import end

    output.open_closed_streams()
    output.forget_odd_sizes()
    try:
        typer.main.get_command(app).main(args=argv, prog_name="npumark")
    except SystemExit as finish:
        return finish.code if isinstance(finish.code, int) else int(finish.code is not None)
    except BaseException as fault:  # noqa: BLE001 - the one place where every error ends
        return end(fault)
    finally:
        output.settle_stderr()
    return 0


if __name__ == "__main__":
    sys.exit(main())
