"""One thread that stores what others verified: alone while they come one by one, together while
they wait.

A commit that reaches the disk takes milliseconds, however much is in it. While one runs, whatever
arrives waits and goes into the next; and while more is announced, the next waits a moment for it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Final, Generic, TypeVar

from npumark.server.refusal import Refused

MOST_AT_ONCE: Final = 128
GATHER_S: Final = 0.05
"""How long a batch waits for what is announced."""

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


class Committer(Generic[Item, Outcome]):
    """``store`` stores a batch durably and returns each one's outcome; one that is an exception
    is raised for its item alone. Where it raises Refused, that is for all of the batch. For any
    other fault, nothing of the batch was stored: each of several items is then tried by itself, so
    that one that cannot be stored takes none with it."""

    def __init__(
        self,
        store: Callable[[Sequence[Item]], Sequence[Outcome | Exception]],
        *,
        gather_s: float = GATHER_S,
    ) -> None:
        self._store = store
        self._gather_s = gather_s
        self._waiting: deque[tuple[Item, Future[Outcome]]] = deque()
        self._announced = 0
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    @contextmanager
    def announced(self) -> Iterator[None]:
        """While the body runs, an item may be submitted any moment."""
        with self._changed:
            self._announced += 1
        try:
            yield
        finally:
            with self._changed:
                self._announced -= 1
                self._changed.notify()

    def submit(self, item: Item) -> Future[Outcome]:
        """Return what will be the item's outcome, once it is on the disk."""
        future: Future[Outcome] = Future()
        with self._changed:
            if self._closed:
                raise RuntimeError("the store is closed")
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="committer", daemon=True)
                self._thread.start()
            self._waiting.append((item, future))
            self._changed.notify()
        return future

    def close(self) -> None:
        """Store what waits, and end."""
        with self._changed:
            self._closed = True
            thread, self._thread = self._thread, None
            self._changed.notify()
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        while found := self._next():
            batch = [one for one in found if one[1].set_running_or_notify_cancel()]
            if batch:
                self._settle(batch)

    def _next(self) -> list[tuple[Item, Future[Outcome]]]:
        """Return what waits, once something does; nothing: no more comes."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            self._changed.wait_for(self._is_whole, self._gather_s)
            most = min(len(self._waiting), MOST_AT_ONCE)
            return [self._waiting.popleft() for _ in range(most)]

    def _is_whole(self) -> bool:
        return not self._announced or self._closed or len(self._waiting) >= MOST_AT_ONCE

    def _settle(self, batch: Sequence[tuple[Item, Future[Outcome]]]) -> None:
        try:
            outcomes = self._store([item for item, _ in batch])
        except Exception as fault:  # noqa: BLE001 - whoever waits for the item is told
            if len(batch) == 1 or isinstance(fault, Refused):
                for _, future in batch:
                    future.set_exception(fault)
            else:
                for one in batch:
                    self._settle([one])
            return
        for (_, future), outcome in zip(batch, outcomes, strict=True):
            if isinstance(outcome, Exception):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)
