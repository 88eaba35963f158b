"""The step ``auto``: the runtime chooses the device by itself, as applications often let it."""

from __future__ import annotations

import time
from dataclasses import replace

from npumark.engines.base import Session
from npumark.plain import one_line
from npumark.worker.answers import whole_set
from npumark.worker.diagnose import Stage
from npumark.worker.evidence import close
from npumark.worker.protocol import Probed
from npumark.worker.timed_loop import run_timed, warm_up


def run(stage: Stage) -> Probed:
    """Time calls for ``options["seconds"]`` on the device that the runtime picks.

    Leaves ``calls``: int64 [n], the duration of each call. ``picked`` is in the runtime's own
    words, the device with the most of the work first, looked at after the loop: some begin on one
    device while they compile for another. Raises Unsupported where the runtime has no such choice.
    """
    request = replace(stage.request, device_choice="automatic")
    began = time.perf_counter_ns()
    session, clock = stage.load(request)
    load_ns = time.perf_counter_ns() - began
    step, buffers, outputs = session.step(), session.inputs(), session.outputs()
    warm = warm_up(step, buffers, outputs, stage.samples, stage.timing, clock)
    loop = run_timed(
        step,
        buffers,
        outputs,
        stage.samples,
        replace(stage.timing, loop_s=float(stage.options["seconds"])),
        seed=stage.job.seed,
        fastest_ns=warm.fastest_ns,
        clock=clock,
    )
    answers = whole_set(stage, session, loop.checks)
    del step, buffers, outputs
    reused = session.loaded_from_cache()
    picked, why = _picked(session)
    close(session)
    return Probed(
        {"calls": stage.save("calls", loop.durations)},
        {
            "asked": stage.engine.automatic,
            "picked": ", ".join(picked) or None,
            "picked_why": why,
            "load_ns": load_ns,
            "first_call_ns": warm.first_call_ns,
            "from_cache": reused,
            "answers": answers,
        },
    )


def _picked(session: Session) -> tuple[tuple[str, ...], str | None]:
    """Return what the runtime picked, or nothing and why it does not tell."""
    try:
        return session.picked(), None
    except Exception as fault:  # noqa: BLE001 - what was timed stands without it
        return (), one_line(str(fault))[:300] or type(fault).__name__
