"""What the harness itself costs per call, measured on a graph that does next to nothing.

Published beside the figures; never subtracted from one.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

import numpy as np

from npumark.engines.base import LoadRequest
from npumark.engines.one_node import SHAPE, one_node_model
from npumark.engines.registry import resolve
from npumark.pack.manifest import TensorSpec
from npumark.policy import load_policy
from npumark.worker.oracle import Teaching, script_session
from npumark.worker.protocol import Job, Result, TimingOptions
from npumark.worker.timed_loop import Clock, Step, run_timed, timer_overhead_ns

LOOP_S = 0.1
"""Some ten thousand calls: enough for a median, too few to notice."""

_ROUNDS = 5


def measure_overhead(job: Job) -> Result:
    """Return a result whose ``harness`` holds, in nanoseconds of the one-node graph:

    - ``call``: the median duration of a call as the timed loop sees it;
    - ``bare_call``: the same of a loop that only calls the step, between two clock readings;
    - ``timer``: what reading the clock twice costs by itself;
    - ``added``: ``call`` - ``bare_call`` + ``timer``, what the harness puts into every timed
      call: the input copy, the reading of one element of every output and the clock.

    Loop and bare loop alternate; each figure is the median of the rounds.
    """
    engine = resolve(job.engine_ref)
    engine.prepare()
    policy = load_policy().timing
    timing = TimingOptions(
        loop_s=LOOP_S,
        min_iterations=1,
        burst_s=policy.burst_s,
        drift_window_s=policy.drift_window_s,
        warmup_min_calls=policy.warmup_min_calls,
        warmup_max_s=policy.warmup_max_s,
        warmup_steady_window=policy.warmup_steady_window,
        warmup_steady_cv=policy.warmup_steady_cv,
        timed_checks=policy.timed_checks,
        timed_check_min_snr_db=policy.timed_check_min_snr_db,
    )
    spec_x, spec_y = TensorSpec("x", "float32", SHAPE), TensorSpec("y", "float32", SHAPE)
    samples = [(np.full(SHAPE, value, np.float32),) for value in (1.0, 2.0)]
    with tempfile.TemporaryDirectory(prefix="npumark-") as folder:
        graph = Path(folder) / "one_node.onnx"
        graph.write_bytes(one_node_model())
        session = engine.load(
            LoadRequest(
                engine_id=job.engine_id,
                workload_id="one-node",
                graph=graph,
                encoding="fp32",
                format="FP32",
                inputs=(spec_x,),
                outputs=(spec_y,),
                threads=job.threads,
                options=job.options,
                cache_dir=None,
            )
        )
        references = (np.concatenate([sample[0][np.newaxis] for sample in samples]),)
        clock = script_session(job.engine_ref, session, Teaching(samples, references))
        step, buffers, outputs = session.step(), session.inputs(), session.outputs()
        buffers[0][...] = samples[0][0]
        step()
        calls, bares = [], []
        for _ in range(_ROUNDS):
            loop = run_timed(
                step,
                buffers,
                outputs,
                samples,
                timing,
                seed=job.seed,
                fastest_ns=1000,
                clock=clock,
            )
            calls.append(int(np.median(loop.durations)))
            bares.append(_bare_call_ns(step, clock, len(loop.durations)))
        timer = timer_overhead_ns(clock)
        session.close()
        del session, step, buffers, outputs
    call, bare = int(statistics.median(calls)), int(statistics.median(bares))
    harness = {"call": call, "bare_call": bare, "added": call - bare + timer, "timer": timer}
    return Result(status="ok", harness=harness)


def _bare_call_ns(step: Step, clock: Clock, calls: int) -> int:
    durations = [0] * calls
    for i in range(calls):
        started = clock()
        step()
        durations[i] = clock() - started
    return int(statistics.median(durations))
