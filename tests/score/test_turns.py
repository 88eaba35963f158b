"""The turns that are kept up are those that ``demand`` finds anew each time."""

from __future__ import annotations

import random

import pytest

from npumark.orchestrator.request import RunRequest
from npumark.policy import load_policy
from npumark.score.attempt import judge_attempt
from npumark.score.demand import demand, next_entry
from npumark.score.planned import Planned
from npumark.score.turns import Turns
from tests import synthetic
from tests.synthetic import CPU, NPU, Answer

POLICY = load_policy()
ROLES = {"ort-cpu": "CPU", "ort-qnn-npu": "NPU"}


def drawn_answer(draw: random.Random, planned: Planned) -> Answer:
    """Return any answer an attempt may have: of all speeds, wrong, dead or elsewhere."""
    kind = draw.random()
    if kind < 0.1:
        return Answer(ips=None, status=draw.choice(("crashed", "timeout", "interrupted")))
    if kind < 0.15:
        return Answer(ips=90.0, measures={"snr_db": 3.0})
    if kind < 0.2:
        return Answer(ips=90.0, share=0.1)
    steady = synthetic.steady(planned, 1).ips
    assert steady is not None
    return Answer(ips=steady * draw.choice((0.5, 0.8, 0.99, 1.0, 1.01, 1.2)))


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("quick", [False, True])
def test_turns_are_those_of_demand(seed: int, quick: bool) -> None:
    draw = random.Random(seed)
    plan = synthetic.plan_for((CPU, NPU), RunRequest(quick=quick))
    turns = Turns(plan, POLICY, quick=quick)
    history: dict[tuple[str, str, str], tuple] = {}
    hangs: dict[tuple[str, str, str], int] = {}
    seen = 0
    while True:
        state = demand(plan, history, POLICY, quick=quick, hangs=hangs)
        turn = next_entry(plan, history, state)
        assert turns.next() == turn
        if turn is None:
            break
        if draw.random() < 0.05:  # a preparation hung
            hangs[turn.key] = hangs.get(turn.key, 0) + 1
        made = history.get(turn.key, ())
        answer = drawn_answer(draw, turn)
        attempt = synthetic.attempt_of(turn, len(made) + 1, seen * 10**9, answer)
        judged = judge_attempt(
            turn, attempt, synthetic.manifest(), POLICY, ROLES[turn.engine], quick=quick
        )
        history[turn.key] = (*made, judged)
        turns.put(turn, history[turn.key], hangs.get(turn.key, 0))
        seen += 1
    assert seen >= len(plan)
