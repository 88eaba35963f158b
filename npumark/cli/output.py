"""Standard output: a report's text, or exactly one JSON document, and nothing else."""

from __future__ import annotations

import json
import os
import sys
from typing import Any, TextIO

from npumark.errors import SetupError


class OutputError(SetupError):
    """Standard output takes no more: its disk is full, or its device fails."""


def put(text: str) -> None:
    """Write ``text`` to standard output.

    A reader that has gone away (``npumark report last | head``) changes nothing about what was
    measured, so it is no error. Raises OutputError where it cannot be written otherwise.
    """
    stream = sys.stdout
    try:
        stream.write(text)
        stream.flush()
    except UnicodeEncodeError:
        encoding = stream.encoding or "ascii"
        put(text.encode(encoding, "replace").decode(encoding))
    except BrokenPipeError:
        _drop(stream)
    except OSError as fault:
        _drop(stream)
        raise OutputError(
            f"the output cannot be written: {fault.strerror or fault}",
            "Make room, or send it elsewhere.",
        ) from fault


def _drop(stream: TextIO) -> None:
    """Let later writes, and the flush at exit, go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def put_json(document: Any) -> None:
    """Write one JSON document to standard output; NaN and infinities are refused."""
    put(json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False) + "\n")
