"""Judging every stored record again after the rules have changed.

A result's row names the rules of its last verdict, so that the rows themselves are the progress:
stopped at any point, the next start goes on with those that remain. What is stored stays; only
the verdict, the ranking and the figures on the board follow the present rules.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from multiprocessing import get_context
from typing import Any, Final

from sqlalchemy import Engine, Row, func, select, update

from npumark.errors import IntegrityError
from npumark.record.model import Payload
from npumark.server import log, results, showing
from npumark.server.database import reading, writing
from npumark.server.figures import figures_of
from npumark.server.plausibility import Verdict, judge, load_rules
from npumark.server.refusal import Fault
from npumark.server.tables import bodies
from npumark.server.tables import results as table

BATCH: Final = 32
"""Results whose verdicts are written in one transaction, which keeps submissions waiting."""

OTHER_RULES: Final = "other_rules"
"""In ``results.faults``: it was made by rules that this version does not have, so that the verdict
of then stands."""
IMPLAUSIBLE: Final = "implausible"
"""In ``not_ranked_because``: the present rules would refuse it; ``faults`` says why."""

_OTHER: Final = frozenset({"unknown_score_version", "another_policy", "another_pack"})

Judge = Callable[[Payload, datetime], Verdict]


@dataclass(slots=True)
class Summary:
    """``changed`` are those whose ranking, reasons or faults are others than before; ``failed``
    names each that could not be judged, with a sentence; those are tried again the next time."""

    checked: int = 0
    changed: int = 0
    failed: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Stored:
    """What a verdict is made from: a stored record, packed, and its row's own digest."""

    result_id: str
    record_sha256: str
    packed: bytes


@dataclass(frozen=True, slots=True)
class Outcome:
    """``verdict`` null: the record cannot be judged, and ``why`` says so. ``figures`` are rows of
    ``figures_of``; null: the record is of a form that this version does not read."""

    result_id: str
    verdict: Verdict | None
    figures: list[dict[str, Any]] | None
    why: str | None = None


def present_judge() -> Judge:
    """Return how this version judges."""
    rules = load_rules()
    return lambda payload, now: judge(payload, rules=rules, now=now)


def reverify(
    engine: Engine,
    rules_sha256: str,
    *,
    now: Callable[[], float],
    judging: Callable[[], Judge] = present_judge,
    jobs: int = 1,
    everything: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Summary:
    """Judge all results that the rules of this digest have not judged yet; with ``everything``
    those as well. ``judging`` makes the judge, in each of ``jobs`` processes where there are
    several (then by name: it is sent there). ``progress`` is told how many are done of how many,
    after each batch.
    """
    summary = Summary()
    total = _count(engine, rules_sha256, everything=everything)
    with _judges(judging, jobs) as judged:
        after = -1
        while batch := _next(engine, rules_sha256, after, BATCH * jobs, everything=everything):
            after = batch[-1][0]
            stored = [one for _, one in batch]
            outcomes = list(judged(stored, datetime.fromtimestamp(now(), UTC)))
            for start in range(0, len(outcomes), BATCH):
                part = outcomes[start : start + BATCH]
                _write(engine, part, rules_sha256, int(now()), summary, anew=everything)
            if progress is not None:
                progress(summary.checked + len(summary.failed), total)
    return summary


def outcome_of(stored: Stored, now: datetime, judge_it: Judge) -> Outcome:
    """Return what the rules say of a stored record. Whatever goes wrong is that record's."""
    try:
        raw = zlib.decompress(stored.packed)
        if hashlib.sha256(raw).hexdigest() != stored.record_sha256:
            why = "its stored bytes are not those that were accepted"
            return Outcome(stored.result_id, None, None, why)
        payload = results.payload_in(raw)
        return Outcome(stored.result_id, judge_it(payload, now), figures_of(payload))
    except IntegrityError as unread:
        fault = Fault("record_form", unread.message)
        return Outcome(stored.result_id, Verdict([fault], []), None)
    except Exception as fault:  # noqa: BLE001 - one record must not end the command
        return Outcome(stored.result_id, None, None, f"{type(fault).__name__}: {fault}"[:300])


def _pending(rules_sha256: str, *, everything: bool) -> Any:
    of = table.c.withdrawn_at.is_(None)
    return of if everything else of & (table.c.rules_sha256 != rules_sha256)


def _count(engine: Engine, rules_sha256: str, *, everything: bool) -> int:
    query = select(func.count()).select_from(table)
    with reading(engine) as connection:
        found = connection.scalar(query.where(_pending(rules_sha256, everything=everything)))
        return int(found or 0)


def _next(
    engine: Engine, rules_sha256: str, after: int, most: int, *, everything: bool
) -> list[tuple[int, Stored]]:
    """Return the next results behind leaf ``after``, with the leaf of each."""
    columns = (table.c.leaf_index, table.c.id, table.c.record_sha256, bodies.c.record)
    query = (
        select(*columns)
        .join(bodies, bodies.c.result_id == table.c.id)
        .where(table.c.leaf_index > after, _pending(rules_sha256, everything=everything))
        .order_by(table.c.leaf_index)
        .limit(most)
    )
    with reading(engine) as connection:
        rows = connection.execute(query).all()
    return [(row.leaf_index, Stored(row.id, row.record_sha256, row.record)) for row in rows]


def _write(
    engine: Engine,
    outcomes: Sequence[Outcome],
    rules_sha256: str,
    now: int,
    summary: Summary,
    *,
    anew: bool,
) -> None:
    """Write verdicts in one transaction; ``anew`` puts the figures on the board again even where
    the ranking stays."""
    checked, changed = 0, 0
    with writing(engine) as connection:
        log.head(connection, lock=True)
        ids = [outcome.result_id for outcome in outcomes]
        rows = {row.id: row for row in connection.execute(select(table).where(table.c.id.in_(ids)))}
        for outcome in outcomes:
            row = rows[outcome.result_id]
            if outcome.verdict is None or row.withdrawn_at is not None:
                continue
            values = _standing(row, outcome.verdict)
            differs = any(getattr(row, name) != value for name, value in values.items())
            values |= {"rules_sha256": rules_sha256, "verified_at": now}
            update_it = update(table).where(table.c.id == row.id).values(values)
            connection.execute(update_it)
            moved = anew or values["ranked"] != row.ranked
            if moved and row.hidden_at is None and outcome.figures is not None:
                of = {
                    "result_id": row.id,
                    "received_at": row.received_at,
                    "ranked": values["ranked"],
                }
                showing.unshow(connection, [row.id])
                showing.show(connection, [{**figure, **of} for figure in outcome.figures])
            checked += 1
            changed += differs
    summary.checked += checked
    summary.changed += changed
    summary.failed |= {o.result_id: o.why or "" for o in outcomes if o.verdict is None}


def _standing(row: Row[Any], verdict: Verdict) -> dict[str, Any]:
    """Return what a verdict makes of a result's row."""
    faults = [asdict(fault) for fault in verdict.refusals]
    if verdict.refusals and verdict.refusals[0].code in _OTHER | {"record_form"}:
        first = verdict.refusals[0]
        told = {"code": OTHER_RULES, "message": first.message, "details": first.details}
        return {
            "ranked": row.ranked,
            "not_ranked_because": row.not_ranked_because,
            "faults": [told],
        }
    reasons = [*verdict.not_ranked_because, *[IMPLAUSIBLE] * bool(faults)]
    reasons += ["development_build"] * (row.trust == "development")
    return {"ranked": not reasons, "not_ranked_because": reasons, "faults": faults}


_Judged = Callable[[Sequence[Stored], datetime], Iterable[Outcome]]
_own: list[Judge] = []
"""The judge of a process that ``reverify`` started."""


@contextmanager
def _judges(judging: Callable[[], Judge], jobs: int) -> Iterator[_Judged]:
    """Give a function that judges a batch, here or in ``jobs`` processes, in order."""
    if jobs == 1:
        judge_it = judging()
        yield lambda batch, now: [outcome_of(stored, now, judge_it) for stored in batch]
        return
    context = get_context("spawn")
    with ProcessPoolExecutor(jobs, context, initializer=_prepare, initargs=(judging,)) as pool:
        yield lambda batch, now: pool.map(partial(_elsewhere, now=now), batch, chunksize=4)


def _prepare(judging: Callable[[], Judge]) -> None:
    _own.append(judging())


def _elsewhere(stored: Stored, now: datetime) -> Outcome:
    return outcome_of(stored, now, _own[0])
