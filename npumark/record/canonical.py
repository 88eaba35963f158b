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
from collections import Counter
from itertools import accumulate
from json.encoder import encode_basestring
from typing import Any, NoReturn

import rfc8785

from npumark.errors import IntegrityError
from npumark.record.model import MAX_DEPTH, MAX_RECORD_BYTES

MAX_INTEGER = 2**53 - 1
"""The largest integer that every JSON reader holds exactly."""

_ASTRAL = re.compile("[\U00010000-\U0010ffff]")
"""Where there is none, keys order by code point as they do by UTF-16 unit."""


def canonical_bytes(value: Any) -> bytes:
    """Return the RFC 8785 bytes of a JSON value.

    Raises IntegrityError where it holds what canonical JSON cannot: a number that is not
    finite or an integer beyond 2**53 - 1, text that is not Unicode, a key that is no text.
    """
    try:
        text = _text(value)
        return rfc8785.dumps(value) if _ASTRAL.search(text) else text.encode()
    except (rfc8785.CanonicalizationError, UnicodeEncodeError, RecursionError) as fault:
        raise IntegrityError(f"this document has no canonical form: {fault}") from fault


def _text(value: Any) -> str:
    """Return the canonical text of a value, but for the order of astral keys.

    What JSON is mostly made of is written here, in half of the time that ``rfc8785`` takes. That
    writes everything else, and refuses what has no canonical form.
    """
    kind = type(value)
    if kind is str:
        return encode_basestring(value)  # exactly the escapes of section 3.2.2.2
    if kind is int and -MAX_INTEGER <= value <= MAX_INTEGER:
        return str(value)
    if value is None:
        return "null"
    if kind is dict:
        try:
            members = [f"{encode_basestring(key)}:{_text(value[key])}" for key in sorted(value)]
        except TypeError:  # a key that is no text
            return rfc8785.dumps(value).decode()
        return "{" + ",".join(members) + "}"
    if kind is list or kind is tuple:
        return "[" + ",".join([_text(item) for item in value]) + "]"
    if kind is float and value and "n" not in (text := repr(value)):  # nor "nan" nor "inf"
        return _exponential(text) if "e" in text else text.removesuffix(".0")
    if kind is bool:
        return "true" if value else "false"
    return rfc8785.dumps(value).decode()


def _exponential(text: str) -> str:
    """Return a number that Python spells with an exponent as ECMAScript does (RFC 8785 §3.2.2.3):
    the same digits, with an exponent below 1e-6 and from 1e21 on only."""
    sign = "-" if text[0] == "-" else ""
    mantissa, _, exponent = text[len(sign) :].partition("e")
    digits = mantissa.replace(".", "")
    point = int(exponent) + 1  # so many digits stand before the decimal point
    if -6 < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    if 0 < point <= 21:
        return f"{sign}{digits}{'0' * (point - len(digits))}"
    more = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{more}e{point - 1:+d}"


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
        found = dict(items)
        if len(found) < len(items):
            (twice, _), *_ = Counter(key for key, _ in items).most_common(1)
            refuse(f"holds the key {_shown(twice)} twice in one object")
        return found

    def integer(text: str) -> int:
        # Length first: int() itself refuses thousands of digits with an error of its own.
        if len(text) > 17 or abs(value := int(text)) > MAX_INTEGER:
            refuse(f"holds the integer {_shown(text)}, beyond what every reader keeps exact")
        return value

    def real(text: str) -> float:
        value = float(text)
        if not math.isfinite(value):
            refuse(f"holds the number {_shown(text)}, too large for a double")
        return value

    def constant(text: str) -> NoReturn:
        refuse(f"holds {text}, which is no number in JSON")

    if len(raw) > MAX_RECORD_BYTES:
        refuse(f"is larger than {MAX_RECORD_BYTES >> 20} MiB")
    if depth(raw) > MAX_DEPTH:
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


def canonical_loads(raw: bytes, *, what: str = "the record") -> Any:
    """Return the value as ``strict_loads`` does, of bytes that are its RFC 8785 form.

    Raises IntegrityError for what ``strict_loads`` refuses, and for any other layout, order of
    keys, escape or spelling of a number, naming the byte at which it begins.
    """
    value = strict_loads(raw, what=what)
    form = canonical_bytes(value)
    if form != raw:
        apart = (n for n, (a, b) in enumerate(zip(form, raw, strict=False)) if a != b)
        same = next(apart, min(len(form), len(raw)))
        raise IntegrityError(
            f"{what} is not in canonical form (RFC 8785), from byte {same} on",
            hint="Another program wrote it again; use the bytes that npumark wrote.",
        )
    return value


_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
"""A string, or all that is left where one does not end: no byte is looked at twice."""

_STEPS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_NO_BRACKET = bytes(set(range(256)) - set(_STEPS))


def depth(raw: bytes) -> int:
    """Return how deeply brackets nest outside strings, before any recursive reader sees them."""
    brackets = _STRING.sub(b"", raw).translate(None, _NO_BRACKET)
    return max(accumulate(map(_STEPS.__getitem__, brackets)), default=0)


def _shown(text: str) -> str:
    """Return ``text`` short and printable enough for a message."""
    short = text if len(text) <= 40 else text[:37] + "..."
    return json.dumps(short)
