"""Where a page of the board begins or ends: an opaque word in an address, believed in nothing."""

from __future__ import annotations

import base64
import binascii
import json
import math
from dataclasses import dataclass
from typing import Any

from npumark.server.refusal import Refused, refuse

_LONGEST = 200
_MOST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Cursor:
    """The line next to a page: what it is sorted by, its id and its position (from 1).

    ``backwards`` wants the lines before it, otherwise those after it.
    """

    sort: str
    value: float
    figure_id: int
    position: int
    backwards: bool

    def write(self) -> str:
        """Return the cursor as letters that an address may hold."""
        fields = [self.sort, self.value, self.figure_id, self.position, self.backwards]
        return base64.urlsafe_b64encode(json.dumps(fields).encode()).decode().rstrip("=")

    @classmethod
    def read(cls, text: str, sort: str) -> Cursor:
        """Return what ``write`` wrote. Raises Refused for any other text, or another order's."""
        match _fields(text):
            case [str(of), float() | int() as value, int(figure), int(position), bool(backwards)]:
                if of == sort and _sound(value, figure, position):
                    return cls(sort, value, figure, position, backwards)
        raise _no_cursor()


def _fields(text: str) -> Any:
    if len(text) > _LONGEST:
        raise _no_cursor()
    try:
        padded = text + "=" * (-len(text) % 4)
        return json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (binascii.Error, ValueError, RecursionError) as fault:
        raise _no_cursor() from fault


def _sound(value: float, figure: int, position: int) -> bool:
    """Whether the database can hold these numbers; true and false are no numbers here."""
    if any(isinstance(v, bool) for v in (value, figure, position)):
        return False
    # An instant is a whole number to the database, which a greater float is none of.
    return (
        math.isfinite(value)
        and abs(value) <= _MOST
        and 0 < figure <= _MOST
        and 0 < position <= _MOST
    )


def _no_cursor() -> Refused:
    return refuse("wrong_form", "the cursor is of no page of this board; begin at its first page")
