"""The run's journal: one JSON line per thing that happened, on disk before the next begins.

A run killed at any moment is resumed from it. Before an attempt its intent is written, so
that an attempt in flight at a kill is known and never silently repeated; after it, its whole
result. A last line cut short by a kill or a full disk is what it looks like: not written.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from pydantic import ValidationError

import npumark
from npumark import paths
from npumark.errors import IntegrityError
from npumark.record.form import another

SCHEMA = "npumark-journal/1"

Key = tuple[str, str, str]

_UNKNOWN_PART: dict[str, Any] = {"load": None, "watched": True, "notes": {}}

_BINARY: int = getattr(os, "O_BINARY", 0)
"""Keeps Windows from writing each line feed as two bytes."""


@dataclass(frozen=True, slots=True)
class Line:
    """One journal line: ``kind`` (``header``, ``resumed``, ``starting``, ``attempt``,
    ``box_starting``, ``box_attempt``, ``prepared``, ``fact``, ``parts``, ``finished``), its
    ``body`` and its ``number`` in the file."""

    kind: str
    body: dict[str, Any]
    number: int = 0


class Journal:
    """Appends lines, each flushed to the disk itself. Owned by one process (the lock's)."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | _BINARY, 0o600)
        except OSError as fault:
            raise paths.unwritable(path, fault) from fault
        self._mend()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def append(self, kind: str, body: dict[str, Any]) -> None:
        """Write one line and wait until it is on the disk. Raises SetupError where it cannot."""
        text = json.dumps({"kind": kind, **body}, allow_nan=False, separators=(",", ":"))
        raw = memoryview(text.encode() + b"\n")
        try:
            while raw:
                raw = raw[os.write(self._fd, raw) :]
            os.fsync(self._fd)
        except OSError as fault:
            raise paths.unwritable(self._path, fault) from fault

    def _mend(self) -> None:
        """End a torn last line, so that the next one starts on its own."""
        with self._path.open("rb") as file:
            if file.seek(0, os.SEEK_END) == 0:
                return
            file.seek(-1, os.SEEK_END)
            torn = file.read(1) != b"\n"
        if torn:
            os.write(self._fd, b"\n")


def read_journal(path: Path) -> tuple[Line, ...]:
    """Return the lines of a journal; a torn line is left out.

    Only a line that a kill cut short can be torn: the last one, or one before a ``resumed``.
    Raises IntegrityError where the journal has no readable header or one of another version, or
    another line is broken.
    """
    try:
        raw = path.read_bytes()
    except OSError as fault:
        raise IntegrityError(
            f"the journal {path} cannot be read: {fault.strerror or fault}",
            "This run cannot be resumed; start a new one.",
        ) from fault
    parsed = [(n, _parse(line, n)) for n, line in enumerate(raw.split(b"\n"), 1) if line]
    lines: list[Line] = []
    for place, (number, line) in enumerate(parsed):
        if line is not None:
            lines.append(line)
            continue
        following = next((later for _, later in parsed[place:] if later is not None), None)
        if following is not None and following.kind != "resumed":
            raise broken(path, f"line {number} is not readable")
    if not lines or lines[0].kind != "header":
        raise broken(path, "it does not start with a header")
    if (schema := lines[0].body.get("schema")) != SCHEMA:
        raise misfit(path, f"line 1 has the schema {json.dumps(schema)[:60]}", lines[0].body)
    return tuple(lines)


@dataclass(slots=True)
class Replay:
    """What a journal says: its header, attempts by entry, facts, and the attempt in flight.

    ``prepared`` are its preparations. ``numbers`` are the lines that the attempts stand on.
    ``box`` are the attempts of the box stage, ``box_in_flight`` the one in flight. ``parts`` is
    what was seen of the machine up to the last attempt or the end of a part.
    """

    header: dict[str, Any]
    attempts: dict[Key, list[dict[str, Any]]] = field(default_factory=dict)
    numbers: dict[Key, list[int]] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    resumed: list[dict[str, Any]] = field(default_factory=list)
    prepared: list[dict[str, Any]] = field(default_factory=list)
    in_flight: dict[str, Any] | None = None
    box: list[dict[str, Any]] = field(default_factory=list)
    box_in_flight: dict[str, Any] | None = None
    spent_ns: dict[str, int] = field(default_factory=dict)
    parts: list[dict[str, Any]] = field(default_factory=list)
    finished: bool = False
    last_ns: int = 0


def replay(lines: tuple[Line, ...], path: Path | None = None) -> Replay:
    """Return the state that ``lines`` lead to. ``last_ns`` is the latest instant mentioned.

    Raises IntegrityError naming ``path`` and the line that lacks what its kind must have.
    """
    state = Replay(lines[0].body)
    for line in lines[1:]:
        try:
            _take(state, line)
        except _ODD as fault:
            raise misfit(path, f"line {line.number} {lack(fault)}", state.header) from fault
    return state


_ODD = (ValueError, KeyError, TypeError, AttributeError, OverflowError)


def lack(fault: Exception) -> str:
    """Say in a few words what a line was found to lack."""
    if isinstance(fault, ValidationError):
        first = fault.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        return f"has a wrong {where or 'value'}: {first['msg']}"
    if isinstance(fault, KeyError):
        return f"lacks {fault}"
    return f"has a wrong value: {' '.join(str(fault).split())[:200]}"


def _take(state: Replay, line: Line) -> None:
    body = line.body
    if line.kind == "starting":
        entry_key(body)
        int(body["n"]), int(body["seed"])
        state.last_ns = max(state.last_ns, int(body["started_ns"]))
        state.in_flight = body
    elif line.kind == "attempt":
        attempt = body["attempt"]
        ended = int(attempt["started_ns"]) + int(attempt["wall_ns"])
        state.attempts.setdefault(entry_key(body), []).append(attempt)
        state.numbers.setdefault(entry_key(body), []).append(line.number)
        state.in_flight = None
        state.spent_ns = {str(k): int(v) for k, v in body.get("spent_ns", {}).items()}
        state.parts = list(body.get("parts", [_UNKNOWN_PART]))
        state.last_ns = max(state.last_ns, ended)
    elif line.kind == "box_starting":
        str(body["role"]), int(body["n"])
        state.last_ns = max(state.last_ns, int(body["started_ns"]))
        state.box_in_flight = body
    elif line.kind == "box_attempt":
        attempt = body["attempt"]
        state.box.append(attempt)
        state.box_in_flight = None
        state.spent_ns = {str(k): int(v) for k, v in body["spent_ns"].items()}
        state.parts = list(body["parts"])
        ended = int(attempt["started_ns"]) + int(attempt["wall_ns"])
        state.last_ns = max(state.last_ns, ended)
    elif line.kind == "prepared":
        made = body["preparation"]
        state.prepared.append(made)
        state.spent_ns = {str(k): int(v) for k, v in body["spent_ns"].items()}
        state.last_ns = max(state.last_ns, int(made["started_ns"]) + int(made["wall_ns"]))
    elif line.kind == "fact":
        state.facts[str(body["name"])] = body["value"]
    elif line.kind == "parts":
        state.parts = list(body["parts"])
    elif line.kind == "resumed":
        state.last_ns = max(state.last_ns, int(body["at_ns"]))
        state.resumed.append(body)
    elif line.kind == "finished":
        state.finished = True


def entry_key(body: dict[str, Any]) -> Key:
    """Return the entry a ``starting`` or ``attempt`` line belongs to."""
    engine, workload, variant = body["entry"]
    return (str(engine), str(workload), str(variant))


def _parse(raw: bytes, number: int) -> Line | None:
    try:
        doc = json.loads(raw)
        return Line(doc.pop("kind"), doc, number)
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError):
        return None


def broken(path: Path | None, why: str) -> IntegrityError:
    return IntegrityError(
        f"{_named(path)} is damaged: {why}", "This run cannot be resumed; start a new one."
    )


def misfit(path: Path | None, why: str, header: dict[str, Any]) -> IntegrityError:
    """Return the refusal of a journal with a whole line that is not of this version's form.

    A journal has no digest: unless its header names another version, nothing tells the form of
    another build from damage.
    """
    state = header.get("state")
    version = state.get("npumark") if isinstance(state, dict) else None
    wrote = "is damaged, or another npumark wrote it"
    if version not in (None, npumark.__version__):
        wrote = f"was written by {another(version)}"
    return IntegrityError(
        f"{_named(path)} {wrote}: {why}",
        "Resume the run with the npumark that began it, or start a new one.",
    )


def _named(path: Path | None) -> str:
    return "the journal" if path is None else f"the journal {path}"
