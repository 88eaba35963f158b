"""What a check came to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

State = Literal["problem", "note", "unknown", "ok"]
STATES: tuple[State, ...] = ("problem", "note", "unknown", "ok")
"""The order in which a page shows them: what would spoil a measurement comes first."""


@dataclass(frozen=True, slots=True)
class Examined:
    """``problem``: it would spoil a measurement, and ``fix`` is a sentence with the command or
    setting that helps. ``note``: worth knowing, and no fault. ``unknown``: it could not be read,
    and ``why`` says why. ``value`` is what was read, in plain JSON types."""

    id: str
    title: str
    state: State
    value: Any
    sentence: str
    fix: str | None = None
    why: str | None = None


def good(id_: str, title: str, value: Any, sentence: str) -> Examined:
    return Examined(id_, title, "ok", value, sentence)


def noted(id_: str, title: str, value: Any, sentence: str, fix: str | None = None) -> Examined:
    return Examined(id_, title, "note", value, sentence, fix)


def spoils(id_: str, title: str, value: Any, sentence: str, fix: str) -> Examined:
    return Examined(id_, title, "problem", value, sentence, fix)


def unread(id_: str, title: str, why: str | None) -> Examined:
    reason = why or "the system does not say"
    return Examined(id_, title, "unknown", None, "Not known.", None, reason)
