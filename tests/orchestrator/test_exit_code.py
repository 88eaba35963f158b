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


@pytest.mark.parametrize(
    ("roles", "entries", "code"),
    [
        ([GOOD], [entry(PEAK, "ok", "ok")], 0),
        ([GOOD], [], 0),
        ([GOOD, NONE], [entry(PEAK, "ok", "ok")], 0),
        ([role(2.0, "interrupted", "counts")], [], 0),
        ([role(2.0, "void", "counts")], [], 1),
        ([GOOD], [entry(PEAK, "ok", "ok", "crashed", "ok")], 1),
        ([GOOD, role(None, "interrupted")], [], 1),
        ([NONE], [entry(PEAK, "ok", "ok")], 3),
        ([], [entry(PEAK, "ok", "ok")], 3),
        ([role(None, "void", "void")], [], 4),
        ([NONE], [entry(PEAK, "crashed", "crashed"), entry(PEAK, "ok", "ok")], 4),
        ([NONE], [entry(PEAK, "gate_failed", "ok")], 4),
        ([NONE], [entry(PEAK, "pack_error", "pack_error")], 5),
    ],
)
def test_exit_codes_of_the_box_alone(roles: list[Any], entries: list[Any], code: int) -> None:
    payload: Any = SimpleNamespace(
        entries=entries, box=SimpleNamespace(roles=roles) if roles else None
    )
    assert box_exit_code(payload) == code
