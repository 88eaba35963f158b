from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npumark.engines.base import Engine
from npumark.engines.virtual import VirtualSession

PROBE = {"kind": "auto", "seconds": 0.05}


def run(tiny: Any, folder: Path) -> Any:
    return tiny.run(kind="diagnose", probe=PROBE, samples_path=str(folder))


def test_it_tells_what_was_picked_and_times_calls(tiny: Any, tmp_path: Path) -> None:
    result = run(tiny, tmp_path)
    assert (result.status, result.why) == ("ok", None)
    facts = result.probed.facts
    assert (facts["asked"], facts["picked"], facts["picked_why"]) == ("AUTO", "Virtual CPU", None)
    assert (facts["first_call_ns"], facts["from_cache"]) == (1_000_000, None)
    assert facts["load_ns"] > 0
    calls = np.fromfile(tmp_path / "calls.i64", "<i8")
    assert len(calls) == 50
    assert set(calls) == {1_000_000}


def test_an_engine_without_a_choice_is_not_asked(
    tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("npumark.engines.virtual.Virtual.automatic", Engine.automatic)
    result = run(tiny, tmp_path)
    assert (result.status, result.why) == (
        "unsupported",
        "virtual has no automatic choice of its device",
    )


def test_a_runtime_that_does_not_tell_leaves_it_unknown(
    tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def untold(self: VirtualSession) -> str:
        raise RuntimeError("no such\nproperty")

    monkeypatch.setattr(VirtualSession, "picked", untold)
    result = run(tiny, tmp_path)
    facts = result.probed.facts
    assert (result.status, facts["picked"], facts["picked_why"]) == ("ok", None, "no such property")


def test_its_answers_are_told(tiny: Any, tmp_path: Path) -> None:
    assert run(tiny, tmp_path).probed.facts["answers"]["why"] is None
    tiny.script({"do": "zeros"})
    told = run(tiny, tmp_path).probed.facts["answers"]
    assert "is zero everywhere" in told["why"]
