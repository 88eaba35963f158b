"""How many submissions are verified and wait at a time, and what is counted of them."""

from __future__ import annotations

import asyncio
import threading
from contextlib import nullcontext
from typing import Any

import pytest
from prometheus_client import REGISTRY

from npumark.server import intake
from npumark.server.config import Limits
from npumark.server.desk import Desk
from npumark.server.metrics import Metrics
from npumark.server.refusal import Refused
from tests.server.conftest import NOW, config_of


class Nothing:
    """A store of nothing: what is verified here is not stored."""

    announced = nullcontext


def make(limits: Limits) -> Desk:
    store: Any = Nothing()
    rules: Any = None
    return Desk(store, config_of("sqlite:///x", limits=limits), rules, Metrics(), lambda: NOW)


def test_what_is_one_too_many_is_refused_for_now(monkeypatch: pytest.MonkeyPatch) -> None:
    verified = threading.Event()

    def verify(body: bytes, *_: object) -> bytes:
        verified.wait()
        return body

    monkeypatch.setattr(intake, "verify", verify)
    desk = make(Limits(verifying=1, waiting=1))

    async def three() -> list[tuple[int, bytes]]:
        begun = [asyncio.create_task(desk.take(body)) for body in (b"1", b"2")]
        await asyncio.sleep(0)  # both are inside now
        with pytest.raises(Refused) as caught:
            await desk.take(b"3")
        assert (caught.value.fault.code, caught.value.status) == ("busy", 503)
        assert caught.value.retry_after_s is not None
        verified.set()
        return [await task for task in begun]

    assert asyncio.run(three()) == [(200, b"1"), (200, b"2")]
    desk.check_room()
    desk.close()


def test_a_refusal_makes_room_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def verify(*_: object) -> bytes:
        raise intake.refuse("digest", "it does not hold")

    monkeypatch.setattr(intake, "verify", verify)
    desk = make(Limits(verifying=1, waiting=0))

    async def codes() -> list[str]:
        found = []
        for _ in range(3):
            with pytest.raises(Refused) as caught:
                await desk.take(b"")
            found.append(caught.value.fault.code)
        return found

    assert asyncio.run(codes()) == ["digest"] * 3
    desk.close()


def test_an_app_counts_for_itself_alone() -> None:
    first, second = Metrics(), Metrics()
    first.submissions.labels("accepted").inc()
    assert b'npumark_submissions_total{code="accepted"} 1.0' in first.text(7)
    assert b'code="accepted"' not in second.text(7)
    assert b"npumark_log_size 7\n" in second.text(7)
    assert not [m for m in REGISTRY.collect() if m.name.startswith("npumark")]
