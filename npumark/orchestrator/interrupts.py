"""Signals: the first asks for an orderly end, the second forces it.

Outside a ``deferred`` stretch a first signal raises KeyboardInterrupt where the program stands
(an idle window, a materialisation: everything there is written atomically). Inside one (a
worker is being supervised, a journal line written) it is only noted and handed to whoever
listens, so that nothing is lost half-way.
"""

from __future__ import annotations

import queue
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType, TracebackType
from typing import Any, Self

Subscriber = Callable[[int], object]

_NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")


class Interrupts:
    """Catches SIGINT, SIGTERM, SIGHUP (SIGBREAK on Windows) while it is entered.

    ``count`` is how many came, ``name`` the first one's. Entered outside the main thread it
    catches nothing and serves ``trigger`` alone. A signal that was ignored when the program
    started (``nohup``) stays ignored.
    """

    def __init__(self) -> None:
        self.count = 0
        self.name: str | None = None
        self._depth = 0
        self._guard = threading.Lock()  # never taken by a handler
        self._subscribers: list[Subscriber] = []
        self._previous: dict[int, Any] = {}
        self._waker: _Waker | None = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for name in _NAMES:
                number = getattr(signal, name, None)
                if number is not None and signal.getsignal(number) != signal.SIG_IGN:
                    self._previous[number] = signal.signal(number, self._handle)
            if sys.platform == "win32":
                self._waker = _Waker(self._tell)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._waker is not None:
            self._waker.close()
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous.clear()

    @property
    def seen(self) -> bool:
        return self.count > 0

    @contextmanager
    def deferred(self, subscriber: Subscriber | None = None) -> Iterator[None]:
        """Hold signals back from raising; ``subscriber`` is called with the count so far.

        It may run inside a signal handler: it must only do what is safe there, such as
        ``queue.SimpleQueue.put``.
        """
        with self._guard:
            self._depth += 1
        if subscriber is not None:
            self._subscribers.append(subscriber)
            if self.count:
                subscriber(self.count)
        try:
            yield
        finally:
            if subscriber is not None:
                self._subscribers.remove(subscriber)
            with self._guard:
                self._depth -= 1

    def check(self) -> None:
        """Raise KeyboardInterrupt where a signal has come."""
        if self.count:
            raise KeyboardInterrupt

    def wait(self, seconds: float) -> None:
        """Sleep. Raises KeyboardInterrupt as soon as a signal comes."""
        inbox: queue.SimpleQueue[int] = queue.SimpleQueue()
        with self.deferred(inbox.put):
            try:
                inbox.get(timeout=max(0.0, seconds))
            except queue.Empty:
                return
        raise KeyboardInterrupt

    def trigger(self, name: str = "SIGINT") -> None:
        """Act as if a signal had come (tests, embedding programs)."""
        self._note(name)
        self._tell()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        del frame
        self._note(signal.Signals(number).name)
        self._tell()
        if self._depth == 0:
            raise KeyboardInterrupt

    def _note(self, name: str) -> None:
        self.count += 1
        self.name = self.name or name

    def _tell(self) -> None:
        for subscriber in tuple(self._subscribers):
            subscriber(max(self.count, 1))


class _Waker:
    """Tells subscribers at once on Windows, where a blocked main thread runs no handler: the
    C-level handler writes to a socket that a thread reads."""

    def __init__(self, tell: Callable[[], None]) -> None:
        self._tell = tell
        self._read, self._write = socket.socketpair()
        self._write.setblocking(False)
        self._previous = signal.set_wakeup_fd(self._write.fileno(), warn_on_full_buffer=False)
        threading.Thread(target=self._pump, name="npumark-signals", daemon=True).start()

    def _pump(self) -> None:
        with suppress(OSError):
            while self._read.recv(16):
                self._tell()

    def close(self) -> None:
        signal.set_wakeup_fd(self._previous)
        self._write.close()
        self._read.close()
