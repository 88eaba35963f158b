"""Signals raise where nothing can be lost and are handed over where something could."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from npumark.orchestrator.interrupts import Interrupts

pytestmark = pytest.mark.skipif(os.name != "posix", reason="sends POSIX signals")


@pytest.fixture(autouse=True)
def heard() -> Iterator[None]:
    """Undo what a shell does to a test run in the background: ignored signals."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {n: signal.signal(n, signal.SIG_DFL) for n in numbers}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_raises_and_is_remembered(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with Interrupts() as interrupts:
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
        assert (interrupts.count, interrupts.name) == (1, number.name)
        with pytest.raises(KeyboardInterrupt):
            interrupts.check()
    assert signal.getsignal(number) == before


def test_a_deferred_signal_is_handed_over() -> None:
    told: list[int] = []
    with Interrupts() as interrupts:
        interrupts.check()
        with interrupts.deferred(told.append):
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGINT)
        assert told == [1, 2]
        assert interrupts.name == "SIGTERM"
        with interrupts.deferred(told.append):
            assert told == [1, 2, 2]


def test_an_ignored_signal_stays_ignored() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with Interrupts() as interrupts:
        os.kill(os.getpid(), signal.SIGHUP)
        assert not interrupts.seen
