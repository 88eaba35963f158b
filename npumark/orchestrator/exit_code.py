"""What a finished run's exit status says (pure)."""

from __future__ import annotations

from collections.abc import Collection

from npumark.errors import (
    EXIT_MEASURED_WITH_FAULTS,
    EXIT_OK,
    IntegrityError,
    NoScore,
    NothingToMeasure,
)
from npumark.record.model import Entry, Payload
from npumark.score.attempt import DEATHS


def exit_code(payload: Payload, peaks: Collection[str]) -> int:
    """Return the exit status of a run that was not interrupted.

    0: measured; a failed gate, screening and a known skip are results. 1: measured, but an
    attempt died or ran on the wrong device, or a pack file was unusable. 3: nothing could be
    measured. 4: workers died and so left no score. 5: nothing was measured because pack files
    are not what they should be. ``peaks`` are the workloads that a score can come from.
    """
    entries = payload.entries
    died = any(_died(e) for e in entries)
    wrong = any(e.status == "wrong_device" for e in entries)
    unusable = any(e.status == "pack_error" for e in entries)
    measured = any(a.measurement for e in entries for a in e.attempts)
    peaks_died = any(_died(e) for e in entries if e.workload in peaks)
    if payload.score is None and (peaks_died or (died and not measured)):
        return NoScore.exit_code
    if not measured:
        if unusable:
            return IntegrityError.exit_code
        return EXIT_MEASURED_WITH_FAULTS if wrong else NothingToMeasure.exit_code
    return EXIT_MEASURED_WITH_FAULTS if died or wrong or unusable else EXIT_OK


def _died(entry: Entry) -> bool:
    return any(a.status in DEATHS for a in entry.attempts)
