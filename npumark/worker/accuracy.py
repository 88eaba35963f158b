"""The accuracy pass: every input of the eval set, untimed, and the check of the timed outputs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from npumark.gates.measures import SNR_CAP_DB
from npumark.worker.protocol import TimedCheck
from npumark.worker.timed_loop import Check, Sample, Step, require_arrays

Array = npt.NDArray[Any]

LEAST_AGREEMENT_DB = 30.0
"""A model that is loaded again, or called in parallel or on several inputs, computes the same but
for the last bits, even where a quantised value turns over; garbage is at 0 dB."""


class Taker(Protocol):
    """Takes the outputs of each sample, as gates.accumulate.Accumulator does."""

    def add(self, i: int, outputs: Sequence[Array]) -> None: ...


def run_accuracy(
    step: Step,
    buffers: Sequence[Array],
    outputs: Sequence[Array],
    samples: Sequence[Sample],
    accumulator: Taker,
    checks: Sequence[Check],
    *,
    shown: Sequence[Array] | None = None,
    nondeterministic: bool,
    min_snr_db: float,
) -> TimedCheck:
    """Run every sample into ``accumulator``; return how the timed outputs compare.

    ``shown`` are the outputs as the accumulator judges them (views in the stored layout); left
    out, they are the outputs themselves. Timed outputs are compared as the engine left them.

    A timed output passes where it is bit-identical to the untimed one of the same input, or,
    from an engine that declares itself nondeterministic, finite and at least ``min_snr_db``
    above the difference. Without a single check nothing is passed. Raises EngineError where an
    output is no plain array.
    """
    by_sample: dict[int, list[Check]] = {}
    for check in checks:
        by_sample.setdefault(check.sample, []).append(check)
    verdicts: list[Comparison] = []
    for i, sample in enumerate(samples):
        for buffer, source in zip(buffers, sample, strict=True):
            buffer[...] = source
        step()
        require_arrays(outputs)
        accumulator.add(i, outputs if shown is None else shown)
        verdicts += (compare(check.outputs, outputs) for check in by_sample.get(i, ()))
    identical = bool(verdicts) and all(v.identical for v in verdicts)
    levels = [v.snr_db for v in verdicts if not v.identical]
    finite = [level for level in levels if level is not None]
    close = bool(verdicts) and len(finite) == len(levels) and all(x >= min_snr_db for x in finite)
    return TimedCheck(
        iterations=tuple(check.iteration for check in checks),
        passed=identical or (nondeterministic and close),
        bit_identical=identical,
        min_snr_db=min(finite) if finite and len(finite) == len(levels) else None,
        nondeterministic=nondeterministic,
    )


@dataclass(frozen=True, slots=True)
class Comparison:
    """``snr_db`` is null where a value was not finite, or where the reference is all zero."""

    identical: bool
    snr_db: float | None


def compare(timed: Sequence[Array], untimed: Sequence[Array]) -> Comparison:
    """Compare two sets of outputs of one input: all bits, and the worst output's SNR in dB."""
    if all(_same_bits(a, b) for a, b in zip(timed, untimed, strict=True)):
        return Comparison(True, None)
    worst = math.inf
    for a, b in zip(timed, untimed, strict=True):
        if a.shape != b.shape:
            return Comparison(False, None)
        reference = b.astype(np.float64)
        signal = float(np.sum(reference * reference))
        error = a.astype(np.float64) - reference
        noise = float(np.sum(error * error))
        if not (math.isfinite(signal) and math.isfinite(noise)) or (noise > 0 and signal == 0):
            return Comparison(False, None)
        if noise > 0:
            worst = min(worst, 10 * math.log10(signal / noise), SNR_CAP_DB)
    # Bits that differ with no noise are signed zeros: equal numbers, but not the same bits.
    return Comparison(False, worst if math.isfinite(worst) else None)


def _same_bits(a: Array, b: Array) -> bool:
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return np.array_equal(
        np.ascontiguousarray(a).view(np.uint8), np.ascontiguousarray(b).view(np.uint8)
    )
