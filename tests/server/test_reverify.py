"""Judging stored records again: what changes, what stays, and that it can be stopped anywhere."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import pytest
from sqlalchemy import select, update

from npumark.record.model import Payload
from npumark.server.audit import audit
from npumark.server.database import reading, writing
from npumark.server.plausibility import Verdict, load_rules
from npumark.server.refusal import Fault
from npumark.server.reverify import Judge, Summary, reverify
from npumark.server.store import Store
from npumark.server.tables import bodies, facets, figures, results
from tests import forge
from tests.server import stored
from tests.server.conftest import SERVER_KEY, Clock

NEW = "1" * 64
FINE = Verdict([], [])
TOO_HIGH = Verdict([Fault("above_ceiling", "a peak is too high", {"tops": 9.0})], [])


def always(verdict: Verdict) -> Callable[[], Judge]:
    return by_run({}, verdict)


def by_run(verdicts: Mapping[str, Verdict], otherwise: Verdict = FINE) -> Callable[[], Judge]:
    def judge_it(payload: Payload, now: datetime) -> Verdict:
        return verdicts.get(payload.run_id, otherwise)

    return lambda: judge_it


def run(store: Store, clock: Clock, judging: Callable[[], Judge], **over: Any) -> Summary:
    return reverify(store.engine, NEW, now=clock, judging=judging, **over)


def row_of(store: Store, result: str) -> Any:
    row = store.result(result)
    assert row is not None
    return row


def board(store: Store) -> dict[str, bool]:
    """Return whether the figures on the board are ranked, by result."""
    query = select(figures.c.result_id, facets.c.ranked)
    with reading(store.engine) as connection:
        found = connection.execute(query.join(facets, facets.c.id == figures.c.facet_id))
        return {row.result_id: row.ranked for row in found}


def test_a_verdict_that_stays_changes_nothing_but_its_date(store: Store, clock: Clock) -> None:
    (one,) = stored.submit(store, 1)
    clock.now += 60
    assert run(store, clock, always(FINE)) == Summary(checked=1, changed=0)
    row = row_of(store, one)
    assert (row.rules_sha256, row.verified_at, row.ranked) == (NEW, clock.now, True)


def test_what_the_present_rules_refuse_is_kept_and_not_ranked(store: Store, clock: Clock) -> None:
    one, two = stored.submit(store, 1, 2)
    judging = by_run({"run-1": TOO_HIGH})
    assert run(store, clock, judging) == Summary(checked=2, changed=1)
    row = row_of(store, one)
    assert (row.ranked, row.not_ranked_because) == (False, ["implausible"])
    assert row.faults == [
        {"code": "above_ceiling", "message": "a peak is too high", "details": {"tops": 9.0}}
    ]
    assert store.record_bytes(one) == stored.new_result(1).record
    assert board(store) == {one: False, two: True}
    assert audit(store.engine, SERVER_KEY).faults == []


def test_a_reason_that_went_lets_it_be_ranked(store: Store, clock: Clock) -> None:
    store.register_key(stored.registration())
    waiting = stored.new_result(1, ranked=False, not_ranked_because=["ceiling_unknown"])
    store.accept(waiting)
    (one,) = board(store)
    assert board(store) == {one: False}
    assert run(store, clock, always(FINE)).changed == 1
    assert (row_of(store, one).ranked, row_of(store, one).not_ranked_because) == (True, [])
    assert board(store) == {one: True}


def test_a_development_build_is_never_ranked(store: Store, clock: Clock) -> None:
    store.register_key(stored.registration())
    reasons = ["development_build"]
    store.accept(
        stored.new_result(1, trust="development", ranked=False, not_ranked_because=reasons)
    )
    assert run(store, clock, always(FINE)) == Summary(checked=1, changed=0)
    (one,) = board(store)
    assert row_of(store, one).not_ranked_because == reasons


@pytest.mark.parametrize("code", ["unknown_score_version", "another_policy", "another_pack"])
def test_a_record_of_other_rules_keeps_its_standing(store: Store, clock: Clock, code: str) -> None:
    (one,) = stored.submit(store, 1)
    other = Verdict([Fault(code, "it is of other rules", {})], [])
    assert run(store, clock, always(other)) == Summary(checked=1, changed=1)
    row = row_of(store, one)
    assert (row.ranked, row.not_ranked_because) == (True, [])
    assert [fault["code"] for fault in row.faults] == ["other_rules"]
    assert run(store, clock, always(other)) == Summary()


def test_what_was_judged_is_not_judged_again_unless_asked(store: Store, clock: Clock) -> None:
    stored.submit(store, 1, 2)
    assert run(store, clock, always(FINE)).checked == 2
    assert run(store, clock, always(TOO_HIGH)).checked == 0
    assert run(store, clock, always(TOO_HIGH), everything=True).changed == 2


def test_it_goes_on_where_it_was_stopped(
    store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("npumark.server.reverify.BATCH", 2)
    stored.submit(store, *range(7))
    seen: list[str] = []

    def stopped(done: int, total: int) -> None:
        assert total == 7
        if done == 4:
            raise KeyboardInterrupt

    def judging() -> Judge:
        def judge_it(payload: Payload, now: datetime) -> Verdict:
            seen.append(payload.run_id)
            return FINE

        return judge_it

    with pytest.raises(KeyboardInterrupt):
        run(store, clock, judging, progress=stopped)
    assert seen == [f"run-{n}" for n in range(4)]
    told: list[tuple[int, int]] = []
    rest = run(store, clock, judging, progress=lambda done, total: told.append((done, total)))
    assert rest == Summary(checked=3)
    assert seen == [f"run-{n}" for n in range(7)]
    assert told == [(2, 3), (3, 3)]


def test_bytes_that_changed_are_named_and_judged_by_nobody(store: Store, clock: Clock) -> None:
    one, two = stored.submit(store, 1, 2)
    with writing(store.engine) as connection:
        edited = zlib.compress(stored.new_result(1).record.replace(b"run-1", b"run-9"))
        connection.execute(update(bodies).where(bodies.c.result_id == one).values(record=edited))
    found = run(store, clock, always(FINE))
    assert (found.checked, list(found.failed)) == (1, [one])
    assert "not those that were accepted" in found.failed[one]
    assert row_of(store, one).rules_sha256 == stored.RULES
    assert row_of(store, two).rules_sha256 == NEW


def test_a_judge_that_fails_ends_nothing(store: Store, clock: Clock) -> None:
    one, _ = stored.submit(store, 1, 2)

    def judging() -> Judge:
        def judge_it(payload: Payload, now: datetime) -> Verdict:
            if payload.run_id == "run-1":
                raise ZeroDivisionError("by zero")
            return FINE

        return judge_it

    found = run(store, clock, judging)
    assert (found.checked, found.failed) == (1, {one: "ZeroDivisionError: by zero"})
    assert run(store, clock, always(FINE)) == Summary(checked=1)


def test_hidden_and_withdrawn_results_stay_off_the_board(store: Store, clock: Clock) -> None:
    hidden, withdrawn, shown = stored.submit(store, 1, 2, 3)
    store.moderation.hide(hidden, "a doubt")
    store.withdraw(stored.withdrawal(withdrawn))
    assert run(store, clock, always(TOO_HIGH)) == Summary(checked=2, changed=2)
    assert board(store) == {shown: False}
    store.moderation.unhide(hidden)
    assert board(store) == {shown: False, hidden: False}


def test_a_result_that_is_withdrawn_meanwhile_is_left_alone(store: Store, clock: Clock) -> None:
    (one,) = stored.submit(store, 1)

    def judging() -> Judge:
        def judge_it(payload: Payload, now: datetime) -> Verdict:
            store.withdraw(stored.withdrawal(one))
            return TOO_HIGH

        return judge_it

    assert run(store, clock, judging) == Summary()
    assert board(store) == {}
    assert row_of(store, one).rules_sha256 == stored.RULES


def test_the_real_judge_in_processes_of_its_own(sqlite_store: Store, clock: Clock) -> None:
    sqlite_store.register_key(stored.registration())
    base = forge.forge_payload(small=True)
    runs = [forge.vary(base, run_id=f"20261130T120000Z-{n:06x}") for n in range(3)]
    for payload in runs:
        sqlite_store.accept(stored.new_result(payload=payload))
    edited = runs[0].model_copy(update={"run_id": "20261130T120000Z-ffffff"})
    sqlite_store.accept(stored.new_result(payload=edited))
    rules = load_rules()
    found = reverify(sqlite_store.engine, rules.sha256, now=clock, jobs=2)
    assert (found.checked, found.failed) == (4, {})
    with reading(sqlite_store.engine) as connection:
        query = select(results.c.not_ranked_because).order_by(results.c.leaf_index)
        reasons = list(connection.scalars(query))
    assert reasons[:3] == [["quick", "selection"]] * 3
    assert "implausible" in reasons[3]


def test_a_record_of_a_form_that_is_read_no_more_keeps_its_standing(
    store: Store, clock: Clock
) -> None:
    one, two = stored.submit(store, 1, 2)
    older = b'{"payload":{"form":"older"}}'
    digest = hashlib.sha256(older).hexdigest()
    with writing(store.engine) as connection:
        of = bodies.c.result_id == one
        connection.execute(update(bodies).where(of).values(record=zlib.compress(older)))
        of = results.c.id == one
        connection.execute(update(results).where(of).values(record_sha256=digest))
    assert run(store, clock, always(TOO_HIGH)) == Summary(checked=2, changed=2)
    row = row_of(store, one)
    assert (row.ranked, [fault["code"] for fault in row.faults]) == (True, ["other_rules"])
    assert board(store) == {one: True, two: False}
