"""Which cards a box total is asked of, from probes alone, and the sentence where there is none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from npumark.errors import NothingToMeasure, UsageError
from npumark.orchestrator.box_choice import (
    RoleChoice,
    choose,
    require,
    role_named,
    with_card_ids,
)
from npumark.orchestrator.request import RunRequest
from npumark.record.model import Processor
from tests.synthetic import engine


def card(name: str, role: Any = "dGPU", **details: Any) -> Processor:
    return Processor(id=name, role=role, name=f"A {role}", number=1, details=details)


CPU = card("cpu", "CPU")
PAIR = (CPU, card("dgpu-1"), card("dgpu-2"))
OWNER = {"a-cpu": "cpu", "a-dgpu-1": "dgpu-1", "a-dgpu-2": "dgpu-2", "b-dgpu-1": "dgpu-1"}
ENGINES = (
    engine("a-cpu", "CPU"),
    engine("a-dgpu-1", "dGPU"),
    engine("a-dgpu-2", "dGPU"),
    engine("b-dgpu-1", "dGPU"),
)


def ids(choice: RoleChoice) -> list[str]:
    return [p.id for p in choice.cards]


def test_every_role_with_two_devices_is_meant_and_the_cpu_never() -> None:
    two_cpus = (*PAIR, card("npu", "NPU"))
    (choice,) = choose(RunRequest(), ENGINES, two_cpus, OWNER)
    assert (choice.role, ids(choice), choice.why) == ("dGPU", ["dgpu-1", "dgpu-2"], None)
    assert choice.engines == {"a-dgpu-1", "a-dgpu-2", "b-dgpu-1"}


@pytest.mark.parametrize(
    "change",
    [{"available": False}, {"emulated": True}, {"local_only": True}, {"virtual": True}],
)
def test_engines_that_cannot_stand_for_a_card_reach_none(change: dict[str, Any]) -> None:
    engines = [replace(e, **change) if e.id == "a-dgpu-2" else e for e in ENGINES]
    (choice,) = choose(RunRequest(), engines, PAIR, OWNER)
    assert ids(choice) == ["dgpu-1"]
    assert choice.why == (
        "nothing to sum: only one dGPU, dgpu-1 (A dGPU), can be measured here "
        "(no engine here whose results may be published reaches dgpu-2)"
    )


def test_virtual_engines_count_among_their_own_kind() -> None:
    (choice,) = choose(RunRequest(), [replace(e, virtual=True) for e in ENGINES], PAIR, OWNER)
    assert choice.why is None


def test_a_device_that_an_emulator_stands_for_is_no_card() -> None:
    emulated = card("dgpu-emulated", emulated=True)
    assert choose(RunRequest(), ENGINES, (CPU, card("dgpu-1"), emulated), OWNER) == ()


def test_a_third_card_that_nothing_reaches_is_left_out_unless_it_is_named() -> None:
    three = (*PAIR, card("dgpu-3"))
    (choice,) = choose(RunRequest(), ENGINES, three, OWNER)
    assert (ids(choice), choice.why) == (["dgpu-1", "dgpu-2"], None)
    named = RunRequest(box_cards=("dgpu-1", "dgpu-2", "dgpu-3"))
    (choice,) = choose(named, ENGINES, three, OWNER)
    assert choice.why == "no engine here whose results may be published reaches dgpu-3"


def test_only_cards_that_are_summed_must_be_told_apart() -> None:
    odd = (*PAIR, card("dgpu-3", identity="it states no key"))
    engines, owner = (*ENGINES, engine("a-dgpu-3", "dGPU")), {**OWNER, "a-dgpu-3": "dgpu-3"}
    (choice,) = choose(RunRequest(), engines, odd, owner)
    assert choice.why == "which device dgpu-3 is cannot be told: it states no key"
    (choice,) = choose(RunRequest(box_cards=("dgpu-1", "dgpu-2")), engines, odd, owner)
    assert choice.why is None


def test_one_role_that_can_be_summed_is_enough() -> None:
    good = RoleChoice("dGPU", (), frozenset(), None)
    bad = RoleChoice("NPU", (), frozenset(), "which is which cannot be told")
    require([bad, good], PAIR)
    with pytest.raises(NothingToMeasure, match="which is which"):
        require([bad], PAIR)
    with pytest.raises(NothingToMeasure, match="only one dGPU and only one NPU here"):
        require([], (CPU, card("dgpu"), card("npu", "NPU"), card("npu-emulated", emulated=True)))


@pytest.mark.parametrize(
    ("word", "role"), [("dgpu", "dGPU"), ("DGPU", "dGPU"), ("iGPU", "iGPU"), ("npu", "NPU")]
)
def test_roles_in_any_case(word: str, role: str) -> None:
    assert role_named(word) == role


@pytest.mark.parametrize(("word", "why"), [("cpu", "never summed"), ("gpu", "no role 'gpu'")])
def test_other_roles_are_refused(word: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        role_named(word)


@pytest.mark.parametrize(
    ("request_", "found"),
    [
        (RunRequest(), (None, None)),
        (RunRequest(box_cards=("DGPU-2", "dgpu-1", "dgpu-2")), (("dgpu-2", "dgpu-1"), ("dGPU",))),
        (
            RunRequest(box_roles=("dGPU",), box_cards=("1", "02")),
            (("dgpu-1", "dgpu-2"), ("dGPU",)),
        ),
        (RunRequest(box_roles=("NPU",), box_cards=("1",)), (("npu",), ("NPU",))),
    ],
)
def test_cards_become_processors(request_: RunRequest, found: tuple[Any, Any]) -> None:
    made = with_card_ids(request_, (*PAIR, card("npu", "NPU")))
    assert (made.box_cards, made.box_roles) == found


def test_a_number_needs_no_role_where_cards_of_one_alone_are_here() -> None:
    made = with_card_ids(RunRequest(box_cards=("2", "1")), PAIR)
    assert (made.box_cards, made.box_roles) == (("dgpu-2", "dgpu-1"), ("dGPU",))
    with pytest.raises(UsageError, match="there is no card 1 here: no iGPU, dGPU or NPU"):
        with_card_ids(RunRequest(box_cards=("1",)), (CPU,))


@pytest.mark.parametrize(
    ("request_", "why", "hint"),
    [
        (RunRequest(box_cards=("dgpu-3",)), "no card 'dgpu-3'", "There is: dgpu-1, dgpu-2, npu."),
        (RunRequest(box_cards=("1",)), "only within one role", "Add --role"),
        (RunRequest(box_roles=("dGPU", "NPU"), box_cards=("1",)), "only within one role", "Add"),
        (RunRequest(box_roles=("NPU",), box_cards=("2",)), "no card 'npu-2'", "Did you mean npu"),
        (RunRequest(box_roles=("NPU",), box_cards=("dgpu-1",)), "dgpu-1 is no NPU", "Leave out"),
        (
            RunRequest(box_roles=("NPU", "dGPU"), box_cards=("dgpu-1",)),
            "--cards names no NPU",
            "Leave out that role",
        ),
        (RunRequest(box_cards=("cpu",)), "the CPU, which is never summed", "There is"),
        (RunRequest(box_cards=("npu-emulated",)), "npu-emulated is emulated", "There is"),
        (RunRequest(box_roles=("NPU",), box_cards=("9" * 5000,)), "no card '9{60}' h", "There is"),
        (RunRequest(box_roles=("NPU",), box_cards=("\u0661",)), "no card '\u0661' h", "There is"),
    ],
)
def test_other_cards_are_refused_with_those_there_are(
    request_: RunRequest, why: str, hint: str
) -> None:
    processors = (*PAIR, card("npu", "NPU"), card("npu-emulated", "NPU", emulated=True))
    with pytest.raises(UsageError, match=why) as told:
        with_card_ids(request_, processors)
    assert hint in str(told.value.hint)
