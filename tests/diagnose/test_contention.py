from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from npumark.diagnose.contention import PROBE
from npumark.diagnose.probe import Finding, Seen, Step, Target
from npumark.policy import load_policy

RULES = load_policy().diagnose
CPU = Target("ort-cpu", "ort", "CPU", "resnet50", "fp32", compiles=False, cores=2)
NPU = replace(CPU, engine="openvino-npu", role="NPU")
SINGLE = Seen(Step("single", "single"), "ok", None, {"calls": np.full(100, 10_000_000)}, {})
AGAIN = replace(SINGLE, step=Step("again", "single", {"seconds": 1.0}))


def load(kind: str, **over: Any) -> dict[str, Any]:
    moves = kind == "memory"
    return {
        "kind": kind,
        "processes": 2,
        "died": 0,
        "bound": True,
        "busy_share": 0.5,
        "bytes_per_s": 12e9 if moves else 0.0,
        "buffer_bytes": 64 << 20 if moves else None,
        "buffer_why": None,
        **over,
    }


def seen(kind: str, call_ms: float, **over: Any) -> Seen:
    step = next(s for s in PROBE.steps(CPU, RULES) if s.name == kind)
    durations = np.full(100, round(call_ms * 1e6))
    return replace(Seen(step, "ok", None, {"calls": durations}, {"beside": load(kind)}), **over)


def find(cpu: Seen, memory: Seen, target: Target = CPU) -> Finding:
    return PROBE.finding(target, SINGLE, {"cpu": cpu, "memory": memory, "again": AGAIN}, RULES)


def test_it_times_the_single_attempt_again_beside_each_load() -> None:
    steps = PROBE.steps(CPU, RULES)
    assert [(s.kind, s.beside) for s in steps] == [("single", "cpu"), ("single", "memory")]
    assert PROBE.deep


def test_rates_and_latencies_are_told_beside_each_other() -> None:
    found = find(seen("cpu", 20), seen("memory", 40))
    assert [row["beside"] for row in found.rows] == ["nothing", "busy CPUs", "busy memory"]
    assert [row["ips"] for row in found.rows] == pytest.approx([100, 50, 25])
    assert [row["kept_share"] for row in found.rows] == pytest.approx([1, 0.5, 0.25])
    assert [row["median_ns"] for row in found.rows] == [10_000_000, 20_000_000, 40_000_000]
    assert [row["p95_ns"] for row in found.rows] == [10_000_000, 20_000_000, 40_000_000]
    assert [row["load_busy_share"] for row in found.rows] == [None, 0.5, 0.5]
    assert [row["moved_gb_per_s"] for row in found.rows] == [None, None, 12.0]
    assert "why" not in dict(found.columns)
    assert {r.name: r.value for r in found.ratios} == pytest.approx(
        {"cpu_kept": 0.5, "memory_kept": 0.25}
    )
    assert found.finding == (
        "It keeps 50 % of its pace with every CPU busy and 25 % of its pace with its memory busy "
        "as well."
    )


@pytest.mark.parametrize(
    ("target", "cpu_ms", "memory_ms", "advice"),
    [
        pytest.param(CPU, 20, 20, "Its pace is that of the CPU time it gets", id="CPU time"),
        pytest.param(CPU, 20, 40, "It needs the memory for itself", id="memory"),
        pytest.param(NPU, 10, 10.2, "Other programs hardly reach it", id="untouched"),
        pytest.param(CPU, 10, 9, "It was faster beside a load than alone", id="not quiet"),
        pytest.param(CPU, 10, 10.6, "Chance may take as much here", id="chance"),
        pytest.param(CPU, 20, 20.8, "Its pace is that of the CPU time it gets", id="as starved"),
        pytest.param(NPU, 20, 20, "The NPU waits for CPU time, to be fed", id="not fed"),
        pytest.param(NPU, 10, 20, "The NPU waits for memory bandwidth", id="shared memory"),
    ],
)
def test_the_advice_follows_from_what_it_lost(
    target: Target, cpu_ms: float, memory_ms: float, advice: str
) -> None:
    found = find(seen("cpu", cpu_ms), seen("memory", memory_ms), target)
    assert (found.advice or "").startswith(advice)


def test_a_load_that_died_says_nothing_of_the_engine() -> None:
    dead = seen("cpu", 10, facts={"beside": load("cpu", died=1)})
    found = find(dead, seen("memory", 40))
    assert found.rows[1]["ips"] is None
    assert found.rows[1]["why"] == "1 of the load's 2 processes died meanwhile"
    assert [r.name for r in found.ratios] == ["memory_kept"]
    assert "every CPU and the memory busy" in (found.finding or "")


def test_an_attempt_without_word_of_its_load_is_none_beside_a_load() -> None:
    found = find(seen("cpu", 10, facts={}), seen("memory", 40))
    assert found.rows[1]["why"] == "nothing tells what the load beside it did"


def test_without_any_load_the_probe_fails_with_the_reason() -> None:
    why = "streaming through memory would take 8.0 GB, and only 4.0 GB are free"
    found = find(
        seen("cpu", 1, status="crashed", why="the worker died: SIGKILL"),
        seen("memory", 1, status="skipped", why=why),
    )
    assert (found.status, found.why) == ("failed", "the worker died: SIGKILL")


def test_what_a_loop_wavers_by_beside_a_load_is_no_lack_of_memory() -> None:
    wavering = np.repeat(np.array([18, 22, 26, 30]) * 1_000_000, 25)
    found = find(seen("cpu", 20), seen("memory", 24, samples={"calls": wavering}))
    assert (found.advice or "").startswith("Its pace is that of the CPU time it gets")


def test_the_loads_themselves_are_no_other_programs() -> None:
    loud = {"others": 0.6, "steal": 0.0}
    cpu = seen("cpu", 20, facts={"beside": load("cpu"), "load": loud})
    assert "other programs" not in (find(cpu, seen("memory", 20)).finding or "")
