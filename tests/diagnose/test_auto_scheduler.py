from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from npumark.diagnose.auto_scheduler import PROBE, same_device
from npumark.diagnose.probe import Finding, Seen, Step, Target
from npumark.policy import load_policy

RULES = load_policy().diagnose
GPU = Target("openvino-igpu", "openvino", "iGPU", "resnet50", "fp16", compiles=True, cores=8)
CPU = replace(GPU, engine="openvino-cpu", role="CPU", compiles=False)
SINGLE = Seen(
    Step("single", "single"),
    "ok",
    None,
    {"calls": np.full(100, 10_000_000)},
    {"load_ns": 400, "first_call_ns": 20, "observed": {"device": "CPU"}},
)


AGAIN = replace(SINGLE, step=Step("again", "single", {"seconds": 1.0}))


def seen(call_ms: float, **facts: Any) -> Seen:
    told = {"asked": "AUTO", "picked": "CPU", "load_ns": 600, "first_call_ns": 30, **facts}
    return Seen(
        PROBE.steps(CPU, RULES)[0], "ok", None, {"calls": np.full(9, round(call_ms * 1e6))}, told
    )


def find(step: Seen, target: Target = CPU) -> Finding:
    return PROBE.finding(target, SINGLE, {"auto": step, "again": AGAIN}, RULES)


def test_it_times_one_loop_and_only_where_asked_for_more() -> None:
    (step,) = PROBE.steps(CPU, RULES)
    assert (step.kind, step.options) == ("auto", {"seconds": RULES.loop_s})
    assert PROBE.deep


def test_rate_and_load_are_told_against_the_engines_own_device() -> None:
    found = find(seen(20))
    assert [row["choice"] for row in found.rows] == ["this engine", "AUTO"]
    assert [row["picked"] for row in found.rows] == ["CPU", "CPU"]
    assert [row["ips"] for row in found.rows] == pytest.approx([100, 50])
    assert [row["load_ns"] for row in found.rows] == [400, 600]
    assert {r.name: r.value for r in found.ratios} == pytest.approx(
        {"auto_rate": 0.5, "auto_load": 1.5}
    )
    assert found.finding == "AUTO picks CPU and gives 0.50 × this engine's rate."
    assert found.advice is not None
    assert found.advice.startswith("It is the same device")


@pytest.mark.parametrize(
    ("call_ms", "finding", "advice"),
    [
        (10.2, "AUTO picks GPU and gives what this engine gives.", "Leaving the choice"),
        (20, "AUTO picks GPU and gives 0.50 × this engine's rate.", "Name the device in the"),
        (5, "AUTO picks GPU and gives 2.00 × this engine's rate.", "Name the device that it picks"),
    ],
)
def test_the_words_follow_from_the_rate(call_ms: float, finding: str, advice: str) -> None:
    found = find(seen(call_ms, picked="GPU"))
    assert found.finding == finding
    assert found.advice is not None
    assert found.advice.startswith(advice)


def test_the_same_device_is_not_praised_for_being_picked() -> None:
    found = find(seen(5))
    assert found.finding == "AUTO picks CPU and gives 2.00 × this engine's rate."
    assert found.advice is not None
    assert found.advice.startswith("It is the same device")


def test_a_rate_that_chance_may_give_is_told_as_that() -> None:
    faster = replace(AGAIN, samples={"calls": np.full(100, 9_000_000)})
    step = seen(8.5, picked="GPU")
    found = PROBE.finding(CPU, SINGLE, {"auto": step, "again": faster}, RULES)
    assert (found.finding or "").endswith(
        "1.18 × this engine's rate, no other than chance may give here."
    )
    assert (found.advice or "").startswith("Leaving the choice")


@pytest.mark.parametrize(
    ("own", "picked", "same"),
    [
        ("CUDAExecutionProvider", "CUDAExecutionProvider, CPUExecutionProvider", True),
        ("GPU.0, CPU", "(CPU), GPU.0", False),
        ("CPU", "(CPU)", True),
        ("CPU", "GPU", False),
        (None, "CPU", None),
        ("CPU", None, None),
    ],
)
def test_the_main_devices_say_whether_it_is_the_same(
    own: str | None, picked: str | None, same: bool | None
) -> None:
    assert same_device(picked, own) is same


def test_the_same_device_is_not_to_be_named_where_the_choice_is_slower() -> None:
    found = find(seen(10 / 0.9))
    assert found.finding == "AUTO picks CPU and gives 0.90 × this engine's rate."
    assert (found.advice or "").startswith("It is the same device")


def test_what_is_not_told_is_not_guessed() -> None:
    faster = find(seen(5, picked=None))
    assert (faster.advice or "").startswith("Measure the other engines of this runtime")
    found = find(seen(10, picked=None, picked_why="no plan"))
    assert found.rows[1]["picked"] is None
    assert found.finding == "AUTO does not tell what it picks and gives what this engine gives."


def test_loads_that_do_not_compare_have_no_ratio() -> None:
    assert [r.name for r in find(seen(10), GPU).ratios] == ["auto_rate"]
    both = find(seen(10, from_cache=True), GPU)
    assert [r.name for r in both.ratios] == ["auto_rate", "auto_load"]


def test_an_engine_without_a_choice_has_nothing_to_find() -> None:
    step = replace(seen(10), status="unsupported", why="litert has no automatic choice")
    found = find(step)
    assert (found.status, found.why) == ("not_applicable", "litert has no automatic choice")


def test_a_step_that_failed_is_a_failure() -> None:
    found = find(replace(seen(10), status="crashed", why=None))
    assert (found.status, found.why) == ("failed", "crashed")
