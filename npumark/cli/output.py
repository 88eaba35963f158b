"""Standard output: a report's text, or exactly one JSON document, and nothing else."""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from typing import Any, TextIO

from npumark.errors import SetupError
from npumark.plain import json_safe

_MOST_DIGITS = 6
"""Of the size of a terminal."""


class OutputError(SetupError):
    """Standard output takes no more: its disk is full, or its device fails."""


def put(text: str) -> None:
    """Write ``text`` to standard output.

    A reader that has gone away (``npumark report last | head``) changes nothing about what was
    measured, so it is no error. Raises OutputError where it cannot be written otherwise.
    """
    stream = sys.stdout
    if stream is None:
        return
    try:
        stream.write(text)
        stream.flush()
    except UnicodeEncodeError:
        encoding = stream.encoding or "ascii"
        put(text.encode(encoding, "replace").decode(encoding))
    except BrokenPipeError:
        _drop(stream)
    except OSError as fault:
        raise refused(fault) from fault


def refused(fault: OSError) -> OutputError:
    """Return what tells that standard output takes no more, and let the rest go nowhere."""
    if sys.stdout is not None:
        _drop(sys.stdout)
    return OutputError(
        f"the output cannot be written: {fault.strerror or fault}",
        "Make room, or send it elsewhere.",
    )


def forget_odd_sizes() -> None:
    """Take a terminal's size out of the environment where it is no number, or that of no terminal:
    Rich would fail over it, as the parser of the command line may."""
    for name in ("COLUMNS", "LINES"):
        told = os.environ.get(name, "0")
        if not (told.isascii() and told.isdecimal() and len(told) <= _MOST_DIGITS):
            del os.environ[name]


def open_closed_streams() -> None:
    """Send what goes to a closed standard stream nowhere.

    The next file that is opened would otherwise take its number, and a library's messages would
    be written into a journal or a record.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is not None:
            continue
        opened = os.open(os.devnull, os.O_RDWR)
        if opened != number:
            os.dup2(opened, number)
            os.close(opened)
        os.set_inheritable(number, True)
        mode = "r" if name == "stdin" else "w"
        setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))


def _drop(stream: TextIO) -> None:
    """Let later writes, and the flush at exit, go nowhere."""
    with suppress(OSError, ValueError):  # a stream without a file has nothing to drop
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def settle_stderr() -> None:
    """Let what cannot be written to standard error go nowhere: the interpreter would try once more
    at its end, and exit with a status of its own."""
    stream = sys.stderr
    if stream is None:
        return
    try:
        stream.flush()
    except (OSError, ValueError):
        _drop(stream)


def put_json(document: Any) -> None:
    """Write one JSON document to standard output; NaN and infinities are refused, and what a
    terminal would obey is escaped."""
    put(json_safe(json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False)) + "\n")
