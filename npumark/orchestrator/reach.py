"""What would drive a processor: rows of the catalogue of providers that fit it, on this system."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from npumark.engines import catalogue
from npumark.orchestrator.environments import here
from npumark.record.model import Processor
from npumark.worker.protocol import EngineInfo

Lack = Literal["broken", "absent", "elsewhere"]
"""Why an engine is not available: it is here and fails, it can be installed, or its provider
runs on another system."""

_ABSENT = re.compile(r"^not installed\b.*`npumark engines install ([a-z0-9-]+)`")


@dataclass(frozen=True, slots=True)
class Remedy:
    """A way to a processor that no engine drives. ``environment`` names what would have to be
    installed, null where the provider is here and lacks what ``needs`` says."""

    engine: str
    environment: str | None
    needs: str

    def __str__(self) -> str:
        needs = f" ({self.needs})" if self.needs else ""
        if self.environment is None:
            return f"{self.engine} would{needs}"
        return f"`npumark engines install {self.environment}` adds {self.engine}{needs}"


def row_of(engine_id: str) -> catalogue.Provider | None:
    """Return the provider whose engine ``engine_id`` would be: the longest id that begins it."""
    rows = [
        row
        for row in catalogue.PROVIDERS
        if engine_id == row.id or engine_id.startswith(f"{row.id}-")
    ]
    return max(rows, key=lambda row: len(row.id), default=None)


def lack(engine: EngineInfo) -> Lack:
    """Return why an engine that is not available is not."""
    rows = [r for r in catalogue.PROVIDERS if engine.id in (r.id, r.runtime)]
    if not rows and (row := row_of(engine.id)):
        rows = [row]
    if rows and not any(here() in row.platforms for row in rows):
        return "elsewhere"
    return "absent" if environment_for(engine) else "broken"


def environment_for(engine: EngineInfo) -> str | None:
    """Return the environment whose installation would bring an engine, by the reason it gives."""
    found = _ABSENT.match(engine.reason or "")
    return found[1] if found else None


def needs_of(engine: EngineInfo) -> str:
    """Return what else than its packages an engine that is not available needs (a driver, a
    card), empty where that is nothing or it runs on the CPU."""
    row = row_of(engine.id)
    made = catalogue.environment(environment_for(engine) or "")
    if row is None or ("CPU" in row.roles and row.engine_id("CPU") == engine.id):
        return ""
    return (made and made.needs) or row.needs


def unreached(processors: Iterable[Processor], owner: dict[str, str]) -> tuple[Processor, ...]:
    """Return the processors that no available engine drives."""
    return tuple(p for p in processors if p.id not in owner.values())


def remedies(processor: Processor, engines: Sequence[EngineInfo]) -> tuple[Remedy, ...]:
    """Return what would drive a processor: first what can be installed, then what is here."""
    maker = processor.details.get("maker")
    absent = {name for e in engines if (name := environment_for(e))}
    failing = {e.id for e in engines if not e.available}
    found = []
    for row in catalogue.PROVIDERS:
        theirs = processor.role == "CPU" or not row.makers or maker in row.makers
        if processor.role not in row.roles or here() not in row.platforms or not theirs:
            continue
        engine = row.engine_id(processor.role)
        if row.environment in absent:
            found.append(Remedy(engine, row.environment, row.needs))
        elif failing & {engine, row.id, row.runtime} and row.needs:
            found.append(Remedy(engine, None, row.needs))
    return tuple(sorted(found, key=lambda remedy: remedy.environment is None))
