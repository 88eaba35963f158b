"""What goes into a worker: its job, and on a pipe the lines that follow it.

Neither ever waits for a worker that reads nothing.
"""

from __future__ import annotations

import os
import queue
import tempfile
from contextlib import suppress
from typing import IO

from npumark.errors import SetupError
from npumark.orchestrator.threads import start_thread


def job_file(raw: bytes) -> IO[bytes]:
    """Return a file that holds a job, for a worker that is told nothing else.

    Raises SetupError where the temporary folder takes no file.
    """
    try:
        file = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    except OSError as fault:
        raise _no_room(fault) from fault
    try:
        file.write(raw)
        file.seek(0)  # writes what is still buffered
    except OSError as fault:
        with suppress(OSError):  # closing tries once more to write
            file.close()
        raise _no_room(fault) from fault
    return file


class LineFeed:
    """Writes lines into a pipe from a thread of its own, and closes it at the end.

    Once nobody can read them any more, lines are dropped. Raises SetupError, the pipe left open,
    where there is no thread to be had.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        start_thread(self._write, "npumark-feed")

    def put(self, line: bytes) -> None:
        self._lines.put(line)

    def close(self) -> None:
        """Let the pipe end after the lines so far."""
        self._lines.put(None)

    def _write(self) -> None:
        try:
            while (line := self._lines.get()) is not None:
                view = memoryview(line)
                while view:
                    view = view[os.write(self._fd, view) :]
        except OSError:  # the worker is gone; that it is shows elsewhere
            return
        finally:
            os.close(self._fd)


def _no_room(fault: OSError) -> SetupError:
    try:
        place = f"the temporary folder {tempfile.gettempdir()}"
    except OSError:
        place = "any temporary folder"
    return SetupError(
        f"a worker's job cannot be written to {place}: {fault.strerror or fault}",
        "Free some space there, or set TMPDIR (TEMP on Windows) to a folder that has some.",
    )
