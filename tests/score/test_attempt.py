from __future__ import annotations

from typing import Any

import pytest

from npumark.policy import load_policy
from npumark.record.model import Attempt
from npumark.score.attempt import (
    JudgedAttempt,
    Role,
    inferences_per_second,
    judge_attempt,
    tera_operations,
)
from npumark.score.planned import Planned
from tests import synthetic
from tests.synthetic import GOOD, Answer, attempt_of, manifest_of, workload_doc

PEAK = Planned("e", "peak-s", "fp32", "fp32", "FP32", "peak", "peak")
NETWORK = Planned("e", "net-1", "fp32", "fp32", "FP32", "network", "scored")


def judged(
    answer: Answer, planned: Planned = NETWORK, role: Role = "NPU", **change: Any
) -> JudgedAttempt:
    attempt = attempt_of(planned, 1, 0, answer)
    if change:
        fields = attempt.model_dump()
        fields["measurement"].update(change)
        attempt = Attempt.model_validate(fields)
    return judge_attempt(planned, attempt, synthetic.manifest(), load_policy(), role)


def test_rates_are_correctly_rounded() -> None:
    assert inferences_per_second(3, 1_000_000_000) == 3.0
    assert tera_operations(2_000_000_000_000, 3.5) == 7.0


@pytest.mark.parametrize(
    ("change", "passes"),
    [
        ({"bit_identical": True}, True),
        ({"bit_identical": True, "iterations": []}, False),
        ({}, False),
        ({"passed": True}, False),
        ({"passed": True, "min_snr_db": 90.0}, False),
        ({"nondeterministic": True, "min_snr_db": 60.0}, True),
        ({"nondeterministic": True, "min_snr_db": 59.9, "passed": True}, False),
        ({"nondeterministic": True, "passed": True}, False),
        ({"nondeterministic": True, "min_snr_db": 90.0, "iterations": []}, False),
    ],
)
def test_the_timed_check_is_judged_by_what_was_compared(
    change: dict[str, Any], passes: bool
) -> None:
    check = {
        "iterations": [3],
        "passed": False,
        "bit_identical": False,
        "min_snr_db": None,
        "nondeterministic": False,
    }
    found = judged(Answer(ips=5.0), timed_check={**check, **change})
    assert (found.timed_check, found.can_count) == (passes, passes)
    assert found.why_not == (None if passes else "timed_check_failed")


def test_a_good_attempt_can_count() -> None:
    verdict = judged(Answer(ips=100.0))
    assert verdict.can_count
    assert not verdict.dead
    assert (verdict.status, verdict.outcome, verdict.why_not) == ("ok", "landed", None)
    assert verdict.strict is not None
    assert verdict.strict.passed
    assert verdict.ips is not None
    assert verdict.tops == tera_operations(400_000_000, verdict.ips)


@pytest.mark.parametrize("snr", [19.999, None, float("-1")])
def test_a_wrong_or_unconfirmed_answer_fails_the_gate(snr: float | None) -> None:
    verdict = judged(Answer(ips=100.0, measures={"snr_db": snr}), PEAK)
    assert (verdict.status, verdict.why_not, verdict.dead) == ("gate_failed", "gate_failed", True)


def test_a_missing_measure_is_no_pass() -> None:
    assert judged(Answer(ips=100.0, measures={}), PEAK).status == "gate_failed"


def test_an_accuracy_pass_that_reports_a_fault_fails_the_gate() -> None:
    verdict = judged(Answer(ips=100.0), accuracy_why="wrong shape")
    assert (verdict.status, verdict.why) == ("gate_failed", "wrong shape")


def test_timed_outputs_that_differ_fail_the_gate() -> None:
    verdict = judged(Answer(ips=100.0, timed_check=False))
    assert (verdict.status, verdict.why_not) == ("gate_failed", "timed_check_failed")


@pytest.mark.parametrize(
    ("planned", "share", "status", "reason"),
    [
        (PEAK, 0.90, "ok", None),
        (PEAK, 0.8999, "wrong_device", "wrong_device"),
        (NETWORK, 0.50, "ok", None),
        (NETWORK, 0.4999, "wrong_device", "wrong_device"),
        (NETWORK, None, "ok", "placement_unproved"),
    ],
)
@pytest.mark.parametrize("role", ["NPU", "iGPU", "dGPU"])
def test_placement_on_an_accelerator(
    planned: Planned, share: float | None, status: str, reason: str | None, role: Role
) -> None:
    verdict = judged(Answer(ips=100.0, share=share), planned, role)
    assert (verdict.status, verdict.why_not) == (status, reason)
    assert verdict.placed == verdict.can_count == (reason is None)
    assert (verdict.tops is None) == (status == "wrong_device")
    assert verdict.ips is not None


@pytest.mark.parametrize("verdict", ["inferred", "unproved"])
def test_an_inferred_share_is_shown_and_never_counted(verdict: Any) -> None:
    assert judged(Answer(ips=1e2, verdict=verdict, share=1.0)).why_not == "placement_unproved"
    assert judged(Answer(ips=1e2, verdict=verdict, share=0.1)).status == "wrong_device"


def test_a_cpu_is_always_where_it_should_be() -> None:
    assert judged(Answer(ips=1e2, verdict="unproved", share=None), role="CPU").can_count


def test_an_attempt_without_placement_is_unproved() -> None:
    attempt = attempt_of(NETWORK, 1, 0, Answer(ips=1e2)).model_copy(update={"placement": None})
    verdict = judge_attempt(NETWORK, attempt, synthetic.manifest(), load_policy(), "NPU")
    assert verdict.why_not == "placement_unproved"


def test_too_few_calls_cannot_count() -> None:
    assert judged(Answer(ips=1e2), iterations=29).why_not == "too_short"
    assert judged(Answer(ips=1e2), PEAK, iterations=10).can_count
    assert judged(Answer(ips=1e2), PEAK, iterations=9).why_not == "too_short"


@pytest.mark.parametrize("change", [{"iterations": 0}, {"timed_ns": 0}])
def test_an_attempt_that_timed_nothing_has_no_result(change: dict[str, int]) -> None:
    verdict = judged(Answer(ips=1e2), **change)
    assert (verdict.status, verdict.outcome, verdict.ips) == ("no_result", "died", None)


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        ("crashed", "died"),
        ("timeout", "died"),
        ("no_result", "died"),
        ("interrupted", "void"),
        ("unsupported", "final"),
        ("wrong_device", "final"),
        ("pack_error", "final"),
    ],
)
def test_what_an_unmeasured_attempt_means(status: Any, outcome: str) -> None:
    verdict = judged(Answer(ips=None, status=status))
    assert (verdict.status, verdict.outcome, verdict.ips) == (status, outcome, None)
    assert verdict.dead == (outcome == "final")


@pytest.mark.parametrize(
    ("variant", "reason"),
    [({"validated": False}, "unvalidated"), ({"division": "optimized"}, "division")],
)
def test_variants_that_never_count(variant: dict[str, Any], reason: str) -> None:
    doc = workload_doc("net-1", "network", "scored", 10**8, [("fp32", "FP32")])
    doc["variants"][0].update(variant)
    pack = manifest_of(doc)
    for answer, outcome in ((Answer(ips=1e2), "landed"), (Answer(None, "crashed"), "final")):
        attempt = attempt_of(NETWORK, 1, 0, answer)
        verdict = judge_attempt(NETWORK, attempt, pack, load_policy(), "CPU")
        assert verdict.outcome == outcome
        assert verdict.dead
    landed = attempt_of(NETWORK, 1, 0, Answer(ips=1e2))
    assert judge_attempt(NETWORK, landed, pack, load_policy(), "CPU").why_not == reason


def test_a_workload_without_a_gate_cannot_count() -> None:
    doc = workload_doc("net-1", "network", "scored", 10**8, [("fp32", "FP32")], gates={})
    attempt = attempt_of(NETWORK, 1, 0, Answer(ips=1e2, measures=GOOD))
    verdict = judge_attempt(NETWORK, attempt, manifest_of(doc), load_policy(), "CPU")
    assert (verdict.why_not, verdict.can_count) == ("gate_missing", False)


def test_a_workload_without_operations_cannot_count() -> None:
    doc = workload_doc("net-1", "network", "scored", 0, [("fp32", "FP32")])
    attempt = attempt_of(NETWORK, 1, 0, Answer(ips=1e2))
    verdict = judge_attempt(NETWORK, attempt, manifest_of(doc), load_policy(), "CPU")
    assert (verdict.why_not, verdict.dead) == ("no_operations", True)
