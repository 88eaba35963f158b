"""What was seen while measuring: other programs' load and throttling make a run noisy."""

from __future__ import annotations

from typing import Any

import pytest

from npumark.orchestrator.surroundings import load_beside, with_observations
from npumark.policy import load_policy
from npumark.record.model import Environment

POLICY = load_policy()
QUIET = Environment(checks={}, noisy=False, skipped=False, facts={})
UNWATCHED = Environment(checks={}, noisy=False, skipped=True, facts={})


def _load(others: float | None) -> dict[str, Any]:
    return {"seconds": 60.0, "busy": 0.9, "own": 0.8, "others": others}


@pytest.mark.parametrize(
    ("others", "violated"),
    [(0.0, False), (POLICY.preconditions.max_busy, False), (0.11, True), (1.0, True)],
)
def test_other_programs_may_take_as_much_as_an_idle_machine_has(
    others: float, violated: bool
) -> None:
    check = load_beside(_load(others), POLICY)
    assert (check.value, check.violation) == (others, violated)
    seen = with_observations(QUIET, {}, {}, _load(others), POLICY)
    assert seen.noisy is violated


@pytest.mark.parametrize("load", [None, _load(None)])
def test_an_unknown_load_is_null_with_a_reason(load: dict[str, Any] | None) -> None:
    check = load_beside(load, POLICY)
    assert check.value is None
    assert check.why
    assert not check.violation


def test_workers_whose_time_is_not_known_make_no_run_noisy() -> None:
    load = {**_load(None), "own": None, "why": "not told apart"}
    seen = with_observations(QUIET, {}, {}, load, POLICY)
    assert not seen.noisy
    assert seen.checks["load_beside_measuring"].value is None
    assert seen.checks["load_beside_measuring"].why == "not told apart"


def test_a_run_that_watched_nothing_is_not_judged() -> None:
    seen = with_observations(UNWATCHED, {}, {}, _load(1.0), POLICY)
    assert not seen.noisy
    assert "load_beside_measuring" not in seen.checks
    assert seen.facts["load_while_measuring"] == _load(1.0)


def test_throttling_makes_a_run_noisy() -> None:
    seen = with_observations(QUIET, {"nr_throttled": 2}, {}, _load(0.0), POLICY)
    assert seen.noisy
    assert not with_observations(QUIET, {"nr_throttled": 0}, {}, _load(0.0), POLICY).noisy
