"""Signed notes (C2SP signed-note) and the cosignatures of witnesses (C2SP tlog-cosignature).

A note is a text and, after an empty line, a line for each signature. Two kinds of keys are known
here: ``ED25519`` signs the text, ``COSIGNATURE`` a statement that the text, a checkpoint, was the
newest seen at an instant. Every fault of form is a ValueError with a sentence.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from npumark.record.signing import InstallKey

ED25519: Final = 0x01
COSIGNATURE: Final = 0x04

MAX_NOTE: Final = 256 << 10
"""Characters of a note: a checkpoint with dozens of signatures, post-quantum ones among them."""
MAX_SIGNATURES: Final = 100

_MARK: Final = "\N{EM DASH} "
_CONTROL: Final = re.compile(r"[\x00-\x09\x0b-\x1f]|[\ud800-\udfff]")
_NAME: Final = re.compile(r"[^\s+]+")
_KEY_BYTES: Final = 32
_INSTANT_BYTES: Final = 8
_LATEST: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Signature:
    """A line under a note: whose key it names, and the bytes after the key's id."""

    name: str
    key_id: bytes
    value: bytes

    def __str__(self) -> str:
        return f"{_MARK}{self.name} {base64.b64encode(self.key_id + self.value).decode()}\n"


@dataclass(frozen=True, slots=True)
class Note:
    """``text`` ends with a line end; none of the signatures is verified."""

    text: str
    signatures: tuple[Signature, ...]

    def __str__(self) -> str:
        return f"{self.text}\n{''.join(map(str, self.signatures))}"


@dataclass(frozen=True, slots=True)
class VerifierKey:
    """A public key, its kind and the name it signs under; as text, a C2SP vkey."""

    name: str
    kind: int
    public: bytes

    @property
    def key_id(self) -> bytes:
        """The four bytes by which a signature names this key."""
        named = self.name.encode() + b"\n" + bytes([self.kind]) + self.public
        return hashlib.sha256(named).digest()[:4]

    def __str__(self) -> str:
        key = base64.b64encode(bytes([self.kind]) + self.public).decode()
        return f"{self.name}+{self.key_id.hex()}+{key}"

    def made(self, signature: Signature) -> bool:
        """Whether a signature says that it is this key's; only then does ``holds`` judge it."""
        return signature.name == self.name and signature.key_id == self.key_id

    def holds(self, text: str, signature: Signature) -> bool:
        """Whether a signature of this key was made over ``text``."""
        message, value = text.encode(), signature.value
        if self.kind == COSIGNATURE:
            instant = cosigned_at(signature)
            if instant > _LATEST:
                return False
            message, value = _cosigned(text, instant), value[_INSTANT_BYTES:]
        try:
            Ed25519PublicKey.from_public_bytes(self.public).verify(value, message)
        except (InvalidSignature, ValueError):
            return False
        return True


def verifier_key(name: str, public: bytes, kind: int = ED25519) -> str:
    """Return the vkey of an Ed25519 public key, to be handed to those who check."""
    return str(VerifierKey(_named(name), kind, public))


def parse_verifier_key(text: str) -> VerifierKey:
    """Return the key that a vkey spells. Raises ValueError where it spells none of the two kinds,
    or its id is another key's."""
    parts = text.split("+", 2)  # base64 has plus signs of its own
    if len(parts) != 3:
        raise ValueError("a verifier key has a name, an id and a key, with plus signs between")
    name, key_id, encoded = parts
    raw = decoded(encoded)
    if len(raw) != 1 + _KEY_BYTES or raw[0] not in (ED25519, COSIGNATURE):
        raise ValueError("the verifier key is no Ed25519 key of a kind that is known here")
    key = VerifierKey(_named(name), raw[0], raw[1:])
    if key_id != key.key_id.hex():
        raise ValueError("the verifier key's id is not that of its name and key")
    return key


def parse_note(raw: str) -> Note:
    """Return the parts of a note, which proves nothing yet. Raises ValueError where it has another
    form than C2SP signed-note's, is too long, or has too many signatures."""
    if len(raw) > MAX_NOTE:
        raise ValueError(f"the note has more than {MAX_NOTE} characters")
    if _CONTROL.search(raw):
        raise ValueError("the note holds control characters")
    text, empty, lines = raw.rpartition("\n\n")
    if not empty or not lines.endswith("\n"):
        raise ValueError("the note has no signatures under an empty line, or its end is missing")
    signed = lines.removesuffix("\n").split("\n")
    if len(signed) > MAX_SIGNATURES:
        raise ValueError(f"the note has more than {MAX_SIGNATURES} signatures")
    return Note(text + "\n", tuple(map(parse_signature, signed)))


def parse_signature(line: str) -> Signature:
    """Return the signature that a line (without its end) spells. Raises ValueError."""
    name, _, encoded = line.removeprefix(_MARK).partition(" ")
    if not line.startswith(_MARK):
        raise ValueError("a signature line begins with an em dash and a space")
    raw = decoded(encoded)
    if len(raw) < 5:
        raise ValueError("a signature line holds a key's id and a signature")
    return Signature(_named(name), raw[:4], raw[4:])


def open_note(raw: str, keys: Iterable[VerifierKey]) -> Note:
    """Return a note with those signatures alone that hold, at least one.

    Signatures of other keys are dropped unseen, and a second one of the same key. Raises
    ValueError where the form is wrong, none of ``keys`` signed it, or a signature of one of them
    does not hold.
    """
    note = parse_note(raw)
    held: dict[VerifierKey, Signature] = {}
    known = tuple(keys)
    for signature in note.signatures:
        key = next((k for k in known if k.made(signature)), None)
        if key is None or key in held:
            continue
        if not key.holds(note.text, signature):
            raise ValueError(f"the signature of {key.name} does not hold")
        held[key] = signature
    if not held:
        raise ValueError("no key that is trusted here signed the note")
    return Note(note.text, tuple(held.values()))


def sign(text: str, name: str, key: InstallKey) -> str:
    """Return the note of ``text``, which ends with a line end, signed under ``name``.

    Raises ValueError where text or name is none that a note can have.
    """
    if not text.endswith("\n") or _CONTROL.search(text):
        raise ValueError("a note's text ends with a line end and has no control characters")
    signer = VerifierKey(_named(name), ED25519, key.public)
    return str(Note(text, (Signature(name, signer.key_id, _signed(key, text.encode())),)))


def cosign(text: str, name: str, key: InstallKey, at_s: int) -> Signature:
    """Return a witness's signature of a checkpoint that it saw at ``at_s`` (seconds since 1970)
    as the newest of its log."""
    signer = VerifierKey(_named(name), COSIGNATURE, key.public)
    value = at_s.to_bytes(_INSTANT_BYTES) + _signed(key, _cosigned(text, at_s))
    return Signature(name, signer.key_id, value)


def cosigned_at(signature: Signature) -> int:
    """Return the instant that a cosignature states, in seconds since 1970."""
    return int.from_bytes(signature.value[:_INSTANT_BYTES])


def decoded(text: str) -> bytes:
    """Return what standard base64 spells; ValueError unless it is the only way to spell it."""
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if not raw or base64.b64encode(raw).decode() != text:
        raise ValueError("what should be base64 is not")
    return raw


def _signed(key: InstallKey, message: bytes) -> bytes:
    return Ed25519PrivateKey.from_private_bytes(key.seed).sign(message)


def _cosigned(text: str, at_s: int) -> bytes:
    """Return what a witness signs (C2SP tlog-cosignature, "Ed25519 signed message")."""
    return f"cosignature/v1\ntime {at_s}\n{text}".encode()


def _named(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError("a key's name is not empty and has neither spaces nor plus signs")
    return name
