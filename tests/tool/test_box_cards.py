"""The tool that tries the box total on real contention: its count, and that it would complain."""

from __future__ import annotations

import importlib.util
import os
import sys
from fractions import Fraction
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npumark.record.box import BoxRole
from npumark.score.box import counted_calls
from npumark.worker.window_loop import cut

TOOL = Path(__file__).parents[2] / "tool" / "box_cards.py"
WINDOW = 1_000


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("box_cards", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


TOOL_MODULE = load()


@pytest.fixture
def tool() -> ModuleType:
    return TOOL_MODULE


def in_order(lengths: list[int], gaps: list[int], start: int) -> list[tuple[int, int]]:
    pairs, now = [], start
    for length, gap in zip(lengths, gaps, strict=False):
        pairs.append((now, now + length))
        now += length + gap
    return pairs


@given(
    st.lists(st.integers(1, 400), min_size=1, max_size=60),
    st.lists(st.integers(0, 50), min_size=60, max_size=60),
    st.integers(-500, 900),
)
def test_the_product_counts_what_a_count_one_by_one_does(
    lengths: list[int], gaps: list[int], start: int
) -> None:
    pairs = in_order(lengths, gaps, start)
    lie = cut(np.array(pairs, dtype=np.int64), WINDOW)
    exact = TOOL_MODULE.brute_force(pairs, WINDOW)
    assert counted_calls(lie.inside, lie.straddling, WINDOW) == pytest.approx(
        float(exact), rel=1e-12
    )


def test_the_count_one_by_one_is_exact() -> None:
    pairs = [(-50, -1), (-1, 2), (2, 998), (998, 1004), (1004, 1010)]
    assert TOOL_MODULE.brute_force(pairs, WINDOW) == Fraction(2, 3) + 1 + Fraction(2, 6)


def role(**over: Any) -> BoxRole:
    """Return a role of two cards that scale well, both attempts void-free."""
    solo = {"workload": "peak-4x8x1", "variant": "fp32", "format": "FP32", "label": "FP32"}
    solo |= {"tops": 1.0, "unstable": False, "source": None}
    run = {"workload": "peak-4x8x1", "variant": "fp32", "status": "ok", "why": None}
    run |= {"pid_exit": 0, "window": None, "log_tail": None, "passed": True, "counted": 1.0}
    run |= {"tops": 0.98, "pin": {"numa_node": None, "cpus": None, "why": "virtual"}}
    names = ("dgpu-1", "dgpu-2")
    cards = [
        {
            "card": name,
            "name": "Virtual card",
            "number": n,
            "solo": {"card": name, "engine": f"virtual-{name}", **solo},
            "in_box_tops": 0.98,
            "of_solo": 0.98,
            "slow_alone": False,
            "slow_in_box": False,
        }
        for n, name in enumerate(names, 1)
    ]
    attempt = {"role": "dGPU", "n": 1, "status": "ran", "why": None, "started_ns": 0, "wall_ns": 1}
    attempt |= {"window_ns": WINDOW, "counts": True, "void_because": [], "skew_ns": 400_000}
    attempt |= {"tops": 1.96}
    attempt["cards"] = [{"card": name, "engine": f"virtual-{name}", **run} for name in names]
    made = {"role": "dGPU", "tops": 1.96, "why": None, "solo_tops": 2.0, "scaling": 0.98}
    made |= {"agreement": 0.0, "cards": cards, "left_out": [], "attempts": [attempt]}
    return BoxRole.model_validate({**made, "finished": True, **over})


def held(checks: list[Any]) -> dict[str, bool]:
    return {check.what: check.held for check in checks}


def test_scaling_that_is_off_is_complained_of(tool: ModuleType) -> None:
    def scaling(value: float | None, low: float, high: float) -> bool:
        over = {"scaling": value, "tops": None if value is None else 1.0, "why": "x"}
        verdict: bool = tool.scaling(tool.Ran(role(**over), Path()), low, high).held
        return verdict

    assert scaling(0.95, 0.9, float("inf"))
    assert not scaling(0.89, 0.9, float("inf"))
    assert scaling(0.5, *tool.ONE_CORE)
    assert not scaling(0.98, *tool.ONE_CORE)
    assert not scaling(None, 0.0, float("inf"))


def test_a_skewed_start_is_complained_of(tool: ModuleType) -> None:
    good = role()
    late = good.attempts[0].model_copy(update={"skew_ns": 5_000_001})
    assert tool.start_skew(tool.Ran(good, Path())).held
    assert not tool.start_skew(tool.Ran(good.model_copy(update={"attempts": [late]}), Path())).held
    assert not tool.start_skew(tool.Ran(good.model_copy(update={"attempts": []}), Path())).held


def test_a_flag_too_many_or_too_few_is_complained_of(tool: ModuleType) -> None:
    ran = tool.Ran(role(), Path())
    assert held(tool.flags(ran, set())) == {"flagged alone": True, "flagged in the box": True}
    assert not any(held(tool.flags(ran, {"dgpu-2"})).values())


def test_an_attempt_that_counts_or_blames_another_is_complained_of(tool: ModuleType) -> None:
    good = role()

    def told(*why: str) -> bool:
        attempt = good.attempts[0].model_copy(update={"void_because": list(why)})
        ran = tool.Ran(good.model_copy(update={"attempts": [attempt]}), Path())
        verdict: bool = tool.voided(ran, 1, "dgpu-2", "crashed").held
        return verdict

    assert told("dgpu-2 crashed: SIGABRT")
    assert not told()
    assert not told("dgpu-1 crashed: SIGABRT")
    assert not told("dgpu-2 crashed: SIGABRT", "dgpu-1 hung")


def test_one_cpu_is_not_enough_and_says_so(
    tool: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0}, raising=False)
    assert tool.main([]) == 3
    assert "needs two CPUs" in capsys.readouterr().out


@pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2, reason="one CPU"
)
def test_a_scene_is_played_and_counted_again_from_its_raw_samples(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NPUMARK_HOME", str(tmp_path))
    policy = tool.short_policy(quick=True)
    short = tool.replace(
        policy,
        timing=tool.replace(policy.timing, quick_loop_s=0.05, warmup_max_s=0.05),
        # No start is late: the machine may be busy, and nothing is asserted of its speed.
        box=tool.replace(policy.box, window_s=0.2, lead_s=0.5, late_share=10.0),
    )
    scene = tool.replace(tool.SCENES[0], quick=True)
    ran = tool.play(scene, tool.make_pack(tmp_path), sorted(os.sched_getaffinity(0)), short)
    assert all(check.held for check in tool.arithmetic(ran))
    for path in ran.samples.glob("box-*.i64"):  # the first may be of an attempt that was late
        path.write_bytes(path.read_bytes()[:-16])
    with pytest.raises(ValueError, match="not those of the record"):
        tool.arithmetic(ran)
