"""Connections to a process: how many it serves, and how long a request's head may take."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.server import ServerState

from npumark.server.config import Limits
from npumark.server.protocol import GuardedProtocol


async def hello(scope: Scope, receive: Receive, send: Send) -> None:
    headers = [(b"content-length", b"5")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"hello"})


@asynccontextmanager
async def listening(limits: Limits, app: ASGIApp = hello) -> AsyncIterator[int]:
    """Serve ``app`` with these limits; give the port."""
    config = uvicorn.Config(app, http=GuardedProtocol, lifespan="off", log_config=None)
    config.load()
    state, loop = ServerState(), asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: GuardedProtocol(config, state, {"limits": limits}, loop), "127.0.0.1", 0
    )
    async with server:
        yield server.sockets[0].getsockname()[1]
        for connection in list(state.connections):
            connection.transport.abort()  # type: ignore[union-attr]


class Connection:
    async def open(self, port: int) -> Connection:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", port)
        return self

    async def ask(self) -> tuple[int, bytes]:
        """Send a request; return status and body of the answer."""
        self.writer.write(b"GET / HTTP/1.1\r\nHost: server\r\n\r\n")
        return await self.answer()

    async def answer(self) -> tuple[int, bytes]:
        head = (await self.reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.partition(b"content-length: ")[2].split()[0])
        return int(head.split()[1]), await self.reader.readexactly(length)


def test_a_connection_too_many_is_told_so_and_the_others_go_on() -> None:
    async def run() -> None:
        async with listening(Limits(connections=2)) as port:
            first, second, third = [await Connection().open(port) for _ in range(3)]
            assert await first.ask() == (200, b"hello")
            assert await second.ask() == (200, b"hello")
            status, body = await third.ask()
            assert (status, json.loads(body)["error"]["code"]) == (503, "busy")
            assert await third.reader.read() == b""
            assert await first.ask() == (200, b"hello")
            for each in (first, second, third):
                each.writer.close()

    asyncio.run(run())


def test_twice_as_many_connections_are_not_even_answered() -> None:
    async def run() -> None:
        async with listening(Limits(connections=1)) as port:
            opened = [await Connection().open(port) for _ in range(3)]
            assert await opened[0].ask() == (200, b"hello")
            assert await opened[2].reader.read() == b""
            for each in opened:
                each.writer.close()

    asyncio.run(run())


SOON = Limits(head_s=0.1)
"""Nothing is asserted about the time; it is short so that the tests are."""


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: serv"])
def test_a_head_that_stops_arriving_is_refused(sent: bytes) -> None:
    async def run() -> None:
        async with listening(SOON) as port:
            connection = await Connection().open(port)
            connection.writer.write(sent)
            status, body = await connection.answer()
            assert (status, json.loads(body)["error"]["code"]) == (408, "too_slow")
            assert await connection.reader.read() == b""
            connection.writer.close()

    asyncio.run(run())


def test_a_later_head_has_a_deadline_as_well() -> None:
    async def run() -> None:
        async with listening(SOON) as port:
            connection = await Connection().open(port)
            assert await connection.ask() == (200, b"hello")
            connection.writer.write(b"GET / HT")
            assert (await connection.answer())[0] == 408
            connection.writer.close()

    asyncio.run(run())


def test_an_answer_that_takes_longer_than_a_head_may_is_waited_for() -> None:
    late = asyncio.Event()

    async def slowly(scope: Scope, receive: Receive, send: Send) -> None:
        await late.wait()
        await hello(scope, receive, send)

    async def run() -> None:
        async with listening(SOON, slowly) as port:
            connection = await Connection().open(port)
            asyncio.get_running_loop().call_later(3 * SOON.head_s, late.set)
            assert await connection.ask() == (200, b"hello")
            connection.writer.close()

    asyncio.run(run())
