"""The two shipped lists a plan obeys: the variant ladder and the known crashes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from npumark.errors import UsageError
from npumark.policy import DATA

LADDER_SCHEMA = "npumark-ladder/1"
CRASHES_SCHEMA = "npumark-known-crashes/1"


@dataclass(frozen=True, slots=True)
class LadderRule:
    """``engine`` is a pattern over engine ids. Each of ``labels`` is one number family: the
    first of its encodings that the engine and the workload both have is the one that runs."""

    engine: str
    labels: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Ladder:
    """Which labels of a scored network run on an engine: those of the first rule that fits."""

    name: str
    rules: tuple[LadderRule, ...]

    def labels(self, engine: str) -> tuple[tuple[str, ...], ...]:
        """Return the families of an engine; empty where no rule names it."""
        for rule in self.rules:
            if fnmatchcase(engine, rule.engine):
                return rule.labels
        return ()


@dataclass(frozen=True, slots=True)
class KnownCrash:
    """A combination known to abort its runtime. All but ``reason`` are patterns; ``version``
    is matched against the engine's version and ``platform`` against ``sys.platform``."""

    engine: str
    workload: str
    variant: str
    platform: str
    version: str
    reason: str

    def hits(
        self, *, engine: str, workload: str, variant: str, platform: str, version: str | None
    ) -> bool:
        return (
            fnmatchcase(engine, self.engine)
            and fnmatchcase(workload, self.workload)
            and fnmatchcase(variant, self.variant)
            and fnmatchcase(platform, self.platform)
            and fnmatchcase(version or "", self.version)
        )


def parse_ladder(raw: bytes) -> Ladder:
    """Return the ladder in ``raw`` (JSON). Raises ValueError naming what is wrong."""
    doc = _document(raw, LADDER_SCHEMA, {"schema", "name", "origin", "rules"})
    rules = []
    for entry in doc["rules"]:
        if set(entry) != {"engine", "labels"} or not all(entry["labels"]):
            raise ValueError(f"a ladder rule names an engine and non-empty labels, not {entry!r}")
        rules.append(LadderRule(entry["engine"], tuple(tuple(x) for x in entry["labels"])))
    return Ladder(doc["name"], tuple(rules))


def parse_known_crashes(raw: bytes) -> tuple[KnownCrash, ...]:
    """Return the combinations in ``raw`` (JSON). Raises ValueError naming what is wrong."""
    doc = _document(raw, CRASHES_SCHEMA, {"schema", "combinations"})
    optional = {"engine", "workload", "variant", "platform", "version"}
    crashes = []
    for entry in doc["combinations"]:
        if not entry.get("reason") or not set(entry) <= optional | {"reason"}:
            raise ValueError(f"a known crash has a reason and known keys only, not {entry!r}")
        crashes.append(
            KnownCrash(**{k: entry.get(k, "*") for k in optional}, reason=entry["reason"])
        )
    return tuple(crashes)


@cache
def load_ladder(name: str) -> Ladder:
    """Return a shipped ladder. Raises UsageError for a name there is none of."""
    path = DATA / f"{name}_ladder.json"
    shipped = sorted(p.name.removesuffix("_ladder.json") for p in DATA.glob("*_ladder.json"))
    if name not in shipped:
        raise UsageError(
            f"there is no ladder called {name!r}", f"The ladders are: {', '.join(shipped)}."
        )
    return parse_ladder(path.read_bytes())


@cache
def load_known_crashes(path: Path | None = None) -> tuple[KnownCrash, ...]:
    """Return the shipped list of combinations known to abort."""
    return parse_known_crashes((path or DATA / "known_crashes.json").read_bytes())


def _document(raw: bytes, schema: str, keys: set[str]) -> dict[str, Any]:
    doc = json.loads(raw)
    if not isinstance(doc, dict) or doc.get("schema") != schema or set(doc) != keys:
        raise ValueError(f"not a {schema} document")
    return doc
