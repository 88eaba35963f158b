"""What surrounds every request of an app: the last resort, headers, and counting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from npumark.server.answers import answer_of, unforeseen
from npumark.server.metrics import Metrics
from npumark.server.refusal import refuse

HEADERS: Final = {
    # Scripts and styles come from files of the server itself; nothing in a page's text is either.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; font-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}

_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
"""Those that are counted by name: what strangers make up must not make series without end."""

_AS_IT_IS: Final = ("/log/", "/metrics")
"""What is served to the byte, or is small; records too (``…/record``)."""


class Outer:
    """The outermost layer of an app (ASGI)."""

    def __init__(self, app: ASGIApp, metrics: Metrics, now: Callable[[], float]) -> None:
        self._app = app
        self._metrics = metrics
        self._now = now

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 0
        unread = True

        async def sends(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                if unread:
                    headers["Connection"] = "close"
            await send(message)

        async def receives() -> Message:
            nonlocal unread
            message = await receive()
            unread = message["type"] == "http.request" and message.get("more_body", False)
            return message

        unread = _has_body(scope)
        try:
            await self._app(scope, receives, sends)
        except ClientDisconnect:
            return
        except asyncio.CancelledError:  # told to stop, and the time to finish is over
            if status == 0:
                told = refuse("busy", "the server stops; send it again later", retry_after_s=5)
                await answer_of(told, self._now())(scope, receive, sends)
        except Exception as fault:  # noqa: BLE001 - the one place where every error ends
            refused = unforeseen(fault)
            if status == 0:
                await answer_of(refused, self._now())(scope, receive, sends)
        finally:
            route = getattr(scope.get("route"), "path", "unknown")
            method = scope["method"] if scope["method"] in _METHODS else "other"
            self._metrics.requests.labels(method, route, status).inc()


class Compressed:
    """Compresses pages and lists; what is checked to the byte travels as it is."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._compressed = GZipMiddleware(app, minimum_size=1024, compresslevel=5)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        plain = scope["type"] != "http" or path.startswith(_AS_IT_IS) or path.endswith("/record")
        await (self._app if plain else self._compressed)(scope, receive, send)


def _has_body(scope: Scope) -> bool:
    headers = Headers(scope=scope)
    return "transfer-encoding" in headers or headers.get("content-length", "0") != "0"
