"""Keeps people's names out of a record: home folders, host name, where npumark writes."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from npumark import paths

_SHORTEST = 4
"""A shorter name would be found inside ordinary words."""


def replacements() -> tuple[tuple[str, str], ...]:
    """Return what to replace by what on this machine, longest first."""
    places = [
        (str(paths.cache_dir()), "<cache>"),
        (str(paths.data_dir()), "<data>"),
        (str(paths.config_dir()), "<config>"),
    ]
    root = paths.home()
    if root is not None:
        places.append((str(root), "<npumark-home>"))
    with suppress(RuntimeError):  # no home folder is known
        places.append((str(Path.home()), "~"))
    host = platform.node()
    if len(host) >= _SHORTEST and host != "localhost":
        places.append((host, "<host>"))
    useful = [(old, new) for old, new in places if len(old) >= _SHORTEST]
    return tuple(sorted(useful, key=lambda pair: -len(pair[0])))


def redact(text: str, known: Sequence[tuple[str, str]] | None = None) -> str:
    """Return ``text`` without the folders and names of this machine's user."""
    for old, new in replacements() if known is None else known:
        text = text.replace(old, new)
    return text


def redact_all(value: Any, known: Sequence[tuple[str, str]]) -> Any:
    """Return a JSON value with every text in it redacted; keys stay as they are."""
    if isinstance(value, str):
        return redact(value, known)
    if isinstance(value, dict):
        return {key: redact_all(item, known) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [redact_all(item, known) for item in value]
    return value
