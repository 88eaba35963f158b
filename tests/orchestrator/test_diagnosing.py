"""What a diagnostics run probes, by what earlier benchmarks found, and how it ends."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from npumark.diagnose.document import Diagnostics, TargetFields
from npumark.diagnose.probe import Target as ProbeTarget
from npumark.diagnose.registry import PROBES
from npumark.errors import NothingToMeasure, UsageError
from npumark.orchestrator.diagnose_request import DiagnoseRequest, asked_probes
from npumark.orchestrator.diagnose_target import timed_s
from npumark.orchestrator.diagnose_targets import (
    Asked,
    asked_for,
    candidates,
    earlier_choices,
)
from npumark.orchestrator.diagnosing import exit_code
from npumark.orchestrator.discover import Found, Runtime
from npumark.orchestrator.plan import Host
from npumark.orchestrator.request import RunRequest
from npumark.orchestrator.survey import Survey
from npumark.policy import load_policy
from npumark.record.model import Payload
from npumark.worker.protocol import EngineInfo
from tests.synthetic import CPU, Answer, manifest, payload_of, plan_for, simulate

NETS = ("net-1", "net-2")
HOST = Host("linux", None)


def asked() -> Asked:
    plan = plan_for((CPU,), RunRequest(workloads=NETS))
    return Asked(plan, plan)


def benchmark(fastest: str, *, run_id: str = "run", **request: Any) -> Payload:
    """Return a record in which one format is by far the fastest."""

    def answers(planned: Any, n: int) -> Answer:
        slow = manifest().workloads[planned.workload].macs / 1e9
        return Answer(ips=(100 if planned.variant == fastest else 10) / slow * (1 + 0.001 * n))

    told = payload_of(simulate(answers, request=RunRequest(workloads=NETS, **request)))
    return told.model_copy(update={"run_id": run_id})


def choices(
    *benchmarks: Payload, engine: EngineInfo = CPU, machine: dict[str, Any] | None = None
) -> dict[str, tuple[str, str]]:
    found = earlier_choices(asked(), {engine.id: engine}, manifest(), machine or {}, benchmarks)
    return {pair[1]: (e.planned.variant, e.run_id) for pair, e in found.items()}


def test_the_newest_benchmark_that_has_a_pair_says_which_variant_is_the_fastest() -> None:
    newest = benchmark("fp32", run_id="new", quick=True)
    entries = [e for e in newest.entries if e.workload == "net-1"]
    newest = newest.model_copy(update={"entries": entries})
    older = benchmark("int8-u8s8", run_id="old")
    assert choices(newest, older) == {"net-1": ("fp32", "new"), "net-2": ("int8-u8s8", "old")}


def test_without_a_benchmark_nothing_is_known() -> None:
    assert choices() == {}


@pytest.mark.parametrize(
    "engine",
    [replace(CPU, version="2.0"), replace(CPU, version=None), replace(CPU, virtual=True)],
    ids=["other version", "unknown version", "virtual"],
)
def test_a_benchmark_of_another_engine_tells_nothing(engine: EngineInfo) -> None:
    assert choices(benchmark("fp16"), engine=engine) == {}


def test_a_benchmark_of_another_pack_tells_nothing() -> None:
    told = benchmark("fp16")
    suite = told.suite.model_copy(update={"manifest_sha256": "1" * 64})
    assert choices(told.model_copy(update={"suite": suite})) == {}


def test_a_benchmark_of_another_computer_tells_nothing() -> None:
    """A home may be shared among computers."""
    told = benchmark("fp16").model_copy(update={"machine": {"cpu_model": "one", "memory_bytes": 1}})
    assert choices(told, machine={"cpu_model": "one", "memory_bytes": 2})
    assert choices(told, machine={"cpu_model": "another"}) == {}


def test_a_fastest_variant_that_is_known_to_crash_is_not_taken_up() -> None:
    lines = asked()
    plan = tuple(replace(p, skip="known to abort") if p.variant == "fp16" else p for p in lines.all)
    found = earlier_choices(Asked(plan, plan), {CPU.id: CPU}, manifest(), {}, [benchmark("fp16")])
    assert found == {}


def test_what_is_asked_for_are_the_scored_networks_unless_named() -> None:
    survey = Survey(found=_found(CPU), processors=(), owner={})
    policy = load_policy()

    def of(*workloads: str) -> list[str]:
        request = DiagnoseRequest(workloads=workloads or None)
        return [w for _, w in asked_for(manifest(), survey, request, policy, HOST).pairs]

    assert of() == ["net-1", "net-2"]
    assert of("net-x") == ["net-x"]
    assert of("network") == ["net-1", "net-2"]
    with pytest.raises(NothingToMeasure, match="is a network that counts"):
        of("peak")


def test_every_variant_may_have_won_but_the_default_ones_are_measured() -> None:
    engine = replace(CPU, variants=("fp32",), extra_variants=("fp16",), derived_from={})
    survey = Survey(found=_found(engine), processors=(), owner={})
    told = asked_for(manifest(), survey, DiagnoseRequest(), load_policy(), HOST)
    assert {p.variant for p in told.all} == {"fp32", "fp16"}
    assert [p.variant for p in candidates(told, ("ort-cpu", "net-1"))] == ["fp32"]


def test_deep_probes_run_only_where_they_are_asked_for() -> None:
    plain = {p.name for p in asked_probes(DiagnoseRequest())}
    assert plain == {"concurrency", "batching", "idle_wake"}
    assert asked_probes(DiagnoseRequest(deep=True)) == PROBES
    named = asked_probes(DiagnoseRequest(probes=("sustained", "idle-wake")))
    assert [p.name for p in named] == ["idle_wake", "sustained"]
    with pytest.raises(UsageError, match="no probe called 'sleep'"):
        asked_probes(DiagnoseRequest(probes=("sleep",)))


def target(status: str, *candidates: str) -> TargetFields:
    found = TargetFields.model_construct(
        status=status,
        candidates=[type("C", (), {"status": c})() for c in candidates],
        single=None,
        findings=[],
    )
    assert isinstance(found, TargetFields)
    return found


@pytest.mark.parametrize(
    ("targets", "code"),
    [
        ([target("ok"), target("skipped")], 0),
        ([target("ok", "crashed", "ok")], 1),
        ([target("skipped", "timeout")], 1),
        ([target("skipped", "gate_failed"), target("unsupported")], 3),
        ([], 3),
    ],
)
def test_the_exit_status(targets: list[TargetFields], code: int) -> None:
    payload = Diagnostics.model_construct(targets=targets)
    assert exit_code(payload) == code


def test_how_long_the_loops_take_is_the_sum_of_the_steps_and_their_repetition() -> None:
    target = ProbeTarget("e", "ort", "CPU", "net-1", "fp32", compiles=True, cores=2)
    policy = load_policy()
    rules = policy.diagnose
    probes = {p.name: p for p in PROBES}
    assert timed_s([], target, policy) == rules.loop_s
    alone = timed_s([probes["sustained"]], target, policy)
    assert alone == rules.loop_s + rules.sustained_s + rules.level_s
    # A load is no loop: nothing is repeated after it.
    assert timed_s([probes["compile_cache"]], target, policy) == rules.loop_s


def _found(*engines: EngineInfo) -> tuple[Found, ...]:
    return tuple(Found(e, Runtime(e.runtime, "x:Y")) for e in engines)
