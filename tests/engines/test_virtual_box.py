"""The simulated box behaves as its model says."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from npumark.engines.virtual_box import VirtualBox, make_box
from npumark.worker.window_loop import cut

WINDOW_NS = 5_000_000_000


def plain(**over: object) -> VirtualBox:
    """Return four equal cards that share nothing and never vary, each of 10 calls/s at 100 W."""
    made = VirtualBox(
        alone=np.full(4, 10.0),
        watts=np.full(4, 100.0),
        before=np.arange(4),
        budget_w=400.0,
        heating=0.0,
        noise=0.0,
        late_ns=0,
        slow=frozenset(),
    )
    return dataclasses.replace(made, **over)  # type: ignore[arg-type]


def test_cards_that_share_nothing_do_together_what_they_do_alone() -> None:
    box = plain()
    assert box.together().tolist() == box.alone.tolist()
    for own in box.calls(WINDOW_NS, np.random.default_rng(0)):
        assert own[0].tolist() == [0, 100_000_000]
        assert len(own) == 50


def test_a_shared_power_budget_slows_every_card_alike() -> None:
    assert plain(budget_w=300.0).together().tolist() == [7.5] * 4


def test_a_card_in_warm_air_slows_for_each_card_before_it_and_draws_less() -> None:
    assert plain(heating=0.1).together() == pytest.approx([10.0, 9.0, 8.1, 7.29])
    assert plain(heating=0.1, budget_w=343.9 / 2).together()[0] == pytest.approx(5.0)


def test_calls_follow_one_another_until_the_window_has_passed() -> None:
    box = make_box(8, 5, slow=1)
    for own in box.calls(WINDOW_NS, np.random.default_rng(1)):
        assert 0 <= own[0, 0] <= box.late_ns
        assert (own[1:, 0] == own[:-1, 1]).all()
        assert (own[:, 1] > own[:, 0]).all()
        assert own[-1, 0] < WINDOW_NS <= own[-1, 1]
        lie = cut(own, WINDOW_NS)
        assert lie.inside + len(lie.straddling) == len(own)


def test_noise_moves_call_lengths_and_not_their_mean() -> None:
    (own, *_) = plain(noise=0.05).calls(400 * WINDOW_NS, np.random.default_rng(2))
    lengths = (own[:, 1] - own[:, 0]) / 1e8
    assert lengths.mean() == pytest.approx(1.0, abs=0.002)
    assert lengths.std() == pytest.approx(0.05, rel=0.05)


def test_a_seed_makes_the_same_box_and_the_same_calls_again() -> None:
    one, again, other = make_box(16, 3), make_box(16, 3), make_box(16, 4)
    assert one.alone.tolist() == again.alone.tolist() != other.alone.tolist()
    calls = [b.calls(WINDOW_NS, np.random.default_rng(9))[7].tolist() for b in (one, again)]
    assert calls[0] == calls[1]


def test_the_planted_cards_are_the_slow_ones() -> None:
    box = make_box(64, 8, slow=5)
    assert len(box.slow) == 5
    assert set(np.argsort(box.alone)[:5].tolist()) == box.slow
    assert make_box(64, 8, slow=0).slow == frozenset()
