"""The step ``batch``: the same graph on several inputs per call.

What is timed is a graph that was rewritten for it, or a program loaded otherwise than measured.
So every row's answers are first compared with what the engine answers to that input alone: a
batch that answers otherwise is no batch of this network.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from npumark.engines.base import Array, Session, batch_fault
from npumark.errors import EngineError, PackError
from npumark.worker.accuracy import LEAST_AGREEMENT_DB, compare
from npumark.worker.answers import alone
from npumark.worker.diagnose import Stage
from npumark.worker.evidence import close
from npumark.worker.protocol import Probed
from npumark.worker.timed_loop import Clock, Sample, require_arrays, run_timed, warm_up


def run(stage: Stage) -> Probed:
    """Call with ``options["batch"]`` inputs for ``options["seconds"]``.

    Leaves ``calls``: int64 [n], the duration of each call, each on ``batch`` inputs. Raises
    Unsupported where the engine or the graph does not allow it, EngineError where a row is
    answered otherwise than alone.
    """
    n, seconds = int(stage.options["batch"]), float(stage.options["seconds"])
    began = time.perf_counter_ns()
    session, clock = stage.load(stage.request.of_batch(n))
    load_ns = time.perf_counter_ns() - began
    first_call_ns = _first_call(session, clock, _rows(stage.samples, 0, n), n)
    worst, answers = _least_agreement(stage, session, n)
    # Two inputs in turn, so that no call computes on what the one before it did.
    samples = [_rows(stage.samples, start, n) for start in range(min(2, len(stage.samples)))]
    timing = replace(
        stage.timing,
        loop_s=seconds,
        timed_checks=0,
        warmup_min_calls=1,
        warmup_max_s=min(stage.timing.warmup_max_s, seconds),
    )
    step, buffers, outputs = session.step(), session.inputs(), session.outputs()
    warm = warm_up(step, buffers, outputs, samples, timing, clock)
    loop = run_timed(
        step,
        buffers,
        outputs,
        samples,
        timing,
        seed=stage.job.seed,
        fastest_ns=warm.fastest_ns,
        clock=clock,
    )
    del step, buffers, outputs
    close(session)
    return Probed(
        {"calls": stage.save("calls", loop.durations)},
        {
            "batch": n,
            "load_ns": load_ns,
            "first_call_ns": first_call_ns,
            "rows_checked": n,
            "min_snr_db": worst,
            "last_answers": answers,
        },
    )


def _first_call(session: Session, clock: Clock, sample: Sample, n: int) -> int:
    """Call once and return how long it took, in nanoseconds."""
    require_arrays(session.outputs())
    began = clock()
    for buffer, source in zip(session.inputs(), sample, strict=True):
        buffer[...] = source
    try:
        session.step()()
    except (EngineError, PackError, MemoryError):
        raise
    except Exception as fault:
        # Runtimes that infer shapes late refuse a graph here.
        raise batch_fault(n, fault) from fault
    return clock() - began


def _least_agreement(
    stage: Stage, session: Session, n: int
) -> tuple[float | None, dict[str, dict[str, Any]]]:
    """Return the lowest SNR in dB of a row of ``session``'s latest answers, about those of a
    session that is given each input alone (null where all are bit-identical), and how that one
    answered (worker.answers.alone).

    The other session is closed again. Raises EngineError below ``LEAST_AGREEMENT_DB``: another
    number of inputs is summed in another order.
    """
    bound = LEAST_AGREEMENT_DB
    answered: dict[str, dict[str, Any]] = {}
    single, _ = stage.load()
    step, buffers = single.step(), single.inputs()
    levels: list[float] = []
    for which, sample in enumerate(stage.samples[:n]):
        for buffer, source in zip(buffers, sample, strict=True):
            buffer[...] = source
        step()
        answered[f"input {which + 1} alone"] = alone(stage, which, single.outputs())
        for row in range(which, n, len(stage.samples)):
            answers = [_row(output, row, n) for output in session.outputs()]
            found = compare(answers, single.outputs())
            if found.identical:
                continue
            if found.snr_db is None or found.snr_db < bound:
                told = "not finite" if found.snr_db is None else f"{found.snr_db:.1f} dB"
                raise EngineError(
                    f"batch {n} answers differently: row {row + 1} agrees with the input alone "
                    f"to {told}, and {bound:.0f} dB are needed"
                )
            levels.append(found.snr_db)
    del step, buffers
    close(single)
    return min(levels, default=None), answered


def _rows(samples: Sequence[Sample], start: int, n: int) -> Sample:
    """Return ``n`` samples from ``start`` on, round and round, joined along the leading axis."""
    taken = [samples[(start + i) % len(samples)] for i in range(n)]
    return tuple(np.concatenate(arrays) for arrays in zip(*taken, strict=True))


def _row(array: Array, i: int, n: int) -> Array:
    size = len(array) // n
    return array[i * size : (i + 1) * size]
