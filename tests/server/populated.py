"""A server's store with some results of every kind that pages have to show."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import Any

from npumark.record.model import Payload
from npumark.record.signing import InstallKey
from npumark.server.store import Store
from tests import forge
from tests.server.stored import new_result, registration

NASTY = '<b onclick="x">R&D</b>\'; DROP TABLE results;-- {{7*7}} 🚀\u202e gnp.exe'
"""A name that HTML, SQL, templates and the direction of writing could all make something of."""


@dataclass(frozen=True)
class Shown:
    """The names of results: a whole run with cards and an NPU, a CPU alone, a quick run (not
    ranked), one of a nasty name, and others of one CPU."""

    cards: str
    cpu: str
    quick: str
    nasty: str
    others: tuple[str, ...]


@cache
def _payload(**of: Any) -> Payload:
    return forge.forge_payload(**of)


def whole() -> Payload:
    """A run of a CPU, two cards of a kind and an NPU, as a server would be sent it."""
    return _payload(cards=2, npu=forge.NPU)


def nasty() -> Payload:
    """A run whose every free text is ``NASTY``."""
    run = forge.vary(_payload(quick=True), run_id="nasty")
    named = [p.model_copy(update={"name": NASTY}) for p in run.processors]
    score = run.score and run.score.model_copy(
        update={"label": run.score.label.replace(run.processors[0].name, NASTY)}
    )
    entries = [
        e.model_copy(update={"why": NASTY, "why_not": "gate_failed", "counts": False})
        if i == len(run.entries) - 1
        else e
        for i, e in enumerate(run.entries)
    ]
    return run.model_copy(
        update={
            "processors": named,
            "score": score,
            "entries": entries,
            "machine": {**run.machine, "cpu_model": NASTY, NASTY: NASTY, "os": NASTY},
            "tool": run.tool.model_copy(update={"version": NASTY}),
            "suite": run.suite.model_copy(update={"name": NASTY[:40], "why_not": NASTY}),
            "warnings": [NASTY],
        }
    )


def populate(store: Store, *, others: int = 3) -> Shown:
    """Fill an empty store."""
    machines: list[tuple[str, InstallKey]] = []
    for i in range(others + 1):
        install = InstallKey(bytes([i + 1]) * 32)
        machines.append((f"{i:064x}", install))
        store.register_key(registration(install, machines[-1][0]))

    def accept(payload: Payload, at: int = 0, **over: Any) -> str:
        machine_id, install = machines[at]
        new = new_result(payload=payload, install=install, machine_id=machine_id, **over)
        return str(json.loads(store.accept(new))["result_id"])

    why = {"ranked": False, "not_ranked_because": ["quick", "development_build"]}
    base = _payload()
    return Shown(
        cards=accept(forge.vary(whole(), run_id="cards")),
        cpu=accept(forge.vary(base, run_id="cpu")),
        quick=accept(forge.vary(_payload(quick=True), run_id="quick"), trust="development", **why),
        nasty=accept(nasty(), ranked=False, not_ranked_because=[NASTY]),
        others=tuple(
            accept(forge.vary(_payload(speed=0.8 + 0.1 * i), run_id=f"other-{i}"), i + 1)
            for i in range(others)
        ),
    )
