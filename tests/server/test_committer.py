"""Storing together what waits together."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from npumark.server.committer import MOST_AT_ONCE, Committer
from npumark.server.refusal import Refused, refuse


class Slow:
    """Doubles numbers, once it is let; keeps what it was given in each batch."""

    def __init__(self) -> None:
        self.let = threading.Event()
        self.began = threading.Event()
        self.batches: list[list[int]] = []

    def __call__(self, batch: Sequence[int]) -> list[int | Exception]:
        self.batches.append(list(batch))
        self.began.set()
        assert self.let.wait(60)
        return [2 * n if n >= 0 else ValueError(f"{n} is negative") for n in batch]


def test_one_by_one_while_nothing_waits() -> None:
    slow = Slow()
    slow.let.set()
    committer = Committer(slow)
    assert [committer.submit(n).result(60) for n in range(3)] == [0, 2, 4]
    committer.close()
    assert slow.batches == [[0], [1], [2]]


def test_what_waits_is_stored_together() -> None:
    slow = Slow()
    committer = Committer(slow)
    futures = [committer.submit(0)]
    assert slow.began.wait(60)
    futures += [committer.submit(n) for n in range(1, MOST_AT_ONCE + 3)]
    slow.let.set()
    assert [f.result(60) for f in futures] == [2 * n for n in range(MOST_AT_ONCE + 3)]
    committer.close()
    assert [len(batch) for batch in slow.batches] == [1, MOST_AT_ONCE, 2]


def test_what_is_announced_is_waited_for_and_stored_together() -> None:
    slow = Slow()
    slow.let.set()
    committer = Committer(slow, gather_s=60)
    with committer.announced():
        futures = [committer.submit(n) for n in (1, 2)]
    assert [f.result(60) for f in futures] == [2, 4]
    committer.close()
    assert slow.batches == [[1, 2]]


def test_what_is_announced_and_does_not_come_holds_up_nothing_for_long() -> None:
    slow = Slow()
    slow.let.set()
    committer = Committer(slow, gather_s=0.001)
    with committer.announced():
        assert committer.submit(1).result(60) == 2
    committer.close()


def test_an_outcome_that_is_an_exception_is_its_items_own() -> None:
    slow = Slow()
    slow.let.set()
    committer = Committer(slow)
    bad, good = committer.submit(-1), committer.submit(1)
    with pytest.raises(ValueError, match="-1 is negative"):
        bad.result(60)
    assert good.result(60) == 2
    committer.close()


class Failing:
    """Stores no batch with a zero in it."""

    def __init__(self, fault: Exception) -> None:
        self.fault = fault
        self.slow = Slow()
        self.calls = 0

    def __call__(self, batch: Sequence[int]) -> list[int | Exception]:
        self.calls += 1
        found = self.slow(batch)
        if 0 in batch:
            raise self.fault
        return found


def settled(failing: Failing) -> list[int | BaseException | None]:
    """Submit 9, and then 1, 0 and 2, which wait together; return what became of these."""
    committer = Committer(failing)
    committer.submit(9)
    assert failing.slow.began.wait(60)
    futures = [committer.submit(n) for n in (1, 0, 2)]
    failing.slow.let.set()
    committer.close()
    return [f.exception(60) or f.result() for f in futures]


def test_one_that_cannot_be_stored_takes_none_with_it() -> None:
    fault = RuntimeError("zero")
    assert settled(Failing(fault)) == [2, fault, 4]


def test_a_refusal_of_the_database_is_for_the_whole_batch() -> None:
    fault: Refused = refuse("busy", "it is locked")
    failing = Failing(fault)
    assert settled(failing) == [fault] * 3
    assert failing.calls == 2


def test_what_nobody_waits_for_any_more_is_left_out() -> None:
    slow = Slow()
    committer = Committer(slow)
    committer.submit(1)
    assert slow.began.wait(60)
    gone, kept = committer.submit(2), committer.submit(3)
    assert gone.cancel()
    slow.let.set()
    assert kept.result(60) == 6
    committer.close()
    assert slow.batches == [[1], [3]]


def test_closing_stores_what_waits_and_takes_no_more() -> None:
    slow = Slow()
    committer = Committer(slow)
    futures = [committer.submit(n) for n in range(3)]
    slow.let.set()
    committer.close()
    committer.close()
    assert [f.result(0) for f in futures] == [0, 2, 4]
    with pytest.raises(RuntimeError, match="closed"):
        committer.submit(4)
