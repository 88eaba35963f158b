"""Which cards a box total is made of, when it is complete, and what it says."""

from __future__ import annotations

import dataclasses
import math

import pytest

from npumark.orchestrator.request import RunRequest
from npumark.policy import load_policy
from npumark.record.box import Box, BoxPlan, BoxRole, BoxSolo, BoxSource
from npumark.record.model import EngineRecord, Payload, Peak, Preparation, Processor
from npumark.score.box import RoleCards, attempts_needed, derive_box, role_cards, wants_attempt
from npumark.score.derive import derive
from npumark.score.publish import publishable
from npumark.score.recompute import recompute
from npumark.worker.protocol import EngineInfo
from tests import synthetic, synthetic_box
from tests.synthetic import CPU, NPU, Simulated, payload_of, simulate
from tests.synthetic_box import BoxModel, Shown, cards, even, rates, with_box

PACK, POLICY = synthetic.manifest(), load_policy()
AUTO = BoxPlan(mode="auto", roles=None, cards=None, solo=[])

TWO = simulate(engines=(CPU, *cards(2)))
FOUR = simulate(rates({"ort-some-dgpu-3": 0.75, "ort-some-dgpu-4": 1.02}), engines=(CPU, *cards(4)))


def record(shows: BoxModel = even, run: Simulated = TWO, limit: int | None = None) -> Payload:
    return payload_of(with_box(run, shows, limit=limit))


def only_role(payload: Payload) -> BoxRole:
    assert payload.box is not None
    (role,) = payload.box.roles
    return role


def always(shown: Shown, card: str = "dgpu-2") -> BoxModel:
    return lambda c, n: shown if c == card else even(c, n)


def first(shown: Shown, times: int, card: str = "dgpu-2") -> BoxModel:
    return lambda c, n: shown if c == card and n <= times else even(c, n)


# -- the total ------------------------------------------------------------------------------------


def test_the_total_is_the_median_of_three_sums_and_not_the_sum_of_the_peaks() -> None:
    role = only_role(payload := record())
    assert [a.counts for a in role.attempts] == [True] * 3
    totals = sorted(a.tops for a in role.attempts if a.tops is not None)
    assert role.tops == totals[1]
    solo = [c.solo.tops for c in role.cards]
    assert role.solo_tops == math.fsum(solo)
    assert role.scaling == pytest.approx(0.902, abs=1e-3)
    assert role.agreement == pytest.approx(0.002 / 0.902, rel=1e-2)
    assert role.tops < 0.95 * sum(solo)
    assert (role.why, role.finished, payload.box_why) == (None, True, None)
    assert recompute(payload, PACK, POLICY) == []


def test_a_box_changes_neither_score_nor_comparability() -> None:
    boxed = record()
    plain = payload_of(simulate(engines=(CPU, *cards(2)), request=RunRequest(box="off")))
    assert plain.score == boxed.score
    assert plain.comparable
    assert boxed.comparable
    assert boxed.warnings == plain.warnings == []


def test_each_card_has_its_median_in_the_box() -> None:
    role = only_role(record(run=FOUR))
    assert [c.card for c in role.cards] == ["dgpu-1", "dgpu-2", "dgpu-3", "dgpu-4"]
    assert [c.number for c in role.cards] == [1, 2, 3, 4]
    for c in role.cards:
        own = sorted(r.tops or 0.0 for a in role.attempts for r in a.cards if r.card == c.card)
        assert c.in_box_tops == own[1]
        assert c.of_solo == own[1] / c.solo.tops


def test_a_slow_card_is_flagged_alone_and_in_the_box_each_by_itself() -> None:
    slow_in_box = always(Shown(share=0.7))
    payload = record(slow_in_box, FOUR)
    flags = {c.card: (c.slow_alone, c.slow_in_box) for c in only_role(payload).cards}
    assert flags == {
        "dgpu-1": (False, False),
        "dgpu-2": (False, True),
        "dgpu-3": (True, True),
        "dgpu-4": (False, False),
    }
    assert payload.warnings == ["box_card_slow"]
    assert payload.comparable


@pytest.mark.parametrize(("share", "warnings"), [(1.04, []), (1.06, ["box_scaling"])])
def test_a_box_far_beyond_its_solo_peaks_is_warned_of(share: float, warnings: list[str]) -> None:
    payload = record(lambda *_: Shown(share=share))
    assert only_role(payload).scaling == pytest.approx(share, abs=1e-3)
    assert POLICY.box.most_scaling == 1.05
    assert payload.warnings == warnings
    assert recompute(payload, PACK, POLICY) == []


def test_a_card_is_compared_with_cards_of_its_own_name_only() -> None:
    other = synthetic_box.card(3, name="Another Card")
    run = simulate(rates({"ort-some-dgpu-3": 0.2}), engines=(CPU, *cards(2), other))
    role = only_role(record(run=run))
    assert {c.card: c.slow_alone for c in role.cards} == {
        "dgpu-1": False,
        "dgpu-2": False,
        "dgpu-3": None,
    }
    assert role.cards[2].slow_in_box is None


# -- attempts -------------------------------------------------------------------------------------


def test_a_voided_attempt_is_repeated_and_stays_in_the_record() -> None:
    payload = record(first(Shown(status="crashed", why="signal 9"), 2))
    role = only_role(payload)
    assert [a.counts for a in role.attempts] == [False, False, True, True, True]
    assert role.attempts[0].void_because == ["dgpu-2 crashed: signal 9"]
    assert role.tops is not None
    assert payload.warnings == ["box_void"]
    assert payload.complete
    assert recompute(payload, PACK, POLICY) == []


def test_a_card_that_keeps_dying_ends_the_stage_without_a_total() -> None:
    payload = record(always(Shown(status="timeout", why="not back")))
    role = only_role(payload)
    assert len(role.attempts) == 3, "with three voids, no three of five can count"
    assert (role.tops, role.scaling, role.agreement) == (None, None, None)
    assert role.why == "0 of 3 attempts count: dgpu-2 hung: not back"
    assert role.finished
    assert [c.in_box_tops for c in role.cards] == [None, None]
    assert [c.slow_in_box for c in role.cards] == [None, None]
    assert [c.slow_alone for c in role.cards] == [False, False]
    assert payload.complete
    assert payload.comparable
    assert recompute(payload, PACK, POLICY) == []


@pytest.mark.parametrize("fault", [Shown(snr_db=3.0), Shown(status="unsupported", why="no")])
def test_a_card_that_can_never_count_ends_the_stage_at_once(fault: Shown) -> None:
    role = only_role(payload := record(always(fault)))
    assert len(role.attempts) == 1
    assert role.finished
    assert role.tops is None
    assert recompute(payload, PACK, POLICY) == []


def test_a_run_that_ended_within_the_stage_is_incomplete_and_has_no_total() -> None:
    payload = record(limit=2)
    role = only_role(payload)
    assert (role.tops, role.finished) == (None, False)
    assert role.why == "2 of the 3 attempts that it needs were made"
    assert not payload.complete
    assert payload.not_comparable_because == ["incomplete"]
    assert all(c.in_box_tops is not None for c in role.cards)
    assert recompute(payload, PACK, POLICY) == []


def test_a_run_that_ended_before_the_stage_says_so() -> None:
    payload = record(limit=0)
    assert only_role(payload).why == "no attempt was made"
    assert not payload.complete
    short = payload_of(simulate(engines=(CPU, *cards(2)), limit=5))
    assert (short.box, short.box_why) == (None, "the run ended before its box stage")


def test_an_interrupted_attempt_is_as_if_it_had_not_been() -> None:
    facts = with_box(TWO).facts
    (own,) = _roles(TWO)
    attempts = list(facts.box_attempts)
    stopped = attempts[0].model_copy(update={"status": "interrupted", "counts": False})
    many = [stopped] * (POLICY.box.max_attempts + 1)
    assert wants_attempt(own, [*many, *attempts[:2]], POLICY, quick=False)
    assert not wants_attempt(own, [stopped, *attempts], POLICY, quick=False)


def test_a_quick_run_asked_for_a_box_makes_one_attempt() -> None:
    run = simulate(engines=(CPU, *cards(2)), request=RunRequest(quick=True, box="on"))
    role = only_role(payload := record(run=run))
    assert attempts_needed(POLICY, quick=True) == len(role.attempts) == 1
    assert role.tops == role.attempts[0].tops
    assert role.agreement is None
    assert recompute(payload, PACK, POLICY) == []


# -- which cards ----------------------------------------------------------------------------------


def _roles(run: Simulated, plan: BoxPlan = AUTO) -> list[RoleCards]:
    made = derive(run.facts, PACK, POLICY)
    return role_cards(made.engines, run.facts.processors, plan, made.entries, PACK)


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (RunRequest(box="off"), "the box stage was left out (--no-box)"),
        (RunRequest(quick=True), "a quick run leaves the box stage out (--box measures it)"),
        (
            RunRequest(workloads=("peak-s",)),
            "only a part of the run was asked for, without the box stage (--box measures it)",
        ),
    ],
)
def test_a_stage_that_is_left_out_says_why(request_: RunRequest, says: str) -> None:
    payload = payload_of(simulate(engines=(CPU, *cards(2)), request=request_))
    assert (payload.box, payload.box_why) == (None, says)
    assert payload.complete


@pytest.mark.parametrize("engines", [(CPU,), (CPU, NPU), (CPU, *cards(1))])
def test_one_card_is_nothing_to_sum(engines: tuple[EngineInfo, ...]) -> None:
    payload = payload_of(simulate(engines=engines))
    assert payload.box is None
    assert payload.box_why == "nothing to sum: no role has two or more devices"
    assert payload.complete


def test_the_processor_that_everything_runs_on_is_never_summed() -> None:
    twice = [synthetic.engine(f"ort-some-cpu-{i}", processor=_cpu(i)) for i in (1, 2)]
    assert _roles(simulate(engines=twice)) == []


def _cpu(i: int) -> dict[str, str]:
    return {"key": f"cpu-{i}", "role": "CPU", "name": "Some CPU"}


def test_roles_and_cards_narrow_what_is_measured() -> None:
    npus = tuple(synthetic_box.card(i, "NPU") for i in (1, 2))
    run = simulate(engines=(CPU, *cards(3), *npus))
    assert [r.role for r in _roles(run)] == ["dGPU", "NPU"]
    npu = AUTO.model_copy(update={"roles": ["NPU"]})
    assert [r.role for r in _roles(run, npu)] == ["NPU"]
    (some,) = _roles(run, AUTO.model_copy(update={"cards": ["dgpu-1", "dgpu-3"]}))
    assert [s.card for s in some.solos] == ["dgpu-1", "dgpu-3"]
    assert [(out.card, out.why) for out in some.left_out] == [("dgpu-2", "it was not asked for")]
    (one,) = _roles(run, AUTO.model_copy(update={"cards": ["dgpu-2"]}))
    assert one.why == "nothing to sum: dgpu-2 is the only dGPU to measure"
    (none,) = _roles(run, AUTO.model_copy(update={"roles": ["iGPU"]}))
    assert none.why == "nothing to sum: there is no iGPU to measure"


def _engine(info_id: str, processor: str, tops: float | None, **over: object) -> EngineRecord:
    peak = None
    if tops is not None:
        peak = Peak(
            tops=tops, format="FP16", label="FP16", workload="peak-s", variant="fp16",
            unstable=False, robust_cv=0.0, attempts=5, counted=3,
        )  # fmt: skip
    made = EngineRecord(
        id=info_id, runtime="r", runtime_title="R", version=None, versions={},
        processor=processor, requested={}, emulated=False, virtual=False, local_only=False,
        environment=None, package=None, peak=peak, delivered=None, high_accuracy=None,
    )  # fmt: skip
    return made.model_copy(update=over)


def _processor(number: int, **details: object) -> Processor:
    return Processor(
        id=f"dgpu-{number}", role="dGPU", name="Some Card", number=number, details=details
    )


PAIR = [_processor(1), _processor(2)]
BASE = [_engine("a-1", "dgpu-1", 10.0), _engine("a-2", "dgpu-2", 11.0)]


def _made(
    engines: list[EngineRecord], processors: list[Processor], plan: BoxPlan = AUTO
) -> RoleCards:
    (found,) = role_cards(engines, processors, plan, [], PACK)
    return found


def test_a_card_runs_the_best_of_the_engines_that_reach_it() -> None:
    more = [_engine("b-1", "dgpu-1", 12.0), _engine("c-1", "dgpu-1", 12.0)]
    found = _made([*BASE, *more], PAIR)
    assert [(s.engine, s.tops) for s in found.solos] == [("b-1", 12.0), ("a-2", 11.0)]
    assert found.why is None


@pytest.mark.parametrize("mark", ["local_only", "emulated", "virtual"])
def test_an_engine_that_may_not_stand_for_a_card_does_not(mark: str) -> None:
    faster = _engine("b-1", "dgpu-1", 99.0, **{mark: True})
    assert [s.engine for s in _made([*BASE, faster], PAIR).solos] == ["a-1", "a-2"]


def test_virtual_engines_stand_for_cards_among_their_own_kind() -> None:
    scripted = [e.model_copy(update={"virtual": True}) for e in BASE]
    assert len(_made(scripted, PAIR).solos) == 2
    local = _engine("l-1", "dgpu-1", 99.0, local_only=True)
    assert [s.engine for s in _made([*scripted, local], PAIR).solos] == ["a-1", "a-2"]


def test_a_card_that_no_engine_reaches_is_left_out_and_named() -> None:
    local = _engine("l-4", "dgpu-4", 99.0, local_only=True)
    found = _made([*BASE, local], [*PAIR, _processor(3), _processor(4)])
    assert [out.card for out in found.left_out] == ["dgpu-3", "dgpu-4"]
    assert found.why is None
    alone = _made(BASE[:1], PAIR)
    assert alone.why == "nothing to sum: dgpu-1 is the only dGPU to measure"


def test_a_card_without_a_peak_of_its_own_forbids_the_total() -> None:
    found = _made([BASE[0], _engine("a-2", "dgpu-2", None)], PAIR)
    assert found.why is not None
    assert found.why.startswith("dgpu-2 has no peak of its own: ")
    assert not wants_attempt(found, [], POLICY, quick=False)
    box, why = derive_box([found], [], PAIR, PACK, POLICY, quick=False)
    assert why is None
    assert isinstance(box, Box)
    (role,) = box.roles
    assert (role.tops, role.why, role.solo_tops, role.finished) == (None, found.why, None, True)


def test_cards_whose_identity_cannot_be_told_are_refused_with_the_reason() -> None:
    doubt = "either of two cards named Some Card"
    found = _made(BASE, [PAIR[0], _processor(2, identity=doubt)])
    assert found.why == f"which device dgpu-2 is cannot be told: {doubt}"
    narrowed = AUTO.model_copy(update={"cards": ["dgpu-1", "dgpu-3"]})
    third = _engine("a-3", "dgpu-3", 9.0)
    clear = _made([*BASE, third], [PAIR[0], _processor(2, identity=doubt), _processor(3)], narrowed)
    assert clear.why is None


def test_what_an_emulator_stands_for_is_no_card() -> None:
    assert role_cards(BASE, [PAIR[0], _processor(2, emulated=True)], AUTO, [], PACK) == []


def _given(card: str, **over: object) -> BoxSolo:
    made = BoxSolo(
        card=card, engine=f"a-{card[-1]}", workload="peak-l", variant="fp16", format="FP16",
        label="FP16", tops=7.0, unstable=False,
        source=BoxSource(run_id="earlier", payload_sha256="0" * 64, quick=False, noisy=False),
    )  # fmt: skip
    return made.model_copy(update=over)


def test_the_peaks_of_another_record_replace_those_of_this_one() -> None:
    plan = AUTO.model_copy(update={"solo": [_given("dgpu-2"), _given("dgpu-1")]})
    found = _made(BASE, PAIR, plan)
    assert [(s.card, s.workload, s.tops) for s in found.solos] == [
        ("dgpu-1", "peak-l", 7.0),
        ("dgpu-2", "peak-l", 7.0),
    ]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ([], None),
        ([_given("dgpu-1")], "the record that the peaks are taken from gives none for dgpu-2"),
        (
            [_given("dgpu-1"), _given("dgpu-2", engine="b-2")],
            "b-2, whose peak the other record gives, is no engine of dgpu-2 here",
        ),
        (
            [_given("dgpu-1"), _given("dgpu-2", workload="net-1")],
            "net-1, which the other record measured, is no peak test of this pack",
        ),
    ],
)
def test_a_peak_that_cannot_be_measured_again_is_refused(
    given: list[BoxSolo], says: str | None
) -> None:
    assert _made(BASE, PAIR, AUTO.model_copy(update={"solo": given})).why == says


def _taken_from(earlier: Payload) -> Simulated:
    """Return a run that measures nothing but the box, with the peaks of an earlier record."""
    source = BoxSource(run_id="earlier", payload_sha256="0" * 64, quick=False, noisy=False)
    solos = [c.solo.model_copy(update={"source": source}) for c in only_role(earlier).cards]
    run = simulate(engines=cards(2), request=RunRequest(box="only"), plan=[])
    box = run.facts.options.box.model_copy(update={"solo": solos})
    options = run.facts.options.model_copy(update={"box": box})
    return dataclasses.replace(run, facts=dataclasses.replace(run.facts, options=options))


def test_a_run_that_takes_its_peaks_from_another_record_recomputes() -> None:
    payload = record(run=_taken_from(earlier := record()))
    assert payload.entries == []
    assert only_role(payload).tops == pytest.approx(only_role(earlier).tops, rel=1e-3)
    assert only_role(payload).cards[0].solo.source is not None
    assert payload.not_comparable_because == ["no_score", "selection"]
    assert payload.complete
    assert recompute(payload, PACK, POLICY) == []


def test_what_such_a_run_compiles_needs_no_entry() -> None:
    payload = record(run=_taken_from(record()))
    solo = only_role(payload).cards[0].solo
    made = Preparation(
        engine=solo.engine, workload=solo.workload, variant=solo.variant, before=1, status="ok",
        why=None, state="built", compile_ns=5, first_call_ns=3, load_ns=2, bytes=70, started_ns=0,
        wall_ns=100,
    )  # fmt: skip
    went = {**payload.where_time_went_ns, "compile": 100}
    told = payload.model_copy(update={"prepared": [made], "where_time_went_ns": went})
    assert recompute(told, PACK, POLICY) == []
    other = made.model_copy(update={"variant": "fp32"})
    told = told.model_copy(update={"prepared": [other]})
    assert [d.path for d in recompute(told, PACK, POLICY)] == ["prepared[0].engine"]


def test_publishing_drops_what_may_not_be_published_and_keeps_the_box() -> None:
    local = tuple(
        dataclasses.replace(e, id=f"ort-other-dgpu-{i}", local_only=True)
        for i, e in enumerate(cards(3), start=1)
    )
    faster = rates({e.id: 9.0 for e in local})
    whole = record(run=simulate(faster, engines=(CPU, *cards(2), *local)))
    assert recompute(whole, PACK, POLICY) == []
    role = only_role(whole)
    assert [c.solo.engine for c in role.cards] == ["ort-some-dgpu-1", "ort-some-dgpu-2"]
    assert [out.card for out in role.left_out] == ["dgpu-3"]
    shown = publishable(whole, PACK, POLICY)
    assert only_role(shown) == role
    assert recompute(shown, PACK, POLICY) == []
    assert "ort-other" not in shown.model_dump_json(exclude={"processors"})


def test_a_run_of_the_box_alone_is_a_selection() -> None:
    run = simulate(engines=(CPU, *cards(2)), request=RunRequest(box="only"))
    payload = record(run=run)
    assert payload.not_comparable_because == ["selection"]
    assert only_role(payload).tops is not None


def test_the_box_stage_takes_its_part_of_the_time() -> None:
    payload = record()
    spent = sum(a.wall_ns for a in only_role(payload).attempts)
    assert payload.where_time_went_ns["box"] == spent
    assert "box" not in payload_of(simulate()).where_time_went_ns


def test_a_threshold_of_one_would_flag_innocent_cards() -> None:
    strict = dataclasses.replace(POLICY, box=dataclasses.replace(POLICY.box, slow_card=1.0))
    facts = with_box(TWO).facts
    loose_box = derive(facts, PACK, POLICY).box
    strict_box = derive(facts, PACK, strict).box
    assert loose_box is not None
    assert strict_box is not None
    assert not any(c.slow_in_box for c in loose_box.roles[0].cards)
    assert any(c.slow_in_box for c in strict_box.roles[0].cards)


def _skipped(**over: object) -> Payload:
    """Return a record whose box stage was not begun, for lack of memory."""
    start = max(s for _, s in TWO.started) + 60 * synthetic.NS
    why = "all cards at once: not enough memory"
    fields = {"status": "skipped", "why": why, "wall_ns": 0, **over}
    made = synthetic_box.attempt_of("dGPU", [], 1, start, **fields)
    return payload_of(dataclasses.replace(TWO, facts=synthetic_box.boxed(TWO.facts, [made])))


def test_an_attempt_that_was_skipped_ends_the_role_and_says_why() -> None:
    payload = _skipped()
    role = only_role(payload)
    assert (role.tops, role.finished) == (None, True)
    assert role.why == "0 of 1 attempts count: all cards at once: not enough memory"
    assert "box_void" not in payload.warnings
    assert payload.complete
    assert recompute(payload, PACK, POLICY) == []


def test_an_attempt_that_was_skipped_has_no_cards() -> None:
    ran = only_role(record()).attempts[0].cards
    found = recompute(_skipped(cards=ran), PACK, POLICY)
    assert any(d.path == "box.roles[0].attempts[0].cards" for d in found)


def test_a_run_that_is_not_quick_takes_no_peaks_from_one_that_is() -> None:
    payload = record(run=_taken_from(record()))
    solos = [
        s.model_copy(update={"source": s.source.model_copy(update={"quick": True})})
        for s in payload.plan.box.solo
        if s.source
    ]
    box = payload.plan.box.model_copy(update={"solo": solos})
    forged = payload.model_copy(update={"plan": payload.plan.model_copy(update={"box": box})})
    found = recompute(forged, PACK, POLICY)
    assert "plan.box.solo[0].source.quick" in [d.path for d in found]
