"""What can be wrong with a record's signatures: changes of good ones, and what refuses them.

Keys are those of the golden vectors, which are used in tests alone.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from npumark.record.signing import BuildKey, InstallKey, key_id_of, message

_KEYS = json.loads(
    (Path(__file__).parents[1] / "vectors" / "npumark_sig_v1.json").read_text("utf-8")
)
INSTALL = InstallKey(bytes.fromhex(_KEYS["install"]["seed"]))
SERVER = InstallKey(bytes.fromhex(_KEYS["server"]["seed"]))
BUILD = BuildKey(bytes.fromhex(_KEYS["build"]["secret"]))

NOT_FOR_THIS = "the installation's signature does not hold for this payload"

Change = Callable[[dict[str, Any]], object]

MALFORMED: Mapping[str, tuple[Change, str]] = {
    "unknown_scheme": (
        lambda s: s.update(scheme="npumark-sig/v2"),
        'is signed by the scheme "npumark-sig/v2"; this version checks npumark-sig/v1',
    ),
    "no_scheme": (lambda s: s.pop("scheme"), "signatures.scheme: Field required"),
    "scheme_is_a_number": (
        lambda s: s.update(scheme=1),
        "signatures.scheme: Input should be 'npumark-sig/v1'",
    ),
    "no_installation": (lambda s: s.pop("install"), "signatures.install: Field required"),
    "installation_is_null": (
        lambda s: s.update(install=None),
        "signatures.install: Input should be a valid dictionary",
    ),
    "upper_case": (
        lambda s: s["install"].update(signature=s["install"]["signature"].upper()),
        "signatures.install.signature: String should match pattern",
    ),
    "truncated": (
        lambda s: s["install"].update(signature=s["install"]["signature"][:-2]),
        "signatures.install.signature: String should match pattern",
    ),
    "public_key_too_long": (
        lambda s: s["install"].update(public_key=s["install"]["public_key"] + "00"),
        "signatures.install.public_key: String should match pattern",
    ),
    "public_key_in_base64": (
        lambda s: s["install"].update(public_key="CQ9aiopqMlEhHNQe6D4UUQLoHBj0lEB4xiAUQ9R1my8="),
        "signatures.install.public_key: String should match pattern",
    ),
    "key_id_with_a_line_end": (
        lambda s: s["install"].update(key_id=s["install"]["key_id"] + "\n"),
        "signatures.install.key_id: String should match pattern",
    ),
    "hmac_malformed": (
        lambda s: s["build"].update(hmac="0x" + s["build"]["hmac"][2:]),
        "signatures.build.hmac: String should match pattern",
    ),
    "build_key_id_malformed": (
        lambda s: s["build"].update(key_id="release"),
        "signatures.build.key_id: String should match pattern",
    ),
    "no_build_and_no_reason": (
        lambda s: s.update(build=None),
        "signatures: Value error, either build or build_why is null",
    ),
    "a_build_and_a_reason": (
        lambda s: s.update(build_why="a development build holds no build key"),
        "signatures: Value error, either build or build_why is null",
    ),
    "a_reason_of_ones_own": (
        lambda s: s.update(build=None, build_why="it was built in a garage"),
        "signatures.build_why: Input should be 'a development build holds no build key'",
    ),
    "something_beside": (
        lambda s: s.update(comment="the fastest"),
        "signatures.comment: Extra inputs are not permitted",
    ),
}
"""Signatures of another form, which reading a record refuses."""


def forgeries(digest: bytes) -> dict[str, tuple[Change, str]]:
    """Return what is well-formed and does not hold for ``digest``."""
    weak = "01" + "00" * 31
    not_its_key = "the record's public key is not the one that its key id names"
    return {
        "other_purpose": (
            lambda s: s["install"].update(signature=INSTALL.sign("submission", digest).hex()),
            "the installation's signature was made for a submission, not for a record",
        ),
        "other_payload": (
            lambda s: s["install"].update(signature=INSTALL.sign("record", bytes(32)).hex()),
            NOT_FOR_THIS,
        ),
        "one_bit": (
            lambda s: s["install"].update(signature=_flipped(s["install"]["signature"])),
            NOT_FOR_THIS,
        ),
        "zeros": (lambda s: s["install"].update(signature="00" * 64), NOT_FOR_THIS),
        "scalar_too_large": (
            lambda s: s["install"].update(signature=_plus_order(s["install"]["signature"])),
            NOT_FOR_THIS,
        ),
        "swapped_key_id": (lambda s: s["install"].update(key_id=SERVER.key_id), not_its_key),
        "swapped_public_key": (
            lambda s: s["install"].update(public_key=SERVER.public.hex()),
            not_its_key,
        ),
        "swapped_key": (
            lambda s: s["install"].update(public_key=SERVER.public.hex(), key_id=SERVER.key_id),
            NOT_FOR_THIS,
        ),
        "key_off_the_curve": (
            lambda s: s["install"].update(public_key="02" + "00" * 31, key_id=_named("02")),
            NOT_FOR_THIS,
        ),
        "key_that_takes_any_message": (
            lambda s: s["install"].update(
                public_key=weak, key_id=_named("01"), signature="01" + "00" * 63
            ),
            "the record's public key is of small order, under which anybody can sign",
        ),
        "hmac_of_another_build": (
            lambda s: s["build"].update(hmac="00" * 32),
            "the build's signature does not hold for this payload",
        ),
        "hmac_of_another_purpose": (
            lambda s: s["build"].update(
                hmac=hmac.digest(BUILD.secret, message("receipt", digest), "sha256").hex()
            ),
            "the build's signature does not hold for this payload",
        ),
    }


def _flipped(digits: str) -> str:
    return f"{int(digits, 16) ^ 1:0{len(digits)}x}"


def _plus_order(signature: str) -> str:
    """Return a signature whose scalar has the group's order added: the same point, other bytes."""
    order = 2**252 + 27742317777372353535851937790883648493
    raw = bytes.fromhex(signature)
    scalar = int.from_bytes(raw[32:], "little") + order
    return (raw[:32] + scalar.to_bytes(32, "little")).hex()


def _named(first: str) -> str:
    return key_id_of(bytes.fromhex(first + "00" * 31))
