"""Where submissions wait: a few are verified at a time, a bounded number may wait for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from npumark.server import intake
from npumark.server.config import ServerConfig
from npumark.server.metrics import Metrics
from npumark.server.refusal import refuse
from npumark.server.rules import Rules
from npumark.server.store import Store

RETRY_S = 5


class Desk:
    """Takes submissions for one process, off its event loop."""

    def __init__(
        self,
        store: Store,
        config: ServerConfig,
        rules: Rules,
        metrics: Metrics,
        now: Callable[[], float],
    ) -> None:
        self._store = store
        self._config = config
        self._rules = rules
        self._metrics = metrics
        self._now = now
        self._inside = 0
        self._verifiers: ThreadPoolExecutor | None = None

    def check_room(self) -> None:
        """Raises Refused (busy) where no more may wait; asked before a body is read as well."""
        if self._inside >= self._config.limits.verifying + self._config.limits.waiting:
            raise refuse(
                "busy",
                f"{self._inside} submissions are being verified or wait for it",
                retry_after_s=RETRY_S,
                waiting=self._inside,
            )

    async def take(self, body: bytes) -> tuple[int, bytes]:
        """Do what ``intake.take`` does, and count it."""
        self.check_room()
        self._inside += 1
        self._metrics.waiting.inc()
        try:
            loop = asyncio.get_running_loop()
            with self._store.announced():
                checked = await loop.run_in_executor(self._pool(), self._verify, body)
            if isinstance(checked, bytes):
                return 200, checked
            return 201, await asyncio.wrap_future(checked)
        finally:
            self._inside -= 1
            self._metrics.waiting.dec()

    def close(self) -> None:
        """Finish what was begun."""
        if self._verifiers is not None:
            self._verifiers.shutdown(wait=True)
            self._verifiers = None

    def _pool(self) -> ThreadPoolExecutor:
        if self._verifiers is None:
            self._verifiers = ThreadPoolExecutor(self._config.limits.verifying, "verify")
        return self._verifiers

    def _verify(self, body: bytes) -> Future[bytes] | bytes:
        began = time.perf_counter()
        try:
            new = intake.verify(body, self._store, self._config, self._rules, self._now())
            return new if isinstance(new, bytes) else self._store.accept_soon(new)
        finally:
            self._metrics.verify_s.observe(time.perf_counter() - began)
