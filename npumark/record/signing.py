"""``npumark-sig/v1``: what is signed, with which keys, and how a signature is checked.

A signature covers ``SCHEME "\\n" purpose "\\n"`` and the 32 bytes of the sha256 of the RFC 8785
bytes of what is signed, so that a signature made for one purpose is none for another. A record
carries two: HMAC-SHA256 with the key that only release builds hold, and Ed25519 (RFC 8032) with
the key of the installation. Everything binary is lower-case hexadecimal.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from npumark.errors import IntegrityError
from npumark.record.canonical import canonical_bytes
from npumark.record.signatures import SCHEME, Development

DEVELOPMENT: Final[Development] = "a development build holds no build key"

_SIGN_BIT = 1 << 255
_PRIME = 2**255 - 19
_ORDER_8 = tuple(
    int.from_bytes(bytes.fromhex(y), "little")
    for y in (
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    )
)
_SMALL_ORDER: Final = frozenset((0, 1, _PRIME - 1, *_ORDER_8))
"""The y of the curve's points of order 1, 2, 4 and 8. RFC 8032 does not exclude them as keys, and
under one of them a signature can be written down that holds for any message."""

Purpose = Literal["record", "submission", "registration", "withdrawal", "receipt"]


@dataclass(frozen=True, slots=True)
class BuildKey:
    """The key of a release build (32 bytes). ``key_id`` names it and tells nothing of it."""

    secret: bytes

    @property
    def key_id(self) -> str:
        return hashlib.sha256(b"npumark-build-key\n" + self.secret).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class InstallKey:
    """An installation's Ed25519 key; ``seed`` is its private half (RFC 8032, 32 bytes)."""

    seed: bytes

    @property
    def public(self) -> bytes:
        return Ed25519PrivateKey.from_private_bytes(self.seed).public_key().public_bytes_raw()

    @property
    def key_id(self) -> str:
        return key_id_of(self.public)

    def sign(self, purpose: Purpose, digest: bytes) -> bytes:
        """Return the 64 bytes of the signature over a sha256 ``digest``."""
        private = Ed25519PrivateKey.from_private_bytes(self.seed)
        return private.sign(message(purpose, digest))


def key_id_of(public: bytes) -> str:
    """Return the name of an Ed25519 public key: 32 hexadecimal digits of its sha256."""
    return hashlib.sha256(public).hexdigest()[:32]


def message(purpose: Purpose, digest: bytes) -> bytes:
    """Return the bytes that are signed. Raises ValueError unless ``digest`` is a sha256."""
    if len(digest) != hashlib.sha256().digest_size:
        raise ValueError(f"a sha256 has 32 bytes, not {len(digest)}")
    return f"{SCHEME}\n{purpose}\n".encode() + digest


def sign_record(payload_sha256: str, install: InstallKey, build: BuildKey | None) -> dict[str, Any]:
    """Return a record's ``signatures`` for the digest of its payload (hexadecimal)."""
    digest = bytes.fromhex(payload_sha256)
    mac = hmac.digest(build.secret, message("record", digest), "sha256") if build else None
    return {
        "scheme": SCHEME,
        "build": {"key_id": build.key_id, "hmac": mac.hex()} if build and mac else None,
        "build_why": None if build else DEVELOPMENT,
        "install": {
            "key_id": install.key_id,
            "public_key": install.public.hex(),
            "signature": install.sign("record", digest).hex(),
        },
    }


def sign_statement(statement: Mapping[str, Any], purpose: Purpose, key: InstallKey) -> str:
    """Return the signature (hexadecimal) over a JSON object, which holds no signature itself."""
    digest = hashlib.sha256(canonical_bytes(dict(statement))).digest()
    return key.sign(purpose, digest).hex()


def statement_holds(
    statement: Mapping[str, Any], purpose: Purpose, public_key: str, signature: str
) -> bool:
    """Whether ``signature`` over a JSON object was made with ``public_key`` (both hexadecimal)."""
    digest = hashlib.sha256(canonical_bytes(dict(statement))).digest()
    return verifies(purpose, digest, public_key, signature)


def verifies(purpose: Purpose, digest: bytes, public_key: str, signature: str) -> bool:
    """Whether an Ed25519 signature over a sha256 holds; False too where either is malformed, and
    under a key that proves nothing, since it is of small order."""
    try:
        if _of_small_order(bytes.fromhex(public_key)):
            return False
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(public_key))
        key.verify(bytes.fromhex(signature), message(purpose, digest))
    except (InvalidSignature, ValueError):
        return False
    return True


def _of_small_order(public: bytes) -> bool:
    return int.from_bytes(public, "little") % _SIGN_BIT % _PRIME in _SMALL_ORDER


def build_holds(payload_sha256: str, mac: str, key: BuildKey) -> bool:
    """Whether a record's HMAC was made with ``key``; compared in constant time."""
    due = hmac.digest(key.secret, message("record", bytes.fromhex(payload_sha256)), "sha256")
    try:
        return hmac.compare_digest(due, bytes.fromhex(mac))
    except ValueError:
        return False


def check_install(payload_sha256: str, signatures: Mapping[str, Any]) -> None:
    """Check the Ed25519 signature of a record whose payload has this digest.

    Raises IntegrityError where the scheme is another, the key is not the one that it is called,
    or the signature does not hold.
    """
    if signatures.get("scheme") != SCHEME:
        raise IntegrityError(
            f"the record is signed by {str(signatures.get('scheme'))[:40]!r}; this npumark checks "
            f"{SCHEME}"
        )
    install = signatures.get("install")
    fields = ("key_id", "public_key", "signature")
    if not isinstance(install, Mapping) or not all(isinstance(install.get(f), str) for f in fields):
        raise IntegrityError("the record's signatures hold no installation's")
    try:
        named: str | None = key_id_of(bytes.fromhex(install["public_key"]))
    except ValueError:
        named = None
    if install["key_id"] != named:
        raise IntegrityError("the record's public key is not the one that its key id names")
    digest = bytes.fromhex(payload_sha256)
    if not verifies("record", digest, install["public_key"], install["signature"]):
        raise IntegrityError(_why_not(digest, install["public_key"], install["signature"]))


def _why_not(digest: bytes, public_key: str, signature: str) -> str:
    if _of_small_order(bytes.fromhex(public_key)):
        return "the record's public key is of small order, under which anybody can sign"
    for purpose in get_args(Purpose):
        if verifies(purpose, digest, public_key, signature):
            return f"the installation's signature was made for a {purpose}, not for a record"
    return "the installation's signature does not hold for this payload"
