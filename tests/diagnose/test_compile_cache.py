from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from npumark.diagnose.compile_cache import PROBE
from npumark.diagnose.probe import Finding, Seen, Step, Target
from npumark.policy import load_policy

RULES = load_policy().diagnose
NPU = Target("ort-qnn-npu", "ort", "NPU", "resnet50", "int8", compiles=True, cores=8)
CPU = replace(NPU, engine="ort-cpu", role="CPU", compiles=False)
SINGLE = Seen(
    Step("single", "single"), "ok", None, {"calls": np.full(9, 10**7)}, {"load_ns": 120_000_000}
)
STATE = {"cold": "built", "warm": "reused"}


def loads(cold: list[float], warm: list[float], **facts: Any) -> dict[str, Seen]:
    """Return what was seen: milliseconds by load; a first call takes a tenth of its load."""
    taken = {"cold": list(cold), "warm": list(warm)}
    found = {}
    for step in PROBE.steps(NPU, RULES):
        kind = step.name.partition("-")[0]
        ns = round(taken[kind].pop(0) * 1e6)
        told = {"load_ns": ns, "first_call_ns": ns // 10, "cache": STATE[kind], "cache_why": None}
        found[step.name] = Seen(step, "ok", None, {}, {**told, **facts})
    return found


def find(seen: dict[str, Seen], target: Target = NPU) -> Finding:
    return PROBE.finding(target, SINGLE, seen, RULES)


def test_cold_and_warm_loads_take_turns() -> None:
    steps = PROBE.steps(NPU, RULES)
    assert [s.name for s in steps] == [
        *("cold-1", "warm-1", "cold-2", "warm-2", "cold-3", "warm-3")
    ]
    assert [s.options["cold"] for s in steps] == [True, False, True, False, True, False]
    assert {s.kind for s in steps} == {"load_times"}
    assert PROBE.deep


def test_medians_are_compared() -> None:
    found = find(loads([900, 1000, 5000], [90, 100, 10]))
    assert [row["load_ns"] for row in found.rows] == [1_000_000_000, 90_000_000]
    assert [row["first_call_ns"] for row in found.rows] == [100_000_000, 9_000_000]
    assert [row["loads"] for row in found.rows] == [3, 3]
    assert {r.name: r.value for r in found.ratios} == pytest.approx(
        {"cold_load": 1000 / 90, "cold_first_call": 1000 / 90}
    )
    assert found.finding == (
        "A load that compiles takes 1000 ms, 11.1 × one that finds the compiled model (90 ms); "
        "writing that model down and hashing it is part of it."
    )
    assert "why" not in dict(found.columns)


def test_a_cache_that_saves_nothing_is_called_that() -> None:
    found = find(loads([100] * 3, [99] * 3))
    assert found.finding == "A load takes 100 ms where it compiles, and 99 ms where it need not."
    assert found.advice == "Ship no compiled model: finding one saves nothing here."


def test_loads_that_overlap_say_nothing_of_a_cache() -> None:
    found = find(loads([100, 200, 300], [90, 110, 120]))
    assert found.finding == (
        "A load takes 200 ms where it compiles, and 110 ms where it need not, no further apart "
        "than loads of one kind are."
    )
    assert (found.advice or "").endswith("run it again on a quiet machine.")


def test_a_warm_load_that_compiled_does_not_count_as_one() -> None:
    seen = loads([1000] * 3, [100, 1000, 100])
    seen["warm-2"] = replace(
        seen["warm-2"],
        facts={**seen["warm-2"].facts, "cache": "rebuilt", "cache_why": "it cannot be read"},
    )
    found = find(seen)
    assert found.rows[1]["loads"] == 2
    assert found.rows[1]["load_ns"] == 100_000_000
    assert found.rows[1]["why"] == "a warm load was none: it cannot be read"
    assert dict(found.columns)["why"] == "not measured because"


def test_a_model_that_cannot_be_kept_leaves_nothing_to_compare() -> None:
    found = find(loads([1000] * 3, [1000] * 3, cache="unkept", cache_why="the disk is full"))
    assert found.status == "failed"
    assert found.why == "a cold load was none: the disk is full"


def test_a_load_that_failed_is_named_beside_those_that_did_not() -> None:
    seen = loads([1000] * 3, [100] * 3)
    seen["cold-3"] = replace(seen["cold-3"], status="timeout", why=None, facts={})
    found = find(seen)
    assert (found.status, found.rows[0]["loads"], found.rows[0]["why"]) == ("ok", 2, "timeout")


def test_an_engine_that_keeps_no_compiled_model_has_nothing_to_find() -> None:
    assert PROBE.steps(CPU, RULES) == ()
    found = find({}, CPU)
    assert found.status == "not_applicable"
    assert found.why == "this engine keeps no compiled model; every load compiles (120 ms here)"
