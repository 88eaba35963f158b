"""Peaks of another record: of this computer, these cards, and no quicker than asked for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from npumark.errors import UsageError
from npumark.orchestrator.box_choice import RoleChoice
from npumark.orchestrator.box_from import notes, solo_peaks
from npumark.orchestrator.discover import Found, Runtime
from npumark.orchestrator.request import RunRequest
from npumark.orchestrator.survey import Survey
from npumark.record.box import BoxSolo
from npumark.record.files import seal
from npumark.record.model import Record
from tests import synthetic
from tests.synthetic import CPU, payload_of, simulate
from tests.synthetic_box import cards

PACK = synthetic.manifest()
PAYLOAD = payload_of(simulate(engines=(CPU, *cards(2))))
PAIR = tuple(p for p in PAYLOAD.processors if p.role == "dGPU")
HERE = {
    "os": "Linux",
    "architecture": "x86_64",
    "cpu_model": "EPYC 9654",
    "board_product": None,
    "kernel": "6.8",
    "boot": "a",
    "microcode": "0x1",
    "memory_bytes": 5,
}


def source(*, quick: bool = False, noisy: bool = False, **machine: Any) -> Record:
    return seal(
        PAYLOAD.model_copy(
            update={
                "machine": {**HERE, **machine},
                "plan": PAYLOAD.plan.model_copy(update={"quick": quick}),
                "environment": PAYLOAD.environment.model_copy(update={"noisy": noisy}),
            }
        )
    )


def survey(details: dict[str, Any] | None = None, **engine: Any) -> Survey:
    """Return this computer: the cards of the record, with what has changed since."""
    found = [
        Found(synthetic.engine(e.id, "dGPU", processor=e.processor, **engine), Runtime(e.id, "m:E"))
        for e in cards(2)
    ]
    processors = tuple(
        p.model_copy(update={"details": {**p.details, **(details or {})}}) for p in PAIR
    )
    return Survey(
        tuple(found), processors, {e.id: p.id for e, p in zip(cards(2), PAIR, strict=True)}
    )


def taken(record: Record, here: Survey | None = None, **fields: Any) -> tuple[BoxSolo, ...]:
    request, here = RunRequest(**{"box": "only", **fields}), here or survey()
    cards = tuple(p for p in here.processors if p.role == "dGPU")
    choice = RoleChoice("dGPU", cards, frozenset(here.owner), None)
    return solo_peaks(record, request, [choice], here, PACK, HERE)


def test_each_peak_says_where_it_is_from_and_how_that_was_measured() -> None:
    for noisy in (False, True):
        record = source(noisy=noisy)
        solos = taken(record)
        assert [s.card for s in solos] == [p.id for p in PAIR]
        for origin in (s.source for s in solos):
            assert origin is not None
            assert (origin.run_id, origin.payload_sha256) == (PAYLOAD.run_id, record.payload_sha256)
            assert (origin.quick, origin.noisy) == (False, noisy)


def test_a_quick_runs_peaks_are_for_quick_runs_alone() -> None:
    with pytest.raises(UsageError, match="of a quick run") as told:
        taken(source(quick=True))
    assert "--quick" in (told.value.hint or "")
    assert all(s.source and s.source.quick for s in taken(source(quick=True), quick=True))
    assert taken(source(), quick=True)


@pytest.mark.parametrize(
    ("fact", "value", "told"),
    [
        ("cpu_model", "EPYC 7702", "its cpu model is EPYC 7702, and here it is EPYC 9654"),
        ("os", "Windows", "its os is Windows, and here it is Linux"),
        ("architecture", "arm64", "its architecture is arm64"),
    ],
)
def test_the_peaks_of_another_computer_are_refused(fact: str, value: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        taken(source(**{fact: value}))


@pytest.mark.parametrize(
    "change",
    [
        {"boot": "b"},
        {"kernel": "6.9", "microcode": "0x2"},
        {"memory_bytes": 4},
        {"board_product": "a board that is read by root alone"},
        {"cpu_model": None},
    ],
    ids=str,
)
def test_what_changes_on_a_computer_does_not_make_it_another(change: dict[str, Any]) -> None:
    assert taken(source(**change))


def test_what_has_changed_since_the_peaks_were_measured_is_told() -> None:
    record = source()
    solos = taken(record)
    engine = next(e for e in PAYLOAD.engines if e.id == solos[0].engine)
    same = survey(versions=dict(engine.versions))
    assert notes(solos, record, same) == (f"the peaks are those of {PAYLOAD.run_id}",)
    _, *told = notes(
        solos, source(noisy=True), survey({"driver": "570.1"}, versions={"cudnn": "9"})
    )
    assert told[0] == "they were measured on a noisy machine"
    text = "\n".join(told)
    assert f"cudnn of {engine.runtime} has changed from none to 9" in text
    for card in PAIR:
        assert f"the driver of {card.id} has changed from an unknown one to 570.1" in text
    assert text.count("cudnn") == 1


OTHER = PAIR[1].model_copy(update={"name": "Other", "number": 1})
THIRD = PAIR[1].model_copy(update={"id": "dgpu-3", "number": 3})


@pytest.mark.parametrize(
    ("here", "why"),
    [
        (
            replace(survey(), processors=(*PAIR, THIRD)),
            "it lists dgpu-1, dgpu-2, and this computer has dgpu-1, dgpu-2, dgpu-3",
        ),
        (
            replace(survey(), processors=(PAIR[0], OTHER)),
            "dgpu-2 is Other #1 here and Some Card #2",
        ),
        (survey(version="99"), "ort-some-dgpu-1 is version 99 here and .* there"),
        (
            survey(available=False, reason="no driver"),
            "ort-some-dgpu-1, which led on dgpu-1, is not available here: no driver",
        ),
        (
            replace(survey(), owner={e.id: "dgpu-2" for e in cards(2)}),
            "ort-some-dgpu-1 runs on dgpu-2 here and on dgpu-1 there",
        ),
    ],
)
def test_peaks_of_other_cards_are_refused_with_what_differs(here: Survey, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        taken(source(), here)


def test_a_card_without_a_peak_there_is_named() -> None:
    engines = [
        e.model_copy(update={"peak": None}) if e.processor == "dgpu-2" else e
        for e in PAYLOAD.engines
    ]
    record = seal(source().payload.model_copy(update={"engines": engines}))
    with pytest.raises(UsageError, match="it has no peak of dgpu-2 that counts"):
        taken(record)


def test_peaks_are_taken_from_the_record_that_measured_them() -> None:
    box = PAYLOAD.plan.box.model_copy(update={"solo": list(taken(source()))})
    plan = PAYLOAD.plan.model_copy(update={"box": box})
    record = seal(source().payload.model_copy(update={"plan": plan}))
    with pytest.raises(UsageError, match="took its peaks from another record"):
        taken(record)
