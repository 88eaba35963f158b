"""What comes out of a worker: its log, capped, and its result, limited in size.

Each stream has a thread in a blocking read, so that a worker never waits for its reader, a
flood fills neither memory nor disk, and nothing wakes up while nothing is written. Each closes
its pipe at the end; where there is no thread to be had (SetupError), the pipe stays open.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from npumark.orchestrator.threads import start_thread
from npumark.worker.protocol import READY

_CHUNK = 1 << 16


class LogDrain:
    """Drains a pipe into ``path``: the first bytes up to the cap, then only the last ones.

    ``cap`` bounds the file, ``tail`` what ``text`` returns; the middle of a flood is counted
    and dropped. A log that cannot be written is still drained: it must not cost the attempt.
    """

    def __init__(self, fd: int, path: Path | None, cap: int, tail: int) -> None:
        self._fd = fd
        self._path = path
        self._tail_limit = tail
        self._head_left = max(0, cap - tail)
        self._tail = bytearray()
        self._spilled = bytearray()
        self._spilled_total = 0
        self._thread = start_thread(self._drain, "npumark-log")

    def join(self, timeout: float) -> bool:
        """Wait for the end of the stream; return whether it came."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def text(self) -> str:
        """Return the last bytes of the log as text, a cut first character replaced."""
        return bytes(self._tail).decode("utf-8", "replace")

    def _drain(self) -> None:
        try:
            file = self._path.open("wb") if self._path is not None else None
        except OSError:
            file = None
        try:
            while chunk := os.read(self._fd, _CHUNK):
                _append(self._tail, chunk, self._tail_limit)
                head = chunk[: self._head_left]
                self._head_left -= len(head)
                if file is not None and head:
                    try:
                        file.write(head)
                        file.flush()
                    except OSError:
                        file = None
                rest = chunk[len(head) :]
                self._spilled_total += len(rest)
                _append(self._spilled, rest, self._tail_limit)
            if file is not None and self._spilled:
                dropped = self._spilled_total - len(self._spilled)
                with suppress(OSError):
                    if dropped:
                        file.write(f"\n[… {dropped} bytes dropped …]\n".encode())
                    file.write(self._spilled)
        finally:
            os.close(self._fd)
            if file is not None:
                with suppress(OSError):
                    file.close()


class ResultReader:
    """Reads a worker's one message to its end; ``too_large`` is called once past ``limit``.

    ``ready``, where there is one, is called as soon as READY comes before the message.
    """

    def __init__(
        self,
        fd: int,
        limit: int,
        too_large: Callable[[], object],
        ready: Callable[[], object] | None = None,
    ) -> None:
        self._fd = fd
        self._limit = limit
        self._too_large = too_large
        self._ready = ready
        self._data = bytearray()
        self.overflowed = False
        self._thread = start_thread(self._read, "npumark-result")

    def join(self, timeout: float) -> bool:
        """Wait for the end of the stream; return whether it came."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def data(self) -> bytes:
        return bytes(self._data)

    def _read(self) -> None:
        try:
            while chunk := os.read(self._fd, _CHUNK):
                if self._ready is not None:
                    if chunk.startswith(READY):
                        chunk = chunk[len(READY) :]
                        self._ready()
                    self._ready = None
                if self.overflowed:
                    continue
                self._data += chunk
                if len(self._data) > self._limit:
                    self.overflowed = True
                    self._data.clear()
                    self._too_large()
        finally:
            os.close(self._fd)


def _append(buffer: bytearray, chunk: bytes, limit: int) -> None:
    buffer += chunk
    if len(buffer) > limit:
        del buffer[: len(buffer) - limit]
