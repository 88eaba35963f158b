"""What was seen while measuring: other programs' load and throttling make a run noisy."""

from __future__ import annotations

from typing import Any

import pytest

from npumark.machine.preconditions import violations
from npumark.orchestrator.surroundings import (
    Part,
    Parts,
    load_beside,
    rejoin,
    with_observations,
    with_rebuilt,
)
from npumark.pack.inspection import Fault
from npumark.policy import load_policy
from npumark.record.model import Check, Environment

POLICY = load_policy()
QUIET = Environment(checks={}, noisy=False, skipped=False, facts={})
UNWATCHED = Environment(checks={}, noisy=False, skipped=True, facts={})


def _load(others: float | None) -> dict[str, Any]:
    return {
        "seconds": 60.0,
        "cpu_s": 120.0,
        "busy": 0.9,
        "own": 0.8,
        "others": others,
        "steal": None,
        "why": "not counted" if others is None else None,
        "throttling": {"nr_throttled": 0},
    }


def _part(
    others: float | None = 0.0, *, cpu_s: float = 120.0, throttled: int | None = 0, **more: Any
) -> Part:
    load = {**_load(others), "cpu_s": cpu_s, "throttling": {"nr_throttled": throttled}}
    return Part(**{"load": load, "watched": True, "notes": {}, **more})


@pytest.mark.parametrize(
    ("others", "violated"),
    [(0.0, False), (POLICY.preconditions.max_busy, False), (0.11, True), (1.0, True)],
)
def test_other_programs_may_take_as_much_as_an_idle_machine_has(
    others: float, violated: bool
) -> None:
    check = load_beside(_load(others), POLICY)
    assert (check.value, check.violation) == (others, violated)
    seen = with_observations(QUIET, [_part(others)], POLICY)
    assert seen.noisy is violated


@pytest.mark.parametrize("load", [None, _load(None)])
def test_an_unknown_load_is_null_with_a_reason(load: dict[str, Any] | None) -> None:
    check = load_beside(load, POLICY)
    assert check.value is None
    assert check.why
    assert not check.violation


def test_workers_whose_time_is_not_known_make_no_run_noisy() -> None:
    load = {**_load(None), "own": None, "why": "not told apart"}
    seen = with_observations(QUIET, [_part(load=load)], POLICY)
    assert not seen.noisy
    assert seen.checks["load_beside_measuring"].value is None
    assert seen.checks["load_beside_measuring"].why == "not told apart"


def test_a_run_that_watched_nothing_is_not_judged() -> None:
    part = _part(1.0, watched=False)
    seen = with_observations(UNWATCHED, [part], POLICY)
    assert not seen.noisy
    assert "load_beside_measuring" not in seen.checks
    assert seen.facts["load_while_measuring"] == part.load


def test_throttling_makes_a_run_noisy() -> None:
    assert with_observations(QUIET, [_part(throttled=2)], POLICY).noisy
    assert not with_observations(QUIET, [_part(throttled=0)], POLICY).noisy


def test_parts_weigh_as_much_as_their_cpu_time() -> None:
    seen = with_observations(QUIET, [_part(0.08, cpu_s=300.0), _part(0.04, cpu_s=100.0)], POLICY)
    assert seen.checks["load_beside_measuring"].value == pytest.approx(0.07)
    assert seen.facts["load_while_measuring"]["cpu_s"] == 400.0
    assert seen.facts["load_while_measuring"]["throttling"] == {"nr_throttled": 0}
    assert [p["load"]["others"] for p in seen.facts["parts"]] == [0.08, 0.04]
    assert not seen.noisy


LOUD = "load_beside_measuring_in_a_part"


@pytest.mark.parametrize(
    "after",
    [
        _part(0.0, cpu_s=10_000.0),
        _part(None),
        _part(load=None),
        _part(watched=False),
    ],
    ids=["quiet", "unknown", "lost", "unwatched"],
)
def test_a_part_that_was_noisy_stays_so(after: Part) -> None:
    environment = QUIET if after.watched else UNWATCHED
    seen = with_observations(environment, [_part(0.42), after], POLICY)
    assert seen.noisy
    assert seen.checks[LOUD] == Check(value=0.42, why=None, violation=True)
    assert "42%" in violations(seen)[0]
    whole = with_observations(environment, [_part(0.05), after], POLICY)
    assert not whole.noisy
    assert LOUD not in whole.checks


@pytest.mark.parametrize("lost", [_part(None, throttled=None), _part(load=None)])
def test_an_unknown_part_leaves_the_whole_unknown(lost: Part) -> None:
    seen = with_observations(QUIET, [lost, _part(0.01)], POLICY)
    for name in ("load_beside_measuring", "throttling_while_measuring"):
        assert (seen.checks[name].value, seen.checks[name].violation) == (None, False)
        assert seen.checks[name].why
    throttled = with_observations(QUIET, [lost, _part(0.01, throttled=3)], POLICY)
    assert throttled.checks["throttling_while_measuring"].value is None
    assert throttled.checks["throttling_while_measuring_in_a_part"].violation
    assert violations(throttled)


def test_a_part_counts_from_its_begin() -> None:
    earlier = _part(0.2)
    parts = Parts([earlier], watched=True)
    assert parts.seen() == (earlier,)
    parts.notes["how"] = "so"
    parts.begin()
    first, second = parts.seen()
    assert first == earlier
    assert second.load is not None
    assert second.notes == {"how": "so"}


@pytest.mark.parametrize("first", [False, True])
def test_a_violation_of_any_look_stays(first: bool) -> None:
    def look(value: float, violation: bool) -> Environment:
        check = Check(value=value, why=None, violation=violation)
        return Environment(checks={"cpu_busy": check}, noisy=violation, skipped=False, facts={})

    both = rejoin(look(0.1, first), look(0.2, not first))
    assert both.noisy
    assert both.checks["cpu_busy"].violation
    assert both.facts["at_start"]["cpu_busy"]["value"] == 0.1
    assert rejoin(both, look(0.3, False)).checks == both.checks
    assert not rejoin(look(0.1, False), look(0.2, False)).noisy


def test_files_rebuilt_before_any_part_are_recorded() -> None:
    fault = Fault("a/x.bin", "changed", "a/x.bin has other bytes")
    told = [{"path": "a/x.bin", "was": "changed"}]
    one = with_rebuilt(QUIET, [fault])
    assert one.facts["pack_files_rebuilt"] == told
    assert rejoin(one, QUIET).facts["pack_files_rebuilt"] == told
    assert rejoin(one, one).facts["pack_files_rebuilt"] == told * 2
    assert with_rebuilt(QUIET, []) == QUIET
