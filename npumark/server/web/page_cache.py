"""Rendered pages that were asked for before: a bounded number of bytes, the least used go first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock


class PageCache:
    """Pages by key. A key holds all that decides a page, so that none is ever stale; a page that
    is larger than the whole is not kept. Safe among threads."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._held = 0
        self._pages: OrderedDict[Hashable, bytes] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Hashable) -> bytes | None:
        """Return the page, or null where it has to be made."""
        with self._lock:
            page = self._pages.get(key)
            if page is not None:
                self._pages.move_to_end(key)
            return page

    def put(self, key: Hashable, page: bytes) -> None:
        """Keep a page, and let go of the least recently used ones that it leaves no room for."""
        if len(page) > self._most:
            return
        with self._lock:
            self._held += len(page) - len(self._pages.pop(key, b""))
            self._pages[key] = page
            while self._held > self._most:
                _, gone = self._pages.popitem(last=False)
                self._held -= len(gone)

    @property
    def held_bytes(self) -> int:
        return self._held
