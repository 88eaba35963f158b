"""Passing events on to whoever watches."""

from __future__ import annotations

from npumark.orchestrator.events import Event, Listener


class Teller:
    """Passes events on. A listener that fails (its terminal is gone) is not told again: what
    is shown must not cost what is measured."""

    def __init__(self, listen: Listener) -> None:
        self._listen: Listener | None = listen

    def __call__(self, event: Event) -> None:
        if self._listen is None:
            return
        try:
            self._listen(event)
        except Exception:  # noqa: BLE001 - whatever it is, the run goes on without a view
            self._listen = None
