from __future__ import annotations

import json
import math
import struct
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import Any

import pytest
import rfc8785
from hypothesis import example, given
from hypothesis import strategies as st

from npumark.errors import IntegrityError
from npumark.record.canonical import (
    MAX_INTEGER,
    canonical_bytes,
    canonical_loads,
    payload_sha256,
    strict_loads,
)
from npumark.record.model import MAX_DEPTH, MAX_RECORD_BYTES

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "vectors" / "rfc8785.json").read_text("utf-8")
)


@pytest.mark.parametrize(("bits", "text"), VECTORS["numbers"].items())
def test_numbers_have_the_text_of_rfc_8785(bits: str, text: str) -> None:
    value = struct.unpack(">d", bytes.fromhex(bits))[0]
    assert canonical_bytes(value) == text.encode()


@pytest.mark.parametrize(("bits", "name"), VECTORS["refused_numbers"].items())
def test_what_rfc_8785_calls_no_number_is_refused(bits: str, name: str) -> None:
    value = struct.unpack(">d", bytes.fromhex(bits))[0]
    with pytest.raises(IntegrityError, match="no canonical form"):
        canonical_bytes(value)
    with pytest.raises(IntegrityError, match="no number in JSON"):
        strict_loads(name.encode())


@pytest.mark.parametrize("vector", VECTORS["documents"], ids=lambda vector: vector["about"])
def test_documents_have_the_bytes_of_their_vector(vector: dict[str, Any]) -> None:
    spelled, wanted = vector["json"].encode(), vector["canonical"].encode()
    assert canonical_bytes(strict_loads(spelled)) == wanted
    if vector["read_back"]:
        assert canonical_bytes(canonical_loads(wanted)) == wanted
    for raw in {spelled, wanted} - ({wanted} if vector["read_back"] else set()):
        with pytest.raises(IntegrityError):
            canonical_loads(raw)


def test_keys_are_ordered_by_utf16_units_not_by_code_point() -> None:
    # RFC 8785, section 3.2.3: U+1F600 is a surrogate pair and sorts before U+FB33.
    keys = ["\u20ac", "\r", "\ufb33", "1", "\U0001f600", "\u0080", "\u00f6"]
    ordered = list(json.loads(canonical_bytes(dict.fromkeys(keys, 0)), object_pairs_hook=list))
    assert [key for key, _ in ordered] == [
        "\r", "1", "\u0080", "\u00f6", "\u20ac", "\U0001f600", "\ufb33",
    ]  # fmt: skip


def test_strings_are_escaped_as_rfc_8785_asks() -> None:
    text = '\u20ac$\u000f\nA\'B"\\\\"/\u007f'
    assert canonical_bytes(text) == '"\u20ac$\\u000f\\nA\'B\\"\\\\\\\\\\"/\u007f"'.encode()


def test_a_digest_does_not_depend_on_layout_or_number_spelling() -> None:
    first = strict_loads(b'{"b": 10.0, "a": [1e2, -0.0]}')
    second = strict_loads(b'{\n "a": [100, 0], "b": 10\n}')
    assert payload_sha256(first) == payload_sha256(second)
    assert canonical_bytes(first) == b'{"a":[100,0],"b":10}'


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, -math.inf, 2**53, -(2**53), "\ud800", {"\ud800": 1}, {1: 2}]
)
def test_what_canonical_json_cannot_hold_is_refused(value: Any) -> None:
    with pytest.raises(IntegrityError, match="no canonical form"):
        canonical_bytes(value)


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b'{"score":1,"score":99}', 'the key "score" twice'),
        (b'{"score":1,"sc\\u006fre":99}', 'the key "score" twice'),
        (b'[{"a":{"b":1,"b":1}}]', 'the key "b" twice'),
        (b"[NaN]", "NaN"),
        (b"[Infinity]", "Infinity"),
        (b"[-Infinity]", "-Infinity"),
        (b"[1e999]", "too large for a double"),
        (b"[-1e999]", "too large for a double"),
        (b"[9007199254740992]", "beyond what every reader"),
        (b"[-9007199254740992]", "beyond what every reader"),
        (b"[" + b"1" * 5000 + b"]", "beyond what every reader"),
        (b"\xff", "not UTF-8"),
        (b"", "not complete"),
        (b"[1] 2", "not complete"),
        (b"[1,]", "not complete"),
        (b'["\\udc00"]', "surrogate"),
        (b'["' + b"\\", "not complete"),
        (b'"' + b'\\"' * 1_000_000, "not complete"),
        (b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1), "nested more than"),
        (b"[" * 100_000, "nested more than"),
        (b'{"a":' * 100_000, "nested more than"),
        (b" " * (MAX_RECORD_BYTES + 1), "larger than 32 MiB"),
    ],
    ids=lambda value: value[:24].decode("latin-1") if isinstance(value, bytes) else None,
)
def test_strict_reading_refuses_what_readers_disagree_on(raw: bytes, words: str) -> None:
    with pytest.raises(IntegrityError, match=words) as caught:
        strict_loads(raw)
    assert caught.value.exit_code == 5
    assert "\n" not in caught.value.message
    assert len(caught.value.message) < 200


def test_strict_reading_takes_the_limits_themselves() -> None:
    raw = b"[" * MAX_DEPTH + b"]" * MAX_DEPTH
    assert strict_loads(raw) is not None
    assert strict_loads(str(MAX_INTEGER).encode()) == MAX_INTEGER
    assert strict_loads(str(-MAX_INTEGER).encode()) == -MAX_INTEGER
    # Brackets and quotes inside strings are text, and an escaped pair is one character.
    assert strict_loads(b'["\\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[", "\\ud83d\\ude00"]')[1] == "\U0001f600"


def json_values(numbers: st.SearchStrategy[float]) -> st.SearchStrategy[Any]:
    return st.recursive(
        st.none() | st.booleans() | st.integers(-MAX_INTEGER, MAX_INTEGER) | numbers | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=20,
    )


# A whole number that an integer cannot hold exactly has a canonical form that no reader takes.
JSON = json_values(st.floats(-1e15, 1e15))
ANY_JSON = json_values(st.floats(allow_nan=False, allow_infinity=False))


@given(ANY_JSON)
@example({"\ufb33": 0, "\U0001f600": 1})
@example([1e16, 1e20, 1e21, 1e-6, 1e-7, 0.0001, 1e-5, -0.0, 9007199254740993.0, 5e-324])
@example({"t": (1, ("", {}), []), "\x7f": "\u2028\x00\x1f/\\"})
def test_the_canonical_form_is_that_of_the_reference(value: Any) -> None:
    assert canonical_bytes(value) == rfc8785.dumps(value)


class Number(IntEnum):
    ONE = 1


class Word(StrEnum):
    ONE = "one"


def test_a_kind_of_number_or_text_is_written_as_what_it_holds() -> None:
    assert canonical_bytes({Word.ONE: Number.ONE, "a": Word.ONE}) == b'{"a":"one","one":1}'


@given(JSON)
def test_canonical_bytes_read_back_to_themselves(value: Any) -> None:
    raw = canonical_bytes(value)
    assert canonical_bytes(canonical_loads(raw)) == raw
    indented = json.dumps(value, indent=2).encode()
    assert canonical_bytes(strict_loads(indented)) == raw


@pytest.mark.parametrize(
    ("raw", "byte"),
    [
        (b'{"a": 1}', 5),
        (b"[1]\n", 3),
        (b'{"b":1,"a":2}', 2),
        (b'["\\u0041"]', 2),
        (b'["\\/"]', 2),
        (b'["\\u000A"]', 3),
        (b'["\\u001F"]', 7),
        (b'["\\u00e9"]', 2),
        (b"[1.0]", 2),
        (b"[-0]", 1),
        (b"[1E3]", 2),
        (b"[1e3]", 2),
        (b"[0.10]", 4),
        (b"[1e-07]", 4),
        (b"[0.30000000000000001]", 4),
        ('{"\ufb33":0,"\U0001f600":1}'.encode(), 2),
    ],
    ids=lambda value: value.decode() if isinstance(value, bytes) else None,
)
def test_any_other_form_is_refused_and_the_byte_told(raw: bytes, byte: int) -> None:
    assert strict_loads(raw) is not None
    with pytest.raises(IntegrityError, match=f"not in canonical form .* from byte {byte} on"):
        canonical_loads(raw)


PARTS = b' \n\t"\\/u0019-+.eE,:[]{}ntf\xc3\xa9'


@given(JSON, st.data())
def test_changed_bytes_are_taken_where_they_are_canonical_and_nowhere_else(
    value: Any, data: st.DataObject
) -> None:
    raw = bytearray(canonical_bytes(value))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(raw)))
        piece = bytes(data.draw(st.lists(st.sampled_from(PARTS), max_size=3)))
        raw[at : at + data.draw(st.integers(0, 3))] = piece
    changed = bytes(raw)
    try:
        canonical = rfc8785.dumps(strict_loads(changed)) == changed
    except IntegrityError:
        canonical = False
    try:
        canonical_loads(changed)
    except IntegrityError:
        assert not canonical
    else:
        assert canonical
