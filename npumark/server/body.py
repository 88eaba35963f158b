"""Reading a request's body: bounded in bytes and in time while it arrives, never decompressed.

What can be refused by the request's head is refused before a byte of the body is read. A refused
body is not read to its end: the answer closes the connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from starlette.requests import ClientDisconnect, Request

from npumark.server.config import Limits
from npumark.server.refusal import Refused, refuse

PACE: Final = 4096
"""Bytes per second that a body has to keep up with, after its grace."""

_GRACE_SHARE: Final = 0.25
"""Of the time that a body has: how long it may take before its pace counts."""

RETRY_S: Final = 5


def due_s(received: int, body_s: float) -> float:
    """Return by when, in seconds since the head, more than ``received`` bytes must be there."""
    return min(body_s, body_s * _GRACE_SHARE + received / PACE)


class Bodies:
    """The bodies that a process holds at a time: those that arrive and those that wait.

    Together they have at most ``limits.held_bytes``, so that no number of senders can fill the
    memory.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.held = 0

    @asynccontextmanager
    async def of(
        self, request: Request, most: int | None = None, media: str = "application/json"
    ) -> AsyncIterator[bytes]:
        """Give the body of ``request``, of type ``media`` and of at most ``most`` bytes (without
        it, as many as the limits say).

        Raises Refused (media_type, encoding, too_large, too_slow, busy), and ClientDisconnect
        where the sender is gone.
        """
        most = self._limits.body_bytes if most is None else most
        _check_head(request, most, media)
        clock = asyncio.get_running_loop().time
        body, began, more = bytearray(), clock(), True
        try:
            while more:
                try:
                    async with asyncio.timeout_at(began + due_s(len(body), self._limits.body_s)):
                        message = await request.receive()
                except TimeoutError:
                    raise self._too_slow(clock() - began, len(body)) from None
                if message["type"] == "http.disconnect":
                    raise ClientDisconnect
                chunk, more = message.get("body", b""), message.get("more_body", False)
                if len(body) + len(chunk) > most:
                    raise _too_large(most)
                if self.held + len(chunk) > self._limits.held_bytes:
                    raise refuse(
                        "busy",
                        "the server holds as many bodies as it can; send it again later",
                        retry_after_s=RETRY_S,
                    )
                self.held += len(chunk)
                body += chunk
            yield bytes(body)
        finally:
            self.held -= len(body)

    def _too_slow(self, took: float, received: int) -> Refused:
        return refuse(
            "too_slow",
            f"after {took:.1f} s only {received} bytes of the body were there",
            received=received,
            body_s=self._limits.body_s,
            bytes_per_s=PACE,
        )


def _check_head(request: Request, most: int, media: str) -> None:
    sent = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if sent != media:
        raise refuse("media_type", f"the body must be {media}", media_type=sent[:80])
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding != "identity":
        raise refuse("encoding", "the body is compressed; send it as it is", encoding=encoding[:80])
    stated = request.headers.get("content-length", "")
    # The protocol has refused what is no number; a chunked body states none.
    if stated.isdecimal() and int(stated) > most:
        raise _too_large(most, int(stated))


def _too_large(most: int, stated: int | None = None) -> Refused:
    return refuse("too_large", f"the body has more than {most} bytes", most=most, stated=stated)
