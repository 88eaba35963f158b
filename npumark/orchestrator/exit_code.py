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
from npumark.record.box import BoxRole
from npumark.record.model import Entry, Payload
from npumark.score.attempt import DEATHS
from npumark.score.comparability import ENDED_BY

_FAILED = frozenset({"gate_failed", "wrong_device"})
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

    0: every role has its total; a failed gate of a card that has a peak is a result. 1: there is
    a total, but an attempt is void, one of a card alone died, a pack file was unusable, or
    another role that was begun has none. 3: no total, and nothing
    failed: there is nothing to sum, or the time budget ended the run before. 4: no total because
    attempts are void, or a card failed and so has no peak. 5: no total, and pack files are not
    what they should be.
    """
    roles = payload.box.roles if payload.box else []
    entries = payload.entries
    unusable = any(e.status == "pack_error" for e in entries)
    failed = _void(payload) or any(_cards_failed(role, payload) for role in roles)
    if any(role.tops is not None for role in roles):
        short = any(role.tops is None and role.attempts for role in roles)
        faulty = failed or short or unusable or any(_died(e) for e in entries)
        return EXIT_MEASURED_WITH_FAULTS if faulty else EXIT_OK
    if unusable:
        return IntegrityError.exit_code
    return NoScore.exit_code if failed else NothingToMeasure.exit_code


def _cards_failed(role: BoxRole, payload: Payload) -> bool:
    """Whether a role has no total because a card has no peak, which it failed to reach.

    A card that the time budget left without one has not failed.
    """
    if role.tops is not None or payload.environment.facts.get(ENDED_BY) == "time_budget":
        return False
    known = {card.card for card in role.cards} | {out.card for out in role.left_out}
    peakless = {p.id for p in payload.processors if p.role == role.role} - known
    own = {
        e.id
        for e in payload.engines
        if e.processor in peakless and not e.local_only and not e.emulated
    }
    return any(e.engine in own and (e.status in _FAILED or _died(e)) for e in payload.entries)


def _void(payload: Payload) -> bool:
    roles = payload.box.roles if payload.box else []
    return any(a.status == "ran" and not a.counts for r in roles for a in r.attempts)


def _died(entry: Entry) -> bool:
    return any(a.status in DEATHS for a in entry.attempts)
