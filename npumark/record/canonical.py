"""One document, one string of bytes: strict JSON in, RFC 8785 canonical JSON out.

Python's own reader takes what other readers refuse or read differently: duplicate keys (the
last wins), ``NaN``, a number too large for a double, integers that a double cannot hold. A
record that two programs read differently cannot be verified, so each of them is refused here.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from typing import Any, NoReturn

import rfc8785

from npumark.errors import IntegrityError
from npumark.record.model import MAX_DEPTH, MAX_RECORD_BYTES

MAX_INTEGER = 2**53 - 1
"""The largest integer that every JSON reader holds exactly."""


def canonical_bytes(value: Any) -> bytes:
    """Return the RFC 8785 bytes of a JSON value.

    Raises IntegrityError where it holds what canonical JSON cannot: a number that is not
    finite or an integer beyond 2**53 - 1, text that is not Unicode, a key that is no text.
    """
    try:
        return rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, UnicodeEncodeError, RecursionError) as fault:
        raise IntegrityError(f"this document has no canonical form: {fault}") from fault


def payload_sha256(payload: Any) -> str:
    """Return the record's digest: the sha256, in hexadecimal, of the payload's canonical bytes."""
    return hashlib.sha256(canonical_bytes(payload)).hexdigest()


def strict_loads(raw: bytes, *, what: str = "the record") -> Any:
    """Return the JSON value that ``raw`` (UTF-8) spells, ``what`` naming it in a message.

    Raises IntegrityError with one sentence for anything two readers could disagree on: wrong
    encoding, broken or trailing text, duplicate keys, NaN and infinities in any spelling,
    integers beyond 2**53 - 1, lone surrogates, nesting or size beyond the record's limits.
    """

    def refuse(reason: str) -> NoReturn:
        raise IntegrityError(
            f"{what} {reason}",
            hint="It was damaged or edited after it was written; use another copy.",
        )

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in items:
            if key in found:
                refuse(f"holds the key {_shown(key)} twice in one object")
            found[key] = value
        return found

    def integer(text: str) -> int:
        # Length first: int() itself refuses thousands of digits with an error of its own.
        if len(text) > 17 or abs(int(text)) > MAX_INTEGER:
            refuse(f"holds the integer {_shown(text)}, beyond what every reader keeps exact")
        return int(text)

    def real(text: str) -> float:
        value = float(text)
        if not math.isfinite(value):
            refuse(f"holds the number {_shown(text)}, too large for a double")
        return value

    def constant(text: str) -> NoReturn:
        refuse(f"holds {text}, which is no number in JSON")

    if len(raw) > MAX_RECORD_BYTES:
        refuse(f"is larger than {MAX_RECORD_BYTES >> 20} MiB")
    if _depth(raw) > MAX_DEPTH:
        refuse(f"is nested more than {MAX_DEPTH} levels deep")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as fault:
        refuse(f"is not UTF-8 text (byte {fault.start})")
    try:
        value = json.loads(
            text,
            object_pairs_hook=pairs,
            parse_int=integer,
            parse_float=real,
            parse_constant=constant,
        )
    except json.JSONDecodeError as fault:
        refuse(f"is not complete, correct JSON (line {fault.lineno}: {fault.msg})")
    if b"\\u" in raw:  # only an escape can spell a lone surrogate
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            refuse("holds half of a surrogate pair, which is no Unicode text")
    return value


_BRACKETS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|([\[{])|([\]}])', re.DOTALL)


def _depth(raw: bytes) -> int:
    """Return how deeply brackets nest outside strings, before any recursive reader sees them."""
    deepest = depth = 0
    for found in _BRACKETS.finditer(raw):
        if found[1] is not None:
            depth += 1
            deepest = max(deepest, depth)
        elif found[2] is not None:
            depth -= 1
    return deepest


def _shown(text: str) -> str:
    """Return ``text`` short and printable enough for a message."""
    short = text if len(text) <= 40 else text[:37] + "..."
    return json.dumps(short)
