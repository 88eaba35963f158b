"""The step ``sustained``: one session called without a pause for minutes.

Minutes of short calls are millions: where more calls than ``ROWS`` are to be expected, by the
fastest of the warm-up, a row of the samples is a block of calls, of one size throughout. So the
file stays small, and nothing is folded, dropped or paused for while the calls go on.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from npumark.worker.answers import last_answer
from npumark.worker.diagnose import Stage
from npumark.worker.protocol import Probed
from npumark.worker.timed_loop import (
    READ,
    Array,
    Clock,
    Sample,
    Step,
    gc_off,
    input_feeds,
    plain_outputs,
    require_arrays,
    warm_up,
)

ROWS = 1 << 18
"""How many rows are about enough: of 5 minutes, one for each 1.2 ms."""


def run(stage: Stage) -> Probed:
    """Call for ``options["seconds"]``; leave ``calls``: int64 [n, 2], begin and end of each call,
    or [n, 3], begin and end of each block and the number of its calls.

    Raises EngineError where the session does not answer as a session must.
    """
    seconds = float(stage.options["seconds"])
    began = time.perf_counter_ns()
    session, clock = stage.load()
    loaded = time.perf_counter_ns()
    step, buffers, outputs = session.step(), session.inputs(), session.outputs()
    warm = warm_up(step, buffers, outputs, stage.samples, stage.timing, clock)
    per_row = calls_per_row(seconds, warm.fastest_ns)
    spent_ns = time.process_time_ns()
    rows = call_for(
        step, buffers, outputs, stage.samples, seconds=seconds, per_row=per_row, clock=clock
    )
    spent_ns = time.process_time_ns() - spent_ns
    answer = last_answer(stage, session, len(rows) * per_row)
    kept = rows if per_row > 1 else rows[:, :2]
    return Probed(
        {"calls": stage.save("calls", kept)},
        {
            "load_ns": loaded - began,
            "first_call_ns": warm.first_call_ns,
            "warm_up_steady": warm.steady,
            "loop_ns": int(rows[-1, 1] - rows[0, 0]),
            "loop_cpu_ns": spent_ns,
            "calls": len(rows) * per_row,
            "calls_per_row": per_row,
            "last_answers": {"the last call": answer},
        },
    )


def calls_per_row(seconds: float, fastest_ns: int) -> int:
    """Return of how many calls a row is: the smallest power of two that leaves at most ``ROWS``
    rows where every call were as fast as ``fastest_ns``."""
    expected = math.ceil(seconds * 1e9 / fastest_ns)
    return 1 << max(0, (-(-expected // ROWS) - 1).bit_length())


def call_for(
    step: Step,
    buffers: Sequence[Array],
    outputs: Sequence[Array],
    samples: Sequence[Sample],
    *,
    seconds: float,
    per_row: int,
    clock: Clock,
) -> npt.NDArray[np.int64]:
    """Call until ``seconds`` have passed since the first call began; the last block is whole.

    Return int64 [n, 3]: begin and end of each block on ``clock``, and the number of its calls.
    A call is what it is in the timed loop: the input copied, the step, one element of every
    output read. Raises EngineError where an output is no plain array.
    """
    feeds = input_feeds(buffers, samples)
    require_arrays(outputs)
    read, cycle, limit = READ, len(feeds), round(seconds * 1e9)
    blocks: list[npt.NDArray[np.int64]] = []
    count, first, done = 0, 0, False
    with gc_off(), plain_outputs(outputs):
        while not done:
            block = np.full((ROWS, 3), per_row, dtype=np.int64)
            used = ROWS
            begin = clock()
            first = first if blocks else begin
            for row in range(ROWS):
                for call in range(count, count + per_row):
                    for buffer, source in feeds[call % cycle]:
                        buffer[...] = source
                    step()
                    for output in outputs:
                        read(output, -1)
                end = clock()
                count += per_row
                block[row, 0] = begin
                block[row, 1] = end
                if end - first >= limit:
                    used, done = row + 1, True
                    break
                begin = clock()
            blocks.append(block[:used])
    return np.concatenate(blocks)
