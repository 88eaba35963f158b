"""A ``window`` job on virtual engines: in this process, and in one that is held back."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npumark.engines.virtual import VirtualSession
from npumark.worker.__main__ import carry_out
from npumark.worker.barrier import start_line
from npumark.worker.protocol import READY, Job, WindowOptions, decode_job, decode_result
from tests.worker.conftest import TIMING

WINDOW = WindowOptions(0.05)
LINUX = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="binds to CPUs")


def window(tiny: Any, *faults: dict[str, Any], **changes: Any) -> Any:
    return tiny.run(*faults, kind="window", window=WINDOW, **changes)


def test_a_window_tells_where_its_calls_lie(tiny: Any) -> None:
    tiny.script(latency_us={"*/*": 1500})
    samples = tiny.root / "raw" / "window.i64"
    result = window(tiny, samples_path=str(samples))
    assert (result.status, result.measurement) == ("ok", None)
    w = result.window
    # A fake clock stands still but for the calls: 33 of 1.5 ms, and one that the end cuts.
    assert (w.late_ns, w.inside, w.calls) == (0, 33, 34)
    assert w.straddling == ((49_500_000, 51_000_000),)
    assert w.warmup_ns > 0
    assert w.load_ns > 0
    raw = samples.read_bytes()
    pairs = np.frombuffer(raw, "<i8").reshape(-1, 2)
    assert pairs.tolist() == [[i * 1_500_000, (i + 1) * 1_500_000] for i in range(34)]
    assert w.samples_sha256 == hashlib.sha256(raw).hexdigest()
    assert set(result.stamps) == {"graph.onnx", "x.bin", "y.bin"}
    assert decode_result(result.encode()) == result


@pytest.mark.parametrize(("latency_us", "calls"), [(1000, 50), (1500, 34), (10_000, 5), (10**5, 1)])
def test_the_checked_call_is_the_last(tiny: Any, latency_us: int, calls: int) -> None:
    tiny.script(latency_us={"*/*": latency_us})
    w = window(tiny).window
    assert w.calls == calls
    assert (w.check.iteration, w.check.sample) == (calls - 1, (calls - 1) % 3)
    assert (w.check.snr_db, w.check.why) == (200.0, None)  # to the bit


WARM_UP, CALLS = TIMING.warmup_min_calls, 50
"""Calls of the fake clock's steady engine, which takes 1 ms: what a window makes of them."""


def test_a_last_answer_that_alone_is_wrong_is_seen(tiny: Any) -> None:
    check = window(tiny, {"do": "zeros", "call": WARM_UP + CALLS}).window.check
    assert (check.iteration, check.snr_db) == (CALLS - 1, None)
    assert "is zero everywhere" in check.why


@pytest.mark.parametrize("call", [1, WARM_UP + 1, WARM_UP + CALLS - 1])
def test_an_earlier_answer_that_alone_is_wrong_is_not_seen(tiny: Any, call: int) -> None:
    """The limit of one output per card, see ADR 0014."""
    w = window(tiny, {"do": "zeros", "call": call}).window
    assert (w.calls, w.check.snr_db) == (CALLS, 200.0)


def test_what_the_engine_keeps_of_its_outputs_is_gone_before_they_are_judged(
    tiny: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory that the session owns is copied before it is closed."""

    def close(session: VirtualSession) -> None:
        for output in session.outputs():
            output[...] = 0

    monkeypatch.setattr(VirtualSession, "close", close)
    result = window(tiny)
    assert result.window is not None, result.why
    assert result.window.check.snr_db == 200.0


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ({"do": "nan"}, "NaN"),
        ({"do": "inf"}, "infinite"),
        ({"do": "zeros"}, "is zero everywhere"),
        ({"do": "wrong_shape"}, "has shape"),
    ],
    ids=str,
)
def test_what_is_no_answer_has_no_snr_and_says_why(
    tiny: Any, fault: dict[str, Any], why: str
) -> None:
    result = window(tiny, fault)
    check = result.window.check
    assert result.status == "ok"
    assert check.snr_db is None
    assert why in check.why
    assert f"sample {check.sample}" in check.why


def test_a_wrong_answer_has_the_snr_that_it_has(tiny: Any) -> None:
    assert window(tiny, {"do": "scale", "factor": 1.1}).window.check.snr_db == pytest.approx(
        20.0, abs=1e-3
    )
    assert window(tiny, {"do": "noise", "snr_db": 30.0}).window.check.snr_db == pytest.approx(
        30.0, abs=4.0
    )


def test_one_answer_given_to_every_input_is_seen(tiny: Any) -> None:
    check = window(tiny, {"do": "memoised_when_timed"}).window.check
    assert check.snr_db < 10


def test_other_tasks_are_checked_by_their_first_output(tiny: Any) -> None:
    tiny.workload["task"] = "classification"
    tiny.workload["eval"]["parameters"] = {"decisive_margin": 0.1}
    tiny.workload["eval"]["references"][0]["shape"] = [3, 32]
    tiny.workload["variants"][0]["outputs"][0]["shape"] = [32]
    result = window(tiny)
    assert result.window is not None, result.why
    assert result.window.check.snr_db == 200.0


def test_outputs_that_are_not_their_references_are_a_fault_of_the_pack(tiny: Any) -> None:
    tiny.workload["eval"]["references"][0]["name"] = "z"
    result = window(tiny)
    assert result.status == "pack_error"
    assert "differ in their outputs" in result.why


def test_a_job_without_a_window_is_refused(tiny: Any) -> None:
    result = tiny.run(kind="window")
    assert result.status == "crashed"
    assert result.why == "the job lacks its workload, variant, timing or window"


def test_what_a_window_cannot_load_it_says(tiny: Any) -> None:
    assert window(tiny, {"do": "unsupported"}).status == "unsupported"
    assert window(tiny, {"do": "out_of_memory"}).why == "the runtime ran out of memory"


def test_nobody_is_told_ready_before_the_engine_is_warm(tiny: Any) -> None:
    tiny.script({"do": "raise", "call": 2})
    told: list[int] = []

    def barrier() -> int:
        told.append(1)
        return 0

    result = carry_out(tiny.job(kind="window", window=WINDOW), 0, barrier)
    assert result.status == "crashed"
    assert told == []


def test_a_window_job_survives_its_encoding(tiny: Any) -> None:
    job = tiny.job(kind="window", window=WINDOW, cpus=(1, 3))
    assert decode_job(job.encode()) == job
    assert b"\n" not in job.encode()


class Worker:
    """A real worker, its stdin and its pipe."""

    def __init__(self, child: subprocess.Popen[bytes], pipe: int) -> None:
        self.child, self.pipe = child, pipe

    def tell(self, line: bytes) -> None:
        assert self.child.stdin is not None
        self.child.stdin.write(line)
        self.child.stdin.flush()

    def close(self) -> None:
        assert self.child.stdin is not None
        self.child.stdin.close()

    def rest(self) -> bytes:
        raw = b""
        while chunk := os.read(self.pipe, 1 << 16):
            raw += chunk
        return raw


@contextmanager
def worker(job: Job) -> Iterator[Worker]:
    read, write = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-m", "npumark.worker", str(write)],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=(write,),
        cwd=Path(__file__).parents[2],
    ) as child:
        os.close(write)
        one = Worker(child, read)
        one.tell(job.encode() + b"\n")
        try:
            yield one
        finally:
            child.kill()
            os.close(read)


def test_a_worker_waits_to_be_released(tiny: Any) -> None:
    tiny.script()
    with worker(tiny.job(kind="window", window=WINDOW)) as one:
        assert os.read(one.pipe, 100) == READY
        one.tell(start_line(time.perf_counter_ns()))
        result = decode_result(one.rest())
        assert one.child.wait(30) == 0
    assert (result.status, result.window.calls) == ("ok", 50)


def test_on_the_real_clock_the_window_begins_at_the_shared_instant(tiny: Any) -> None:
    script = {"clock": "real", "engines": [{"id": "virtual-cpu", "latency_us": {"*/*": 500}}]}
    (tiny.root / "script.json").write_text(json.dumps(script))
    samples = tiny.root / "window.i64"
    with worker(tiny.job(kind="window", window=WINDOW, samples_path=str(samples))) as one:
        assert os.read(one.pipe, 100) == READY
        start = time.perf_counter_ns() + 50_000_000
        one.tell(start_line(start))
        result = decode_result(one.rest())
    ended = time.perf_counter_ns()
    w = result.window
    pairs = np.frombuffer(samples.read_bytes(), "<i8").reshape(-1, 2)
    assert w.late_ns == pairs[0, 0] >= 0
    assert 50_000_000 <= pairs[-1, 1] < ended - start
    assert w.calls == len(pairs)


def test_a_worker_whom_nobody_releases_ends_without_a_result(tiny: Any) -> None:
    tiny.script()
    with worker(tiny.job(kind="window", window=WINDOW)) as one:
        assert os.read(one.pipe, 100) == READY
        one.close()
        assert one.rest() == b""
        assert one.child.wait(30) == 1
        assert one.child.stderr is not None
        assert one.child.stderr.read() == b"nobody releases this worker\n"


def test_a_line_that_is_no_start_is_said(tiny: Any) -> None:
    tiny.script()
    with worker(tiny.job(kind="window", window=WINDOW)) as one:
        assert os.read(one.pipe, 100) == READY
        one.tell(b'{"start_ns": "soon"}\n')
        result = decode_result(one.rest())
    assert (result.status, result.why) == ("crashed", "not a start of a window: 'soon'")


@LINUX
def test_a_worker_runs_on_the_cpus_of_its_job_and_says_so(tiny: Any) -> None:
    tiny.script()
    cpu = max(os.sched_getaffinity(0))
    job = tiny.job(kind="window", window=WINDOW, cpus=(cpu,))
    with worker(job) as one:
        assert os.read(one.pipe, 100) == READY
        one.tell(start_line(0))
        assert decode_result(one.rest()).window.cpus == (cpu,)


@LINUX
def test_cpus_that_are_not_there_are_named(tiny: Any) -> None:
    tiny.script()
    with worker(replace(tiny.job(), cpus=(1 << 13,))) as one:
        result = decode_result(one.rest())
    assert result.status == "crashed"
    assert result.why is not None
    assert result.why.startswith("the worker cannot be bound to the CPUs 8192: ")


def test_nothing_heavy_is_there_before_a_worker_binds_itself() -> None:
    probe = "import sys, npumark.worker.__main__; print('numpy' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", probe], capture_output=True, check=True)
    assert told.stdout.strip() == b"False"


def test_an_answer_larger_than_its_stored_reference_is_compared(map_of_classes: Any) -> None:
    check = window(map_of_classes).window.check
    # The virtual engine cannot fill such an output: it is the answer that is wrong, not its shape.
    assert check.why == "output 0 of sample 1 is zero everywhere"
