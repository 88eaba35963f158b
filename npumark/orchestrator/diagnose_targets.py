"""Which variant of each network is probed on each engine: the fastest of the last benchmark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from npumark.errors import NothingToMeasure, NpumarkError
from npumark.machine.identity import other_machine
from npumark.orchestrator.diagnose_request import DiagnoseRequest
from npumark.orchestrator.lists import load_known_crashes, load_ladder
from npumark.orchestrator.plan import Host, make_plan
from npumark.orchestrator.select import select_workloads
from npumark.orchestrator.survey import Survey
from npumark.pack.manifest import Manifest
from npumark.policy import Policy
from npumark.record.files import read_record
from npumark.record.history import list_runs
from npumark.record.model import Payload
from npumark.score.delivered import winner
from npumark.score.planned import Planned
from npumark.worker.protocol import EngineInfo

Pair = tuple[str, str]
"""An engine and a network."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What can be probed. ``all`` are the entries of every variant, those of ``default`` are
    measured where no benchmark tells which one is the fastest."""

    all: tuple[Planned, ...]
    default: tuple[Planned, ...]

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """The engines and networks, in the plan's order."""
        return tuple(dict.fromkeys((p.engine, p.workload) for p in self.all))


@dataclass(frozen=True, slots=True)
class Earlier:
    """The entry that a benchmark found to be the fastest, and that run's id."""

    planned: Planned
    run_id: str


def asked_for(
    manifest: Manifest, survey: Survey, request: DiagnoseRequest, policy: Policy, host: Host
) -> Asked:
    """Return what the request means: the scored networks, and other workloads by their own id.

    Raises UsageError as a run's plan does, NothingToMeasure where that is nothing.
    """
    workloads = tuple(
        workload.id
        for workload, named in select_workloads(manifest, request.workloads)
        if named or workload.tier == "scored"
    )
    if not workloads:
        raise NothingToMeasure(
            "none of the workloads asked for is a network that counts",
            "Name one by its own id; without --workload the scored networks are diagnosed.",
        )
    plan = make_plan(
        manifest,
        survey.infos,
        request.as_run(workloads),
        policy,
        ladder=load_ladder("default"),
        known_crashes=load_known_crashes(),
        host=host,
    )
    variants = {e.id: set(e.variants or e.extra_variants) for e in survey.infos}
    return Asked(plan, tuple(p for p in plan if p.variant in variants[p.engine]))


def earlier_choices(
    asked: Asked,
    engines: Mapping[str, EngineInfo],
    manifest: Manifest,
    machine: Mapping[str, Any],
    benchmarks: Iterable[Payload],
) -> dict[Pair, Earlier]:
    """Return the fastest counting entry of each pair by the newest of ``benchmarks`` (the newest
    first) that has one, with the same pack, on this computer (``machine``, see machine.identity)
    and with the engine's present version: a home may be shared among computers.

    Runs of virtual engines tell of virtual engines alone.
    """
    entries = {p.key: p for p in asked.all if p.skip is None}
    found: dict[Pair, Earlier] = {}
    for payload in benchmarks:
        if payload.suite.manifest_sha256 != manifest.sha256:
            continue
        if any(other_machine(payload.machine, machine)):
            continue
        then = {e.id: e for e in payload.engines}
        for pair in asked.pairs:
            engine, now = then.get(pair[0]), engines[pair[0]]
            if pair in found or engine is None:
                continue
            if (engine.version, engine.virtual) != (now.version, now.virtual):
                continue
            best = winner(*pair, payload.entries)
            if best is not None and (planned := entries.get((*pair, best.variant))):
                found[pair] = Earlier(planned, payload.run_id)
        if len(found) == len(asked.pairs):
            break
    return found


def saved_benchmarks() -> Iterator[Payload]:
    """Yield what the history holds, the newest first; what cannot be read is passed over."""
    for row in list_runs():
        if row.state not in ("complete", "partial"):
            continue
        try:
            yield read_record(row.folder.record).payload
        except NpumarkError:
            continue


def candidates(asked: Asked, pair: Pair) -> Sequence[Planned]:
    """Return the entries that are measured to find a pair's fastest: the default variants."""
    return [p for p in asked.default if (p.engine, p.workload) == pair]
