"""Reading a small file that somebody may have replaced by what never ends, or never begins."""

from __future__ import annotations

import os
import stat
from pathlib import Path

_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


def read_plain(path: Path, most: int) -> bytes:
    """Return the first ``most`` bytes of a file. Raises OSError, also where it is none: a pipe or
    a device is opened without waiting, and never read."""
    descriptor = os.open(path, _FLAGS)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError("it is no plain file")
        with os.fdopen(descriptor, "rb", closefd=False) as stream:
            return stream.read(most)
    finally:
        os.close(descriptor)
