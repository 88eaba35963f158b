"""The live view, fed a run's events on a fake clock."""

from __future__ import annotations

import io
import re
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from npumark.orchestrator.events import (
    AttemptEnded,
    AttemptStarted,
    BoxEnded,
    BoxStarted,
    Checked,
    Event,
    Note,
    PlanMade,
    Saved,
    Stage,
)
from npumark.record.box import BoxAttempt, BoxSolo
from npumark.record.model import Attempt, Check, Environment
from npumark.report.live import LiveView
from npumark.report.page import Page, width_of
from npumark.report.progress import Progress, amount, words
from npumark.score.planned import Planned

SECOND = 1_000_000_000
PEAK = Planned("ort-cpu", "peak-512x2048x8", "fp32", "fp32", "FP32", "peak", "peak")
NETWORK = Planned("openvino-cpu", "resnet50", "w8", "w8", "W8", "network", "scored")


def attempt(n: int, status: str = "ok", why: str | None = None) -> Attempt:
    empty = dict.fromkeys(("pid_exit", "observed", "placement", "measurement", "log_tail", "cache"))
    given = {"n": n, "status": status, "why": why, "started_ns": 0, "wall_ns": 1, "seed": 0}
    return Attempt.model_validate(empty | given)


def quiet(share: float, *, noisy: bool) -> Environment:
    busy = Check(value=share, why=None, violation=noisy)
    return Environment(checks={"cpu_busy": busy}, noisy=noisy, skipped=False, facts={})


def events() -> list[Event]:
    return [
        Stage("discover", "Looking for engines"),
        *(
            Stage("materialise", "Making the pack's files", n * 10**6, 400 * 10**6)
            for n in (0, 399)
        ),
        PlanMade((PEAK, NETWORK), 90.0),
        Stage("preconditions", "Watching whether the machine is idle", until_ns=30 * SECOND),
        Checked(quiet(0.23, noisy=True)),
        AttemptStarted(PEAK, 1, 0, 2, 60.0),
        AttemptEnded(PEAK, attempt(1), 0.83, counts=True, why_not=None),
        AttemptStarted(NETWORK, 1, 1, 1, 30.0),
        AttemptEnded(NETWORK, attempt(1, "crashed", "signal 11"), None, False, "crashed"),
        Stage("spacing", "Waiting: two attempts start apart", until_ns=12 * SECOND),
        Saved(Path("/records/record.json"), complete=True),
    ]


def shown(page: Page, feed: list[Event]) -> str:
    """Return everything the view writes for ``feed``."""
    stream = io.StringIO()
    wall = datetime(2026, 11, 30, 21, 0)  # noqa: DTZ001 - a wall clock, as a user reads it
    with LiveView(stream, page, clock_ns=lambda: 0, wall=lambda: wall) as view:
        for event in feed:
            view(event)
    return stream.getvalue()


def frames(width: int) -> Iterator[str]:
    """Yield the status lines on a terminal after each event."""
    for n in range(1, len(events()) + 1):
        view = LiveView(io.StringIO(), Page(width=width), clock_ns=lambda: 0)
        for event in events()[:n]:
            view._progress.take(event)
        yield "\n".join(line.plain for line in view._status())


def test_without_a_terminal_each_attempt_is_one_plain_line() -> None:
    lines = shown(Page(), events()).splitlines()
    assert lines == [
        "Looking for engines",
        "Making the pack's files",
        (
            "plan: 2 entries, at least 90 s of watching, warm-ups and timed loops; starting "
            "workers, loading and checking answers come on top and can take longer than those"
        ),
        "Watching whether the machine is idle",
        "noisy: its processor is 23% busy: stop other programs, or use --wait-idle",
        "[1/2+]  ort-cpu · peak-512x2048x8 · fp32 · 1  0.83 TOPS",
        "[2/2+]  openvino-cpu · resnet50 · w8 · 1  crashed  signal 11",
        "Waiting: two attempts start apart",
    ]


def test_a_note_is_shown_with_and_without_a_terminal() -> None:
    for page in (Page(), Page(width=80)):
        assert "rebuilt in the pack: x" in shown(page, [Note("rebuilt in the pack: x")])


def test_a_pipe_cuts_no_reason_however_long() -> None:
    why = "x" * 500
    ended = AttemptEnded(NETWORK, attempt(1, "crashed", why), None, False, "crashed")
    assert why in shown(Page(), [ended])


def test_a_forced_colour_on_a_pipe_adds_only_colour() -> None:
    text = shown(Page(colour=True), events())
    assert "\x1b[3" in text
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    assert plain == shown(Page(), events())


def test_no_colour_on_a_terminal_still_redraws() -> None:
    text = shown(Page(width=80, live=True), events())
    assert "\x1b[3" not in text
    assert "\x1b[2K" in text


@pytest.mark.parametrize("width", [20, 40, 80])
def test_redrawn_lines_never_wrap(width: int) -> None:
    for frame in frames(width):
        assert all(width_of(line) <= width for line in frame.splitlines())


def test_the_status_tells_what_runs_what_is_left_and_what_is_best() -> None:
    found = list(frames(80))
    assert "399.0 MB of 400.0 MB" in found[2]
    assert "30 s  Watching whether the machine is idle" in found[4]
    assert "0 done, at least 2 left · loops at least 60 s" in found[6]
    assert "ort-cpu · peak-512x2048x8 · fp32  attempt 1" in found[6]
    assert "best  0.83 TOPS  ort-cpu · peak-512x2048x8 · fp32" in found[7]
    assert "1 fault, last:  openvino-cpu · resnet50 · w8: crashed" in found[9]
    assert "12 s  Waiting" in found[10]


def test_the_time_left_is_projected_from_whole_attempts() -> None:
    slow = attempt(1).model_copy(update={"wall_ns": 12 * SECOND})
    stopped = attempt(2, "interrupted").model_copy(update={"wall_ns": SECOND})
    wall = datetime(2026, 11, 30, 21, 0)  # noqa: DTZ001 - a wall clock, as a user reads it
    for quick, left in ((False, "at least 5"), (True, "5")):
        view = LiveView(
            io.StringIO(), Page(width=80), quick=quick, clock_ns=lambda: 0, wall=lambda: wall
        )
        progress = view._progress
        progress.take(AttemptStarted(PEAK, 1, 0, 6, 30.0))
        assert progress.projected_s is None
        progress.take(AttemptEnded(PEAK, slow, 0.83, counts=True, why_not=None))
        assert progress.projected_s == 5 * 12.0
        assert f"1 done, {left} left · projected 60 s (until 21:01)" in view._status()[0].plain
        progress.take(AttemptStarted(PEAK, 2, 1, 5, 300.0))
        assert progress.projected_s == 300.0  # never below what the spacing alone takes
        progress.take(AttemptEnded(PEAK, stopped, None, counts=False, why_not="interrupted"))
        assert progress.walls_ns == [12 * SECOND]
        progress.take(AttemptStarted(PEAK, 3, 2, 1, 30.0))
        progress.take(AttemptEnded(PEAK, slow, 0.83, counts=True, why_not=None))
        assert view._status()[0].plain.endswith("3 done, 0 left" if quick else "3 done")


def test_a_peak_is_best_before_any_network() -> None:
    progress = Progress()
    progress.take(AttemptEnded(NETWORK, attempt(1), 9.0, counts=True, why_not=None))
    progress.take(AttemptEnded(PEAK, attempt(1), 0.5, counts=True, why_not=None))
    progress.take(AttemptEnded(PEAK, attempt(2), 5.0, counts=False, why_not="gate_failed"))
    assert progress.best == (True, 0.5, str(PEAK))


def test_nothing_is_drawn_between_the_start_and_the_end_of_an_attempt() -> None:
    stream = io.StringIO()
    with LiveView(stream, Page(width=80, live=True), clock_ns=lambda: 0) as view:
        view(Stage("spacing", "Waiting", until_ns=5 * SECOND))
        assert view._waiting.is_set()
        view(AttemptStarted(PEAK, 1, 0, 1, None))
        assert not view._waiting.is_set()


class Gone(io.StringIO):
    """A stream that nobody reads; it counts the tries to write to it."""

    def __init__(self, fault: type[OSError]) -> None:
        super().__init__()
        self.fault, self.tries = fault, 0

    def write(self, text: str, /) -> int:
        self.tries += 1
        raise self.fault

    def flush(self) -> None:
        raise self.fault


@pytest.mark.parametrize("fault", [BrokenPipeError, OSError])
@pytest.mark.parametrize("page", [Page(), Page(width=80, live=True)])
def test_a_terminal_that_goes_away_costs_the_view_and_not_the_run(
    page: Page, fault: type[OSError]
) -> None:
    stream = io.StringIO()
    with LiveView(stream, page) as view:
        view(events()[0])
        gone = Gone(fault)
        view._console.file = gone
        for event in events():
            view(event)
        tried = gone.tries
        assert tried > 0
        for event in events():
            view(event)
        assert gone.tries == tried
        assert view._progress.faults


def test_a_terminal_that_goes_away_while_the_run_waits_ends_the_drawing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("npumark.report.live._TICK_S", 0.001)
    with LiveView(io.StringIO(), Page(width=80, live=True), clock_ns=lambda: 0) as view:
        gone = Gone(OSError)
        view._console.file = gone
        view._waiting.set()
        until = time.monotonic() + 60
        while view._live is not None and time.monotonic() < until:
            time.sleep(0.001)
        assert view._live is None
        assert view._ticker is not None
        assert view._ticker.is_alive()
        tried = gone.tries
        time.sleep(0.02)
        assert gone.tries == tried > 0


def test_stages_without_a_count_have_no_amount() -> None:
    assert amount(Stage("x", "X")) is None
    assert amount(Stage("x", "X", 1, 3)) == "1 of 3"


def test_plans_with_skipped_entries_say_so() -> None:
    skipped = Planned("e", "w", "v", "v", "FP32", "peak", "peak", skip="known to abort")
    assert "plan: 1 entry, 1 skipped" in shown(Page(), [PlanMade((PEAK, skipped), None)])


def test_skipped_checks_are_not_called_quiet() -> None:
    environment = Environment(checks={}, noisy=False, skipped=True, facts={})
    assert shown(Page(), [Checked(environment)]) == "checks: skipped\n"


def test_an_emulated_engine_is_called_so_and_is_never_the_best() -> None:
    progress = Progress()
    ended = AttemptEnded(PEAK, attempt(1), 9.0, True, None, None, ("emulated",))
    progress.take(AttemptStarted(PEAK, 1, 0, 1, None, ("emulated",)))
    progress.take(ended)
    assert progress.best is None
    line = words(ended, progress)
    assert line is not None
    assert line[1] == f"{PEAK} (emulated) · 1"
    progress.take(AttemptEnded(NETWORK, attempt(1), 0.1, counts=True, why_not=None))
    assert progress.best == (False, 0.1, str(NETWORK))


def test_work_on_the_wrong_device_is_a_fault_without_a_figure() -> None:
    progress = Progress()
    why = "40.0% of the time ran on the NPU; 90% is needed"
    ended = AttemptEnded(PEAK, attempt(1), None, False, "wrong_device", why)
    progress.take(ended)
    assert progress.faults == [f"{PEAK}: wrong device"]
    text = [part if isinstance(part, str) else part[0] for part in words(ended, progress) or []]
    assert text == ["[1]", f"{PEAK} · 1", "wrong device", why]


def box_attempt(n: int, tops: float | None, *void: str, status: str = "ran") -> BoxAttempt:
    card = {"status": "ok", "why": None, "pid_exit": 0, "window": None}
    card |= {"pin": {"numa_node": None, "cpus": None, "why": "unknown"}, "log_tail": None}
    card |= {"workload": "peak-512x2048x8", "variant": "fp32", "passed": None}
    card |= {"counted": None, "tops": None}
    given = {"role": "dGPU", "n": n, "status": status, "why": None, "started_ns": 0, "wall_ns": 1}
    given |= {"window_ns": 5 * SECOND, "skew_ns": None, "void_because": list(void), "tops": tops}
    given |= {"counts": tops is not None}
    given["cards"] = [card | {"card": c, "engine": f"ort-{c}"} for c in ("dgpu-1", "dgpu-2")]
    return BoxAttempt.model_validate(given)


def solos() -> tuple[BoxSolo, ...]:
    given = {"engine": "e", "workload": "w", "variant": "v", "format": "FP32", "label": "FP32"}
    given |= {"tops": 100.0, "unstable": False, "source": None}
    return tuple(BoxSolo.model_validate(given | {"card": c}) for c in ("dgpu-1", "dgpu-2"))


def test_all_cards_at_once_are_told_while_they_run_and_what_they_came_to() -> None:
    started = [BoxStarted("dGPU", n, ("dgpu-1", "dgpu-2")) for n in (1, 2, 3)]
    feed: list[Event] = [
        started[0],
        BoxEnded(box_attempt(1, 190.0), solos()),
        started[1],
        BoxEnded(box_attempt(2, None, "dgpu-2 crashed: signal 11"), solos()),
        started[2],
        BoxEnded(box_attempt(3, None, "it was stopped", status="interrupted"), solos()),
    ]
    assert shown(Page(), feed).splitlines() == [
        "[box]  2 dGPUs at once · 1  190.0 TOPS  95 % of the solo peaks",
        "[box]  2 dGPUs at once · 2  void  dgpu-2 crashed: signal 11",
        "[box]  2 dGPUs at once · 3  interrupted  it was stopped",
    ]
    view = LiveView(io.StringIO(), Page(width=80), clock_ns=lambda: 0)
    for event in feed[:5]:
        view._progress.take(event)
    status = [line.plain for line in view._status()]
    assert "now   2 dGPUs at once · 3" in status
    assert status[-1] == "fault 1 fault, last:  2 dGPUs at once · 2: dgpu-2 crashed: signal 11"
    view._progress.take(feed[5])
    assert not any(line.plain.startswith("now") for line in view._status())
    assert len(view._progress.faults) == 1


def test_what_broke_a_bound_is_told_by_its_name() -> None:
    void = "dgpu-2 answered wrong: snr_db 3 dB is below the bound 20 dB"
    ended = BoxEnded(box_attempt(1, None, void), solos())
    said = "dgpu-2 answered wrong: SNR 3 is below the bound of 20 dB"
    assert shown(Page(), [ended]).strip().endswith(said)
    progress = Progress()
    progress.take(ended)
    assert progress.faults == [f"2 dGPUs at once · 1: {said}"]


def test_where_there_are_no_attempts_none_are_counted() -> None:
    page = Page(width=80, colour=False, unicode=True, live=True)
    for attempts in (True, False):
        view = LiveView(io.StringIO(), page, attempts=attempts)
        view(Stage("single", "ort-cpu: one attempt, to compare with"))
        lines = [line.plain for line in view._status()]
        assert ("0 attempts done" in " ".join(lines)) == attempts
        assert lines[-1].startswith("now ")
