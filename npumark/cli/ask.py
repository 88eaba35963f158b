"""Asking somebody at a terminal for a yes."""

from __future__ import annotations

import sys

import typer

from npumark.errors import Interrupted, UsageError


def ask(question: str, *, nobody: str, hint: str, declined: str) -> None:
    """Return once somebody says yes to ``question``.

    Raises UsageError with ``declined`` where they do not, and with ``nobody`` and ``hint`` where
    there is no terminal; Interrupted, with ``declined`` as well, where they stop it.
    """
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(f"{nobody}, and there is no terminal to ask on", hint)
    try:
        agreed = typer.confirm(question, err=True)
    except typer.Abort as stopped:
        # Click makes one of Ctrl-C and of an input that ends.
        if isinstance(stopped.__context__, KeyboardInterrupt):
            print(file=sys.stderr)
            raise Interrupted(f"stopped: {declined}", None) from None
        agreed = False
    if not agreed:
        raise UsageError(declined, None)
