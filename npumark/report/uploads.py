"""Uploads as people and programs read them: where each stands, and why."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from npumark.plain import one_line
from npumark.report.page import Page
from npumark.report.sheet import DIM, STRONG, WARN, Sheet
from npumark.upload.item import Item, State
from npumark.upload.links import Upload
from npumark.upload.listing import Listing
from npumark.upload.servers import url_of
from npumark.upload.standing import not_ranked


def listing_text(listing: Listing, page: Page) -> str:
    """Return what is sent and what is not, as text."""
    sheet = Sheet(page)
    for heading, clauses in listing.parts():
        sheet.heading(heading)
        for clause in clauses:
            sheet.say(f"- {clause}", indent=2, hang=2)
    return sheet.text()


def links(sheet: Sheet, uploads: Iterable[Upload]) -> None:
    """Add to a run's report where it was uploaded to."""
    for upload in uploads:
        if upload.withdrawn_at is None:
            sheet.path("Uploaded:", upload.url)
        else:
            sheet.path(f"Uploaded, withdrawn at {upload.withdrawn_at}:", upload.url)


def render(items: Sequence[Item], page: Page) -> str:
    """Return uploads as text."""
    if not items:
        return "Nothing was uploaded yet.\n"
    sheet = Sheet(page)
    for item in items:
        _upload(sheet, item)
    return sheet.text()


def _upload(sheet: Sheet, item: Item) -> None:
    state, receipt = item.state, item.receipt
    name = state.label or "a run without a score"
    sheet.line((one_line(name), STRONG))
    sheet.say(f"run {state.run_id}, result {state.result_id}, queued {state.queued_at}", indent=2)
    sheet.path("For:", url_of(item.slug) or item.slug, indent=2)
    if state.withdrawn_at is not None:
        sheet.say(f"Withdrawn at {state.withdrawn_at}.", indent=2, style=WARN)
    elif receipt is not None:
        sheet.path("Sent:", receipt.url, indent=2)
        reasons = not_ranked(receipt)
        standing = f"Not ranked: {'; '.join(reasons)}." if reasons else "Ranked."
        sheet.say(standing, indent=2, style=WARN if reasons else "")
        sheet.say(
            f"Taken at {receipt.received_at} as leaf {receipt.log.index} of the server's log; "
            f"{receipt.attestation}.",
            indent=2,
            style=DIM,
        )
    elif (refused := state.refused) is not None:
        sheet.say(f"Refused ({refused.code}): {refused.message}.", indent=2, hang=2, style=WARN)
        sheet.say(
            f"It is kept: `npumark submit {state.run_id}` tries again, `npumark submit --discard "
            f"{state.result_id}` drops it.",
            indent=2,
            hang=2,
            style=DIM,
        )
    else:
        sheet.say(f"Queued, {_tried(state)}.", indent=2)


def _tried(state: State) -> str:
    parts = [f"tried at {state.tried_at}"] if state.tried_at else []
    if state.unreached_at:
        parts.append(f"the server could not be reached at {state.unreached_at}")
    return "; ".join(parts) or "not tried yet"


def document(item: Item) -> dict[str, Any]:
    """Return one upload as JSON values; ``server`` is null where none is remembered."""
    state, receipt = item.state, item.receipt
    return {
        "run_id": state.run_id,
        "result_id": state.result_id,
        "payload_sha256": state.payload_sha256,
        "label": state.label,
        "server": url_of(item.slug),
        "status": item.status,
        "queued_at": state.queued_at,
        "tried_at": state.tried_at,
        "unreached_at": state.unreached_at,
        "withdrawn_at": state.withdrawn_at,
        "url": receipt.url if receipt else None,
        "ranked": receipt.ranked if receipt else None,
        "not_ranked_because": receipt.not_ranked_because if receipt else None,
        "refused": state.refused.model_dump(mode="json") if state.refused else None,
    }
