"""What leaves the computer: never an engine whose results may not be published."""

from __future__ import annotations

import dataclasses
import json

import pytest

from npumark.orchestrator.request import RunRequest
from npumark.policy import load_policy
from npumark.record.model import Payload, Preparation
from npumark.score.planned import Planned
from npumark.score.publish import publishable
from npumark.score.recompute import recompute
from tests import synthetic
from tests.synthetic import CPU, NPU, Answer, payload_of, simulate, steady

PACK, POLICY = synthetic.manifest(), load_policy()
LOCAL = synthetic.engine(
    "ort-trt-rtx-dgpu", "dGPU", variants=("fp16",), derived_from={}, local_only=True
)


def faster_locally(planned: Planned, n: int) -> Answer:
    answer = steady(planned, n)
    assert answer.ips is not None
    return dataclasses.replace(answer, ips=answer.ips * (9 if planned.engine == LOCAL.id else 1))


def payload(*engines: object, **options: object) -> Payload:
    run = simulate(faster_locally, engines, **options)  # type: ignore[arg-type]
    return payload_of(run)


def test_a_record_without_local_only_engines_is_published_as_it_is() -> None:
    whole = payload(CPU, NPU)
    assert publishable(whole, PACK, POLICY) is whole


@pytest.mark.parametrize("limit", [None, 7, 25, 60])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_the_published_record_is_that_of_a_run_without_them(place: int, limit: int | None) -> None:
    engines = [CPU, NPU]
    engines.insert(place, LOCAL)
    whole = payload(*engines, limit=limit)
    assert recompute(whole, PACK, POLICY) == []
    shown = publishable(whole, PACK, POLICY)
    assert recompute(shown, PACK, POLICY) == []
    assert LOCAL.id not in json.dumps(
        shown.model_dump(mode="json", exclude={"processors"}), sort_keys=True
    )
    assert {e.engine for e in shown.entries} <= {CPU.id, NPU.id}
    if limit is None:
        alone = payload(CPU, NPU)
        assert shown.score == alone.score
        assert [e.label for e in shown.entries] == [e.label for e in alone.entries]
        assert [e.stats for e in shown.entries] == [e.stats for e in alone.entries]


def test_its_score_and_standing_are_the_other_engines_own() -> None:
    whole = payload(CPU, LOCAL)
    assert whole.score is not None
    assert whole.score.engine == LOCAL.id
    assert whole.not_comparable_because == ["local_only"]
    shown = publishable(whole, PACK, POLICY)
    assert shown.score is not None
    assert shown.score.engine == CPU.id
    assert "not for publication" not in shown.score.label
    assert shown.comparable
    assert shown.large_peak is None


def test_nothing_is_left_where_only_local_only_engines_ran() -> None:
    shown = publishable(payload(LOCAL), PACK, POLICY)
    assert (shown.entries, shown.engines, shown.score) == ([], [], None)
    assert shown.score_why is not None
    assert not shown.comparable


@pytest.mark.parametrize(("measured_on", "kept"), [(CPU.id, True), (LOCAL.id, False)])
def test_the_harness_cost_goes_with_the_engine_it_was_measured_on(
    measured_on: str, *, kept: bool
) -> None:
    harness = {"overhead_ns": {"added": 41}, "engine": measured_on}
    whole = payload(CPU, LOCAL, request=RunRequest()).model_copy(update={"harness": harness})
    shown = publishable(whole, PACK, POLICY)
    assert (shown.harness == harness) is kept
    assert (shown.harness["overhead_ns"] is None) is not kept


def test_what_was_compiled_for_them_is_left_out_too() -> None:
    whole = payload(CPU, NPU, LOCAL)
    after = max(a.started_ns + a.wall_ns for e in whole.entries for a in e.attempts)
    made = [
        Preparation(
            engine=entry.engine,
            workload=entry.workload,
            variant=entry.variant,
            before=len(entry.attempts) + 1,
            status="ok",
            why=None,
            state="built",
            compile_ns=wall,
            first_call_ns=None,
            load_ns=None,
            bytes=9,
            started_ns=started,
            wall_ns=wall,
        )
        for engine, wall, started in ((LOCAL, 500, after), (NPU, 70, after + 500))
        for entry in [next(e for e in whole.entries if e.engine == engine.id)]
    ]
    went = {**whole.where_time_went_ns, "compile": 570}
    whole = whole.model_copy(update={"prepared": made, "where_time_went_ns": went})
    assert recompute(whole, PACK, POLICY) == []
    shown = publishable(whole, PACK, POLICY)
    assert [p.engine for p in shown.prepared] == [NPU.id]
    assert shown.where_time_went_ns["compile"] == 70
    assert recompute(shown, PACK, POLICY) == []
