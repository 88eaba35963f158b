from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npumark.pack.manifest import Kind
from npumark.policy import load_policy
from npumark.score.repetition import bounds, tally

RULES = load_policy().repetition
OUTCOMES = st.lists(
    st.one_of(st.none(), st.floats(min_value=90, max_value=110)), min_size=0, max_size=9
)
KINDS = st.sampled_from(["peak", "network"])


def test_a_network_stops_at_three_that_agree() -> None:
    done = tally([100.0, 101.0, 99.0], "network", RULES)
    assert (done.wants, done.ips, done.agreed) == (0, 100.0, True)
    assert sorted(done.counted) == [99.0, 100.0, 101.0]


def test_agreement_includes_its_bound_and_nothing_beyond() -> None:
    assert tally([100.0, 102.0, 100.0], "network", RULES).wants == 0
    assert tally([100.0, 102.0001, 100.0], "network", RULES).wants == 2


def test_a_network_that_disagrees_is_the_median_of_five() -> None:
    outcomes = [100.0, 110.0, 90.0, 95.0, 105.0]
    assert [tally(outcomes[:k], "network", RULES).wants for k in range(6)] == [3, 2, 1, 2, 1, 0]
    done = tally(outcomes, "network", RULES)
    assert (done.ips, len(done.counted), done.agreed) == (100.0, 5, False)


def test_a_peak_is_the_fastest_three_of_five_that_agree() -> None:
    done = tally([70.0, 100.0, 101.0, 60.0, 100.5], "peak", RULES)
    assert (done.wants, done.ips, done.counted) == (0, 100.5, (101.0, 100.5, 100.0))


def test_a_peak_that_disagrees_is_the_fastest_five_of_nine() -> None:
    outcomes = [70.0, 100.0, 110.0, 60.0, 90.0, 105.0, 50.0, 95.0, 80.0]
    assert tally(outcomes[:5], "peak", RULES).wants == 4
    done = tally(outcomes, "peak", RULES)
    assert (done.wants, done.ips, done.counted) == (0, 100.0, (110.0, 105.0, 100.0, 95.0, 90.0))


@pytest.mark.parametrize(("kind", "least", "most"), [("network", 3, 5), ("peak", 5, 9)])
def test_a_death_among_the_first_runs_to_the_maximum(kind: Kind, least: int, most: int) -> None:
    assert tally([None], kind, RULES).wants == most - 1
    died = [100.0] * (least - 1) + [None]
    assert tally(died, kind, RULES).wants == most - least
    done = tally(died + [100.0] * (most - least), kind, RULES)
    assert (done.wants, done.agreed, done.ips) == (0, False, 100.0)


def test_nothing_landed_gives_no_figure() -> None:
    done = tally([None] * 5, "network", RULES)
    assert (done.wants, done.ips, done.counted) == (0, None, ())


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_rate_that_is_not_finite_is_refused(bad: float) -> None:
    for kind in ("network", "peak"):
        with pytest.raises(ValueError):
            tally([100.0, bad, 100.0], kind, RULES)


@given(OUTCOMES, KINDS)
def test_against_the_rule_written_out_anew(outcomes: list[float | None], kind: Kind) -> None:
    """Run an entry to its end on a stream of outcomes and compare with a plain reading."""
    least, most = bounds(kind, RULES)
    stream = [*outcomes, *[100.0] * most]
    ran: list[float | None] = []
    while tally(ran, kind, RULES).wants:
        wants = tally(ran, kind, RULES).wants
        assert 0 < wants <= most - len(ran)
        ran.append(stream[len(ran)])
    first = stream[:least]
    top = sorted((v for v in first if v is not None), reverse=True)
    chosen = top[:3] if kind == "peak" else top
    agree = None not in first and (max(chosen) - min(chosen)) / statistics.median(chosen) <= 0.02
    assert len(ran) == (least if agree else most)
    landed = sorted((v for v in ran if v is not None), reverse=True)
    if kind == "peak":
        landed = landed[: 3 if agree else 5]
    done = tally(ran, kind, RULES)
    assert done.agreed == agree
    assert sorted(done.counted, reverse=True) == landed
    assert done.ips == (statistics.median(landed) if landed else None)
