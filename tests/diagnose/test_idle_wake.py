"""Idle-wake tax: its ratio by hand, and what is said of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from npumark.diagnose.idle_wake import PROBE
from npumark.diagnose.probe import Finding, Samples, Seen, Step, Target
from npumark.policy import load_policy

RULES = replace(load_policy().diagnose, idle_ms=(1, 10, 100), idle_calls=(5, 5, 3))
TARGET = Target("ort-cpu", "ort", "CPU", "net", "fp32", compiles=False, cores=2)
SINGLE = Seen(Step("single", "single"), "ok", None, {"calls": np.full(30, 1000)}, {})
AGAIN = replace(SINGLE, step=Step("again", "single", {"seconds": 1.0}))


def found(*after: int, busy: int = 1000) -> Finding:
    (step,) = PROBE.steps(TARGET, RULES)
    samples = {"busy": np.full(30, busy)}
    for ms, calls, ns in zip(RULES.idle_ms, RULES.idle_calls, after, strict=True):
        samples[f"after-{ms}-ms"] = np.full(calls, ns)
    seen = {step.name: Seen(step, "ok", None, samples, {}), "again": AGAIN}
    return PROBE.finding(TARGET, SINGLE, seen, RULES)


def test_the_step_lasts_about_as_long_as_it_idles() -> None:
    (step,) = PROBE.steps(TARGET, RULES)
    assert step.options == {"idle_ms": [1, 10, 100], "calls": [5, 5, 3]}
    assert step.seconds == pytest.approx(0.355)


def test_the_tax_is_against_calls_back_to_back_in_the_same_session() -> None:
    told = found(1000, 1500, 3000)
    assert [row["tax_ratio"] for row in told.rows] == [1.0, 1.0, 1.5, 3.0]
    (ratio,) = told.ratios
    assert (ratio.name, ratio.value) == ("idle_wake_tax", 3.0)
    assert told.finding == "A call after 100 ms of idle takes 3.00 × one of many back to back."


def test_the_advice_names_the_longest_idle_that_costs_nothing() -> None:
    told = found(1000, 1020, 3000)
    assert told.advice is not None
    assert "at least every 10 ms" in told.advice


def test_where_the_shortest_idle_costs_no_pace_of_calls_is_named() -> None:
    told = found(1500, 1000, 3000)
    assert told.advice is not None
    assert " ms" not in told.advice


def test_an_engine_that_does_not_fall_asleep_needs_nothing() -> None:
    told = found(1000, 1040, 900)
    assert told.finding is not None
    assert told.finding.endswith("takes no longer than one of many.")
    assert told.advice == "Nothing needs to keep it awake."


def test_a_step_that_died_makes_the_probe_fail_with_its_reason() -> None:
    (step,) = PROBE.steps(TARGET, RULES)
    seen = {step.name: Seen(step, "timeout", "no end within 600 s", {}, {})}
    told = PROBE.finding(TARGET, SINGLE, seen, RULES)
    assert (told.status, told.why) == ("failed", "no end within 600 s")


def jittery(draw: np.random.Generator, tax: float) -> Finding:
    """Return what is found where calls waver by 10 %, and take ``tax`` × as long after 1 s."""
    rules = load_policy().diagnose
    (step,) = PROBE.steps(TARGET, rules)

    def calls(n: int, longer: float = 1.0) -> Samples:
        jitter = np.maximum(1 + 0.1 * draw.standard_normal(n), 0.5)
        return np.round(1e6 * longer * jitter).astype(np.int64)

    samples = {"busy": calls(30)}
    for ms, n in zip(rules.idle_ms, rules.idle_calls, strict=True):
        samples[f"after-{ms}-ms"] = calls(n, tax if ms == 1000 else 1.0)
    seen = {
        step.name: Seen(step, "ok", None, samples, {}),
        "again": replace(AGAIN, samples={"calls": calls(1000)}),
    }
    return PROBE.finding(TARGET, replace(SINGLE, samples={"calls": calls(2000)}), seen, rules)


def test_jitter_alone_is_hardly_ever_a_tax_and_a_tax_always() -> None:
    draw = np.random.default_rng(22)
    none = [jittery(draw, 1.0).advice or "" for _ in range(1000)]
    assert sum(not advice.startswith("Nothing needs") for advice in none) < 50
    taxed = [jittery(draw, 1.5).advice or "" for _ in range(200)]
    assert sum(advice.startswith("Where the first answer") for advice in taxed) > 190


def test_what_chance_may_give_after_a_pause_is_told_as_that() -> None:
    told = found(1000, 1000, 1060)
    assert told.finding == (
        "A call after 100 ms of idle takes 1.06 × one of many back to back, no more than chance "
        "may give here."
    )
