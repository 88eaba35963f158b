"""Whether what a diagnostics step timed answered right: wrong answers have no pace.

The single attempt is held to what an attempt of a benchmark is: the workload's standard gate over
the whole eval set, and the outputs of drawn timed calls. What is timed under load or in parallel
is held to the same where it has the time; elsewhere one answer of each stream must be as near to
its reference as the single attempt's, but for what two orders of summing differ by.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from npumark.gates.judge import judge
from npumark.pack.manifest import Workload
from npumark.policy import Policy
from npumark.record.model import TimedCheckFields
from npumark.score.attempt import timed_check_passes
from npumark.worker.accuracy import LEAST_AGREEMENT_DB

Levels = Sequence[float | None]
"""The SNR in dB of each eval input, as the single attempt answered it."""


def fault_of_all(
    answers: Mapping[str, Any], workload: Workload, policy: Policy, *, one_device: bool = True
) -> str | None:
    """Return what is wrong with the answers to a whole eval set (worker.answers.whole_set).

    Where the runtime may change the device in the middle (``one_device`` false: OpenVINO's AUTO
    begins on the CPU), timed outputs and untimed ones may differ and both be right.
    """
    spec = workload.gates.get("standard")
    if answers["why"]:
        return f"its answers are wrong: {answers['why']}"
    if spec is not None and not (gate := judge(answers["measures"], spec)).passed:
        return f"its answers are wrong: {gate.why or 'the gate failed'}"
    if one_device and not timed_check_passes(TimedCheckFields(**answers["timed_check"]), policy):
        return "outputs of its timed loop differ from the untimed ones"
    return None


def fault_of_one(stream: str, answer: Mapping[str, Any], levels: Levels) -> str | None:
    """Return what is wrong with one answer (worker.answers.last_answer) of ``stream``.

    Where the single attempt's own level is not known, as about a reference without a signal,
    nothing is held against it.
    """
    sample, found = int(answer["sample"]), answer["snr_db"]
    alone = levels[sample] if sample < len(levels) else None
    if alone is None:
        return None
    least = least_level(alone)
    if found is not None and found >= least:
        return None
    told = answer["why"] or f"{found:.1f} dB to its reference, and {least:.1f} dB are needed"
    return f"{stream} answers wrong: {told}"


def least_level(alone_db: float) -> float:
    """Return the lowest SNR in dB about a reference that an answer can have which agrees to
    ``LEAST_AGREEMENT_DB`` with one of ``alone_db``: the two errors may point the same way."""
    return -20 * math.log10(10 ** (-alone_db / 20) + 10 ** (-LEAST_AGREEMENT_DB / 20))
