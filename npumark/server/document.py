"""A body as JSON: bounded before it is parsed, strict, and byte for byte its RFC 8785 form."""

from __future__ import annotations

from typing import Any, Final

from npumark.errors import IntegrityError
from npumark.record.canonical import canonical_bytes, depth, strict_loads
from npumark.record.model import MAX_DEPTH
from npumark.server.refusal import refuse

MOST_VALUES: Final = 200_000
"""JSON values in a body. A value takes far more memory and time than its bytes, so that a cap on
bytes alone is none."""


def read(body: bytes) -> Any:
    """Return the JSON value that ``body`` spells. Raises Refused (too_large for too many values,
    too_deep, not_json, not_canonical)."""
    _check_bounds(body)
    try:
        value = strict_loads(body, what="the body")
    except IntegrityError as fault:
        raise refuse("not_json", fault.message) from None
    if canonical_bytes(value) != body:
        raise refuse("not_canonical", "the body is not byte for byte its RFC 8785 form")
    return value


def _check_bounds(body: bytes) -> None:
    """Refuse by a look at the bytes what would take long to parse, or to look at more closely."""
    opened = body.count(b"[") + body.count(b"{")
    # Each value but the first follows a comma or an opening bracket, and it and its key have at
    # most four quotes. What strings hold counts as well: no record comes near the cap with it.
    values = max(opened + body.count(b","), body.count(b'"') // 4) + 1
    if values > MOST_VALUES:
        raise refuse(
            "too_large",
            f"the body has more than {MOST_VALUES} values",
            most_values=MOST_VALUES,
            values=values,
        )
    if opened > MAX_DEPTH and depth(body) > MAX_DEPTH:
        raise refuse(
            "too_deep", f"the body is nested more than {MAX_DEPTH} levels deep", most=MAX_DEPTH
        )
