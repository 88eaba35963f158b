"""One attempt of the box stage: what each card counts with, and what voids it."""

from __future__ import annotations

import math
import random

import pytest

from npumark.gates.measures import SNR_CAP_DB
from npumark.policy import load_policy
from npumark.record.box import BoxAttempt, BoxSolo
from npumark.score.box import counted_calls, judged
from tests import synthetic, synthetic_box
from tests.synthetic_box import WINDOW_NS, Shown

PACK, POLICY = synthetic.manifest(), load_policy()
FLOPS = PACK.workloads["peak-s"].flops


def solo(card: str, tops: float = 0.3) -> BoxSolo:
    return BoxSolo(
        card=card,
        engine=f"ort-some-{card}",
        workload="peak-s",
        variant="fp16",
        format="FP16",
        label="FP16",
        tops=tops,
        unstable=False,
        source=None,
    )


SOLOS = (solo("dgpu-1"), solo("dgpu-2"), solo("dgpu-3"))


def attempt(*shown: Shown, **over: object) -> BoxAttempt:
    runs = [synthetic_box.run_of(s, how, PACK) for s, how in zip(SOLOS, shown, strict=False)]
    return judged(synthetic_box.attempt_of("dGPU", runs, 1, 0, **over), PACK, POLICY)


@pytest.mark.parametrize(
    ("inside", "straddling", "counted"),
    [
        (0, [], 0.0),
        (7, [], 7.0),
        (7, [(90, 110)], 7.5),
        (7, [(-10, 30)], 7.75),
        (7, [(-10, 10), (90, 110)], 8.0),
        (0, [(-50, 150)], 0.5),
        (0, [(0, 100)], 1.0),
        (0, [(200, 300)], 0.0),
        (0, [(-300, -200)], 0.0),
        (0, [(99, 99)], 1.0),
        (0, [(100, 100)], 0.0),
        (0, [(-1, -1)], 0.0),
    ],
)
def test_a_call_counts_by_the_share_of_it_that_lies_inside(
    inside: int, straddling: list[tuple[int, int]], counted: float
) -> None:
    assert counted_calls(inside, straddling, 100) == counted


def test_the_count_is_that_of_brute_force_over_the_raw_instants() -> None:
    """Each call is cut into its nanoseconds, and those inside are counted one by one."""
    draw = random.Random(4)
    for _ in range(200):
        window, now = draw.randrange(50, 400), draw.randrange(-30, 20)
        calls = []
        while now < window:
            took = draw.randrange(1, 60)
            calls.append((now, now + took))
            now += took + draw.randrange(3)
        inside = [(b, e) for b, e in calls if b >= 0 and e <= window]
        across = [c for c in calls if c not in inside]
        brute = sum(
            sum(0 <= ns < window for ns in range(begin, end)) / (end - begin)
            for begin, end in calls
        )
        assert counted_calls(len(inside), across, window) == pytest.approx(brute, abs=1e-12)


def test_long_calls_are_counted_without_bias() -> None:
    """The same work in calls of 1 ms or of 1.9 s gives the same rate; whole calls would not."""
    for each in (1_000_000, 1_900_000_000):
        calls = -(-WINDOW_NS // each)
        last = (calls - 1) * each
        across = [(last, last + each)] if last + each > WINDOW_NS else []
        counted = counted_calls(calls - len(across), across, WINDOW_NS)
        assert counted * each / WINDOW_NS == pytest.approx(1.0, abs=1e-12)
    assert math.floor(WINDOW_NS / 1_900_000_000) * 1_900_000_000 / WINDOW_NS < 0.8


def test_every_card_that_ran_and_passed_counts() -> None:
    found = attempt(Shown(late_ns=1000), Shown(late_ns=5000), Shown(late_ns=3000))
    assert found.counts
    assert found.void_because == []
    assert found.skew_ns == 4000
    assert [run.passed for run in found.cards] == [True, True, True]
    for run in found.cards:
        assert run.window is not None
        counted = counted_calls(run.window.inside, run.window.straddling, WINDOW_NS)
        assert run.counted == counted
        assert run.tops == pytest.approx(FLOPS * counted / 5.0 / 1e12, rel=1e-15)
    assert found.tops == math.fsum(run.tops for run in found.cards if run.tops)
    assert found.tops == pytest.approx(0.9 * 0.9, rel=1e-3)


@pytest.mark.parametrize("snr_db", [20.0, SNR_CAP_DB])
def test_an_answer_at_the_bound_or_exact_passes(snr_db: float) -> None:
    assert attempt(Shown(snr_db=snr_db), Shown()).counts


LATE = round(POLICY.box.late_share * WINDOW_NS)


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (Shown(status="crashed", why="signal 9"), "dgpu-2 crashed: signal 9"),
        (Shown(status="timeout", why="not back after 25 s"), "dgpu-2 hung: not back after 25 s"),
        (Shown(status="no_result"), "dgpu-2 gave no result"),
        (Shown(status="unsupported", why="x"), "dgpu-2 cannot run its configuration: x"),
        (
            Shown(snr_db=3.0),
            "dgpu-2 answered wrong: snr_db 3 dB is below the bound 20 dB",
        ),
        (Shown(snr_db=19.999999), "dgpu-2 answered wrong: snr_db 20 dB is below the bound 20 dB"),
        (Shown(snr_db=None), "dgpu-2 answered wrong: the output holds NaN"),
        (Shown(late_ns=LATE + 1), "dgpu-2 started 50.0 ms late; 50.0 ms are allowed"),
        (Shown(late_ns=61_300_000), "dgpu-2 started 61.3 ms late; 50.0 ms are allowed"),
    ],
)
def test_a_card_at_fault_voids_the_attempt_and_is_named(fault: Shown, says: str) -> None:
    stopped = Shown(status="interrupted", why="stopped because dgpu-2 failed")
    found = attempt(Shown(), fault, Shown() if fault.status == "ok" else stopped)
    assert not found.counts
    assert found.tops is None
    assert found.void_because == [says]


def test_a_card_just_in_time_is_not_late() -> None:
    assert attempt(Shown(), Shown(late_ns=LATE)).counts


def test_a_card_that_comes_after_the_window_is_late_and_counts_nothing() -> None:
    ran = attempt(Shown(), Shown())
    late = ran.cards[1].window
    assert late is not None
    empty = late.model_copy(update={"late_ns": WINDOW_NS, "inside": 0, "straddling": []})
    cards = [ran.cards[0], ran.cards[1].model_copy(update={"window": empty})]
    found = judged(ran.model_copy(update={"cards": cards}), PACK, POLICY)
    assert found.cards[1].tops == 0.0
    assert [why.split(" ", 1)[1][:12] for why in found.void_because] == [
        "started 5000",
        "made no call",
    ]


def test_what_was_interrupted_counts_nothing_and_accuses_no_card() -> None:
    stopped = Shown(status="interrupted")
    found = attempt(stopped, stopped, status="interrupted", why="Ctrl-C")
    assert (found.counts, found.void_because, found.skew_ns) == (False, ["Ctrl-C"], None)
    lost = synthetic_box.attempt_of("dGPU", [], 1, 0, status="interrupted", why="killed")
    assert judged(lost, PACK, POLICY).void_because == ["killed"]


def test_judging_takes_no_verdict_from_the_attempt_itself() -> None:
    honest = attempt(Shown(), Shown(snr_db=3.0))
    lie = honest.model_copy(update={"counts": True, "tops": 1e9, "void_because": []})
    assert judged(lie, PACK, POLICY) == honest


def test_a_workload_without_a_gate_passes_nothing() -> None:
    bare = synthetic.manifest_of({**synthetic.WORKLOADS[0], "gates": {}})
    ran = attempt(Shown(), Shown())
    found = judged(ran, bare, POLICY)
    assert not found.counts
    assert found.void_because[0] == "dgpu-1 answered wrong: its workload has no standard gate"
