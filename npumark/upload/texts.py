"""Texts of a record without what could name a computer, its owner or its parts.

Reasons are written by runtimes, drivers and systems, which like to quote paths and addresses.
Home folders and the host's name were replaced when the record was made
(``orchestrator.redaction``); what is published keeps no path, address or hardware key at all.
Too much is replaced rather than too little: a reason stays readable without its path.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from npumark.orchestrator.redaction import redact
from npumark.record.published import KEY_NAMES, PRIVATE

_STOPS = r"/\\\n'\"`<>|;:,"
"""What ends a path in running text, or one of its folders."""

PATTERNS: Final[tuple[tuple[re.Pattern[str], str], ...]] = (
    (re.compile(r"\b[A-Za-z][A-Za-z0-9+.-]*://\S+"), "<address>"),
    (re.compile(r"(?<![\w.+-])[\w.+-]+@[A-Za-z0-9][\w.-]*"), "<address>"),  # one start a word
    (re.compile(r"([\"'`])(?:~?/|[A-Za-z]:[\\/]|\\\\)[^\"'`\n]*\1"), "<path>"),
    (re.compile(r"\b(?:PCI|USB|ACPI|SWD|ROOT)\\\S+"), "<device>"),
    (
        re.compile(
            # Where it begins: a root, a home, a drive, a server.
            r"(?:(?<![\w.<>~/-])~?/+|\b[A-Za-z]:[\\/]+|(?<!\w)\\\\)"
            # Its folders, which may hold blanks, and its last part, which may before a suffix.
            rf"(?:[^{_STOPS}]+[/\\]+)*(?:[^{_STOPS}]*\.\w+|[^\s{_STOPS}]*)"
        ),
        "<path>",
    ),
)
"""What is replaced, and by what, in this order. What ``PRIVATE`` knows goes after it."""


def public_text(text: str, known: Sequence[tuple[str, str]] = ()) -> str:
    """Return ``text`` without paths, addresses and hardware keys; ``known`` are names of this
    machine and what stands for them (``redaction.replacements``)."""
    text = redact(text, known)
    for pattern, stands in PATTERNS:
        text = pattern.sub(stands, text)
    for _, private in PRIVATE:
        text = private.sub("<private>", text)
    return text


def public_texts(value: Any, known: Sequence[tuple[str, str]] = ()) -> Any:
    """Return a JSON value with every text in it, keys as well, made public, and without the fields
    whose very names are private."""
    if isinstance(value, str):
        return public_text(value, known)
    if isinstance(value, dict):
        return {
            public_text(k, known): public_texts(v, known)
            for k, v in value.items()
            if k.lower() not in KEY_NAMES
        }
    if isinstance(value, (list, tuple)):
        return [public_texts(item, known) for item in value]
    return value
