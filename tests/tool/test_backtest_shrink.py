from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from npumark.policy import load_policy
from npumark.record.model import Record
from npumark.score.demand import Key
from npumark.score.planned import Planned
from tests import synthetic
from tests.synthetic import payload_of, simulate
from tool import backtest_shrink as backtest
from tool.backtest_shrink import Tape, compare, replay

POLICY = load_policy()
FULL = backtest._with(POLICY, agreement=-1.0, network_screen=0.0, peak_screen=0.0)


def tape(*rates: Sequence[float]) -> Tape:
    """Return a tape of one network with a variant per list of rates."""
    plan = tuple(
        Planned("e", "n", f"v{i}", f"v{i}", "FP32", "network", "scored") for i in range(len(rates))
    )
    attempts: dict[Key, Any] = {
        p.key: [backtest._attempt(k, k, rate) for k, rate in enumerate(own, start=1)]
        for p, own in zip(plan, rates, strict=True)
    }
    return Tape("t", plan, attempts)


STEADY = (100.0, 100.5, 101.0, 100.2, 100.8)


def test_agreeing_attempts_are_saved_and_nothing_moves_far() -> None:
    found = compare([tape(STEADY)], POLICY, FULL)
    assert found["attempts"] == {"against": 5, "rule": 3, "saved": pytest.approx(0.4)}
    assert found["picks_changed"] == found["unstable_changed"] == []
    assert found["largest_move"]["by"] == pytest.approx(100.5 / 100.5 - 1)


def test_screening_that_drops_the_winner_is_a_changed_pick() -> None:
    """The second variant is the faster one; its first attempt met an episode."""
    slow_start = (80.0, 120.0, 121.0, 120.0, 121.0)
    found = compare([tape(STEADY, slow_start)], POLICY, FULL)
    (change,) = found["picks_changed"]
    assert (change["was"][2], change["now"][2]) == ("v1", "v0")
    loose = backtest._with(POLICY, network_screen=0.75)
    assert compare([tape(STEADY, slow_start)], loose, FULL)["picks_changed"] == []


def test_a_loose_agreement_hides_an_unstable_figure() -> None:
    falling = (100.0, 96.0, 92.0, 70.0, 60.0)
    found = compare([tape(falling)], backtest._with(POLICY, agreement=0.10), FULL)
    assert found["attempts"]["rule"] == 3
    assert found["largest_move"]["by"] == pytest.approx(96 / 92 - 1)
    # Five attempts have a robust CV of 12.9 %, the first three of 6.2 %, and two flags agree;
    # under a limit between them the flag would be lost.
    limit = {"agreement": 0.10, "unstable_robust_cv": 0.10}
    lost = compare([tape(falling)], backtest._with(POLICY, **limit), FULL)
    assert [(f["was"], f["now"]) for f in lost["unstable_changed"]] == [(True, False)]


def test_a_tape_too_short_for_a_rule_is_left_out() -> None:
    found = compare([tape(STEADY[:3])], POLICY, FULL)
    assert (found["figures"], found["short"]) == (0, 1)
    assert found["largest_move"] is None
    assert replay(tape(STEADY[:3]), POLICY).short == frozenset()


def test_a_simulation_is_the_same_for_the_same_seed() -> None:
    one, again, other = (backtest.simulate(s, 0, POLICY) for s in (7, 7, 8))
    assert one == again
    assert one.attempts != other.attempts
    assert replay(one, FULL).short == frozenset()
    limits = {len(a) for a in one.attempts.values()}
    assert limits == {5, 9}


def test_the_command_prints_text_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert backtest.main(["--simulate", "2", "--agreement", "0.05"]) == 0
    assert "picks changed" in capsys.readouterr().out
    assert backtest.main(["--simulate", "2", "--against", "policy", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["attempts"]["saved"] == 0
    assert found["picks_changed"] == found["unstable_changed"] == []


def test_records_are_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    payload = payload_of(simulate())
    record = Record(payload=payload, payload_sha256="0" * 64, signatures=None)
    path, pack = tmp_path / "record.json", tmp_path / "manifest.json"
    path.write_text(record.model_dump_json(by_alias=True))
    pack.write_bytes(synthetic.manifest_bytes(*synthetic.WORKLOADS))
    arguments = [str(path), "--manifest", str(pack), "--against", "policy", "--json"]
    assert backtest.main([*arguments, "--network-screen", "0.95"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["tapes"] == 1
    assert found["figures"] == 3
    ran = sum(len(e.attempts) for e in payload.entries)
    assert found["attempts"]["against"] == ran


def test_what_is_no_record_of_this_pack_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text("{}")
    assert backtest.main([str(bad)]) == 2
    assert "not a record" in capsys.readouterr().err
    assert backtest.main([]) == 2
    assert "nothing to replay" in capsys.readouterr().err
    payload = payload_of(simulate(limit=0))
    suite = payload.suite.model_copy(update={"manifest_sha256": "1"})
    foreign = payload.model_copy(update={"suite": suite})
    record = Record(payload=foreign, payload_sha256="0" * 64, signatures=None)
    bad.write_text(record.model_dump_json(by_alias=True))
    pack = tmp_path / "manifest.json"
    pack.write_bytes(synthetic.manifest_bytes(*synthetic.WORKLOADS))
    assert backtest.main([str(bad), "--manifest", str(pack)]) == 2
    assert "another pack" in capsys.readouterr().err
