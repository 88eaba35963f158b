"""The scheduler against its rules, and against a simulation that knows nothing of it."""

from __future__ import annotations

import dataclasses
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npumark.orchestrator.request import RunRequest
from npumark.orchestrator.schedule import (
    Done,
    Run,
    Wait,
    next_action,
    time_left,
)
from npumark.policy import load_policy
from npumark.record.model import Entry
from npumark.score.attempt import JudgedAttempt, judge_attempt
from npumark.score.demand import Key, contest, demand
from npumark.score.derive import derive
from npumark.score.planned import Planned
from npumark.score.recompute import recompute
from npumark.worker.protocol import Status
from tests import synthetic
from tests.synthetic import NS, Answer, Model, Simulated, attempt_of, payload_of, simulate

POLICY = load_policy()
PACK = synthetic.manifest()
PLAN = (
    Planned("ort-a", "peak-s", "fp32", "fp32", "FP32", "peak", "peak"),
    Planned("ort-a", "peak-l", "fp32", "fp32", "FP32", "peak", "peak"),
    Planned("ort-a", "peak-xl", "fp32", "fp32", "FP32", "peak", "large"),
    Planned("ort-b", "peak-s", "fp32", "fp32", "FP32", "peak", "peak", skip="known to abort"),
    Planned("ort-a", "net-1", "fp32", "fp32", "FP32", "network", "scored"),
    Planned("ort-a", "net-1", "int8-u8s8", "int8-u8s8", "INT8", "network", "scored"),
    Planned("ort-b", "net-1", "fp32", "fp32", "FP32", "network", "scored"),
)
ENGINES = (synthetic.engine("ort-a"), synthetic.engine("ort-b"))

MEASURED = st.one_of(
    st.floats(min_value=60, max_value=140).map(lambda ips: Answer(ips=ips)),
    st.sampled_from([100.0, 101.0, 101.5]).map(lambda ips: Answer(ips=ips)),
    st.just(Answer(ips=None, status="crashed")),
)
ANSWERS = st.one_of(
    MEASURED,
    st.sampled_from(
        [
            Answer(ips=None, status="timeout"),
            Answer(ips=None, status="interrupted"),
            Answer(ips=None, status="unsupported"),
            Answer(ips=500.0, measures={"snr_db": 1.0}),
            Answer(ips=120.0, precision="OTHER"),
        ]
    ),
)


class Script:
    """Answers by entry and attempt; steady where the script ends, so that every run ends."""

    def __init__(self, lines: Mapping[Key, Sequence[Answer]]) -> None:
        self.lines = lines

    def __call__(self, planned: Planned, n: int) -> Answer:
        told = self.lines[planned.key]
        answer = told[n - 1] if n <= len(told) else Answer(ips=100.0)
        if answer.ips is None:
            return answer
        # Equal TOPS on every workload, so that screening meets comparable peaks.
        scale = 1e9 / PACK.workloads[planned.workload].macs
        return dataclasses.replace(answer, ips=answer.ips * scale, wall_s=4.0)


SCRIPTS = st.fixed_dictionaries({p.key: st.lists(ANSWERS, max_size=9) for p in PLAN}).map(Script)


def brute_force(answers: Model) -> list[tuple[Key, int]]:
    """Walk passes over a plan as the methodology tells it, with a program of its own.

    Returns (entry, start in ns) of each attempt. Nothing is shared with the product but the
    judging of one attempt.
    """
    now = 0
    order: list[tuple[Key, int]] = []
    runs: dict[Key, list[JudgedAttempt]] = {p.key: [] for p in PLAN}
    last: dict[Key, int] = {}

    def measure(p: Planned) -> None:
        nonlocal now
        while True:
            if p.key in last:
                now = max(now, last[p.key] + 30 * NS)
            n = sum(k == p.key for k, _ in order) + 1
            attempt = attempt_of(p, n, now, answers(p, n))
            order.append((p.key, now))
            last[p.key] = now
            now += attempt.wall_ns + 1_000_000
            judged = judge_attempt(p, attempt, PACK, POLICY, "CPU")
            if judged.status != "interrupted":
                runs[p.key].append(judged)
                return

    active = [p for p in PLAN if not p.skip]
    for p in active:
        measure(p)
    while True:
        out = _screened_out(active, runs)
        behind = [p for p in active if p.key not in out and _goes_on(p, runs[p.key])]
        if not behind:
            return order
        fewest = min(len(runs[p.key]) for p in behind)
        measure(next(p for p in behind if len(runs[p.key]) == fewest))


def _screened_out(
    active: Sequence[Planned], runs: Mapping[Key, Sequence[JudgedAttempt]]
) -> set[Key]:
    """Return the entries too far below the best first attempt of those that may yet count."""
    out = set()
    for p in active:
        rivals = [
            q
            for q in active
            if q.engine == p.engine
            and q.kind == p.kind
            and (q.tier == p.tier if p.kind == "peak" else q.workload == p.workload)
        ]
        firsts = [
            f.tops
            for q in rivals
            if (f := runs[q.key][0]).can_count and f.tops and _may_count(q, runs[q.key])
        ]
        own = runs[p.key][0]
        share = 0.90 if p.kind == "peak" else 0.85
        if firsts and own.can_count and own.tops is not None and own.tops < share * max(firsts):
            out.add(p.key)
    return out


def _may_count(p: Planned, attempts: Sequence[JudgedAttempt]) -> bool:
    if any(a.status in ("gate_failed", "unsupported") for a in attempts):
        return False
    if len({a.format for a in attempts if a.ips is not None and a.format}) > 1:
        return False
    return _goes_on(p, attempts) or sum(a.ips is not None for a in attempts) >= 2


def _goes_on(p: Planned, attempts: Sequence[JudgedAttempt]) -> bool:
    if any(a.status in ("gate_failed", "unsupported") for a in attempts):
        return False
    if sum(a.status == "timeout" for a in attempts) >= 2:
        return False
    least, most, k = (5, 9, 3) if p.kind == "peak" else (3, 5, 3)
    if len(attempts) < least:
        return True
    first = [a.ips for a in attempts[:least]]
    landed = sorted([v for v in first if v is not None], reverse=True)[:k]
    if None not in first and (landed[0] - landed[-1]) / statistics.median(landed) <= 0.02:
        return False
    return len(attempts) < most


@settings(max_examples=60, deadline=None)
@given(SCRIPTS)
def test_it_runs_what_a_plain_reading_of_the_rules_runs(script: Script) -> None:
    run = simulate(script, ENGINES, plan=PLAN)
    assert run.complete
    assert [(p.key, at) for p, at in run.started] == brute_force(script)
    history = judged_of(run.facts.attempts)
    state = demand(PLAN, history, POLICY, quick=False)
    for planned in PLAN:
        starts = [at for p, at in run.started if p.key == planned.key]
        assert all(b - a >= 30 * NS for a, b in pairwise(starts))
        standing = [a for a in history[planned.key] if a.outcome != "void"]
        assert len(standing) <= (9 if planned.kind == "peak" else 5)
        if planned.skip:
            assert starts == []
        if planned.key in state.screened:
            assert len(standing) == 1
    ends = [at for _, at in run.started]
    assert ends == sorted(ends)


def prefix(run: Simulated, done: int) -> dict[Key, list[JudgedAttempt]]:
    """Return the history of a run's first ``done`` attempts."""
    counts = Counter(p.key for p, _ in run.started[:done])
    return {k: a[: counts[k]] for k, a in judged_of(run.facts.attempts).items()}


@settings(max_examples=25, deadline=None)
@given(SCRIPTS)
def test_a_run_resumed_anywhere_goes_on_as_it_would_have(script: Script) -> None:
    """The action depends on the history and the time alone: no state to lose in a kill."""
    run = simulate(script, ENGINES, plan=PLAN)
    for done, (entry, at) in enumerate(run.started):
        history = prefix(run, done)
        nth = Run(entry, len(history[entry.key]) + 1)
        assert next_action(PLAN, history, at, POLICY) == nth
        assert next_action(PLAN, history, 10**15, POLICY) == nth
    assert next_action(PLAN, prefix(run, len(run.started)), 0, POLICY) == Done(complete=True)


@settings(max_examples=25, deadline=None)
@given(st.fixed_dictionaries({p.key: st.lists(MEASURED, max_size=9) for p in PLAN}).map(Script))
def test_the_lower_bound_never_exceeds_what_is_run(script: Script) -> None:
    """Where no later attempt shows that its entry can never count."""
    run = simulate(script, ENGINES, plan=PLAN)
    total = len(run.started)
    for done in range(total + 1):
        assert time_left(PLAN, prefix(run, done), 0, POLICY).attempts <= total - done
    assert time_left(PLAN, prefix(run, total), 0, POLICY).attempts == 0


def judged_of(attempts: Mapping[Key, Sequence[object]]) -> dict[Key, list[JudgedAttempt]]:
    by_key = {p.key: p for p in PLAN}
    return {
        key: [judge_attempt(by_key[key], a, PACK, POLICY, "CPU") for a in ran]  # type: ignore[arg-type]
        for key, ran in attempts.items()
    }


ALONE = PLAN[4:5]
FAST = Script({p.key: [] for p in PLAN})


def test_a_short_plan_waits_for_the_spacing() -> None:
    run = simulate(FAST, ENGINES, plan=ALONE)
    assert [at for _, at in run.started] == [0, 30 * NS, 60 * NS]
    part = simulate(FAST, ENGINES, plan=ALONE, limit=1)
    history = judged_of(part.facts.attempts)
    assert next_action(ALONE, history, 30 * NS - 1, POLICY) == Wait(30 * NS, ALONE[0])
    assert next_action(ALONE, history, 30 * NS, POLICY) == Run(ALONE[0], 2)


def test_a_quick_run_measures_each_entry_once() -> None:
    run = simulate(FAST, ENGINES, RunRequest(quick=True), plan=PLAN)
    assert [p for p, _ in run.started] == [p for p in PLAN if not p.skip]
    assert run.complete


def test_an_empty_plan_and_one_of_skips_are_done() -> None:
    assert next_action((), {}, 0, POLICY) == Done(complete=True)
    assert next_action(PLAN[3:4], {}, 0, POLICY) == Done(complete=True)


def test_an_attempt_that_no_longer_fits_is_not_started() -> None:
    least = POLICY.timing.loop_s + POLICY.timing.warmup_max_s
    assert next_action(ALONE, {}, 0, POLICY, deadline_ns=round(least * NS)) == Run(ALONE[0], 1)
    tight = round(least * NS) - 1
    assert next_action(ALONE, {}, 0, POLICY, deadline_ns=tight) == Done(complete=False)
    # After the first, which took 4 s, the next could start at 30 s at the earliest.
    history = judged_of(simulate(FAST, ENGINES, plan=ALONE, limit=1).facts.attempts)
    at = 6 * NS
    assert next_action(ALONE, history, at, POLICY, deadline_ns=34 * NS) == Wait(30 * NS, ALONE[0])
    assert next_action(ALONE, history, at, POLICY, deadline_ns=34 * NS - 1) == Done(complete=False)


def test_a_budget_ends_a_run_and_a_generous_one_does_not() -> None:
    short = simulate(FAST, ENGINES, RunRequest(time_budget_s=20), plan=PLAN)
    assert not short.complete
    assert 0 < len(short.started) < 6
    assert simulate(FAST, ENGINES, RunRequest(time_budget_s=10**6), plan=PLAN).complete


def test_entries_that_can_never_count_are_not_repeated() -> None:
    wrong = Script({p.key: [Answer(ips=100.0, measures={"snr_db": 1.0})] for p in PLAN})
    run = simulate(wrong, ENGINES, plan=PLAN)
    assert len(run.started) == 6
    assert run.complete


def test_a_wrong_answer_however_fast_screens_nobody() -> None:
    lines: dict[Key, list[Answer]] = {p.key: [] for p in PLAN}
    lines[PLAN[5].key] = [Answer(ips=10_000.0, measures={"snr_db": 1.0})]
    run = simulate(Script(lines), ENGINES, plan=PLAN)
    assert sum(p == PLAN[4] for p, _ in run.started) == 3


OTHERS = [
    [Answer(ips=140.0), Answer(ips=140.0, measures={"snr_db": 1.0})],
    [Answer(ips=140.0), *[Answer(ips=None, status="timeout")] * 2],
    [Answer(ips=140.0), *[Answer(ips=None, status="crashed")] * 4],
    [Answer(ips=140.0), Answer(ips=140.0, precision="OTHER")],
]


@pytest.mark.parametrize("leader", OTHERS)
def test_a_leader_that_can_no_longer_count_screens_nobody(leader: list[Answer]) -> None:
    lines: dict[Key, list[Answer]] = {p.key: [] for p in PLAN}
    lines[PLAN[5].key] = leader
    run = simulate(Script(lines), ENGINES, plan=PLAN)
    entry = derive(run.facts, PACK, POLICY).entries[4]
    assert (entry.counts, entry.stats.screened, entry.stats.attempts) == (True, False, 3)


@settings(max_examples=60, deadline=None)
@given(SCRIPTS)
def test_no_contest_ends_without_a_figure_while_an_entry_is_screened(script: Script) -> None:
    run = simulate(script, ENGINES, plan=PLAN)
    assert run.complete
    entries = derive(run.facts, PACK, POLICY).entries
    contests: dict[tuple[str, str, str], list[Entry]] = {}
    for planned, entry in zip(PLAN, entries, strict=True):
        contests.setdefault(contest(planned), []).append(entry)
    for rivals in contests.values():
        assert any(e.counts for e in rivals) or not any(e.stats.screened for e in rivals)
    assert recompute(payload_of(run), PACK, POLICY) == []


def test_tiers_never_screen_each_other() -> None:
    lines: dict[Key, list[Answer]] = {p.key: [] for p in PLAN}
    lines[PLAN[2].key] = [Answer(ips=1e6)] * 9
    run = simulate(Script(lines), ENGINES, plan=PLAN)
    assert sum(p == PLAN[0] for p, _ in run.started) == 5


def test_time_left_is_unknown_until_something_ran_and_then_shrinks() -> None:
    left = time_left(PLAN, {}, 0, POLICY)
    assert (left.attempts, left.seconds) == (6, None)
    seen = []
    run = simulate(FAST, ENGINES, plan=PLAN)
    for done in range(1, len(run.started) + 1):
        now = run.started[done - 1][1] + 4 * NS
        seconds = time_left(PLAN, prefix(run, done), now, POLICY).seconds
        assert seconds is not None
        seen.append(seconds)
    assert max(seen) == seen[0]
    assert seen[-1] == 0


def test_time_left_counts_the_spacing() -> None:
    part = simulate(FAST, ENGINES, plan=ALONE, limit=1)
    left = time_left(ALONE, judged_of(part.facts.attempts), 4 * NS, POLICY)
    assert left.attempts == 2
    assert left.seconds == pytest.approx(26 + 30 + 4)


def test_an_attempt_nobody_saw_end_gives_no_expectation() -> None:
    killed = attempt_of(ALONE[0], 1, 0, Answer(None, "interrupted"))
    killed = killed.model_copy(update={"wall_ns": 0})
    history = judged_of({ALONE[0].key: [killed]})
    action = next_action(ALONE, history, 30 * NS, POLICY, deadline_ns=31 * NS)
    assert action == Done(complete=False)


@pytest.mark.parametrize(
    ("prepared", "answers", "left"),
    [
        (1, (), True),  # one attempt is made all the same
        (2, (), True),
        (1, ("timeout",), False),
        (0, ("timeout",), True),
        (0, ("timeout", "timeout"), False),
        (1, ("crashed",), True),
        (2, ("crashed",), False),
    ],
)
def test_a_preparation_that_timed_out_counts_towards_the_hangs_that_end_an_entry(
    prepared: int, answers: tuple[Status, ...], left: bool
) -> None:
    fates = [Answer(ips=None, status=status) for status in answers]
    lines: dict[Key, list[Answer]] = {p.key: [] for p in PLAN}
    lines[ALONE[0].key] = fates
    part = simulate(Script(lines), ENGINES, plan=ALONE, limit=len(answers))
    history = judged_of(part.facts.attempts)
    hangs = {ALONE[0].key: prepared}
    assert demand(ALONE, history, POLICY, quick=False, hangs=hangs).finished is not left
    done = next_action(ALONE, history, 10**15, POLICY, hangs=hangs) == Done(complete=True)
    assert done is not left
    assert (time_left(ALONE, history, 0, POLICY, hangs=hangs).attempts > 0) is left
