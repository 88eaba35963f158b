"""Whether what a step of a probe timed answered right."""

from __future__ import annotations

from typing import Any

import pytest

from npumark.orchestrator.diagnose_answers import fault_of_all, fault_of_one, least_level
from npumark.policy import load_policy
from npumark.worker.accuracy import LEAST_AGREEMENT_DB
from tests.synthetic import manifest

POLICY = load_policy()
PEAK = manifest().workloads["peak-s"]


def answers(snr_db: float | None, *, why: str | None = None, identical: bool = True) -> Any:
    check = {
        "iterations": [3, 9],
        "passed": identical,
        "bit_identical": identical,
        "min_snr_db": None if identical else 90.0,
        "nondeterministic": False,
    }
    return {
        "measures": {"snr_db": snr_db},
        "why": why,
        "timed_check": check,
        "levels_db": [snr_db],
    }


def test_the_whole_eval_set_is_held_to_the_standard_gate() -> None:
    assert fault_of_all(answers(40.0), PEAK, POLICY) is None
    wrong = fault_of_all(answers(3.0), PEAK, POLICY)
    assert wrong is not None
    assert wrong.startswith("its answers are wrong: ")


def test_answers_without_measures_and_timed_outputs_that_differ_are_wrong() -> None:
    told = fault_of_all(answers(None, why="output 0 holds 1 NaN"), PEAK, POLICY)
    assert told == "its answers are wrong: output 0 holds 1 NaN"
    told = fault_of_all(answers(40.0, identical=False), PEAK, POLICY)
    assert told == "outputs of its timed loop differ from the untimed ones"


def test_a_device_that_may_change_meanwhile_is_held_to_the_gate_alone() -> None:
    differing = answers(40.0, identical=False)
    assert fault_of_all(differing, PEAK, POLICY, one_device=False) is None
    assert fault_of_all(answers(3.0, identical=False), PEAK, POLICY, one_device=False) is not None


def one(snr_db: float | None, why: str | None = None) -> dict[str, Any]:
    return {"sample": 1, "snr_db": snr_db, "why": why}


@pytest.mark.parametrize("alone_db", [5.0, 20.0, 45.0, 200.0])
def test_one_answer_may_be_as_far_from_its_reference_as_two_errors_together(
    alone_db: float,
) -> None:
    least = least_level(alone_db)
    assert least < min(alone_db, LEAST_AGREEMENT_DB)
    assert fault_of_one("thread-1", one(alone_db), [0.0, alone_db]) is None
    assert fault_of_one("thread-1", one(least), [0.0, alone_db]) is None
    told = fault_of_one("thread-1", one(least - 0.1), [0.0, alone_db])
    assert told is not None
    assert told.startswith("thread-1 answers wrong: ")


def test_an_answer_without_a_level_is_wrong_where_the_single_attempt_has_one() -> None:
    told = fault_of_one("process-0", one(None, "output 0 of sample 1 is zero everywhere"), [9, 9.0])
    assert told == "process-0 answers wrong: output 0 of sample 1 is zero everywhere"
    assert fault_of_one("process-0", one(None, "cannot be computed: snr_db"), [9.0, None]) is None
