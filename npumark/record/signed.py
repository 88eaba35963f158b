"""A whole record's signatures: made with this installation's keys, and checked offline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from npumark.errors import IntegrityError, NpumarkError
from npumark.record.build_key import build_key
from npumark.record.keystore import describe, install_key
from npumark.record.model import Record
from npumark.record.signatures import BuildSignature, Signatures
from npumark.record.signing import build_holds, check_install, sign_record


@dataclass(frozen=True, slots=True)
class Shown:
    """What signatures that hold show. ``whose`` is the key: this installation's, one that it
    replaced, or another's; null where that is not known here. ``build``: ``unchecked`` where this
    computer lacks the build's key."""

    key_id: str
    whose: Literal["own", "former", "foreign"] | None
    build: Literal["release", "unchecked", "development"]


def sign(record: Record) -> Record:
    """Return ``record`` signed with this installation's key, and the build's where it has one.

    Raises SetupError and IntegrityError where a key cannot be had (``keystore.install_key``).
    """
    made = sign_record(record.payload_sha256, install_key(), build_key())
    return record.model_copy(update={"signatures": Signatures.model_validate(made)})


def check_signatures(payload_sha256: str, signatures: Signatures) -> Shown:
    """Check a record's signatures over the digest that its payload has (hexadecimal).

    Raises IntegrityError in one sentence where one does not hold.
    """
    check_install(payload_sha256, signatures.model_dump())
    return Shown(
        key_id=signatures.install.key_id,
        whose=_whose(signatures.install.key_id),
        build=_build(payload_sha256, signatures.build),
    )


def _whose(key_id: str) -> Literal["own", "former", "foreign"] | None:
    try:
        info = describe()
    except NpumarkError:  # whose key it is bears on nothing else
        return None
    return "foreign" if info is None else info.whose(key_id)


def _build(
    payload_sha256: str, signature: BuildSignature | None
) -> Literal["release", "unchecked", "development"]:
    if signature is None:
        return "development"
    key = build_key()
    if key is None or key.key_id != signature.key_id:
        return "unchecked"
    if not build_holds(payload_sha256, signature.hmac, key):
        raise IntegrityError("the build's signature does not hold for this payload")
    return "release"
