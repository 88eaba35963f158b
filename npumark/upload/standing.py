"""Why a server takes a result and does not rank it, in words."""

from __future__ import annotations

from npumark.record.envelope import Receipt
from npumark.score.comparability import NOT_RANKED


def not_ranked(receipt: Receipt) -> list[str]:
    """Return in words why a result is not ranked; empty where it is."""
    if receipt.ranked:
        return []
    codes = receipt.not_ranked_because
    return [NOT_RANKED.get(c, c.replace("_", " ")) for c in codes] or [
        "the server does not say why"
    ]
