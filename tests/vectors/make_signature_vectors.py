"""Write the golden vectors of ``npumark-sig/v1``.

    python tests/vectors/make_signature_vectors.py

It uses nothing of npumark: SHA-256, HMAC and Ed25519 over bytes that are put together here, as
docs/RECORD.md describes. Keys are fixed, and used in these vectors alone.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

TARGET = Path(__file__).with_name("npumark_sig_v1.json")

SEED = hashlib.sha256(b"vectors of npumark-sig/v1: an installation").digest()
OTHER_SEED = hashlib.sha256(b"vectors of npumark-sig/v1: a server").digest()
BUILD_KEY = hashlib.sha256(b"vectors of npumark-sig/v1: a build").digest()

PURPOSES = ("record", "submission", "registration", "withdrawal", "receipt")

PAYLOADS: tuple[tuple[dict[str, Any], str], ...] = (
    ({}, "{}"),
    (
        {"schema": "npumark-record/1", "tops": 10.0, "zero": -0.0, "tiny": 1e-7, "ok": True},
        '{"ok":true,"schema":"npumark-record/1","tiny":1e-7,"tops":10,"zero":0}',
    ),
    (
        {"name": "Xeon® \U0001f600", "\ufb33": None, "\U0001f600": [1, 2.5]},
        '{"name":"Xeon® \U0001f600","\U0001f600":[1,2.5],"\ufb33":null}',
    ),
)
"""A payload and its RFC 8785 form, written by hand."""


def vectors() -> dict[str, Any]:
    """Return the document of all vectors."""
    install, server = _key(SEED), _key(OTHER_SEED)
    return {
        "about": "npumark-sig/v1, made by make_signature_vectors.py; the keys are used here alone",
        "install": install,
        "server": server,
        "build": {
            "secret": BUILD_KEY.hex(),
            "key_id": hashlib.sha256(b"npumark-build-key\n" + BUILD_KEY).hexdigest()[:16],
        },
        "messages": [
            {"purpose": purpose, "sha256": hashlib.sha256(b"").hexdigest(), "message": text.hex()}
            for purpose in PURPOSES
            for text in [_message(purpose, b"")]
        ],
        "records": [_record(payload, text, install) for payload, text in PAYLOADS],
        "statements": [
            {
                "purpose": purpose,
                "statement": statement,
                "canonical": text,
                "public_key": (server if purpose == "receipt" else install)["public_key"],
                "signature": _sign(
                    OTHER_SEED if purpose == "receipt" else SEED, purpose, text.encode()
                ),
            }
            for purpose in PURPOSES[1:]
            for statement, text in [
                (
                    {"schema": f"example-{purpose}/1", "origin": "results.example", "n": 1.0},
                    f'{{"n":1,"origin":"results.example","schema":"example-{purpose}/1"}}',
                )
            ]
        ],
    }


def _key(seed: bytes) -> dict[str, str]:
    public = Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()
    key_id = hashlib.sha256(public).hexdigest()[:32]
    return {"seed": seed.hex(), "public_key": public.hex(), "key_id": key_id}


def _message(purpose: str, signed: bytes) -> bytes:
    return b"npumark-sig/v1\n" + purpose.encode() + b"\n" + hashlib.sha256(signed).digest()


def _sign(seed: bytes, purpose: str, signed: bytes) -> str:
    return Ed25519PrivateKey.from_private_bytes(seed).sign(_message(purpose, signed)).hex()


def _record(payload: dict[str, Any], text: str, install: dict[str, str]) -> dict[str, Any]:
    raw = text.encode()
    mac = hmac.new(BUILD_KEY, _message("record", raw), hashlib.sha256).hexdigest()
    return {
        "payload": payload,
        "canonical": text,
        "payload_sha256": hashlib.sha256(raw).hexdigest(),
        "hmac": mac,
        "signature": _sign(SEED, "record", raw),
    }


def document() -> str:
    """Return the vectors as they lie on the disk."""
    return json.dumps(vectors(), indent=1) + "\n"


if __name__ == "__main__":
    TARGET.write_text(document(), "utf-8")
