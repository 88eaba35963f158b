"""How a server answers: the body of an error, what turns faults into it, and what each endpoint's
documentation says of them."""

from __future__ import annotations

import logging
import math
import secrets
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, ValidationError
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import compile_path

from npumark.record.canonical import MAX_INTEGER, canonical_bytes
from npumark.record.envelope import Instant
from npumark.server.refusal import CODES, Refused, refuse

JSON: Final = "application/json"

BODY_FAULTS: Final = (
    *("media_type", "encoding", "too_large", "too_slow", "busy"),
    *("too_deep", "not_json", "not_canonical", "wrong_form"),
)
"""What may be wrong with any body before it is looked at more closely."""

log = logging.getLogger("npumark.server")


class ErrorFields(BaseModel):
    """``details`` are the numbers behind the message; what is in them depends on the code."""

    model_config = ConfigDict(extra="forbid")

    code: str
    message: str
    details: dict[str, Any]
    server_time: Instant


class ErrorBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    error: ErrorFields


def instant(seconds: float) -> str:
    """Return UTC seconds since 1970 as an ``Instant``; fractions are dropped."""
    return datetime.fromtimestamp(int(seconds), UTC).isoformat().replace("+00:00", "Z")


def answer_of(refused: Refused, now: float, headers: dict[str, str] | None = None) -> Response:
    """Return the response that tells why a request is refused."""
    fault = refused.fault
    error = {
        "code": fault.code,
        "message": fault.message,
        "details": _spelled(fault.details),
        "server_time": instant(now),
    }
    sent = {"Cache-Control": "no-store", **(headers or {})}
    if refused.retry_after_s is not None:
        sent["Retry-After"] = str(refused.retry_after_s)
    return Response(canonical_bytes({"error": error}), refused.status, sent, JSON)


def _spelled(value: Any) -> Any:
    """Return ``value`` with numbers that JSON does not have, or not exactly, as text."""
    if isinstance(value, dict):
        return {str(key): _spelled(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_spelled(inner) for inner in value]
    odd = isinstance(value, float) and not math.isfinite(value)
    odd = odd or (isinstance(value, int) and abs(value) > MAX_INTEGER)
    return str(value) if odd else value


def unforeseen(fault: Exception) -> Refused:
    """Keep ``fault`` with its traceback in the log, and return a refusal that names the place."""
    name = secrets.token_hex(6)
    log.error("error %s: %s", name, fault, exc_info=fault)
    return refuse("internal", "the server met an error that it does not know", id=name)


def documented(*codes: str) -> dict[int | str, dict[str, Any]]:
    """Return an endpoint's ``responses`` for OpenAPI: which codes come with which status."""
    found: dict[int | str, dict[str, Any]] = {}
    for code in codes:
        status, meaning = CODES[code]
        # Not as a model: that would take the endpoint's own media type.
        entry = found.setdefault(status, {"content": described(ErrorBody), "description": ""})
        entry["description"] += f"{'; ' * bool(entry['description'])}`{code}`: {meaning}"
    return found


def described(model: type[BaseModel]) -> dict[str, Any]:
    """Return OpenAPI's ``content`` of a JSON body; ``description`` knows the model."""
    return {JSON: {"schema": {"$ref": f"#/components/schemas/{model.__name__}"}}}


def takes(model: type[BaseModel]) -> dict[str, Any]:
    """Return an endpoint's ``openapi_extra``: the body that it reads by itself."""
    return {"requestBody": {"required": True, "content": described(model)}}


def add_handlers(
    app: FastAPI,
    now: Callable[[], float] = time.time,
    page: Callable[[Request, Refused], Response] | None = None,
) -> None:
    """Let ``app`` answer every fault with the standard error body. A browser that asks for an
    address that does not exist gets ``page`` instead."""

    async def refused(_: Request, fault: Exception) -> Response:
        assert isinstance(fault, Refused)
        return answer_of(fault, now())

    async def invalid(_: Request, fault: Exception) -> Response:
        assert isinstance(fault, RequestValidationError)
        return answer_of(misfit("wrong_form", fault), now())

    async def http(request: Request, fault: Exception) -> Response:
        assert isinstance(fault, HTTPException)
        if fault.status_code == 405:
            # The router names those of one route alone; the API's description knows all.
            allowed = _methods(app, request.url.path) or (fault.headers or {}).get("Allow", "GET")
            told = refuse("method_not_allowed", "this address takes other methods", allow=allowed)
            return answer_of(told, now(), {"Allow": allowed})
        nothing = refuse("not_found", "there is nothing at this address")
        if page is not None and "text/html" in request.headers.get("accept", ""):
            return page(request, nothing)
        return answer_of(nothing, now())

    async def no_database(_: Request, fault: Exception) -> Response:
        log.error("the database does not answer: %s", fault)
        busy = refuse("busy", "the database does not answer; try again later", retry_after_s=5)
        return answer_of(busy, now())

    app.add_exception_handler(Refused, refused)
    for kind in (OperationalError, InterfaceError, PoolTimeout):
        app.add_exception_handler(kind, no_database)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, http)


def _methods(app: FastAPI, path: str) -> str:
    """Return the methods that the API takes at an address; empty where it is none of its own."""
    found = {
        method.upper()
        for template, methods in app.openapi()["paths"].items()
        if compile_path(template)[0].match(path)
        for method in methods
    }
    return ", ".join(sorted(found))


def misfit(code: str, fault: ValidationError | RequestValidationError, *within: str) -> Refused:
    """Return the refusal of what a model does not fit, ``within`` the part of the request that it
    was. What was sent is not repeated."""
    found = fault.errors()
    place = ".".join([*within, *(str(part)[:60] for part in found[0]["loc"][:12])])
    return refuse(
        code,
        f"{place}: {found[0]['msg']}"[:300],
        field=place,
        problem=str(found[0]["type"]),
        faults=len(found),
    )
