"""What the user asked for: the command line's answer, as plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from npumark.record.box import BoxRoleName


@dataclass(frozen=True, slots=True)
class RunRequest:
    """``engines``, ``workloads`` and ``variants`` are None where everything is meant.

    ``resume`` is a run id, or ``last``. ``out`` is where the record goes beside the history.
    ``virtual`` is the path of a virtual-engine script (tests), or None.

    ``box`` is whether all cards of a role are measured at once after everything else (record.box:
    ``auto``, ``on``, ``only``, ``off``); ``box_roles`` and ``box_cards`` (processor ids) are None
    where all are meant; ``box_from`` is a record that the solo peaks are taken from.
    """

    quick: bool = False
    engines: tuple[str, ...] | None = None
    workloads: tuple[str, ...] | None = None
    variants: tuple[str, ...] | None = None
    all_variants: bool = False
    ladder: str | None = None
    large_peak: bool = False
    box: Literal["auto", "on", "only", "off"] = "auto"
    box_roles: tuple[BoxRoleName, ...] | None = None
    box_cards: tuple[str, ...] | None = None
    box_from: Path | None = None
    time_budget_s: float | None = None
    include_known_crashes: bool = False
    include_emulated: bool = False
    wait_idle: bool = False
    strict: bool = False
    skip_preconditions: bool = False
    resume: str | None = None
    out: Path | None = None
    force: bool = False
    manifest: Path | None = None
    virtual: Path | None = None
    argv: tuple[str, ...] = field(default_factory=tuple)
