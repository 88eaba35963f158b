"""A log's head as a signed note: C2SP tlog-checkpoint."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from typing import Final

from npumark.plain import count
from npumark.transparency.merkle import EMPTY_ROOT, HASH_BYTES
from npumark.transparency.note import VerifierKey, decoded, open_note

MAX_SIZE: Final = 2**53 - 1
"""Leaves of the largest log: an integer that every JSON reader keeps exact."""

_SIZE: Final = re.compile(r"0|[1-9][0-9]{0,15}")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """That the log ``origin`` has ``size`` leaves, under the Merkle tree's ``root`` (32 bytes)."""

    origin: str
    size: int
    root: bytes

    def __str__(self) -> str:
        return f"{count(self.size, 'leaf', 'leaves')}, root {self.root.hex()}"

    def encode(self) -> str:
        """Return the text of the note: three lines."""
        return f"{self.origin}\n{self.size}\n{base64.b64encode(self.root).decode()}\n"


def parse_checkpoint(text: str) -> Checkpoint:
    """Return the checkpoint that a note's text spells.

    Raises ValueError for anything but the three lines, extension lines included: nobody audits
    those, and a log of this kind writes none.
    """
    lines = text.split("\n")
    if len(lines) != 4 or lines[3] or not lines[0]:
        raise ValueError("a checkpoint has three lines: origin, size and root")
    origin, size, root = lines[:3]
    if not _SIZE.fullmatch(size) or int(size) > MAX_SIZE:
        raise ValueError("the checkpoint's size is no count of leaves")
    raw = decoded(root)
    if len(raw) != HASH_BYTES:
        raise ValueError("the checkpoint's root is no sha256")
    if size == "0" and raw != EMPTY_ROOT:
        raise ValueError("the checkpoint's root is not that of a log without leaves")
    return Checkpoint(origin, int(size), raw)


def open_checkpoint(note: str, key: VerifierKey) -> Checkpoint:
    """Return the head that the log of ``key`` signed; the key's name is the log's origin.

    Raises ValueError where the note or its text has another form, that key did not sign it, or it
    is another log's.
    """
    checkpoint = parse_checkpoint(open_note(note, [key]).text)
    if checkpoint.origin != key.name:
        raise ValueError("the checkpoint is that of another log")
    return checkpoint
