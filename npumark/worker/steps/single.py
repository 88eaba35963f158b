"""The step ``single``: the one attempt that everything else is compared with.

One call after another, timed as in a run's attempt, on a session loaded afresh, and its answers
to the whole eval set afterwards. Its brief repetition leaves out what the first one settled.
"""

from __future__ import annotations

import time
from dataclasses import asdict, replace
from typing import Any

from npumark.worker.answers import last_answer, whole_set
from npumark.worker.diagnose import Stage
from npumark.worker.evidence import close, read_back
from npumark.worker.protocol import Probed
from npumark.worker.timed_loop import run_timed, warm_up


def run(stage: Stage) -> Probed:
    """Time the loop; leave ``calls``: int64 [n], the duration of each call in nanoseconds.

    ``options["seconds"]`` asks for a loop of that length, of which the last answer alone is told
    and not where it ran.
    """
    brief = "seconds" in stage.options
    loop_s = float(stage.options["seconds"]) if brief else stage.timing.loop_s
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
    told: dict[str, Any]
    if brief:
        told = {"last_answers": {"the last call": last_answer(stage, session, len(loop.durations))}}
        del step, buffers, outputs
        close(session)
    else:
        told = {"answers": whole_set(stage, session, loop.checks)}
        del step, buffers, outputs
        told["observed"] = asdict(read_back(session, stage.engine.name)[0])
    return Probed(
        {"calls": stage.save("calls", loop.durations)},
        {
            "load_ns": loaded - began,
            "first_call_ns": warm.first_call_ns,
            "warm_up_steady": warm.steady,
            **told,
        },
    )
