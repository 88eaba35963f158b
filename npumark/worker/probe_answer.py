"""What a probe said of one engine, looked at before anything relies on it.

An engine may be anybody's. What cannot be so is told in words, and costs that engine alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from npumark.plain import one_line

ROLES = ("CPU", "iGPU", "dGPU", "NPU")
MAX_DETAILS_BYTES = 256 << 10

_ID = re.compile(r"[a-z0-9.-]{1,64}")
_LONGEST = 2000
"""Characters of a text; a longer one is cut."""

Check = Callable[[Any], bool]


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _maybe_text(value: Any) -> bool:
    return value is None or isinstance(value, str)


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _table(value: Any) -> bool:
    return isinstance(value, dict)


def _texts(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(map(_text, value))


def _table_of_texts(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_text, value.values()))


_FIELDS: dict[str, tuple[Check, str]] = {
    "available": (_flag, "true or false"),
    "reason": (_maybe_text, "text or null"),
    "runtime": (_text, "text"),
    "runtime_title": (_text, "text"),
    "version": (_maybe_text, "text or null"),
    "versions": (_table_of_texts, "a table of texts"),
    "processor": (_table, "a table"),
    "variants": (_texts, "a list of texts"),
    "extra_variants": (_texts, "a list of texts"),
    "derived_from": (_table_of_texts, "a table of texts"),
    "options": (_table, "a table"),
    "emulated": (_flag, "true or false"),
    "virtual": (_flag, "true or false"),
    "local_only": (_flag, "true or false"),
    "environment": (_maybe_text, "text or null"),
    "note": (_maybe_text, "text or null"),
    "package": (_maybe_text, "text or null"),
}
_LINES = ("reason", "runtime", "runtime_title", "version", "note")
_NAMED = ("key", "uuid", "bus", "luid", "name", "driver", "firmware")
"""What a processor's table may hold as text."""


def usable_id(value: object) -> bool:
    """Say whether ``value`` can be an engine's id: a-z, 0-9, dots and dashes, 64 at most."""
    return isinstance(value, str) and _ID.fullmatch(value) is not None


def nonsense(doc: Any) -> str | None:
    """Return what is wrong with a probe's answer for one engine, null where nothing is."""
    if not isinstance(doc, dict):
        return f"an engine is {_shown(doc)}, not a table"
    if not usable_id(doc.get("id")):
        return (
            f"the id {_shown(doc.get('id'))} is not made of a-z, 0-9, dots and dashes (64 at most)"
        )
    for name, (holds, wanted) in _FIELDS.items():
        if name in doc and not holds(doc[name]):
            return f"{name} is {_shown(doc[name])}, not {wanted}"
    unknown = sorted(set(map(str, doc)) - {"id", *_FIELDS})
    if unknown:
        return f"there is no field {_shown(unknown[0])}"
    return _processor(doc.get("processor", {}), used=doc.get("available") is True)


def in_lines(doc: dict[str, Any]) -> dict[str, Any]:
    """Return a sound answer with its texts as lines that a terminal can be shown."""
    told = dict(doc)
    for name in _LINES:
        if told.get(name) is not None:
            told[name] = one_line(told[name])[:_LONGEST]
    for name in ("variants", "extra_variants"):
        told[name] = tuple(one_line(v) for v in told.get(name, ()))
    told["versions"] = {one_line(str(k)): one_line(v) for k, v in told.get("versions", {}).items()}
    processor = dict(told.get("processor", {}))
    for name in _NAMED:
        if processor.get(name) is not None:
            processor[name] = one_line(processor[name])[:_LONGEST]
    told["processor"] = processor
    return told


def _processor(told: dict[str, Any], *, used: bool) -> str | None:
    if used and told.get("role") not in ROLES:
        return f"the processor's role is {_shown(told.get('role'))}, not one of {', '.join(ROLES)}"
    for name in _NAMED:
        if not _maybe_text(told.get(name)):
            return f"the processor's {name} is {_shown(told[name])}, not text or null"
    details = told.get("details")
    if not (details is None or isinstance(details, dict)):
        return f"the processor's details are {_shown(details)}, not a table"
    try:
        size = len(json.dumps(details, ensure_ascii=False).encode())
    except UnicodeEncodeError:
        return "the processor's details hold what is no text"
    return f"the processor's details take {size} bytes" if size > MAX_DETAILS_BYTES else None


def _shown(value: object) -> str:
    text = one_line(repr(value))
    return text if len(text) <= 60 else f"{text[:57]}..."
