from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from npumark.diagnose.batching import PROBE
from npumark.diagnose.probe import Finding, Seen, Step, Target
from npumark.policy import load_policy

RULES = load_policy().diagnose
CPU = Target("ort-cpu", "ort", "CPU", "resnet50", "fp32", compiles=False, cores=2)
SINGLE = Seen(Step("single", "single"), "ok", None, {"calls": np.full(100, 10_000_000)}, {})
AGAIN = replace(SINGLE, step=Step("again", "single", {"seconds": 1.0}))


def step(n: int) -> Step:
    return next(s for s in PROBE.steps(CPU, RULES) if s.options["batch"] == n)


def seen(n: int, call_ms: float) -> Seen:
    return Seen(step(n), "ok", None, {"calls": np.full(10, round(call_ms * 1e6))}, {"batch": n})


def refused(n: int, status: str = "unsupported", why: str | None = "shapes are fixed") -> Seen:
    return Seen(step(n), status, why, {}, {})  # type: ignore[arg-type]


def find(*steps: Seen) -> Finding:
    return PROBE.finding(CPU, SINGLE, {s.step.name: s for s in (*steps, AGAIN)}, RULES)


def test_each_batch_but_one_is_a_step() -> None:
    steps = PROBE.steps(CPU, RULES)
    assert [s.options["batch"] for s in steps] == [2, 4, 8, 16, 32]
    assert {s.kind for s in steps} == {"batch"}
    assert {s.options["seconds"] for s in steps} == {RULES.level_s}
    assert not PROBE.deep


def test_a_call_counts_as_many_inferences_as_it_has_inputs() -> None:
    found = find(seen(2, 16), seen(4, 20), seen(8, 40))
    # One call takes 10 ms: 100 inferences/s. Two in 16 ms are 125, four in 20 ms 200.
    assert [row["ips"] for row in found.rows] == pytest.approx([100, 125, 200, 200])
    assert [row["gain_ratio"] for row in found.rows] == pytest.approx([1, 1.25, 2, 2])
    assert [row["median_ns"] for row in found.rows] == [10**7, 16 * 10**6, 2 * 10**7, 4 * 10**7]
    (ratio,) = found.ratios
    assert (ratio.name, ratio.value) == ("batching_gain", 2.0)
    assert ratio.of == "inferences/s with 4 inputs per call ÷ those with one"
    assert found.finding == (
        "4 inputs per call give 2.00 × the inferences/s of one, and a call takes 2.0 × as long."
    )
    assert found.bars == "ips"
    assert "why" not in dict(found.columns)


def test_the_smallest_batch_that_gives_as_much_as_any_is_the_best() -> None:
    # Sixteen give 1.5 % more than eight, which is no notable change.
    found = find(seen(8, 40), seen(16, 78.8))
    assert found.ratios[0].of.startswith("inferences/s with 8 inputs")


def test_batches_that_bring_nothing_are_advised_against() -> None:
    same = find(seen(2, 20), seen(32, 322))
    assert same.ratios[0].value == 1
    assert same.finding == "Several inputs per call give what one per call gives."
    worse = find(seen(2, 20), seen(32, 640))
    assert worse.finding == ("Batches give less than one input per call: 32 give 0.50 ×.")
    for found in (same, worse):
        assert found.advice is not None
        assert found.advice.startswith("Send inputs one by one")


def test_a_batch_that_is_advised_is_a_gain_itself() -> None:
    # 4 % and 8 % more: none by the first, one by the second.
    found = find(seen(2, 20 / 1.04), seen(4, 40 / 1.08))
    assert found.ratios[0].value == pytest.approx(1.08)
    assert (found.advice or "").startswith("Where inputs come together, collect 4 per call")


def test_what_chance_may_give_is_no_gain_and_is_told() -> None:
    found = find(seen(2, 20 / 1.06), *(seen(n, 10 * n) for n in (4, 8, 16, 32)))
    assert found.finding == (
        "2 inputs per call give 1.06 × the inferences/s of one, which chance may give here: up to "
        "1.08 ×."
    )
    assert (found.advice or "").startswith("Send inputs one by one, unless")
    assert found.ratios[0].value == 1


def test_a_call_that_is_faster_with_more_inputs_is_no_advice() -> None:
    found = find(seen(2, 20), seen(4, 8))
    assert found.finding == (
        "4 inputs per call would give 5.00 × the inferences/s of one, so that a call is faster "
        "than one with one input: something else moved these figures."
    )
    assert found.advice == "Go by none of this: run it again on a quiet machine."


def test_noise_alone_is_hardly_ever_advised_and_a_gain_always() -> None:
    draw = np.random.default_rng(21)
    advised = known = 0
    for run in range(1000):
        once, repeated, *gains = 1 + 0.03 * draw.standard_normal(7)
        ends = {
            "single": replace(SINGLE, samples={"calls": np.full(100, round(1e7 / once))}),
            "again": replace(AGAIN, samples={"calls": np.full(100, round(1e7 / repeated))}),
        }
        for true in (1.0, 1.5) if run < 100 else (1.0,):
            levels = [
                seen(n, 10 * n / (true * gain))
                for n, gain in zip((2, 4, 8, 16, 32), gains, strict=True)
            ]
            steps = {s.step.name: s for s in (*levels, ends["again"])}
            found = PROBE.finding(CPU, ends["single"], steps, RULES)
            told = "collect" in (found.advice or "")
            advised += told and true == 1
            known += told and true > 1
    assert advised < 50
    assert known > 95


def test_a_batch_that_is_not_allowed_says_why_beside_those_that_are() -> None:
    found = find(
        seen(2, 10), refused(4), refused(8, "crashed", "it died"), refused(16, "timeout", None)
    )
    assert found.status == "ok"
    assert [row["why"] for row in found.rows] == [
        None,
        None,
        "not allowed: shapes are fixed",
        "it died",
        "timeout",
    ]
    assert [row["ips"] for row in found.rows][2:] == [None, None, None]
    assert dict(found.columns)["why"] == "not measured because"
    assert found.ratios[0].value == pytest.approx(2.0)


def test_where_no_batch_is_allowed_it_does_not_apply() -> None:
    found = find(*(refused(n) for n in RULES.batches if n != 1))
    assert (found.status, found.why) == ("not_applicable", "not allowed: shapes are fixed")
    assert found.rows == ()


def test_where_every_batch_failed_it_failed() -> None:
    found = find(refused(2), refused(4, "crashed", "it died"))
    assert found.status == "failed"
    assert find().why == "no batch was measured"


def test_samples_that_say_nothing_are_an_error() -> None:
    with pytest.raises(ValueError, match="no call"):
        find(replace(seen(2, 1), samples={"calls": np.zeros(0, np.int64)}))
