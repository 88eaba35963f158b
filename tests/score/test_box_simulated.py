"""The box total of simulated boxes, far larger than any at hand, whose true total is known."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from functools import cache

import pytest

from npumark.engines.virtual_box import make_box
from npumark.gates.judge import judge
from npumark.pack.manifest import GateSpec, load_manifest
from npumark.policy import load_policy
from npumark.record.model import Gate
from npumark.score import box_attempt
from tool.simulate_box import BOUND, Recovered, main, recover

PACK, POLICY = load_manifest(), load_policy()
RUNS = {8: 100, 16: 100, 64: 1000}


@pytest.fixture(autouse=True, scope="module")
def _one_verdict() -> Iterator[None]:
    """Judge one simulated answer: all of them are the same, and there are 200,000."""
    known: dict[float | None, Gate] = {}

    def judge_once(measures: Mapping[str, float | None], spec: GateSpec) -> Gate:
        snr_db = measures["snr_db"]
        if snr_db not in known:
            known[snr_db] = judge(measures, spec)
        return known[snr_db]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(box_attempt, "judge", judge_once)
        yield


@cache
def recovered(cards: int) -> list[Recovered]:
    return [recover(make_box(cards, s), s, PACK, POLICY) for s in range(RUNS[cards])]


@pytest.mark.parametrize("cards", RUNS)
def test_the_total_is_recovered_within_a_hundredth(cards: int) -> None:
    assert max(abs(r.error) for r in recovered(cards)) <= BOUND == 0.01


@pytest.mark.parametrize("cards", RUNS)
def test_exactly_the_planted_slow_cards_are_flagged(cards: int) -> None:
    found = recovered(cards)
    assert [r for r in found if not r.right] == []
    planted = [len(r.planted) for r in found]
    assert 0 in planted
    assert max(planted) == cards // 8


@pytest.mark.parametrize("cards", RUNS)
def test_the_sum_of_the_solo_peaks_is_no_box_total(cards: int) -> None:
    """The negative control: cards that share power never reach together what each reaches alone."""
    assert min(r.solo_error for r in recovered(cards)) > 10 * BOUND


def test_a_threshold_at_the_median_flags_innocent_cards() -> None:
    strict = dataclasses.replace(POLICY, box=dataclasses.replace(POLICY.box, slow_card=1.0))
    for seed in range(20):
        found = recover(make_box(64, seed), seed, PACK, strict)
        assert found.in_box > found.planted


def test_whole_calls_alone_would_be_off_by_far_more() -> None:
    """The negative control of counting by shares."""
    found = recovered(8)
    typical = sorted(abs(r.error) for r in found)[len(found) // 2]
    assert max(r.whole_error for r in found) < 0
    assert sorted(-r.whole_error for r in found)[len(found) // 2] > 5 * typical


def test_the_tool_says_what_it_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--cards", "8", "--runs", "3"]) == 0
    assert capsys.readouterr().out.startswith("8 cards, 3 boxes with ")
