"""The script of the virtual engines: which there are, how fast, and how each one misbehaves.

JSON, every key but ``engines`` optional::

    {"seed": 0, "clock": "fake", "state": "folder for attempt counters",
     "probe": {"do": "exit", "code": 3},
     "engines": [{
        "id": "virtual-npu", "available": true, "reason": null, "title": "Virtual",
        "version": "1", "versions": {}, "processor": {"key": …, "role": …, "name": …},
        "variants": ["fp32", "int8-u8s8"], "extra_variants": [], "derived_from": {},
        "emulated": false, "local_only": false, "nondeterministic": false,
        "precision": {"fp16": "FP32"}, "device": "what observed() says",
        "placement": {"verdict": "proved", "share": 1.0, …},
        "latency_us": {"peak-*/int8-*": 900, "*/*": 2000},
        "first_call_factor": 10, "noise": 0.01, "attempt_noise": 0.005,
        "drift_per_s": 0.0, "attempt_factors": {"*/*": [1, 1, 1.3]},
        "episodes": {"every_s": 0.5, "length_s": 0.1, "factor": 3},
        "wake": {"after_ms": 100, "factor": 2},
        "compiles": {"bytes": 4096, "seconds": 0.0, "keeps": true},
        "work": {"core": 0, "rounds": 200},
        "faults": [{"workload": "*", "variant": "*", "attempts": [2], "do": "abort", …}]}]}

An engine that ``compiles`` keeps a compiled model of so many ``bytes`` (engines.model_cache);
with ``keeps`` false its runtime writes none. A session loaded from one whose bytes are not those
that were written gives wrong answers, as a real one would.

With ``clock`` ``real`` a call sleeps for as long as it says, or, on an engine that does ``work``,
computes: so many ``rounds`` (virtual_work) on the CPU ``core`` alone, or on any where it is null.
Of the keys that say how fast an engine is only ``attempt_factors`` then holds. Engines that need
more rounds than their twins are slow cards.

Patterns are ``workload/variant`` in fnmatch style; the first that matches holds. Deaths
(``abort``, ``segfault``, ``kill``, ``exit`` with ``code``, ``hang``, ``half_json``, ``garbage``),
``stderr_flood`` with ``bytes`` and refusals (``unsupported``, ``wrong_device``, ``raise``,
``out_of_memory``) happen at load, at call number ``call``, or at the first call that begins
``after_s`` seconds after the load or later; with ``when`` they happen only while a model is
compiled (``compile``), loaded by a process that did not compile it (``reload``), or by sessions
that take several inputs per call (``batch``). Loads that prepare an entry count as attempts -1, -2
…. Wrong answers are ``nan``, ``nan_one``, ``inf``, ``zeros``, ``memoised``,
``memoised_when_timed``, ``scale`` with ``factor``, ``noise`` with ``snr_db``, ``roll``,
``fp16_clip`` with ``gain``, ``jitter`` (answers differ from call to call in their last bits), of
every call or of call number ``call`` alone, and ``wrong_shape``, of all.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from npumark.engines.virtual_work import Work, read_work
from npumark.errors import EngineError

DEATHS = ("abort", "segfault", "kill", "exit", "hang", "half_json", "garbage")
REFUSALS = ("stderr_flood", "unsupported", "wrong_device", "raise", "out_of_memory")
WRONG_ANSWERS = (
    "nan",
    "nan_one",
    "inf",
    "zeros",
    "memoised",
    "memoised_when_timed",
    "scale",
    "noise",
    "roll",
    "fp16_clip",
    "wrong_shape",
    "jitter",
)


@dataclass(frozen=True, slots=True)
class Fault:
    """One misbehaviour; ``attempts`` null means every one, ``call`` and ``after_s`` null mean at
    load, ``call`` null of a wrong answer at every call.

    ``when`` limits it to sessions that ``compile`` a model or ``reload`` one, or that take a
    ``batch``; null, to none of them.
    """

    do: str
    workload: str = "*"
    variant: str = "*"
    attempts: list[int] | None = None
    call: int | None = None
    after_s: float | None = None
    when: str | None = None
    code: int = 0
    bytes: int = 1 << 20
    factor: float = 2.0
    snr_db: float = 30.0
    gain: float = 4096.0

    def __post_init__(self) -> None:
        if self.when not in (None, "compile", "reload", "batch"):
            raise ValueError(f"unknown time of a fault: {self.when!r}")

    def applies(self, workload: str, variant: str, attempt: int) -> bool:
        return (
            fnmatchcase(workload, self.workload)
            and fnmatchcase(variant, self.variant)
            and (self.attempts is None or attempt in self.attempts)
        )


_COMPILES: dict[str, Any] = {"bytes": 4096, "seconds": 0.0, "keeps": True}


@dataclass(frozen=True, slots=True)
class Card:
    """One virtual engine, as the script describes it."""

    id: str
    available: bool = True
    reason: str | None = None
    title: str = "Virtual"
    version: str | None = "1"
    versions: dict[str, str] = field(default_factory=dict)
    processor: dict[str, Any] = field(default_factory=dict)
    variants: list[str] = field(default_factory=lambda: ["fp32"])
    extra_variants: list[str] = field(default_factory=list)
    derived_from: dict[str, str] = field(default_factory=dict)
    emulated: bool = False
    local_only: bool = False
    nondeterministic: bool = False
    precision: dict[str, str | None] = field(default_factory=dict)
    device: str | None = None
    placement: dict[str, Any] = field(default_factory=dict)
    latency_us: dict[str, float] = field(default_factory=dict)
    first_call_factor: float = 1.0
    noise: float = 0.0
    attempt_noise: float = 0.0
    drift_per_s: float = 0.0
    attempt_factors: dict[str, list[float]] = field(default_factory=dict)
    episodes: dict[str, float] = field(default_factory=dict)
    wake: dict[str, float] = field(default_factory=dict)
    compiles: dict[str, Any] | None = None
    work: Work | None = None
    faults: list[Fault] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.processor:
            object.__setattr__(
                self, "processor", {"key": "cpu", "role": "CPU", "name": "Virtual CPU"}
            )
        if self.compiles is not None:
            told = {**_COMPILES, **self.compiles}
            if set(told) != set(_COMPILES):
                raise ValueError(f"unknown keys of compiles: {sorted(set(told) - set(_COMPILES))}")
            object.__setattr__(self, "compiles", told)

    def latency_ns(self, workload: str, variant: str) -> int:
        return round(float(_first(self.latency_us, workload, variant, 1000.0)) * 1000)

    def attempt_factor(self, workload: str, variant: str, attempt: int) -> float:
        factors = _first(self.attempt_factors, workload, variant, [1.0])
        return float(factors[min(max(attempt, 1), len(factors)) - 1])

    def faults_of(self, workload: str, variant: str, attempt: int) -> list[Fault]:
        return [f for f in self.faults if f.applies(workload, variant, attempt)]


@dataclass(frozen=True, slots=True)
class Script:
    """``state`` holds one small file per attempt that has begun."""

    engines: dict[str, Card]
    state: Path
    seed: int = 0
    fake_clock: bool = True
    probe: Fault | None = None

    def draw(self, *parts: object) -> random.Random:
        """Return a generator that depends on the seed and ``parts`` alone."""
        return random.Random("/".join(map(str, (self.seed, *parts))))  # noqa: S311

    def next_attempt(
        self, engine: str, workload: str, variant: str, *, preparing: bool = False
    ) -> int:
        """Count one more attempt of an entry; return its number, from 1, or from -1 downwards
        for the loads that prepare it."""
        self.state.mkdir(parents=True, exist_ok=True)
        attempt, sign, lead = 1, -1 if preparing else 1, "prepare." if preparing else ""
        while True:
            name = f"{lead}{engine}.{workload}.{variant}.{attempt}"
            try:
                (self.state / name).touch(exist_ok=False)
            except FileExistsError:
                attempt += 1
            else:
                return sign * attempt


def read_script(path: Path) -> Script:
    """Return the script at ``path``. Raises EngineError where it is not one, saying why."""
    try:
        return _script(json.loads(path.read_text(encoding="utf-8")), path)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as fault:
        raise EngineError(f"the virtual engines' script cannot be used: {fault!r}") from fault


def _script(doc: dict[str, Any], path: Path) -> Script:
    cards = [_card(dict(card)) for card in doc.pop("engines")]
    probe = doc.pop("probe", None)
    clock = doc.pop("clock", "fake")
    script = Script(
        engines={card.id: card for card in cards},
        state=path.parent / doc.pop("state", f"{path.stem}.attempts"),
        seed=int(doc.pop("seed", 0)),
        fake_clock=clock == "fake",
        probe=_fault(dict(probe), (*DEATHS, *REFUSALS)) if probe else None,
    )
    if doc or clock not in ("fake", "real"):
        raise ValueError(f"unknown keys or clock: {sorted(doc) or clock}")
    if script.fake_clock and any(card.work for card in cards):
        raise ValueError("work takes real time: it needs the real clock")
    return script


def _card(doc: dict[str, Any]) -> Card:
    unknown = set(doc) - {f.name for f in fields(Card)}
    if unknown:
        raise ValueError(f"unknown keys of an engine: {sorted(unknown)}")
    known = (*DEATHS, *REFUSALS, *WRONG_ANSWERS)
    faults = [_fault(dict(fault), known) for fault in doc.pop("faults", ())]
    work = doc.pop("work", None)
    return Card(faults=faults, work=None if work is None else read_work(work), **doc)


def _fault(doc: dict[str, Any], known: tuple[str, ...]) -> Fault:
    if doc.get("do") not in known:
        raise ValueError(f"unknown fault {doc.get('do')!r}")
    return Fault(**doc)


def _first(table: dict[str, Any], workload: str, variant: str, otherwise: Any) -> Any:
    for pattern, value in table.items():
        if fnmatchcase(f"{workload}/{variant}", pattern):
            return value
    return otherwise
