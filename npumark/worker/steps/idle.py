"""The step ``idle``: calls that each follow a pause of a known length, after a busy stretch."""

from __future__ import annotations

import time

import numpy as np

from npumark.worker.answers import last_answer
from npumark.worker.diagnose import Stage
from npumark.worker.evidence import close
from npumark.worker.oracle import sleeper
from npumark.worker.protocol import Probed
from npumark.worker.timed_loop import READ, gc_off, input_feeds, require_arrays, warm_up


def run(stage: Stage) -> Probed:
    """For each of ``options["idle_ms"]``, idle and call as often as ``options["calls"]`` says.

    Leaves ``busy``, the durations (int64 [n]) of calls back to back before, as many as an attempt
    needs at the least, and ``after-<ms>-ms``. The process sleeps while it idles.
    """
    began = time.perf_counter_ns()
    session, clock = stage.load()
    load_ns = time.perf_counter_ns() - began
    idle = sleeper(stage.job.engine_ref, session)
    step, buffers, outputs = session.step(), session.inputs(), session.outputs()
    warm_up(step, buffers, outputs, stage.samples, stage.timing, clock)
    feeds = input_feeds(buffers, stage.samples)
    require_arrays(outputs)
    pauses = [("busy", 0.0, stage.timing.min_iterations)]
    for ms, calls in zip(stage.options["idle_ms"], stage.options["calls"], strict=True):
        pauses.append((f"after-{ms}-ms", ms / 1e3, calls))
    made = 0
    samples = {}
    with gc_off():
        for name, seconds, calls in pauses:
            durations = np.zeros(calls, dtype=np.int64)
            for i in range(calls):
                if seconds:
                    idle(seconds)
                feed = feeds[made % len(feeds)]
                begin = clock()
                for buffer, source in feed:
                    buffer[...] = source
                step()
                for output in outputs:
                    READ(output, -1)
                durations[i] = clock() - begin
                made += 1
            samples[name] = stage.save(name, durations)
    del step, buffers, outputs
    answer = last_answer(stage, session, made)
    close(session)
    return Probed(samples, {"load_ns": load_ns, "last_answers": {"the last call": answer}})
