"""What ties the parts of a run together, and what is said when it changed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npumark.orchestrator.discover import Found, Runtime
from npumark.orchestrator.request import RunRequest
from npumark.orchestrator.resume import (
    changes,
    plan_from_json,
    plan_to_json,
    request_from_json,
    request_to_json,
    state_now,
)
from npumark.pack.manifest import load_manifest
from npumark.policy import load_policy
from npumark.score.planned import Planned
from npumark.worker.protocol import EngineInfo

STATE: dict[str, Any] = {
    "boot": "b",
    "power": {"source": "mains", "profile": None},
    "pack": "p",
    "policy": "q",
    "npumark": "1",
    "python": "3.11.7",
    "engines": {"a-cpu": {"version": "1"}, "b-gpu": {"version": "2"}},
}


def test_nothing_changed() -> None:
    assert changes(STATE, STATE, ["a-cpu", "b-gpu"]) == []


@pytest.mark.parametrize("name", ["boot", "power", "pack", "policy", "npumark", "python"])
def test_each_change_is_named(name: str) -> None:
    assert changes(STATE, {**STATE, name: "other"}, ["a-cpu"]) == [name]


def test_only_engines_of_the_plan_matter() -> None:
    now = {**STATE, "engines": {"a-cpu": {"version": "1"}}}
    assert changes(STATE, now, ["a-cpu"]) == []
    assert changes(STATE, now, ["a-cpu", "b-gpu"]) == ["engine b-gpu"]


def test_an_engine_in_another_environment_is_another_engine() -> None:
    found = Found(
        EngineInfo("a-cpu", True, None, "a", "A", "1"),
        Runtime("a", "a:E", {}, "/p", "env", {"a": "1.0"}, "3.11.7", "0" * 64),
    )
    manifest, policy = load_manifest(), load_policy()
    state = {**state_now(manifest, policy, [found]), "boot": "b"}
    others: list[dict[str, Any]] = [
        {"packages": {"a": "1.1"}},
        {"python_version": "3.12.1"},
        {"environment": None},
    ]
    assert changes(state, state, ["a-cpu"]) == []
    for other in others:
        moved = replace(found, runtime=replace(found.runtime, **other))
        now = {**state_now(manifest, policy, [moved]), "boot": "b"}
        assert changes(state, now, ["a-cpu"]) == ["engine a-cpu"]


def test_an_unknown_boot_is_not_the_same_boot() -> None:
    unknown = {**STATE, "boot": None}
    assert changes(unknown, unknown, []) == ["boot"]
    assert changes(STATE, unknown, []) == ["boot"]


names = st.none() | st.lists(st.text(), max_size=3).map(tuple)


@settings(max_examples=50, deadline=None)
@given(
    engines=names,
    variants=names,
    quick=st.booleans(),
    budget=st.none() | st.floats(1, 1e6),
    argv=st.lists(st.text(), max_size=3).map(tuple),
)
def test_a_request_survives_its_journal(
    engines: Any, variants: Any, quick: bool, budget: float | None, argv: Any
) -> None:
    request = RunRequest(
        quick=quick,
        engines=engines,
        variants=variants,
        time_budget_s=budget,
        argv=argv,
        out=Path("/somewhere/record.json"),
        box="only",
        box_roles=("dGPU", "NPU"),
        box_cards=engines,
        box_from=Path("/somewhere/peaks.json"),
    )
    assert request_from_json(request_to_json(request)) == request


def test_a_plan_survives_its_journal() -> None:
    plan = (Planned("a-cpu", "w", "bf16", "fp32", "BF16", "peak", "peak", "because"),)
    assert plan_from_json(plan_to_json(plan)) == plan
    with pytest.raises(TypeError):
        plan_from_json([{"engine": "a-cpu", "surprise": 1}])
