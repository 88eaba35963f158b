"""The exit status follows from what was measured and what died."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from npumark.orchestrator.exit_code import exit_code

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
    payload: Any = SimpleNamespace(entries=entries, score=object() if scored else None)
    assert exit_code(payload, {PEAK}) == code
