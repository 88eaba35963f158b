"""The step ``threads``: several sessions in one process, each called from a thread of its own.

Engines let go of Python's global lock while they compute, so that threads do run at once; what
each call does outside of that (copying its input, looking at the clock) takes its turn, as it
would in any program of this language.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

from npumark.errors import EngineError
from npumark.worker.answers import last_answer
from npumark.worker.diagnose import Stage
from npumark.worker.evidence import close
from npumark.worker.protocol import Probed
from npumark.worker.timed_loop import gc_off, warm_up
from npumark.worker.window_loop import run_window_loop

Pairs = npt.NDArray[np.int64]

_LEAD_NS = 5_000_000
"""From the last thread's arrival to the start: as long as a thread waits for the global lock."""


def run(stage: Stage) -> Probed:
    """Call from ``options["threads"]`` threads for ``options["seconds"]`` at once.

    Leaves ``thread-<i>``: int64 [n, 2], begin and end of each call, nanoseconds after the common
    start. Virtual sessions with a fake clock count each on their own from there. Raises
    EngineError where a thread fails.
    """
    count, seconds = int(stage.options["threads"]), float(stage.options["seconds"])
    began = time.perf_counter_ns()
    sessions = [stage.load() for _ in range(count)]
    load_ns = time.perf_counter_ns() - began
    release = _Release(count)

    def stream(i: int) -> Pairs:
        session, clock = sessions[i]
        step, buffers, outputs = session.step(), session.inputs(), session.outputs()
        try:
            warm = warm_up(step, buffers, outputs, stage.samples, stage.timing, clock)

            def start() -> int:
                at = release.wait()
                return at if clock is time.perf_counter_ns else clock()

            return run_window_loop(
                step,
                buffers,
                outputs,
                stage.samples,
                window_ns=round(seconds * 1e9),
                fastest_ns=warm.fastest_ns,
                clock=clock,
                start=start,
            )
        except BaseException:
            release.abort()
            raise

    with gc_off(), ThreadPoolExecutor(count) as pool:
        streams = _all(pool, stream, count)
    answers = {}
    for i, (session, _) in enumerate(sessions):
        answers[f"thread-{i}"] = last_answer(stage, session, len(streams[i]))
        close(session)
    samples = {f"thread-{i}": stage.save(f"thread-{i}", s) for i, s in enumerate(streams)}
    return Probed(samples, {"load_ns": load_ns, "last_answers": answers})


def _all(pool: ThreadPoolExecutor, stream: Callable[[int], Pairs], count: int) -> list[Pairs]:
    """Return what every thread did; the fault of the one that failed first by itself."""
    futures = [pool.submit(stream, i) for i in range(count)]
    faults = [fault for future in futures if (fault := future.exception()) is not None]
    own = [fault for fault in faults if not isinstance(fault, threading.BrokenBarrierError)]
    if own:
        raise own[0]
    if faults:
        raise EngineError("the threads were never released together") from faults[0]
    return [future.result() for future in futures]


class _Release:
    """Holds threads back until all have arrived; then each is told the same instant."""

    def __init__(self, count: int) -> None:
        self._at = 0
        self._barrier = threading.Barrier(count, action=self._set)

    def wait(self) -> int:
        """Return the instant, of the performance counter, at which all are to start.

        Raises BrokenBarrierError where a thread has failed.
        """
        self._barrier.wait()
        return self._at

    def abort(self) -> None:
        self._barrier.abort()

    def _set(self) -> None:
        self._at = time.perf_counter_ns() + _LEAD_NS
