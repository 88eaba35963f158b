"""HTTP/1.1 as uvicorn speaks it, with what keeps one sender from holding up the others.

A request's head has a deadline; a process serves a bounded number of connections; and a connection
that is closed over a body that is still arriving stays half open for a moment, since a system that
is sent more after it closed answers with a reset, which would take the refusal from its reader.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

import h11
from starlette.types import Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from npumark.server.answers import answer_of
from npumark.server.config import Limits
from npumark.server.refusal import Refused, refuse

LINGER_S: Final = 1.0
"""How long what still arrives after a refusal is thrown away."""


class GuardedProtocol(H11Protocol):
    """One connection. Its limits (``config.Limits``) are the app's, which its lifespan states."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._limits: Limits = app_state["limits"]
        self._head_due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(_Lingering(transport, self))
        if len(self.connections) > 2 * self._limits.connections:
            self.transport.abort()
            return
        if len(self.connections) > self._limits.connections:
            self.app = _full
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget_head()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        super().data_received(data)
        if self._answering():
            self._forget_head()
        else:
            self._expect_head()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP; ``msg`` is uvicorn's own sentence."""
        self._refuse(refuse("not_http", msg))

    def unread(self) -> bool:
        """Whether more of the present request's body may arrive."""
        return self.cycle is not None and self.cycle.more_body

    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _expect_head(self) -> None:
        if self._head_due is None and not self.transport.is_closing():
            self._head_due = self.loop.call_later(self._limits.head_s, self._head_is_late)

    def _forget_head(self) -> None:
        if self._head_due is not None:
            self._head_due.cancel()
            self._head_due = None

    def _head_is_late(self) -> None:
        self._head_due = None
        if not self.transport.is_closing():
            self._refuse(
                refuse(
                    "too_slow",
                    f"the request's head was not there after {self._limits.head_s:g} s",
                    head_s=self._limits.head_s,
                )
            )

    def _refuse(self, refused: Refused) -> None:
        """Answer outside of any request, and close."""
        answer = answer_of(refused, time.time(), {"Connection": "close"})
        response = h11.Response(status_code=answer.status_code, headers=answer.raw_headers)
        for event in (response, h11.Data(data=bytes(answer.body)), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event))
        self.transport.close()


class _Lingering(asyncio.Transport):
    """A connection's transport, whose ``close`` leaves the reading half open for a moment where a
    body is still arriving: it ends the answer, and what comes until then is thrown away."""

    def __init__(self, transport: asyncio.Transport, protocol: GuardedProtocol) -> None:
        super().__init__()
        self._transport = transport
        self._protocol = protocol
        self.closed = False

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        if self._transport.is_closing() or not self._protocol.unread():
            self._transport.close()
            return
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self._transport.resume_reading()
        self._protocol.loop.call_later(LINGER_S, self._transport.close)

    def is_closing(self) -> bool:
        return self.closed or self._transport.is_closing()

    def abort(self) -> None:
        self._transport.abort()

    def write(self, data: Any) -> None:
        self._transport.write(data)

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)


async def _full(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer on a connection that is one too many."""
    refused = refuse(
        "busy", "the server has as many connections as it serves at a time", retry_after_s=5
    )
    answer = answer_of(refused, time.time(), {"Connection": "close"})
    await answer(scope, receive, send)
