"""Every reason for which a run is not comparable, each with the run that has it alone."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from npumark.orchestrator.request import RunRequest
from npumark.policy import load_policy
from npumark.record.model import Check, Environment, Plan, ResumeEvent
from npumark.report.advice import NOT_COMPARABLE
from npumark.score import delivered
from npumark.score.comparability import REASONS, WARNINGS, rankable
from npumark.score.derive import Derived, derive
from npumark.score.planned import Planned
from tests import synthetic, synthetic_box
from tests.synthetic import CPU, QUIET, Answer, simulate, steady

PACK, POLICY = synthetic.manifest(), load_policy()
WILD = (150.0, 100.0, 200.0, 120.0, 170.0, 130.0, 180.0, 110.0, 190.0)


def scattered(planned: Planned, n: int) -> Answer:
    answer = steady(planned, n)
    if planned.kind == "peak":
        return dataclasses.replace(answer, ips=(answer.ips or 0) * WILD[n - 1] / 150)
    return answer


def wrong(planned: Planned, n: int) -> Answer:
    return dataclasses.replace(steady(planned, n), measures={"snr_db": 0.0})


def derived(*, plan: dict[str, Any] | None = None, **options: Any) -> Derived:
    run = simulate(options.pop("answers", steady), options.pop("engines", (CPU,)), **options)
    changed = Plan.model_validate({**run.facts.options.model_dump(), **(plan or {})})
    return derive(dataclasses.replace(run.facts, options=changed), PACK, POLICY)


CASES: dict[str, dict[str, Any]] = {
    "quick": {"request": RunRequest(quick=True)},
    "pack_not_verified": {"verified": False},
    "no_score": {"answers": wrong},
    "peak_unstable": {"answers": scattered},
    "resumed_changed": {"resumed": [ResumeEvent(at_ns=5, changed=["driver"])]},
    "selection": {"request": RunRequest(workloads=("peak", "network"))},
    "virtual": {"engines": (dataclasses.replace(CPU, virtual=True, runtime="virtual"),)},
    "local_only": {"engines": (dataclasses.replace(CPU, local_only=True),)},
    "third_party": {"engines": (dataclasses.replace(CPU, package="theirs 1.0"),)},
    "short_loop": {"plan": {"loop_s": 1.9}},
    "short_spacing": {"plan": {"spacing_s": 29.0}},
}


@pytest.mark.parametrize("code", CASES)
def test_each_reason_alone(code: str) -> None:
    result = derived(**CASES[code])
    assert (result.comparable, result.not_comparable_because) == (False, [code])
    assert rankable(result.not_comparable_because) == (code == "peak_unstable")


def test_a_pack_file_that_changed_while_measuring_is_a_reason() -> None:
    def model(planned: Planned, n: int) -> Answer:
        spoilt = (planned.workload, planned.variant, n) == ("net-1", "int8-u8s8", 2)
        return Answer(ips=None, status="pack_error") if spoilt else steady(planned, n)

    result = derived(answers=model)
    assert result.score is not None
    assert result.not_comparable_because == ["pack_not_verified"]


def test_an_unfinished_run_says_what_ended_it() -> None:
    cut = derived(limit=len(simulate().started) - 1)
    assert cut.score is not None
    assert cut.not_comparable_because == ["incomplete"]
    budget = derived(request=RunRequest(time_budget_s=60))
    assert budget.not_comparable_because == ["no_score", "time_budget"]


def test_a_run_that_was_stopped_at_its_box_alone_is_not_said_to_lack_entries() -> None:
    run = simulate(engines=(CPU, *synthetic_box.cards(2)))
    result = derive(synthetic_box.with_box(run, limit=1).facts, PACK, POLICY)
    assert all(e.status == "ok" for e in result.entries)
    assert result.not_comparable_because == ["incomplete"]
    for told in (REASONS, {code: str(said) for code, said in NOT_COMPARABLE.items()}):
        assert "entries" not in told["incomplete"] + told["time_budget"]


def test_a_budgeted_run_that_something_else_ended_does_not_blame_its_budget() -> None:
    stopped = derived(request=RunRequest(time_budget_s=10**6), limit=3)
    assert stopped.not_comparable_because == ["no_score", "incomplete"]
    # What a run with no budget says of one is not taken for an end by it.
    said = QUIET.model_copy(update={"facts": {"ended_by": "time_budget"}})
    assert derived(limit=3, environment=said).not_comparable_because == ["no_score", "incomplete"]


def test_an_emulated_engine_beside_a_real_one() -> None:
    fake = dataclasses.replace(synthetic.NPU, emulated=True)
    request = RunRequest(include_emulated=True)
    result = derived(engines=(CPU, fake), request=request)
    assert result.not_comparable_because == ["emulated"]


def test_an_engine_from_another_package_is_told_of_wherever_its_figures_are() -> None:
    result = derived(engines=(dataclasses.replace(CPU, package="theirs 1.0"),))
    assert result.warnings == ["third_party"]
    assert result.score is not None
    assert result.score.label.endswith("(third party)")
    assert result.engines[0].package == "theirs 1.0"
    assert not delivered.rankable(result.engines[0])
    own = derived()
    assert own.warnings == []
    assert delivered.rankable(own.engines[0])


def test_every_reason_has_a_case() -> None:
    assert set(CASES) | {"time_budget", "incomplete", "emulated"} == set(REASONS)


def test_what_leaves_a_run_comparable() -> None:
    assert derived().comparable
    same = [ResumeEvent(at_ns=5, changed=[])]
    assert derived(resumed=same).comparable
    assert derived(request=RunRequest(ladder="default")).comparable
    assert derived(request=RunRequest(all_variants=True)).comparable
    idle = dataclasses.replace(CPU, id="virtual-cpu", virtual=True, variants=())
    assert derived(engines=(CPU, idle)).comparable
    assert rankable([])
    assert not rankable(["quick", "peak_unstable"])


def test_a_noisy_machine_is_a_warning() -> None:
    busy = Check(value=0.4, why=None, violation=True)
    noisy = Environment(checks={"busy": busy}, noisy=True, skipped=False, facts={})
    result = derived(environment=noisy)
    assert result.comparable
    assert result.warnings[:1] == ["noisy"]
    unseen = QUIET.model_copy(update={"skipped": True})
    assert "preconditions_skipped" in derived(environment=unseen).warnings


def test_an_unstable_network_is_a_warning() -> None:
    def model(planned: Planned, n: int) -> Answer:
        answer = steady(planned, n)
        if planned.kind == "network":
            return dataclasses.replace(answer, ips=(answer.ips or 0) * WILD[n - 1] / 150)
        return answer

    result = derived(answers=model)
    assert result.comparable
    assert "network_unstable" in result.warnings


def test_a_slow_tail_is_a_warning() -> None:
    run = simulate()
    attempts = {
        key: [
            a.model_copy(
                update={
                    "measurement": a.measurement.model_copy(
                        update={
                            "latency_ns": a.measurement.latency_ns.model_copy(
                                update={"p95": 2 * a.measurement.latency_ns.median}
                            )
                        }
                    )
                }
            )
            for a in ran
            if a.measurement
        ]
        for key, ran in run.facts.attempts.items()
    }
    result = derive(dataclasses.replace(run.facts, attempts=attempts), PACK, POLICY)
    assert result.warnings == [w for w in WARNINGS if w == "slow_tail"]
    assert all(e.stats.tail_ratio == 2.0 for e in result.entries)
