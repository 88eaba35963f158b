"""That a public payload holds nothing that names a computer, its owner or its parts.

The record's own fields have no place for such things; its free-form parts may hold only what is on
the lists of ``record.published``, and no text anywhere may look like what is private.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel

from npumark.record.model import Payload
from npumark.record.published import DETAILS, FACTS, KEY_NAMES, MACHINE, PRIVATE

_UNLISTED: Final = "a fact that is not published"
_HARNESS: Final = frozenset({"overhead_ns", "engine", "why"})


@dataclass(frozen=True, slots=True)
class Private:
    """``what`` (in words) stands at ``path``; what it is, is not repeated."""

    path: str
    what: str


def private_data(payload: Payload) -> list[Private]:
    """Return everything in a payload that must not be public; empty where nothing is."""
    found = [*_unlisted(payload), *_unpublished_texts(payload)]
    if _any_private(_distinct(payload)):
        found += _located(payload, "")
    return found


def _unlisted(payload: Payload) -> Iterator[Private]:
    """Yield the facts that are on no list: in ``machine`` even those have a name, without value."""
    parts: list[tuple[str, Iterable[tuple[str, Any]], frozenset[str]]] = [
        ("machine", ((k, v) for k, v in payload.machine.items() if k != "why"), MACHINE),
        ("environment.facts", payload.environment.facts.items(), FACTS),
        ("harness", payload.harness.items(), _HARNESS),
    ]
    parts += [
        (f"processors[{i}].details", processor.details.items(), DETAILS)
        for i, processor in enumerate(payload.processors)
    ]
    for path, facts, public in parts:
        for name, value in facts:
            if name not in public and value is not None:
                yield Private(f"{path}.{name[:40]}", _UNLISTED)


def _unpublished_texts(payload: Payload) -> Iterator[Private]:
    """Yield the words of the command line and the workers' logs: anything may stand in them."""
    if payload.plan.argv:
        yield Private("plan.argv", "the words of a command line")
    for i, entry in enumerate(payload.entries):
        for j, attempt in enumerate(entry.attempts):
            if attempt.log_tail is not None:
                yield Private(f"entries[{i}].attempts[{j}].log_tail", "a log")
    for i, role in enumerate(payload.box.roles if payload.box else []):
        for j, joint in enumerate(role.attempts):
            for k, card in enumerate(joint.cards):
                if card.log_tail is not None:
                    path = f"box.roles[{i}].attempts[{j}].cards[{k}].log_tail"
                    yield Private(path, "a log")


def _any_private(texts: set[str]) -> bool:
    """Whether texts may hold something private. Lines of one text are searched faster than many
    texts; what is found across their ends is nothing, as a closer look then shows."""
    joined = "\n".join(texts)
    return any(text.lower() in KEY_NAMES for text in texts) or any(
        pattern.search(joined) for _, pattern in PRIVATE
    )


def _distinct(value: Any) -> set[str]:
    """Return every text in a value, keys as well, each once: most stand in a record many times."""
    seen: set[str] = set()
    rest = [value]
    while rest:
        item = rest.pop()
        if isinstance(item, str):
            seen.add(item)
        elif isinstance(item, BaseModel):
            rest += item.__dict__.values()
        elif isinstance(item, dict):
            seen.update(item)
            rest += item.values()
        elif isinstance(item, list | tuple):
            rest += item
    return seen


def _located(value: Any, path: str) -> Iterator[Private]:
    """Yield where private texts stand, and fields of private names that hold something."""
    if isinstance(value, str):
        if what := next((w for w, pattern in PRIVATE if pattern.search(value)), None):
            yield Private(path, what)
        return
    fields: Iterable[tuple[str, Any]] = ()
    if isinstance(value, BaseModel):
        fields = ((name.rstrip("_"), item) for name, item in value.__dict__.items())
    elif isinstance(value, dict):
        for name in value:
            yield from _located(name, f"{path}.{name[:40]}")
            if name.lower() in KEY_NAMES and value[name] is not None:
                yield Private(f"{path}.{name[:40]}", f"a field {name.lower()}")
        fields = value.items()
    elif isinstance(value, list | tuple):
        for i, item in enumerate(value):
            yield from _located(item, f"{path}[{i}]")
    for name, item in fields:
        yield from _located(item, f"{path}.{name[:40]}".lstrip("."))
