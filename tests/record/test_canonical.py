from __future__ import annotations

import json
import math
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npumark.errors import IntegrityError
from npumark.record.canonical import MAX_INTEGER, canonical_bytes, payload_sha256, strict_loads
from npumark.record.model import MAX_DEPTH, MAX_RECORD_BYTES

# RFC 8785, appendix B: IEEE 754 bits and the text they must have.
NUMBERS = {
    "0000000000000000": "0",
    "8000000000000000": "0",
    "0000000000000001": "5e-324",
    "8000000000000001": "-5e-324",
    "7fefffffffffffff": "1.7976931348623157e+308",
    "ffefffffffffffff": "-1.7976931348623157e+308",
    "4340000000000000": "9007199254740992",
    "c340000000000000": "-9007199254740992",
    "4430000000000000": "295147905179352830000",
    "44b52d02c7e14af5": "9.999999999999997e+22",
    "44b52d02c7e14af6": "1e+23",
    "44b52d02c7e14af7": "1.0000000000000001e+23",
    "444b1ae4d6e2ef4e": "999999999999999700000",
    "444b1ae4d6e2ef4f": "999999999999999900000",
    "444b1ae4d6e2ef50": "1e+21",
    "3eb0c6f7a0b5ed8c": "9.999999999999997e-7",
    "3eb0c6f7a0b5ed8d": "0.000001",
    "41b3de4355555553": "333333333.3333332",
    "41b3de4355555554": "333333333.33333325",
    "41b3de4355555555": "333333333.3333333",
    "41b3de4355555556": "333333333.3333334",
    "41b3de4355555557": "333333333.33333343",
    "becbf647612f3696": "-0.0000033333333333333333",
    "43143ff3c1cb0959": "1424953923781206.2",
}


@pytest.mark.parametrize(("bits", "text"), NUMBERS.items())
def test_numbers_have_the_text_of_rfc_8785(bits: str, text: str) -> None:
    value = struct.unpack(">d", bytes.fromhex(bits))[0]
    assert canonical_bytes(value) == text.encode()


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


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-MAX_INTEGER, MAX_INTEGER)
    | st.floats(allow_nan=False, allow_infinity=False, min_value=-1e15, max_value=1e15)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(JSON)
def test_canonical_bytes_read_back_to_themselves(value: Any) -> None:
    raw = canonical_bytes(value)
    assert canonical_bytes(strict_loads(raw)) == raw
    indented = json.dumps(value, indent=2).encode()
    assert canonical_bytes(strict_loads(indented)) == raw
