"""Where a run was uploaded to: read from the queues, without a network."""

from __future__ import annotations

from dataclasses import dataclass

from npumark.upload.queue import queues


@dataclass(frozen=True, slots=True)
class Upload:
    """An upload that a server has taken. ``withdrawn_at`` is null while it is shown there."""

    url: str
    received_at: str
    withdrawn_at: str | None


def uploaded(run_id: str) -> list[Upload]:
    """Return every upload of a run that a server gave a receipt for, the first one first."""
    try:
        items = [item for queue in queues() for item in queue.items()[0]]
    except OSError:
        return []  # `npumark submit` says what is wrong there
    found = [
        Upload(item.receipt.url, item.receipt.received_at, item.state.withdrawn_at)
        for item in items
        if item.state.run_id == run_id and item.receipt is not None
    ]
    return sorted(found, key=lambda upload: (upload.received_at, upload.url))
