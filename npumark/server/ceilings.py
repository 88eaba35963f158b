"""What a chip can compute at the most: ``data/chips.json``, each figure with its source.

GPUs and NPUs are looked up by name, NPUs that all have one name by their CPU's as well. A CPU's
ceiling is its cores x its clock x the operations that its widest instructions do in a cycle.
TOPS are dense, two operations for each multiply-accumulate, as everywhere (methodology §2).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from npumark.policy import DATA
from npumark.record.model import Payload, Processor

CHIPS: Final = DATA / "chips.json"

_LONGEST: Final = 200
"""Letters of a processor's name that are looked at: patterns on a longer one could take long."""

_MARKS = re.compile(r"\((?:r|tm|c)\)|®|™")
_REMARK = re.compile(
    r" \((?:(?:radv|nvk|nouveau) [a-z0-9_]+|radeonsi(?:, [a-z0-9_. -]+)*"
    r"|[a-z]{2,4}[0-9]?(?: gt?[0-9]+(?:\.[0-9])?)?)\)$"
)
"""Mesa's driver and the chip's code name. Any other remark is a name that no table knows."""

_MAKERS: Final = (
    (re.compile(r"\b(?:intel|amd)\b"), "x86"),
    (re.compile(r"\b(?:apple|qualcomm|snapdragon|ampere|graviton)\b"), "arm"),
)
"""Whose CPUs have which architecture: a record that states another is believed neither."""

_X86 = frozenset({"x86_64", "amd64", "x64", "i386", "i686", "x86"})
_ARM = frozenset({"arm64", "aarch64"})


@dataclass(frozen=True, slots=True)
class Chip:
    """A family of GPUs or NPUs. ``name`` is matched against the processor's whole name, ``cpu``
    against that of the computer's CPU (null: any); ``tops`` is by number format."""

    id: str
    roles: tuple[str, ...]
    name: re.Pattern[str]
    cpu: re.Pattern[str] | None
    tops: Mapping[str, float]
    source: str


@dataclass(frozen=True, slots=True)
class Instructions:
    """A level of a CPU's instruction set: had where any of ``flags`` is, by CPUs of a ``name``
    only, where one is given. ``ops`` is operations per core and cycle by number format."""

    id: str
    architecture: str
    flags: frozenset[str]
    name: re.Pattern[str] | None
    ops: Mapping[str, float]
    source: str


@dataclass(frozen=True, slots=True)
class Chips:
    """All of ``chips.json``. ``cores`` are the most that a computer has with a CPU of such a
    name, the first that matches; ``most_ghz`` bounds a clock that is not known."""

    chips: tuple[Chip, ...]
    instructions: tuple[Instructions, ...]
    cores: tuple[tuple[re.Pattern[str], int], ...]
    most_ghz: float
    sha256: str


@dataclass(frozen=True, slots=True)
class Ceiling:
    """``tops`` in one number format, for the chip family ``chip``; ``source`` names where it is
    from in ``chips.json``, ``how`` says how a CPU's comes about."""

    chip: str
    tops: float
    source: str
    how: str | None = None


def parse_chips(raw: bytes) -> Chips:
    """Return the table in ``raw`` (JSON). Raises KeyError, ValueError or re.error where it has
    another form."""
    document = json.loads(raw)
    per_unit = document["architectures"]
    chips = tuple(
        Chip(
            id=row["id"],
            roles=tuple(row["roles"]),
            name=re.compile(row["name"]),
            cpu=re.compile(row["cpu"]) if "cpu" in row else None,
            tops=row["tops"] if "tops" in row else _rates(row, per_unit[row["source"]]),
            source=row["source"],
        )
        for row in document["chips"]
    )
    cpu = document["cpu"]
    instructions = tuple(
        Instructions(
            id=row["id"],
            architecture=row["architecture"],
            flags=frozenset(row["flags"]),
            name=re.compile(row["name"]) if "name" in row else None,
            ops=row["ops"],
            source=row["source"],
        )
        for row in cpu["instructions"]
    )
    cores = tuple((re.compile(row["name"]), int(row["most"])) for row in cpu["cores"])
    return Chips(chips, instructions, cores, cpu["most_ghz"], hashlib.sha256(raw).hexdigest())


def _rates(row: Mapping[str, Any], ops: Mapping[str, float]) -> dict[str, float]:
    """Return TOPS by format of so many units at a clock, from the operations of one in a cycle."""
    return {name: row["units"] * row["ghz"] * each / 1e3 for name, each in ops.items()}


@cache
def load_chips(path: Path = CHIPS) -> Chips:
    """Return the shipped table."""
    return parse_chips(path.read_bytes())


def folded(name: str) -> str:
    """Return a processor's name as the table's patterns expect it: lower case, no trade marks, no
    remark at its end (Mesa adds its driver and the chip's code name)."""
    return _REMARK.sub("", " ".join(_MARKS.sub(" ", name[:_LONGEST].lower()).split()))


def ceiling(
    processor: Processor, number_format: str | None, payload: Payload, chips: Chips
) -> Ceiling | None:
    """Return what ``processor`` of a run can reach in a number format, null where nobody knows.

    A format that the family's row does not list, and one that a runtime did not confirm (null),
    have the ceiling of the fastest that it lists.
    """
    if not processor.name.isprintable():  # two names that look alike are not one
        return None
    if processor.role == "CPU":
        return _cpu(folded(processor.name), number_format, payload, chips)
    cpu = next((folded(p.name) for p in payload.processors if p.role == "CPU"), "")
    name = folded(processor.name)
    for chip in chips.chips:
        if processor.role not in chip.roles or not chip.name.fullmatch(name):
            continue
        if chip.cpu is None or chip.cpu.search(cpu):
            return Ceiling(chip.id, _in(chip.tops, number_format), chip.source)
    return None


def _in(rates: Mapping[str, float], number_format: str | None) -> float:
    return rates.get(number_format or "", max(rates.values()))


def _cpu(name: str, number_format: str | None, payload: Payload, chips: Chips) -> Ceiling | None:
    stated, level = _cores(payload), _widest(name, payload, chips.instructions)
    if stated is None or level is None:
        return None
    cores = min(stated, next((n for known, n in chips.cores if known.search(name)), stated))
    ghz, ops = _clock_ghz(payload, chips.most_ghz), _in(level.ops, number_format)
    how = f"{cores} cores x {ghz:g} GHz x {ops:g} operations per cycle ({level.id})"
    return Ceiling(level.id, cores * ghz * ops / 1e3, level.source, how)


def _cores(payload: Payload) -> int | None:
    """Return how many cores there are: of a virtual machine, whose topology is its host's choice,
    as many as it has logical CPUs."""
    limits = _checked(payload, "cpu_limits")
    names: Sequence[str] = ("physical", "threads")
    if payload.machine.get("virtualisation") or not isinstance(limits.get("physical"), int):
        names = ("physical", "threads", "logical", "usable")
    known = [n for name in names if isinstance(n := limits.get(name), int) and n > 0]
    return max(known, default=None)


def _clock_ghz(payload: Payload, most_ghz: float) -> float:
    """Return the highest clock that the system states, at the most ``most_ghz``; that itself
    where it states none."""
    clocks = _checked(payload, "clocks")
    stated = clocks.get("hardware_max_khz")
    if not isinstance(stated, Mapping):
        return most_ghz
    seen = [stated.get("max")]
    present = clocks.get("current_khz")
    if isinstance(present, Mapping):
        seen.append(present.get("max"))
    known = [khz for khz in seen if isinstance(khz, int) and khz > 0]
    return min(max(known) / 1e6, most_ghz) if known else most_ghz


def _widest(name: str, payload: Payload, levels: Sequence[Instructions]) -> Instructions | None:
    """Return the level of the instruction set with the most operations that a CPU of that name may
    have: all of its architecture where its flags are not known. Null where its maker's CPUs have
    another architecture than the record states."""
    told = str(payload.machine.get("architecture") or "").lower()
    architecture = "x86" if told in _X86 else "arm" if told in _ARM else None
    if any(of != architecture for maker, of in _MAKERS if maker.search(name)):
        return None
    flags = payload.machine.get("isa")
    names = frozenset(map(str, flags)) if isinstance(flags, list) else None
    apple = architecture == "arm" and str(payload.machine.get("os")) == "macOS"
    own = [
        level
        for level in levels
        if level.architecture == architecture
        and (level.name is None or level.name.search(name))
        and (names is None or apple or level.flags & names or not level.flags)
    ]
    return max(own, key=lambda level: max(level.ops.values()), default=None)


def _checked(payload: Payload, name: str) -> Mapping[str, Any]:
    """Return what a precondition's check found, empty where it found no such thing."""
    check = payload.environment.checks.get(name)
    value = None if check is None else check.value
    return value if isinstance(value, Mapping) else {}
