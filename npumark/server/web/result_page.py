"""A result's page: the record as it was accepted, its standing, and how to check both."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import Request
from sqlalchemy import select

from npumark.pack.manifest import load_manifest
from npumark.policy import load_policy
from npumark.record.envelope import Receipt
from npumark.record.model import Record
from npumark.report.catalog import catalog_of
from npumark.server.answers import instant
from npumark.server.api.submissions import shown
from npumark.server.database import reading
from npumark.server.figures import Device
from npumark.server.refusal import refuse
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

    def record(self) -> Record:
        """Return the stored record. Raises Refused where it was withdrawn meanwhile."""
        raw = self.store.record_bytes(self.row.id)
        if raw is None:
            raise refuse("withdrawn", "its owner withdrew it")
        return Record.model_validate_json(raw)


def result_of(store: Store, result_id: str) -> Result:
    """Return a result that may be shown. Raises Refused (not_found, withdrawn)."""
    row = store.result(result_id) if _ID.fullmatch(result_id) else None
    return Result(shown(row), store)


def result_page(request: Request, result: Result) -> bytes:
    """Return the page of a result, made once for each standing that it has."""
    row = result.row
    key = (row.record_sha256, row.ranked, row.verified_at, row.rules_sha256)
    cache = page_cache(request)
    page = cache.get(key)
    if page is None:
        record = result.record()
        receipt = Receipt.model_validate_json(row.receipt)
        page = body_of(
            request,
            "result.html",
            row=row,
            view=result_view(record.payload, catalog_of(load_manifest())),
            links=_links(result),
            slow_card=load_policy().box.slow_card,
            head=_head(receipt.log.checkpoint),
            received=instant(row.received_at),
            verified=instant(row.verified_at),
        )
        cache.put(key, page)
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
