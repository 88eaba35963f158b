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

_FAILED = frozenset({"gate_failed", "wrong_device", "pack_error"})
"""Ends of a peak, beside deaths, with which a card has failed."""


def exit_code(payload: Payload, peaks: Collection[str]) -> int:
    """Return the exit status of a run that was not interrupted.

    0: measured; a failed gate, screening and a known skip are results. 1: measured, but an
    attempt died or ran on the wrong device, an attempt of the box stage is void, or a pack file
    was unusable. 3: nothing could be
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
    faulty = died or wrong or unusable or _void(payload)
    return EXIT_MEASURED_WITH_FAULTS if faulty else EXIT_OK


def box_exit_code(payload: Payload) -> int:
    """Return the exit status of a run of the box stage alone that was not interrupted.

    0: every role has its total. 1: there is a total, but an attempt is void, one of the peaks
    died, or another role that was measured has none. 3: nothing failed and there is no total: the
    time budget ended the run before. 4: there is no total because cards failed. 5: because pack
    files are not what they should be.
    """
    roles = payload.box.roles if payload.box else []
    entries = payload.entries
    failed = _void(payload) or any(e.status in _FAILED or _died(e) for e in entries)
    if any(role.tops is not None for role in roles):
        short = any(role.tops is None and role.attempts for role in roles)
        return EXIT_MEASURED_WITH_FAULTS if failed or short else EXIT_OK
    if any(e.status == "pack_error" for e in entries):
        return IntegrityError.exit_code
    return NoScore.exit_code if failed else NothingToMeasure.exit_code


def _void(payload: Payload) -> bool:
    roles = payload.box.roles if payload.box else []
    return any(a.status == "ran" and not a.counts for r in roles for a in r.attempts)


def _died(entry: Entry) -> bool:
    return any(a.status in DEATHS for a in entry.attempts)
