"""A result's page: the record as it was accepted, its standing, and how to check both."""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import Request
from sqlalchemy import select

from npumark.record.envelope import Receipt
from npumark.record.model import Payload
from npumark.report.catalog import catalog_of
from npumark.server.answers import instant
from npumark.server.api.submissions import shown
from npumark.server.database import reading
from npumark.server.figures import Device
from npumark.server.reverify import OTHER_RULES
from npumark.server.store import Store
from npumark.server.tables import figures, processors
from npumark.server.web.pages import body_of, page_cache
from npumark.server.web.result_view import result_view

_ID = re.compile(r"[0-9a-z]{16}")


@dataclass(frozen=True, slots=True)
class Result:
    """A result that may be shown; ``row`` is that of ``results``."""

    row: Any
    store: Store

    def payload(self) -> Payload:
        """Return what it says. Raises Refused where it was withdrawn meanwhile, or this version
        does not read it."""
        return self.store.payload(self.row.id)

    @property
    def key(self) -> Hashable:
        """All that decides what pages show of it."""
        row = self.row
        return (row.record_sha256, row.ranked, row.verified_at, row.rules_sha256)


def result_of(store: Store, result_id: str) -> Result:
    """Return a result that may be shown. Raises Refused (not_found, withdrawn)."""
    row = store.result(result_id) if _ID.fullmatch(result_id) else None
    return Result(shown(row), store)


def result_page(request: Request, result: Result) -> bytes:
    """Return the page of a result, made once for each standing that it has."""
    row = result.row
    cache = page_cache(request)
    page = cache.get(result.key)
    if page is None:
        receipt = Receipt.model_validate_json(row.receipt)
        rules = request.app.state.rules
        page = body_of(
            request,
            "result.html",
            row=row,
            view=result_view(result.payload(), catalog_of(rules.manifest)),
            links=_links(result),
            other_rules=OTHER_RULES,
            slow_card=rules.policy.box.slow_card,
            head=_head(receipt.log.checkpoint),
            received=instant(row.received_at),
            verified=instant(row.verified_at),
        )
        cache.put(result.key, page)
    return page


def _links(result: Result) -> dict[Device, str]:
    """Return the pages of the result's processors, those that have a figure."""
    statement = (
        select(processors.c.role, processors.c.name, processors.c.slug)
        .join(figures, figures.c.processor_id == processors.c.id)
        .where(figures.c.result_id == result.row.id)
        .distinct()
    )
    with reading(result.store.engine) as connection:
        rows = connection.execute(statement).all()
    return {Device(role, name): slug for role, name, slug in rows}


def _head(checkpoint: str) -> Sequence[str]:
    """Return the log's name, its size and its root (base64), as a signed note states them."""
    return checkpoint.split("\n")[:3]
