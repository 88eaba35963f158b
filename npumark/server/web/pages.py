"""How a page is made: templates that escape everything, and how long it may be kept."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from fastapi import Request
from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from starlette.responses import Response

from npumark.plain import count
from npumark.report.words import figure, part, percent, shape, tops
from npumark.server.charts import bar, dots, histogram
from npumark.server.refusal import CODES, Refused
from npumark.server.web.page_cache import PageCache
from npumark.server.web.standing import reason_words

_HERE: Final = Path(__file__).parent
HTML: Final = "text/html; charset=utf-8"
CACHED_BYTES: Final = 8 << 20

_SYSTEMS = {
    "linux": "Linux",
    "windows": "Windows",
    "macos": "macOS",
    "android": "Android",
    "ios": "iOS",
    "other": "another system",
}


def render(
    request: Request,
    template: str,
    *,
    status: int = 200,
    kept_s: int = 0,
    **shown: Any,
) -> Response:
    """Return a page. It may be kept for ``kept_s`` seconds; a browser then asks whether it is
    still the same."""
    return respond(request, body_of(request, template, **shown), status=status, kept_s=kept_s)


def body_of(request: Request, template: str, **shown: Any) -> bytes:
    """Return a page's bytes."""
    config = request.app.state.config
    text = (
        _templates()
        .get_template(template)
        .render(
            root=urlsplit(config.url).path.rstrip("/"),
            site=config.url,
            origin=config.origin,
            **shown,
        )
    )
    return text.encode("utf-8", "replace")


def respond(request: Request, body: bytes, *, status: int = 200, kept_s: int = 0) -> Response:
    """Return ``body``, or 304 where the browser has it already."""
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    kept = f"public, max-age={kept_s}" if kept_s else "no-cache"
    headers = {"ETag": tag, "Cache-Control": kept}
    if status == 200 and tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(body, status, headers, media_type=HTML)


def error_page(request: Request, refused: Refused) -> Response:
    """Return the page that tells why there is no other."""
    fault = refused.fault
    response = render(
        request,
        "error.html",
        status=refused.status,
        code=fault.code,
        status_code=refused.status,
        message=fault.message,
        meaning=CODES[fault.code][1],
    )
    response.headers["Cache-Control"] = "no-store"
    return response


def page_cache(request: Request) -> PageCache:
    """Return the pages that this process keeps."""
    state = request.app.state
    if not hasattr(state, "page_cache"):
        state.page_cache = PageCache(CACHED_BYTES)
    found = state.page_cache
    assert isinstance(found, PageCache)
    return found


@cache
def static_files() -> Mapping[str, tuple[str, bytes, str]]:
    """Return the files beside the pages: name -> media type, content, and a digest of it."""
    types = {"site.css": "text/css", "site.js": "text/javascript", "icon.svg": "image/svg+xml"}
    found = {}
    for name, media in types.items():
        raw = (_HERE / "static" / name).read_bytes()
        found[name] = (media, raw, hashlib.sha256(raw).hexdigest()[:16])
    return found


@cache
def _templates() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters.update(
        tops=tops,
        figure=figure,
        percent=percent,
        part=part,
        shape=shape,
        system=_system,
        day=_day,
        plain=_plain,
        share=_share,
    )
    environment.globals.update(
        bar=bar,
        dots=dots,
        histogram=histogram,
        plural=count,
        static=_static,
        reason=reason_words,
        query=query,
    )
    return environment


def query(fields: Mapping[str, Any], **over: Any) -> str:
    """Return the address's part after the path for ``fields``, some replaced; empty ones left
    out."""
    told = {name: value for name, value in {**fields, **over}.items() if value}
    return f"?{urlencode(told)}" if told else ""


def _static(name: str) -> str:
    """Return a static file's path: its digest is in the address, so that it can be kept."""
    return f"/static/{name}?{static_files()[name][2]}"


def _system(code: str) -> str:
    return _SYSTEMS.get(code, code)


def _plain(bound: float) -> str:
    """Return a bound as the policy states it: ``20``, ``1.05``."""
    return f"{bound:g}"


def _share(bound: float) -> str:
    return f"{100 * bound:g} %"


def _day(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d}"
