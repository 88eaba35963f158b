"""What several workers left becomes an attempt: nothing invented, and void where it must be."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from npumark.machine.numa import Near
from npumark.orchestrator.box_attempts import box_attempt_of, killed_box_attempt
from npumark.orchestrator.supervisor import Outcome
from npumark.orchestrator.together import Together
from npumark.record.box import BoxAttempt, BoxPin, BoxSolo
from npumark.score.box import RoleCards
from npumark.worker.protocol import Job, Result, Window, WindowCheck, WindowOptions

FAR = Near(None, None, "no node")
SEEN = Window(
    late_ns=5,
    inside=7,
    straddling=((90, 110),),
    calls=8,
    check=WindowCheck(iteration=3, sample=1, snr_db=None, why="a NaN in /home/ada/x"),
    load_ns=1,
    warmup_ns=2,
    samples_sha256="0" * 64,
    cpus=(4, 5),
    peak_rss_bytes=None,
)
CARDS = RoleCards(
    "dGPU",
    tuple(
        BoxSolo(
            card=f"dgpu-{n}",
            engine=f"e-{n}",
            workload="peak",
            variant="fp16",
            format="FP16",
            label="FP16",
            tops=1.0,
            unstable=False,
            source=None,
        )
        for n in (1, 2)
    ),
    (),
    None,
)


def outcome(status: Any = "ok", window: Window | None = SEEN, **fields: Any) -> Outcome:
    result = Result("ok", window=window) if status == "ok" else None
    told = {"why": None, "exit_code": 0, "started_ns": 0, "wall_ns": 9, "log_tail": "", **fields}
    return Outcome(status=status, result=result, **told)


def attempt(
    *outcomes: Outcome, at_fault: tuple[int, ...] = (), near: Near = FAR, **fields: Any
) -> BoxAttempt:
    jobs = [Job("window", "m:E", window=WindowOptions(1e-7))] * 2
    told = {"started_ns": 3, "wall_ns": 9, "stopped": False, "slept_ns": 0, **fields}
    return box_attempt_of(
        CARDS,
        2,
        Together(outcomes, True, at_fault),
        jobs,
        [near, near],
        redact=lambda text: text.replace("ada", "<user>"),
        **told,
    )


def test_what_each_worker_reported_is_kept() -> None:
    made = attempt(outcome(), outcome())
    assert (made.role, made.n, made.status, made.why) == ("dGPU", 2, "ran", None)
    assert (made.started_ns, made.wall_ns, made.window_ns) == (3, 9, 100)
    first, second = made.cards
    assert (first.card, first.engine) == ("dgpu-1", "e-1")
    assert (second.card, second.engine) == ("dgpu-2", "e-2")
    assert first.window is not None
    assert (first.window.inside, first.window.straddling) == (7, [(90, 110)])
    assert first.window.check.why == "a NaN in /home/<user>/x"
    assert (first.status, first.log_tail) == ("ok", None)


def test_derived_fields_are_left_empty() -> None:
    made = attempt(outcome(), outcome())
    assert (made.counts, made.void_because, made.skew_ns, made.tops) == (False, [], None, None)
    assert {(c.passed, c.counted, c.tops) for c in made.cards} == {(None, None, None)}


def test_a_card_that_died_keeps_its_log_without_names() -> None:
    dead = outcome("crashed", why="at /home/ada", exit_code=-6, log_tail="ada was here")
    made = attempt(outcome("interrupted", why="stopped because dgpu-2"), dead, at_fault=(1,))
    assert made.status == "ran"
    card = made.cards[1]
    assert (card.status, card.pid_exit, card.window) == ("crashed", -6, None)
    assert (card.why, card.log_tail) == ("at /home/<user>", "<user> was here")


@pytest.mark.parametrize(
    ("window", "why"),
    [(None, "without telling"), (replace(SEEN, inside=-1), "impossible values: ")],
)
def test_a_worker_that_tells_nonsense_gave_no_result(window: Window | None, why: str) -> None:
    card = attempt(outcome(window=window), outcome()).cards[0]
    assert (card.status, card.window) == ("no_result", None)
    assert why in (card.why or "")


def test_a_sleep_voids_whatever_was_measured() -> None:
    made = attempt(outcome(), outcome(), slept_ns=2_500_000_000)
    assert (made.status, made.why) == (
        "interrupted",
        "the machine slept for 2.5 s during the attempt",
    )


@pytest.mark.parametrize(
    ("ends", "at_fault", "status"),
    [
        (("interrupted", "interrupted"), (), "interrupted"),
        (("ok", "interrupted"), (), "interrupted"),
        (("ok", "ok"), (), "ran"),  # the signal came when all were back
        (("interrupted", "timeout"), (1,), "ran"),  # a card had failed before
    ],
)
def test_a_signal_voids_what_was_not_yet_whole(
    ends: tuple[Any, Any], at_fault: tuple[int, ...], status: str
) -> None:
    made = attempt(*map(outcome, ends), at_fault=at_fault, stopped=True)
    assert made.status == status


def test_a_pin_is_what_the_worker_read_back() -> None:
    bound = Near(1, (4, 5, 6), None)
    ran, lost = attempt(outcome(), outcome("crashed"), at_fault=(1,), near=bound).cards
    assert ran.pin == BoxPin(numa_node=1, cpus=[4, 5], why=None)
    assert lost.pin.cpus is None
    assert lost.pin.why
    assert attempt(outcome(), outcome()).cards[0].pin == BoxPin(
        numa_node=None, cpus=None, why="no node"
    )


def test_what_a_kill_left_behind_tells_nothing_of_its_cards() -> None:
    lost = killed_box_attempt("NPU", 3, 77, 5.0)
    assert (lost.role, lost.n, lost.started_ns, lost.wall_ns) == ("NPU", 3, 77, 0)
    assert (lost.status, lost.cards, lost.window_ns) == ("interrupted", [], 5_000_000_000)
    assert "not known" in (lost.why or "")
    assert "killed" not in (lost.why or "")  # it may never have begun
