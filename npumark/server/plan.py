"""What a complete run has measured, as far as a record can tell (methodology §2 to §4).

Which encodings an engine offers is for its probe to say, and no record holds that; but what it
ran on one workload it had to run on every other that has such a graph.
"""

from __future__ import annotations

from npumark.pack.manifest import Manifest, Workload
from npumark.record.model import EngineRecord, Payload
from npumark.score.demand import Key


def missing_entries(payload: Payload, manifest: Manifest) -> list[Key]:
    """Return (engine, workload, variant) of every entry that a complete run would list and this
    payload does not; one that was skipped for a reason is listed there.

    The peak test and the scored networks belong to every run, the large-batch peak to those of
    discrete GPUs where its files ship (not under macOS). A ladder leaves out encodings of
    networks, never a network.
    """
    roles = {p.id: p.role for p in payload.processors}
    listed = {(e.engine, e.workload, e.variant) for e in payload.entries}
    missing: list[Key] = []
    for engine in payload.engines:
        graphs = {e.variant: e.graph_variant for e in payload.entries if e.engine == engine.id}
        large = roles.get(engine.processor) == "dGPU" and payload.machine.get("os") != "macOS"
        for workload in manifest.workloads.values():
            if workload.tier in ("peak", "scored") or (workload.tier == "large" and large):
                due = _due(engine, workload, graphs)
                lacking = [key for key in due if key not in listed]
                laddered = payload.plan.ladder is not None and workload.kind == "network"
                if lacking and not (laddered and len(lacking) < len(due)):
                    missing += lacking
    return missing


def _due(engine: EngineRecord, workload: Workload, graphs: dict[str, str]) -> list[Key]:
    """Return the entries of one workload that an engine with these encodings has to list."""
    stored = {v.id for v in workload.variants}
    return [(engine.id, workload.id, name) for name, graph in graphs.items() if graph in stored]
