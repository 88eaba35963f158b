"""How a worker's end becomes an attempt of the record: checked, stamped, nothing invented."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from pydantic import ValidationError

from npumark.orchestrator.clock import RunClock
from npumark.orchestrator.supervisor import Outcome
from npumark.record.model import (
    Attempt,
    CacheFields,
    MeasurementFields,
    ObservedFields,
    PlacementFields,
)
from npumark.score.attempt import inferences_per_second
from npumark.worker.protocol import CacheUse, Measurement, Result, Status

Redact = Callable[[str], str]

UNSEEN = "npumark ended before it did; how long it ran, if at all, is not known"


def attempt_of(
    n: int, seed: int, outcome: Outcome, clock: RunClock, *, slept_ns: int, redact: Redact
) -> Attempt:
    """Return the record's attempt.

    ``slept_ns`` is how long the machine was suspended meanwhile: any sleep voids what was
    measured. ``redact`` takes names out of text that is kept.
    """
    status, why, result = outcome.status, outcome.why, outcome.result
    if slept_ns and status != "interrupted":
        status, result = "interrupted", None
        why = f"the machine slept for {slept_ns / 1e9:.1f} s during the attempt"
    try:
        return _attempt(n, seed, outcome, clock, status, why, result, redact)
    except (ValidationError, ZeroDivisionError) as fault:
        what = str(fault).splitlines()
        why = "the worker reported impossible values: " + "; ".join(what[1:3] or what)
        return _attempt(n, seed, outcome, clock, "no_result", why, None, redact)


def killed_attempt(n: int, seed: int, started_ns: int) -> Attempt:
    """Return the attempt that ran, or was about to, when npumark itself ended: it was killed, or
    could start no worker.

    Nobody saw its end, so its length is not known and stands as 0; ``why`` says so.
    """
    return Attempt(
        n=n,
        status="interrupted",
        why=UNSEEN,
        started_ns=started_ns,
        wall_ns=0,
        seed=seed,
        pid_exit=None,
        observed=None,
        placement=None,
        measurement=None,
        log_tail=None,
        cache=None,
    )


def _attempt(
    n: int,
    seed: int,
    outcome: Outcome,
    clock: RunClock,
    status: Status,
    why: str | None,
    result: Result | None,
    redact: Redact,
) -> Attempt:
    observed = result.observed if result else None
    placement = result.placement if result else None
    measured = result.measurement if result and status == "ok" else None
    log = redact(outcome.log_tail) if status != "ok" and outcome.log_tail else None
    return Attempt(
        n=n,
        status=status,
        why=redact(why) if why else None,
        started_ns=clock.at(outcome.started_ns),
        wall_ns=outcome.wall_ns,
        seed=seed,
        pid_exit=outcome.exit_code,
        observed=ObservedFields(**asdict(observed)) if observed else None,
        placement=PlacementFields(**asdict(placement)) if placement else None,
        measurement=_measurement(measured) if measured else None,
        log_tail=log,
        cache=_cache(result.cache, redact) if result and result.cache else None,
    )


def _cache(use: CacheUse, redact: Redact) -> CacheFields:
    return CacheFields(**{**asdict(use), "why": redact(use.why) if use.why else None})


def _measurement(measured: Measurement) -> MeasurementFields:
    fields: dict[str, Any] = asdict(measured)
    fields["latency_ns"] = fields.pop("latency")
    fields["timed_check"]["iterations"] = list(fields["timed_check"]["iterations"])
    ips = inferences_per_second(measured.iterations, measured.timed_ns)
    return MeasurementFields(ips=ips, **fields)
