"""The exit status follows from what was measured and what died."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from npumark.orchestrator.exit_code import box_exit_code, exit_code

PEAK, NET = "peak", "net"


def entry(workload: str, status: str, *attempts: str) -> Any:
    runs = [
        SimpleNamespace(status=s, measurement=object() if s == "ok" else None) for s in attempts
    ]
    return SimpleNamespace(workload=workload, status=status, attempts=runs)


@pytest.mark.parametrize(
    ("scored", "entries", "code"),
    [
        (True, [entry(PEAK, "ok", "ok"), entry(NET, "ok", "ok")], 0),
        (True, [entry(PEAK, "ok", "ok"), entry(NET, "gate_failed", "ok")], 0),
        (True, [entry(PEAK, "ok", "ok"), entry(NET, "skipped")], 0),
        (True, [entry(PEAK, "ok", "ok"), entry(NET, "unsupported", "unsupported")], 0),
        (True, [entry(PEAK, "ok", "ok", "interrupted", "ok")], 0),
        (True, [entry(PEAK, "ok", "ok", "crashed", "ok")], 1),
        (True, [entry(PEAK, "ok", "ok"), entry(NET, "timeout", "timeout")], 1),
        (True, [entry(PEAK, "ok", "ok"), entry(NET, "no_result", "no_result")], 1),
        (True, [entry(PEAK, "ok", "ok"), entry(NET, "wrong_device", "ok")], 1),
        (True, [entry(PEAK, "ok", "ok"), entry(NET, "pack_error", "pack_error")], 1),
        (False, [entry(NET, "ok", "ok")], 0),
        (False, [entry(NET, "ok", "ok"), entry(NET, "crashed", "crashed")], 1),
        (False, [entry(PEAK, "gate_failed", "ok")], 0),
        (False, [entry(PEAK, "crashed", "crashed"), entry(NET, "ok", "ok")], 4),
        (False, [entry(NET, "timeout", "timeout")], 4),
        (False, [entry(NET, "ok", "ok", "crashed"), entry(NET, "crashed", "crashed")], 1),
        (False, [entry(PEAK, "unsupported", "unsupported")], 3),
        (False, [entry(PEAK, "skipped")], 3),
        (False, [entry(PEAK, "wrong_device", "wrong_device")], 1),
        (False, [entry(PEAK, "pack_error", "pack_error")], 5),
    ],
)
def test_exit_codes(scored: bool, entries: list[Any], code: int) -> None:
    score = object() if scored else None
    payload: Any = SimpleNamespace(entries=entries, score=score, box=None)
    assert exit_code(payload, {PEAK}) == code


def role(tops: float | None, *attempts: str) -> Any:
    runs = [
        SimpleNamespace(status=s if s == "interrupted" else "ran", counts=s == "counts")
        for s in attempts
    ]
    return SimpleNamespace(tops=tops, attempts=runs)


GOOD, NONE = role(2.0, "counts"), role(None)


def test_a_void_attempt_at_all_cards_is_one_that_crashed() -> None:
    def code(*roles: Any) -> int:
        box = SimpleNamespace(roles=roles)
        payload: Any = SimpleNamespace(entries=[entry(PEAK, "ok", "ok")], score=object(), box=box)
        return exit_code(payload, {PEAK})

    assert code(GOOD, NONE) == 0
    assert code(role(2.0, "interrupted", "counts")) == 0
    assert code(role(2.0, "counts", "void")) == 1
    assert code(role(None, "void")) == 1


def alone(status: str, *attempts: str, card: int = 1) -> Any:
    """Return an entry of a card of the box; one that is ok gives the card its peak."""
    found = entry(PEAK, status, *attempts)
    found.engine = f"e-{card}"
    return found


def box_of(roles: list[Any], entries: list[Any], facts: dict[str, Any]) -> Any:
    """Return a run of two cards; a card has a solo peak where an entry of it is ok."""
    reached = {e.engine for e in entries if e.status == "ok"}
    solos = [SimpleNamespace(card=f"card-{n}") for n in (1, 2) if f"e-{n}" in reached]
    for role in roles:
        role.role, role.cards, role.left_out = "dGPU", solos, []
    return SimpleNamespace(
        entries=entries,
        box=SimpleNamespace(roles=roles) if roles else None,
        environment=SimpleNamespace(facts=facts),
        processors=[SimpleNamespace(id=f"card-{n}", role="dGPU") for n in (1, 2)],
        engines=[
            SimpleNamespace(id=f"e-{n}", processor=f"card-{n}", local_only=False, emulated=False)
            for n in (1, 2)
        ],
    )


BOTH = [alone("ok", "ok"), alone("ok", "ok", card=2)]
OVER = {"ended_by": "time_budget"}


@pytest.mark.parametrize(
    ("roles", "entries", "code"),
    [
        ([GOOD], BOTH, 0),
        ([GOOD], [], 0),
        ([GOOD, NONE], BOTH, 0),
        ([role(2.0, "interrupted", "counts")], [], 0),
        ([GOOD], [*BOTH, alone("gate_failed", "ok")], 0),
        ([GOOD], [*BOTH, alone("wrong_device", "wrong_device")], 0),
        ([role(2.0, "void", "counts")], [], 1),
        ([GOOD], [alone("ok", "ok", "crashed", "ok"), BOTH[1]], 1),
        ([GOOD], [*BOTH, alone("pack_error", "pack_error")], 1),
        ([GOOD, role(None, "interrupted")], [], 1),
        ([GOOD, NONE], [BOTH[0], alone("gate_failed", "ok", card=2)], 1),
        ([NONE], BOTH, 3),
        ([], BOTH, 3),
        ([NONE], [*BOTH, alone("gate_failed", "ok")], 3),
        ([NONE], [*BOTH, alone("crashed", "crashed")], 3),
        ([NONE], [BOTH[0], alone("unsupported", "unsupported", card=2)], 3),
        ([role(None, "void", "void")], BOTH, 4),
        ([NONE], [BOTH[0], alone("crashed", "crashed", card=2)], 4),
        ([NONE], [BOTH[0], alone("gate_failed", "ok", card=2)], 4),
        ([NONE], [BOTH[0], alone("wrong_device", "ok", card=2)], 4),
        ([NONE], [alone("pack_error", "pack_error")], 5),
    ],
)
def test_exit_codes_of_the_box_alone(roles: list[Any], entries: list[Any], code: int) -> None:
    assert box_exit_code(box_of(roles, entries, {})) == code


@pytest.mark.parametrize(
    ("roles", "entries", "code"),
    [
        ([], [BOTH[0], alone("gate_failed", "ok")], 3),
        ([NONE], [BOTH[0], alone("gate_failed", "ok", card=2)], 3),
        ([role(None, "counts")], BOTH, 3),
        ([role(None, "void", "counts")], BOTH, 4),
    ],
)
def test_a_time_budget_that_ended_the_box_before_its_total_is_no_failure_of_a_card(
    roles: list[Any], entries: list[Any], code: int
) -> None:
    assert box_exit_code(box_of(roles, entries, OVER)) == code


@pytest.mark.parametrize("field", ["local_only", "emulated"])
def test_what_no_total_is_made_of_does_not_fail_for_a_card(field: str) -> None:
    payload = box_of([NONE], [BOTH[0], alone("crashed", "crashed", card=2)], {})
    setattr(payload.engines[1], field, True)
    assert box_exit_code(payload) == 3
