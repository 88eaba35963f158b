"""The view of a run while it goes on, on standard error.

On a terminal finished attempts scroll by above a few lines that say what runs now, how much is
left and what is best so far. Those lines are redrawn when something happens, and once a second
only while the run waits: nothing is drawn while an attempt is being timed. Without a terminal
each event is one plain line, never cut.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from types import TracebackType
from typing import IO, Self

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from npumark.orchestrator.events import AttemptStarted, Event, Stage
from npumark.report.charts import bar
from npumark.report.page import Page, page_of, width_of
from npumark.report.progress import Progress, amount, boxed, marked, words
from npumark.report.sheet import BAD, DIM, GOOD, STRONG, Part
from npumark.report.words import count, duration, tops

_TICK_S = 1.0


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Fall silent. Rich would end the program here, and with it the run."""
        self.quiet = True


class LiveView:
    """A listener to a run's events; use it as a context manager, so that the terminal is left
    as it was found whatever happens. ``quick``: each entry has exactly one attempt, so that the
    number of those left is no lower bound. ``attempts``: there are attempts to count at all."""

    def __init__(
        self,
        stream: IO[str],
        page: Page | None = None,
        *,
        quick: bool = False,
        attempts: bool = True,
        clock_ns: Callable[[], int] = time.monotonic_ns,
        wall: Callable[[], datetime] = datetime.now,
    ) -> None:
        self._page = page or page_of(stream)
        self._clock_ns = clock_ns
        self._wall = wall
        self._progress = Progress(exact=quick)
        self._counts = attempts
        self._lock = threading.Lock()
        self._waiting = threading.Event()
        self._closing = threading.Event()
        self._said: str | None = None
        self._console = _Console(
            file=stream,
            force_terminal=self._page.live or self._page.colour,
            no_color=not self._page.colour,
            color_system="standard" if self._page.colour else None,
            width=self._page.width or 10_000,
            highlight=False,
        )
        self._live: Live | None = None
        self._ticker: threading.Thread | None = None

    def __enter__(self) -> Self:
        if self._page.live:
            self._live = Live(
                console=self._console,
                auto_refresh=False,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()
            self._ticker = threading.Thread(target=self._tick, name="live-view", daemon=True)
            self._ticker.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closing.set()
        self._waiting.set()
        if self._ticker is not None:
            self._ticker.join()
        if self._live is not None:
            self._live.stop()

    def __call__(self, event: Event) -> None:
        """Show what ``event`` changes; a stream that has gone away ends the view, not the run."""
        with self._lock:
            self._progress.take(event)
            with self._while_it_lasts():
                self._log(event)
                self._draw()
        if isinstance(event, Stage) and event.until_ns is not None:
            self._waiting.set()
        elif not self._closing.is_set():
            self._waiting.clear()

    def _tick(self) -> None:
        while True:
            self._waiting.wait()
            if self._closing.wait(_TICK_S):
                return
            with self._lock:
                if self._waiting.is_set():
                    with self._while_it_lasts():
                        self._draw()

    @contextmanager
    def _while_it_lasts(self) -> Iterator[None]:
        """Fall silent for good where the stream can no longer be written to."""
        try:
            yield
        except (OSError, ValueError):
            self._live = None
            self._console.quiet = True

    def _log(self, event: Event) -> None:
        if isinstance(event, Stage):
            # A stage reports often; a log says once that it began, a live view shows the rest.
            if self._live is not None or event.name == self._said:
                return
            self._said = event.name
        else:
            self._said = None
        parts = words(event, self._progress)
        if parts:
            self._console.print(self._text(parts), soft_wrap=self._live is None)

    def _draw(self) -> None:
        if self._live is None:
            return
        self._live.update(Group(*self._status()), refresh=True)

    def _status(self) -> list[Text]:
        """Return the lines below the log, each within the page's width."""
        progress = self._progress
        lines = [self._header()] if self._counts else []
        if progress.now is not None:
            lines.append(self._fitted("now   ", self._running(progress.now)))
        elif progress.box is not None:
            lines.append(self._fitted("now   ", [boxed(progress.box)]))
        elif progress.stage is not None:
            lines.append(self._fitted("now   ", self._stage(progress.stage)))
        if progress.best is not None:
            _, best, name = progress.best
            lines.append(self._fitted("best  ", [(f"{tops(best)} TOPS", GOOD), name]))
        if progress.faults:
            number = count(len(progress.faults), "fault")
            lines.append(self._fitted("fault ", [(f"{number}, last:", BAD), progress.faults[-1]]))
        return lines

    def _header(self) -> Text:
        progress = self._progress
        said = count(progress.done, "attempt") + " done"
        if progress.left is not None:
            # A lower bound of none says nothing: what ran may want to be repeated.
            bound = "" if progress.exact else "at least "
            said = f"{progress.done} done"
            if progress.left or progress.exact:
                said += f", {bound}{progress.left} left"
        if progress.projected_s is not None:
            until = self._wall() + timedelta(seconds=progress.projected_s)
            said += f" · projected {duration(progress.projected_s)} (until {until:%H:%M})"
        elif progress.left_s:
            said += f" · loops at least {duration(progress.left_s)}"
        room = min(24, (self._page.width or 80) - width_of(said) - 3)
        text = Text()
        if progress.total and room >= 6:
            drawn = bar(min(1.0, progress.done / progress.total), room, unicode=self._page.unicode)
            text.append(drawn, "cyan")
            text.append(self._page.plain("░") * (room - width_of(drawn)), DIM)
            text.append("  ")
        text.append(self._page.plain(said), STRONG)
        return self._cut(text)

    def _running(self, started: AttemptStarted) -> list[Part]:
        return [marked(started), (f"attempt {started.n}", DIM)]

    def _stage(self, stage: Stage) -> list[Part]:
        parts: list[Part] = []
        if stage.until_ns is not None:
            left = max(0.0, (stage.until_ns - self._clock_ns()) / 1e9)
            parts.append((f"{left:.0f} s", STRONG))
        if (far := amount(stage)) is not None:
            parts.append((far, STRONG))
        return [*parts, stage.text]

    def _fitted(self, lead: str, parts: list[Part]) -> Text:
        text = Text(lead, DIM)
        text.append_text(self._text(parts))
        return self._cut(text)

    def _text(self, parts: list[Part]) -> Text:
        text = Text()
        for part in parts:
            content, style = (part, "") if isinstance(part, str) else part
            text.append("  " if text else "")
            text.append(self._page.plain(content), style)
        return text

    def _cut(self, text: Text) -> Text:
        # Redrawn lines must not wrap, or the terminal scrolls at each redraw; what is cut here
        # is in the log above and in the record.
        text.truncate(
            self._page.width or 10_000, overflow="ellipsis" if self._page.unicode else "crop"
        )
        return text
