"""What a diagnostics step answered: raw measures, which the orchestrator judges.

Where there is time for it a step's session is given the whole eval set, untimed, as an attempt's
is. Elsewhere the last call's answer is kept, which the bound outputs hold until another call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from npumark.engines.base import Array, Session
from npumark.errors import PackError
from npumark.gates.accumulate import Accumulator
from npumark.gates.metrics import accumulator
from npumark.worker.accuracy import run_accuracy
from npumark.worker.diagnose import Stage
from npumark.worker.eval_set import StoredLayout, load_mu, load_references
from npumark.worker.measure import require_order, require_outputs
from npumark.worker.timed_loop import Check, require_arrays


def whole_set(stage: Stage, session: Session, checks: Sequence[Check]) -> dict[str, Any]:
    """Return how ``session`` answers every input of the eval set, and how the outputs that were
    copied in its loop compare: ``measures`` of the task with ``why`` they are null, the
    ``timed_check`` of an attempt, and ``levels_db``, the SNR of each input by itself.

    Raises PackError where the eval set is not usable, EngineError where an output is no array.
    """
    buffers, outputs = session.inputs(), session.outputs()
    require_outputs(outputs, stage.variant)
    judge = _Judge(stage)
    check = run_accuracy(
        session.step(),
        buffers,
        outputs,
        stage.samples,
        judge,
        checks,
        shown=StoredLayout(outputs, stage.variant.outputs),
        nondeterministic=session.nondeterministic,
        min_snr_db=stage.timing.timed_check_min_snr_db,
    )
    measures, why = judge.whole.result()
    told = asdict(check) | {"iterations": list(check.iterations)}
    return {"measures": measures, "why": why, "timed_check": told, "levels_db": judge.levels}


def last_answer(stage: Stage, session: Session, calls: int) -> dict[str, Any]:
    """Return how the last of ``calls`` in turn answered: which ``sample`` that was, its SNR in dB
    about the reference (``snr_db``) and ``why`` it is null. Raises EngineError, PackError."""
    outputs = session.outputs()
    require_arrays(outputs)
    kept = tuple(np.copy(output, order="K") for output in outputs)
    return alone(stage, (calls - 1) % len(stage.samples), kept)


def alone(stage: Stage, sample: int, outputs: Sequence[Array]) -> dict[str, Any]:
    """Return the same of ``outputs``, which answered eval input ``sample``."""
    level, why = _accumulator(stage, *_stored(stage)).alone(
        sample, StoredLayout(outputs, stage.variant.outputs)
    )
    return {"sample": sample, "snr_db": level, "why": why}


class _Judge:
    """Takes an answer into the task's measures, and by itself."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._references, self._mu = _stored(stage)
        self.whole = _accumulator(stage, self._references, self._mu)
        self.levels: list[float | None] = []

    def add(self, i: int, outputs: Sequence[Array]) -> None:
        self.whole.add(i, outputs)
        level, _ = _accumulator(self._stage, self._references, self._mu).alone(i, outputs)
        self.levels.append(level)


def _stored(stage: Stage) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
    root = Path(stage.job.pack_root)
    require_order(stage.workload, stage.variant)
    return load_references(root, stage.workload.eval), load_mu(root, stage.workload.eval)


def _accumulator(stage: Stage, references: Sequence[Array], mu: Sequence[Array]) -> Accumulator:
    try:
        return accumulator(stage.workload.task, references, mu, stage.workload.eval.parameters)
    except ValueError as fault:
        raise _unusable(stage, fault) from fault


def _unusable(stage: Stage, fault: ValueError) -> PackError:
    return PackError(f"the eval set of {stage.workload.id} is not usable: {fault}")
