"""Standard output: a report's text, or exactly one JSON document, and nothing else."""

from __future__ import annotations

import json
import os
import sys
from typing import Any


def put(text: str) -> None:
    """Write ``text`` to standard output.

    A reader that has gone away (``npumark report last | head``) changes nothing about what was
    measured, so it is no error.
    """
    stream = sys.stdout
    try:
        stream.write(text)
        stream.flush()
    except UnicodeEncodeError:
        encoding = stream.encoding or "ascii"
        put(text.encode(encoding, "replace").decode(encoding))
    except BrokenPipeError:
        # Later writes, and the flush at exit, go nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def put_json(document: Any) -> None:
    """Write one JSON document to standard output; NaN and infinities are refused."""
    put(json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False) + "\n")
