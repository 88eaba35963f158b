"""Text that a terminal can be shown: what others wrote, without what a terminal would obey.

A name, a reason or a record of someone else's may hold escape sequences and other control
characters. Pages put all their text through here, and what probes answer passes it on its way in.
"""

from __future__ import annotations

import re

_ESCAPE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|\x1b[\]PX^_][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)"  # OSC and other strings: titles, clipboard
    r"|\x1b[@-Z\\-_]"
)


LONGEST = 5000
"""Characters of one text that are shown: more than the longest path, and than npumark writes."""


def bounded(text: str, most: int = LONGEST) -> str:
    """Return ``text``, cut where it is longer than anybody reads."""
    return text if len(text) <= most else f"{text[:most]}…"


def printable(text: str) -> str:
    """Return ``text`` without escape sequences, a space for every other character that does not
    print: controls, line ends, changes of direction, halves of a pair."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else " " for c in _ESCAPE.sub("", text))


def one_line(text: str) -> str:
    """Return ``text`` as one line that a terminal can be shown, its spaces single."""
    return " ".join(printable(text).split())


def count(number: int, one: str, many: str | None = None) -> str:
    """Return ``1 attempt`` or ``3 attempts``."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def json_safe(raw: str) -> str:
    """Return a JSON document with every character that does not print escaped, line ends apart."""
    if all(line.isprintable() for line in raw.split("\n")):
        return raw
    return "".join(c if c.isprintable() or c == "\n" else _escaped(c) for c in raw)


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))
