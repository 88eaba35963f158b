"""The step ``single``: the one attempt that everything else is compared with.

One call after another, timed as in a run's attempt, on a session loaded afresh, and its answers
to the whole eval set afterwards.
"""

from __future__ import annotations

import time
from dataclasses import asdict, replace

from npumark.worker.answers import whole_set
from npumark.worker.diagnose import Stage
from npumark.worker.evidence import read_back
from npumark.worker.protocol import Probed
from npumark.worker.timed_loop import run_timed, warm_up


def run(stage: Stage) -> Probed:
    """Time the loop, for ``options["seconds"]`` where there are any; leave ``calls``: int64 [n],
    the duration of each call in nanoseconds."""
    loop_s = float(stage.options.get("seconds", stage.timing.loop_s))
    began = time.perf_counter_ns()
    session, clock = stage.load()
    loaded = time.perf_counter_ns()
    step, buffers, outputs = session.step(), session.inputs(), session.outputs()
    warm = warm_up(step, buffers, outputs, stage.samples, stage.timing, clock)
    loop = run_timed(
        step,
        buffers,
        outputs,
        stage.samples,
        replace(stage.timing, loop_s=loop_s),
        seed=stage.job.seed,
        fastest_ns=warm.fastest_ns,
        clock=clock,
    )
    answers = whole_set(stage, session, loop.checks)
    del step, buffers, outputs
    observed, _ = read_back(session, stage.engine.name)
    return Probed(
        {"calls": stage.save("calls", loop.durations)},
        {
            "load_ns": loaded - began,
            "first_call_ns": warm.first_call_ns,
            "warm_up_steady": warm.steady,
            "observed": asdict(observed),
            "answers": answers,
        },
    )
