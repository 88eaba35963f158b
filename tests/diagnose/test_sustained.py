from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from npumark.diagnose.probe import Finding, Seen, Step, Target
from npumark.diagnose.sustained import PROBE, paces
from npumark.policy import load_policy

RULES = replace(load_policy().diagnose, sustained_s=6.0, pace_window_s=2.0)
CPU = Target("ort-cpu", "ort", "CPU", "resnet50", "fp32", compiles=False, cores=2)
GPU = replace(CPU, engine="ort-cuda-dgpu", role="dGPU")
SINGLE = Seen(Step("single", "single"), "ok", None, {"calls": np.full(10, 10_000_000)}, {})
S = 1_000_000_000


def calls_at(*rates: float, window_s: int = 2) -> Any:
    """Return [n, 2] calls at so many a second in each window, one after another."""
    ends: list[int] = []
    for i, rate in enumerate(rates):
        spent = round(rate * window_s)
        ends += [i * window_s * S + (k + 1) * window_s * S // spent for k in range(spent)]
    return np.column_stack(([0, *ends[:-1]], ends))


def find(
    calls: Any, sensors: Sequence[Mapping[str, Any]] = (), target: Target = CPU, **step: Any
) -> Finding:
    asked = PROBE.steps(target, RULES)[0]
    seen = Seen(asked, "ok", None, {"calls": calls}, {}, tuple(dict(r) for r in sensors))
    return PROBE.finding(target, SINGLE, {asked.name: replace(seen, **step)}, RULES)


def reading(at_s: float, **told: Any) -> dict[str, Any]:
    none = {"nr_throttled": None, "thermal_core": None, "thermal_package": None}
    return {
        "at_ns": round(at_s * S),
        "cpu_khz": None,
        "hottest_celsius": None,
        "why": {"hottest_celsius": "this system exposes no thermal zone"},
        **told,
        "throttling": {**none, **told.get("throttling", {})},
    }


def counted(name: str, first: int, last: int) -> list[dict[str, Any]]:
    return [reading(1, throttling={name: first}), reading(5, throttling={name: last})]


def card(bus: str = "0000:01:00.0", **told: Any) -> dict[str, Any]:
    return {
        "card": bus,
        "vendor": "NVIDIA",
        "clock_mhz": 1980,
        "celsius": 60,
        "reasons": [],
        "why": {},
        **told,
    }


def test_it_asks_for_one_session_as_long_as_the_rules_say() -> None:
    (step,) = PROBE.steps(CPU, RULES)
    assert (step.kind, step.options, step.seconds) == ("sustained", {"seconds": 6.0}, 6.0)
    assert PROBE.deep


def test_the_last_pace_is_told_against_the_first() -> None:
    found = find(calls_at(100, 90, 80))
    assert [row["ips"] for row in found.rows] == pytest.approx([100, 90, 80])
    assert [row["window"] for row in found.rows] == ["0 s", "2 s", "4 s"]
    assert {r.name: r.value for r in found.ratios} == pytest.approx(
        {"pace_kept": 0.8, "slowest": 0.8, "first_of_single": 1.0}
    )
    assert (found.finding or "").startswith("After 6 s it runs at 80 % of its first pace;")
    assert (found.advice or "").startswith("Plan long work by the last pace")


def test_a_pace_that_holds_is_told_so() -> None:
    found = find(calls_at(100, 99, 98))
    assert (found.finding or "").startswith("After 6 s it still runs at its first pace (98 %);")
    assert found.advice == "What a short benchmark says of this processor holds for long work too."


def test_a_pace_that_held_although_something_disturbed_it_is_told_so() -> None:
    found = find(calls_at(100, 99, 98), counted("nr_throttled", 1, 41))
    assert found.advice == (
        "Its pace held all the same; to be sure of it, raise the CPU quota of the container it "
        "runs in."
    )


def test_a_dip_is_told_apart_from_a_lasting_loss() -> None:
    found = find(calls_at(100, 50, 100))
    assert "still runs at its first pace (100 %), having been at 50 % at 2 s;" in (
        found.finding or ""
    )
    assert (found.advice or "").startswith("The pace dipped and came back")


def test_a_dip_that_the_sensors_explain_is_told_with_what_to_do() -> None:
    found = find(calls_at(100, 50, 100), counted("thermal_core", 0, 149))
    assert (found.advice or "").startswith(
        "The pace dipped and came back: let the machine cool better"
    )


def test_a_time_is_told_in_minutes_and_seconds() -> None:
    rules = replace(RULES, pace_window_s=10.0)
    calls = calls_at(*[100] * 10, *[50] * 10, *[100] * 10, window_s=10)
    asked = PROBE.steps(CPU, rules)[0]
    found = PROBE.finding(
        CPU, SINGLE, {asked.name: Seen(asked, "ok", None, {"calls": calls}, {})}, rules
    )
    assert (found.finding or "").startswith(
        "After 5 min it still runs at its first pace (100 %), having been at 50 % at 1 min 40 s;"
    )


def test_a_pace_that_fell_before_its_first_window_ended_is_no_short_benchmarks() -> None:
    found = find(calls_at(60, 60, 60))
    assert (found.finding or "").startswith(
        "After 6 s it still runs at its first pace (100 %) and at 60 % of the single attempt's;"
    )
    assert (found.advice or "").startswith("Plan long work by the last pace")
    faster = find(calls_at(150, 150, 150))
    assert "and at 150 % of the single attempt's" in (faster.finding or "")
    assert (faster.advice or "").startswith("The single attempt was slower than long work is")


def test_what_a_single_attempt_wavers_by_is_no_loss() -> None:
    wavering = np.repeat(np.array([8, 9, 11, 12]) * 1_000_000, 25)
    asked = PROBE.steps(CPU, RULES)[0]
    seen = {asked.name: Seen(asked, "ok", None, {"calls": calls_at(90, 90, 90)}, {})}
    found = PROBE.finding(CPU, replace(SINGLE, samples={"calls": wavering}), seen, RULES)
    assert (found.advice or "").startswith("What a short benchmark says")


def test_the_repetition_after_the_load_is_no_noise() -> None:
    slow = Seen(Step("again", "single"), "ok", None, {"calls": np.full(10, 20_000_000)}, {})
    asked = PROBE.steps(CPU, RULES)[0]
    seen = {asked.name: Seen(asked, "ok", None, {"calls": calls_at(60, 60, 60)}, {}), "again": slow}
    found = PROBE.finding(CPU, SINGLE, seen, RULES)
    assert (found.advice or "").startswith("Plan long work by the last pace")


def test_a_pace_that_grows_was_not_warm() -> None:
    found = find(calls_at(80, 100, 100))
    assert "runs at 125 % of its first pace" in (found.finding or "")
    assert (found.advice or "").startswith("It was not yet at its pace when it began")
    disturbed = find(calls_at(80, 100, 100), counted("nr_throttled", 1, 41))
    assert (disturbed.advice or "").startswith("Something slowed its beginning: raise the CPU")


def test_calls_that_a_windows_end_cuts_count_in_both_by_their_share() -> None:
    # 3 s a call: of the second, a third lies in the first window of 4 s.
    calls = np.array([[0, 3 * S], [3 * S, 6 * S], [6 * S, 9 * S]])
    assert paces(calls, 4.0) == pytest.approx([(1 + 1 / 3) / 4, (2 / 3 + 2 / 3) / 4])


def test_paces_agree_with_a_count_by_brute_force() -> None:
    draw = np.random.default_rng(5)
    gaps, lengths = draw.integers(0, 30_000, 5000), draw.integers(1, 2_000_000, 5000)
    begins = 7 * S + np.cumsum(gaps + lengths) - lengths
    calls = np.column_stack((begins, begins + lengths))
    width = 0.25
    counted = []
    for k in range(int((calls[-1, 1] - begins[0]) / 1e9 / width)):
        edge = int(begins[0]) + round(k * width * 1e9)
        until = edge + round(width * 1e9)
        shares = [
            max(0, min(end, until) - max(begin, edge)) / (end - begin)
            for begin, end in calls.tolist()
        ]
        counted.append(sum(shares) / width)
    assert len(counted) > 10
    assert paces(calls, width) == pytest.approx(counted)


def test_blocks_of_calls_give_the_pace_that_the_calls_give() -> None:
    calls = calls_at(100, 90, 80)
    blocks = np.column_stack((calls[::2, 0], calls[1::2, 1], np.full(len(calls) // 2, 2)))
    assert paces(blocks, 2.0) == pytest.approx(paces(calls, 2.0))


def test_too_short_a_loop_has_no_pace_to_compare() -> None:
    found = find(calls_at(100))
    assert found.status == "failed"
    assert found.why == "it ended within two windows of 2 s: there is no pace to compare"


def test_a_step_that_failed_says_why() -> None:
    found = find(None, status="crashed", why="the worker died: SIGSEGV")
    assert (found.status, found.why) == ("failed", "the worker died: SIGSEGV")


def test_sensors_are_told_by_window_and_heat_is_counted_while_it_called() -> None:
    hot = [
        reading(-1, throttling={"thermal_core": 0}, hottest_celsius=99.0),
        reading(0.5, throttling={"thermal_core": 3}, hottest_celsius=60.0, cpu_khz=khz(4_000_000)),
        reading(1.5, throttling={"thermal_core": 5}, hottest_celsius=70.0, cpu_khz=khz(3_000_000)),
        reading(5.5, throttling={"thermal_core": 15}, hottest_celsius=91.0),
        reading(9, throttling={"thermal_core": 99}, hottest_celsius=99.0),
    ]
    found = find(calls_at(100, 90, 80), hot)
    assert [key for key, _ in found.columns] == [
        "window", "ips", "pace_share", "cpu_mhz", "hottest_celsius",
    ]  # fmt: skip
    assert [row["cpu_mhz"] for row in found.rows] == [3500.0, None, None]
    assert [row["hottest_celsius"] for row in found.rows] == [70.0, None, 91.0]
    assert (found.finding or "").endswith(
        "the processor lowered its clock because of heat 12 times."
    )
    assert "let the machine cool better" in (found.advice or "")


def khz(highest: int) -> dict[str, int]:
    return {"min": highest // 2, "max": highest}


@pytest.mark.parametrize(
    ("readings", "said"),
    [
        pytest.param(
            [],
            "nothing here says whether heat slowed it: no sensor was read meanwhile",
            id="no reading",
        ),
        pytest.param(
            [reading(1), reading(5)],
            "nothing here says whether heat slowed it: this system exposes no thermal zone",
            id="no sensor at all",
        ),
        pytest.param(
            [reading(1, hottest_celsius=50.0), reading(5, hottest_celsius=71.4)],
            "nothing here says whether heat slowed it, which reached 71 °C at its hottest",
            id="a temperature and no counter",
        ),
        pytest.param(
            counted("thermal_core", 4, 4),
            "no sensor told of heat, quotas or power limits",
            id="a counter that stood still",
        ),
        pytest.param(
            counted("thermal_core", 4, 5),
            "the processor lowered its clock because of heat once",
            id="once",
        ),
        pytest.param(
            counted("nr_throttled", 1, 41),
            "the quota of its control group stopped it 40 times",
            id="a quota",
        ),
        pytest.param(
            [reading(1, speed_limit_percent=100), reading(5, speed_limit_percent=80)],
            "the system held the processor's speed at 80 %",
            id="a Mac",
        ),
        pytest.param(
            [reading(1, speed_limit_percent=100), reading(5, speed_limit_percent=100)],
            "no sensor told of heat, quotas or power limits",
            id="a cool Mac",
        ),
    ],
)
def test_it_says_no_more_than_the_sensors_told(readings: list[Any], said: str) -> None:
    assert (find(calls_at(100, 100, 100), readings).finding or "").endswith(f"; {said}.")


def busy(at_s: float, others: float, steal: float = 0.0) -> dict[str, Any]:
    """Two CPUs, on one of which the worker computes; of the other's time ``others`` and
    ``steal`` are taken."""
    taken = at_s * (1 + others + steal)
    return reading(at_s, cpu_s={"busy": taken, "idle": 2 * at_s - taken, "steal": at_s * steal})


OWN = {"loop_ns": 6 * S, "loop_cpu_ns": 6 * S}


@pytest.mark.parametrize(
    ("others", "steal", "facts", "said"),
    [
        pytest.param(0.5, 0, OWN, "other programs took 25 % of the CPU time", id="others"),
        pytest.param(0.09, 0, OWN, "nothing here says whether heat", id="not notable"),
        pytest.param(0.5, 0, {}, "nothing here says whether heat", id="own time unknown"),
        pytest.param(
            0, 0.2, {}, "the hypervisor gave 10 % of the CPU time to others", id="a hypervisor"
        ),
        pytest.param(
            0.5,
            0.2,
            OWN,
            "other programs took 25 % of the CPU time, the hypervisor gave 10 % of the CPU time",
            id="both",
        ),
    ],
)
def test_cpu_time_that_others_took_is_told_apart_from_its_own(
    others: float, steal: float, facts: dict[str, Any], said: str
) -> None:
    found = find(
        calls_at(100, 90, 80), [busy(1, others, steal), busy(5, others, steal)], facts=facts
    )
    assert said in (found.finding or "")
    assert ("end what else runs" in (found.advice or "")) == ("programs" in said)


def test_a_cards_reasons_are_counted_for_its_own_work_alone() -> None:
    cap = ["power cap"]
    held = [
        reading(t, gpus=[card(reasons=reasons, celsius=60 + t)])
        for t, reasons in ((1, []), (3, cap), (5, [*cap, "clocks set for the display"]))
    ]
    found = find(calls_at(100, 90, 80), held, GPU)
    assert (found.finding or "").endswith(
        "the NVIDIA card 0000:01:00.0 was held down by power cap (2 of 3 readings)."
    )
    assert [row["gpu_mhz"] for row in found.rows] == [1980] * 3
    assert [row["gpu_celsius"] for row in found.rows] == [61, 63, 65]
    on_cpu = find(calls_at(100, 90, 80), held, CPU)
    assert "card" not in (on_cpu.finding or "")
    assert "gpu_mhz" not in dict(on_cpu.columns)


def test_of_several_cards_that_of_the_work_alone_is_blamed() -> None:
    cap = ["power cap"]
    other = "0000:02:00.0"
    two = [reading(t, gpus=[card(), card(other, reasons=cap, clock_mhz=300)]) for t in (1, 3, 5)]
    for own, said in (
        (None, "nothing here says whether heat slowed it: this system exposes no thermal zone"),
        ("0000:01:00.0", "no sensor told of heat, quotas or power limits"),
        ("0000:03:00.0", "nothing here says whether heat slowed it: this system exposes no"),
        (other, f"the NVIDIA card {other} was held down by power cap (3 of 3 readings)"),
    ):
        found = find(calls_at(100, 90, 80), two, replace(GPU, card=own))
        assert f"; {said}" in (found.finding or "")
    assert [row["gpu_mhz"] for row in found.rows] == [300] * 3


def test_of_several_cards_no_clock_is_told_as_that_of_the_work() -> None:
    two = [reading(t, gpus=[card(), card("0000:02:00.0", celsius=77)]) for t in (1, 3, 5)]
    found = find(calls_at(100, 90, 80), two, GPU)
    assert "gpu_mhz" not in dict(found.columns)
    assert [row["gpu_celsius"] for row in found.rows] == [77] * 3
