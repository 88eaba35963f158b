"""How long a body may take, and how much of them a process holds."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from starlette.requests import ClientDisconnect, Request

from npumark.server.body import PACE, Bodies, due_s
from npumark.server.config import Limits
from npumark.server.refusal import Refused


def test_nothing_is_due_after_a_quarter_of_the_time() -> None:
    assert due_s(0, 20.0) == 5.0


def test_each_byte_buys_its_share_of_time_up_to_the_whole() -> None:
    assert due_s(PACE, 20.0) == 6.0
    assert due_s(1 << 30, 20.0) == 20.0


@dataclass
class Sender:
    """Sends chunks one after the other; after the last, nothing, or that it is gone."""

    chunks: list[bytes]
    ends: bool = True

    def request(self, **headers: str) -> Request:
        told = {"content_type": "application/json", **headers}
        raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in told.items()]
        scope: dict[str, Any] = {"type": "http", "method": "POST", "headers": raw}
        messages = self._messages()

        async def receive() -> dict[str, Any]:
            return next(messages)

        return Request(scope, receive)  # type: ignore[arg-type]

    def _messages(self) -> Iterator[dict[str, Any]]:
        for n, chunk in enumerate(self.chunks, 1):
            more = not self.ends or n < len(self.chunks)
            yield {"type": "http.request", "body": chunk, "more_body": more}
        yield {"type": "http.disconnect"}


def read(bodies: Bodies, request: Request, most: int | None = None) -> tuple[bytes, int]:
    """Return the body, and how much was held while it was there."""

    async def of() -> tuple[bytes, int]:
        async with bodies.of(request, most) as body:
            return body, bodies.held

    return asyncio.run(of())


def code_of(bodies: Bodies, request: Request, most: int | None = None) -> str:
    with pytest.raises(Refused) as caught:
        read(bodies, request, most)
    return caught.value.fault.code


def test_a_body_is_held_until_it_was_dealt_with() -> None:
    bodies = Bodies(Limits())
    assert read(bodies, Sender([b"ab", b"c"]).request()) == (b"abc", 3)
    assert bodies.held == 0


def test_a_body_of_exactly_the_cap_is_taken() -> None:
    assert read(Bodies(Limits()), Sender([b"abc"]).request(), 3)[0] == b"abc"


@pytest.mark.parametrize("chunks", [[b"abcd"], [b"ab", b"cd"], [b"abc", b"d"]])
def test_a_byte_above_the_cap_is_refused_as_it_arrives(chunks: list[bytes]) -> None:
    bodies = Bodies(Limits())
    assert code_of(bodies, Sender(chunks).request(), 3) == "too_large"
    assert bodies.held == 0


def test_more_than_a_process_holds_is_refused_for_now() -> None:
    bodies = Bodies(Limits(held_bytes=3))
    assert code_of(bodies, Sender([b"ab", b"cd"]).request()) == "busy"
    assert read(bodies, Sender([b"abc"]).request())[0] == b"abc"


def test_a_sender_that_goes_away_leaves_nothing_behind() -> None:
    bodies = Bodies(Limits())
    with pytest.raises(ClientDisconnect):
        read(bodies, Sender([b"ab"], ends=False).request())
    assert bodies.held == 0


@pytest.mark.parametrize("media", ["application/json", "application/json; charset=utf-8"])
def test_json_with_and_without_its_encoding_named(media: str) -> None:
    assert read(Bodies(Limits()), Sender([b"1"]).request(content_type=media))[0] == b"1"
