"""Token ids from this project's texts, without the model's own tokenizer.

The published tokenizer is not part of this pack. Ids therefore come from a rule of our own,
which keeps what matters to a network's arithmetic: one id per word or part of a word, the same
id wherever it occurs, spread over the whole vocabulary, with RoBERTa's special tokens. The ids
are *not* those that the published tokenizer gives these texts; with seeded weights no id means
anything anyway.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from npumark.pack.seeded import SUITE_KEY
from workloads.granite_embedding_30m.definition import PADDING, TOKENS, VOCABULARY, WORKLOAD

START, END = 0, 2
SPECIAL = 4
"""Ids below this are special (start, padding, end, unknown), and so is the last id (mask)."""
PIECE = 4
"""A word longer than this becomes several tokens, as rare words do in a learnt vocabulary."""
EDIT_EVERY, EDIT_FIRST = 4, 2
"""A copy has every fourth word exchanged, from the third on."""

TEXTS = Path(__file__).with_name("texts.txt")
_WORDS = re.compile(r"\w+(?:['’]\w+)?|[^\w\s]")
_HEADING = re.compile(r"# \[(\w+)\]")


@dataclass(frozen=True)
class Sequences:
    """Padded sequences: ids and mask int64 [n, 128]."""

    ids: npt.NDArray[np.int64]
    mask: npt.NDArray[np.int64]

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Tokens of each sequence, special ones included, int64 [n]."""
        lengths: npt.NDArray[np.int64] = self.mask.sum(axis=1)
        return lengths


def texts(path: Path = TEXTS) -> dict[str, list[str]]:
    """Return the passages of each section of the texts file, by section."""
    found: dict[str, list[str]] = {}
    section: list[str] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if heading := _HEADING.fullmatch(line):
            section = found.setdefault(heading[1], [])
        elif line and not line.startswith("#"):
            section.append(line)
    return found


def words(text: str) -> list[str]:
    """Return the words and punctuation marks of a text, in lower case."""
    return _WORDS.findall(text.lower())


def edited(passages: Sequence[list[str]]) -> list[list[str]]:
    """Return a copy of each word list with a quarter of its words taken from the next one."""
    copies = []
    for index, own in enumerate(passages):
        other = passages[(index + 1) % len(passages)]
        copy = list(own)
        for at in range(EDIT_FIRST, len(copy), EDIT_EVERY):
            copy[at] = other[at % len(other)]
        copies.append(copy)
    return copies


def token(piece: str) -> int:
    """Return the id of a piece: a hash of it, spread over the ordinary ids."""
    digest = hashlib.sha256(f"npumark/{SUITE_KEY}/{WORKLOAD}/{piece}".encode()).digest()
    return SPECIAL + int.from_bytes(digest[:8], "little") % (VOCABULARY - SPECIAL - 1)


def sequence(text_words: Sequence[str]) -> list[int]:
    """Return start, the words' tokens and end; long texts are cut to fit."""
    pieces = [w[i : i + PIECE] for w in text_words for i in range(0, len(w), PIECE)]
    return [START, *(token(piece) for piece in pieces[: TOKENS - 2]), END]


def encode(passages: Sequence[Sequence[str]]) -> Sequences:
    """Return word lists as padded sequences."""
    ids = np.full((len(passages), TOKENS), PADDING, dtype=np.int64)
    mask = np.zeros_like(ids)
    for row, passage in enumerate(passages):
        tokens = sequence(passage)
        ids[row, : len(tokens)] = tokens
        mask[row, : len(tokens)] = 1
    return Sequences(ids, mask)


def evaluation() -> Sequences:
    """Return the eval set: the texts, then an edited copy of each in the same order."""
    passages = [words(text) for text in texts()["evaluation"]]
    return encode([*passages, *edited(passages)])


def calibration() -> Sequences:
    """Return the calibration set: other texts."""
    return encode([words(text) for text in texts()["calibration"]])
