"""The results server as an ASGI app: its parts put together, and opened and closed in order."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI

import npumark
from npumark.errors import SetupError
from npumark.server.answers import add_handlers, documented
from npumark.server.api import board, docs, health, keys, log, server, submissions
from npumark.server.body import Bodies
from npumark.server.config import ServerConfig
from npumark.server.description import description
from npumark.server.desk import Desk
from npumark.server.metrics import Metrics, forget_process
from npumark.server.outer import Compressed, Outer
from npumark.server.rules import load_rules
from npumark.server.store import Store
from npumark.server.web import routes
from npumark.server.web.pages import error_page


def create_app(
    config: ServerConfig, store: Store | None = None, *, now: Callable[[], float] = time.time
) -> FastAPI:
    """Return the app of a server. A ``store`` that is given is open, and stays so; without one,
    the app opens its own as it starts, and closes it as it stops. ``now`` gives UTC seconds
    since 1970.

    Starting raises SetupError where the database is not reachable or has another schema.
    """
    kept = store or Store(config, now=now)
    metrics = Metrics()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, Any]]:
        if store is None:
            kept.open()
        try:
            if not kept.schema_is_current():
                raise SetupError(
                    "the database has the schema of another version of npumark",
                    "Start it with `npumark serve`, which brings it up to date.",
                )
            yield {"limits": config.limits}
        finally:
            app.state.desk.close()
            if store is None:
                kept.close()
            forget_process()

    app = FastAPI(
        title="NPUMark results",
        version=npumark.__version__,
        description="Signed measurements of AI accelerators: submitted, recomputed, logged, shown.",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        redirect_slashes=False,
        separate_input_output_schemas=False,
        responses=documented("internal", "busy"),
        generate_unique_id_function=lambda route: route.name,
    )
    rules = load_rules()
    app.state.config = config
    app.state.store = kept
    app.state.rules = rules
    app.state.now = now
    app.state.metrics = metrics
    app.state.bodies = Bodies(config.limits)
    app.state.desk = Desk(kept, config, rules, metrics, now)
    add_handlers(app, now, error_page)
    app.add_middleware(Compressed)
    app.add_middleware(Outer, metrics=metrics, now=now)
    for part in (health, server, keys, submissions, board, log, docs, routes):
        app.include_router(part.router)
    app.openapi = lambda: description(app)  # type: ignore[method-assign]
    return app
