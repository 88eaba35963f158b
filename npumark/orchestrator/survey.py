"""What can be measured here: the registered runtimes, probed, and the processors behind them."""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from npumark import paths
from npumark.engines import catalogue
from npumark.engines.registry import registered
from npumark.errors import Interrupted, UsageError
from npumark.machine import processors
from npumark.machine.inventory import Inventory, inventory
from npumark.orchestrator.discover import (
    Found,
    Runtime,
    discover,
    not_installed,
    stand_ins,
)
from npumark.orchestrator.environments import Standing, here, runs_here, standings
from npumark.orchestrator.interrupts import Interrupts
from npumark.orchestrator.lock import measuring_with
from npumark.orchestrator.reach import row_of
from npumark.orchestrator.redaction import redact
from npumark.plain import one_line
from npumark.policy import Policy, load_policy
from npumark.record.model import Processor
from npumark.worker.protocol import EngineInfo

VIRTUAL = "virtual"


@dataclass(frozen=True, slots=True)
class Survey:
    """Every engine, available or not; the processors of those that are; ``owner`` maps an
    available engine to its processor's id; ``lacks`` says, a clause each, why the system's own
    list of processors may not be whole. ``bus`` maps a processor's id to its PCI address, which
    places workers and goes into no record."""

    found: tuple[Found, ...]
    processors: tuple[Processor, ...]
    owner: dict[str, str]
    lacks: tuple[str, ...] = ()
    bus: dict[str, str] = field(default_factory=dict)

    @property
    def failed(self) -> dict[str, str]:
        """The runtimes that are here and broke, each with its reason; people's names are left out
        of it."""
        return self.failed_of({f.info.id for f in self.found})

    def failed_of(self, engines: Collection[str]) -> dict[str, str]:
        """Return those of ``failed`` that one of the engines with these ids is of."""
        return {
            _broken_whole(f): redact(f.info.reason or "no reason was given")
            for f in self.found
            if f.failed and f.info.id in engines
        }

    @property
    def infos(self) -> tuple[EngineInfo, ...]:
        return tuple(f.info for f in self.found)

    def details(self) -> dict[str, dict[str, Any]]:
        """Return what is known of the processor of each available engine: driver and firmware."""
        known = {p.id: p.details for p in self.processors}
        return {engine: known[processor] for engine, processor in self.owner.items()}

    def engine(self, engine_id: str) -> Found:
        """Return the available engine of that id. Raises KeyError."""
        for found in self.found:
            if found.info.id == engine_id and found.info.available:
                return found
        raise KeyError(engine_id)


def survey(virtual: Path | None = None, policy: Policy | None = None) -> Survey:
    """Probe every registered engine and return what there is (``npumark engines``).

    Holds the measuring lock meanwhile: probing would disturb a measurement. ``virtual`` is the
    path of a script of virtual engines, which are then the only ones. Raises SetupError where
    a measurement is running, Interrupted where a signal ended it.
    """
    rules = policy or load_policy()
    try:
        with (
            Interrupts() as interrupts,
            measuring_with(paths.engines_dir(), "npumark engines") as holder,
        ):
            return probe_all(virtual, rules, interrupts, holder.marker)
    except KeyboardInterrupt:
        raise Interrupted("stopped before the engines were known", "Start it again.") from None


def probe_all(virtual: Path | None, policy: Policy, interrupts: Interrupts, marker: str) -> Survey:
    """Probe under a lock that is already held; see ``survey``."""
    usable, refused = runtimes(virtual)
    environments = standings() if virtual is None else ()
    probed = discover(
        (*usable, *environment_runtimes(environments)),
        limits=policy.worker,
        interrupts=interrupts,
        marker=marker,
        parallel=min(2, os.cpu_count() or 1),
    )
    found = (*with_environments(probed, environments), *refused)
    listed = inventory() if virtual is None else Inventory(())
    placed = processors.settle((f.info for f in found), listed.cards)
    roles, owner = {p.id: p.role for p in placed.processors}, placed.owner
    settled = tuple(_in_role(f, roles[owner[f.info.id]]) if f.info.available else f for f in found)
    lacks = tuple(redact(said) for said in listed.lacks)
    return Survey(settled, tuple(placed.processors), owner, lacks, placed.bus)


def _in_role(found: Found, role: str) -> Found:
    """Return an engine with the role of its processor: it may only have guessed its own."""
    told = {**found.info.processor, "role": role}
    return replace(found, info=replace(found.info, processor=told))


def runtimes(virtual: Path | None) -> tuple[tuple[Runtime, ...], tuple[Found, ...]]:
    """Return the runtimes to probe, and those whose registration is at fault as engines that
    are not available. Raises UsageError where the virtual script does not exist."""
    if virtual is not None and not virtual.is_file():
        raise UsageError(
            f"there is no script of virtual engines at {virtual}",
            "Name a JSON file that describes some, or leave out --virtual.",
        )
    usable: list[Runtime] = []
    refused: list[Found] = []
    for entry in registered():
        if (entry.name == VIRTUAL) != (virtual is not None):
            continue
        runtime = Runtime(
            entry.name,
            entry.ref,
            {"script": str(virtual.absolute())} if virtual else {},
            package=entry.package,
        )
        if entry.fault is None:
            usable.append(runtime)
        else:
            name = one_line(entry.name)
            info = EngineInfo(name, False, one_line(entry.fault), name, name, None)
            refused.append(Found(info, runtime))
    return tuple(usable), tuple(refused)


def environment_runtimes(environments: tuple[Standing, ...]) -> tuple[Runtime, ...]:
    """Return the runtimes that are to be probed in the environments that are installed."""
    refs = {entry.name: entry.ref for entry in registered() if entry.fault is None}
    found = []
    for one in environments:
        row = catalogue.environment(one.name)
        if row is None or one.installed is None:
            continue
        found += [
            Runtime(
                name,
                refs[name],
                {"only": list(row.providers)},
                one.installed.python,
                one.name,
                one.installed.packages,
                one.installed.seal.python,
                one.installed.sha256,
            )
            for name in row.runtimes
            if name in refs
        ]
    return tuple(found)


def with_environments(
    probed: tuple[Found, ...], environments: tuple[Standing, ...]
) -> tuple[Found, ...]:
    """Return what was found, and for each environment of this platform that cannot be asked a
    line that says why and what to do."""
    told = [f for f in probed if not _only_elsewhere(f)]
    for one in environments:
        row = catalogue.environment(one.name)
        if row is None or one.installed is not None or not runs_here(row):
            continue
        absent = one.state == "absent"
        if absent:
            reason = f"not installed; run `npumark engines install {one.name}`"
        else:
            state = "missing" if one.state == "foreign" else one.state
            reason = f"its environment is {state}: {one.why}; {one.remedy}"
        for info in stand_ins(one.name, reason):
            same = [f for f in told if _is_of(f, info)]
            # What is missing from npumark's own interpreter is no news beside what was begun.
            if any(f.info.available or absent or f.failed for f in same):
                continue
            told = [f for f in told if f not in same]
            told.append(Found(info, Runtime(info.runtime, "", environment=one.name), not absent))
    return tuple(told)


def _only_elsewhere(found: Found) -> bool:
    """Say whether a line tells that npumark's own interpreter lacks an engine that on this
    platform only environments have: their lines tell of it."""
    if found.runtime.environment or not not_installed(found.info.reason or ""):
        return False
    row = row_of(found.info.id)
    return row is not None and row.environment is not None and here() in row.platforms


def _is_of(found: Found, missing: EngineInfo) -> bool:
    """Say whether an engine that was found is the one that ``missing`` stands for, or one of
    several such."""
    return re.fullmatch(rf"{re.escape(missing.id)}(-\d+)?", found.info.id) is not None


def _broken_whole(found: Found) -> str:
    """Return what stands for all the lines of a runtime that broke: its name, or where it lives
    in an environment, or where a part of it alone broke, the id of its provider or of its only
    engine."""
    row = row_of(found.info.id)
    if row is None or (found.runtime.environment is None and "only" not in found.runtime.options):
        return found.info.id if "only" in found.runtime.options else found.runtime.name
    told = {row.engine_id(role) for role in row.roles}
    by_kind = row.id not in found.runtime.options.get("only", (row.id,))
    return found.info.id if by_kind or len(told) == 1 else row.id
