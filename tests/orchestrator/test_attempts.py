"""From a worker's end to an attempt: stamped, redacted, and never an impossible value."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from npumark.orchestrator.attempts import attempt_of, killed_attempt
from npumark.orchestrator.clock import RunClock
from npumark.orchestrator.redaction import redact
from npumark.orchestrator.supervisor import Outcome
from npumark.record.model import Attempt
from npumark.worker.protocol import Latency, Measurement, Observed, Placement, Result, TimedCheck

CLOCK = RunClock(1000)
LATENCY = Latency(10, None, None, None, None, 9, 12)
MEASURED = Measurement(
    iterations=4,
    timed_ns=2_000_000_000,
    latency=LATENCY,
    burst_ips=2.0,
    drift=None,
    sustained_ips=None,
    first_call_ns=1,
    warmup_calls=3,
    warmup_steady=True,
    import_ns=1,
    verify_ns=1,
    load_ns=1,
    warmup_ns=1,
    loop_ns=1,
    accuracy_ns=1,
    placement_ns=1,
    timer_overhead_ns=1,
    peak_rss_bytes=None,
    measures={"snr_db": 30.0},
    accuracy_why=None,
    timed_check=TimedCheck((0, 2), True, True, None, False),
    samples_sha256=None,
    loaded_from_cache=None,
)
OBSERVED = Observed("CPU", "FP32", None, 2, "x", "1")
PLACED = Placement("proved", 1.0, 1.0, 1, "profile")


def attempt(measured: Measurement, slept_ns: int = 0, **fields: Any) -> Attempt:
    result = Result("ok", observed=OBSERVED, placement=PLACED, measurement=measured)
    outcome = Outcome("ok", None, result, 0, 1500, 99, "noise")
    return attempt_of(
        2,
        7,
        replace(outcome, **fields),
        CLOCK,
        slept_ns=slept_ns,
        redact=lambda text: redact(text, [("/home/ann", "~")]),
    )


def test_a_measurement_is_kept_whole() -> None:
    found = attempt(MEASURED)
    assert (found.n, found.seed, found.status) == (2, 7, "ok")
    assert (found.started_ns, found.wall_ns, found.pid_exit) == (500, 99, 0)
    assert found.measurement is not None
    assert found.measurement.ips == 2.0
    assert found.measurement.latency_ns.max == 12
    assert found.measurement.timed_check.iterations == [0, 2]
    assert found.log_tail is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"timed_ns": 0},
        {"timed_ns": -1},
        {"burst_ips": float("nan")},
        {"measures": {"snr_db": float("inf")}},
        {"load_ns": 2**60},
        {"latency": replace(LATENCY, median="soon")},
    ],
)
def test_impossible_values_are_no_result(wrong: dict[str, Any]) -> None:
    found = attempt(replace(MEASURED, **wrong))
    assert found.status == "no_result"
    assert (found.why or "").startswith("the worker reported impossible values")
    assert found.measurement is None


def test_sleep_voids_what_was_measured_and_what_failed() -> None:
    for found in (attempt(MEASURED, 10**9), attempt(MEASURED, 10**9, status="timeout")):
        assert found.status == "interrupted"
        assert found.measurement is None
        assert "slept for 1.0 s" in (found.why or "")


def test_logs_are_kept_without_names() -> None:
    found = attempt(
        MEASURED,
        status="crashed",
        why="at /home/ann/x",
        result=None,
        exit_code=-11,
        log_tail="see /home/ann/driver.log",
    )
    assert (found.why, found.log_tail) == ("at ~/x", "see ~/driver.log")
    assert found.pid_exit == -11


def test_an_attempt_nobody_saw_end_says_so() -> None:
    found = killed_attempt(3, 9, 44)
    assert (found.status, found.started_ns, found.pid_exit) == ("interrupted", 44, None)
    assert "not known" in (found.why or "")
    assert "killed" not in (found.why or "")  # it may never have begun
