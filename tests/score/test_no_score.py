"""What a run without a score says: what was left out of it, by name."""

from __future__ import annotations

import pytest

from npumark.orchestrator.request import RunRequest
from npumark.policy import load_policy
from npumark.score.derive import derive
from tests import synthetic
from tests.synthetic import CPU, simulate, steady


@pytest.mark.parametrize(
    ("workloads", "says"),
    [
        (("net-x",), "net-x is not scored"),
        (("net-1",), "the peak test, which the score is made of, was not part of this run"),
        (("net-x", "net-1"), "the peak test, which the score is made of, was not part of this run"),
    ],
)
def test_a_run_without_the_peak_test_says_so(workloads: tuple[str, ...], says: str) -> None:
    run = simulate(steady, (CPU,), RunRequest(quick=True, workloads=workloads))
    result = derive(run.facts, synthetic.manifest(), load_policy())
    assert (result.score, result.score_why) == (None, says)
