"""Where ONNX Runtime's providers really ran a graph, as they themselves testify.

Three witnesses, none of which is believed alone:

- the *graph assignment*: which provider was given which node, recorded before nodes are fused.
  Nodes that it leaves out (some were seen to be assigned after the recording) leave a claim
  unproved. Operators that multiply survive every rewriting that comes before the recording, so
  those are counted against the file;
- the *profile* of a short run apart: time by each kernel's own provider field, or by the clock
  for a provider that works behind the call (ort_timeline). Time of a kernel without one counts
  against the claim;
- what lies beneath the provider, where it could turn to another device unseen (ort_beneath).
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from npumark.engines.base import Array, LoadRequest
from npumark.engines.catalogue import Provider, provider
from npumark.engines.onnx_graph import INTEGER_PRODUCTS, PRODUCTS, OnnxGraph, read_graph
from npumark.engines.ort_beneath import Beneath, openvino, qnn, vitisai
from npumark.engines.ort_context import compiled_nodes
from npumark.engines.ort_options import QNN_PROFILE
from npumark.engines.ort_profile import MULTIPLIES, Profile, read_profile
from npumark.engines.ort_session import CPU, LISTS_ONLY_OTHERS, open_session
from npumark.engines.ort_timeline import share_of_calls
from npumark.engines.qnn_profile import QnnProfile, read_qnn_profile
from npumark.engines.vitisai_report import FACT as VITIS_FACT
from npumark.engines.vitisai_report import VitisReport, from_fact, read_report
from npumark.errors import EngineError, WrongDevice
from npumark.worker.protocol import Placement

CONTEXT = "EPContext"
"""The operator of a graph that was compiled before. The nodes it stands for are those that were
assigned when it was compiled; where that was not recorded, nothing tells them."""

MULTIPLYING = PRODUCTS | INTEGER_PRODUCTS | {"FusedConv", "FusedGemm", "FusedMatMul", "QGemm"}
"""Operators as they may stand in the assignment that do the work of a graph's products."""

_COPIES = frozenset({"Memcpy", "MemcpyFromHost", "MemcpyToHost"})
"""Kernels that the runtime adds to bring values to a device and back."""


@dataclass(frozen=True, slots=True)
class AssignedNode:
    """A node as it was given to a provider; ``provider`` is empty where none took it."""

    provider: str
    op: str
    name: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was found out about ``runs`` calls of a graph. ``assigned`` is null, with ``unlisted``
    saying why, where the runtime does not tell. ``qnn`` and ``vitisai`` are those providers' own
    words, null with ``untold`` where they gave none."""

    profile: Profile
    graph: OnnxGraph
    assigned: tuple[AssignedNode, ...] | None
    unlisted: str | None = None
    qnn: QnnProfile | None = None
    vitisai: VitisReport | None = None
    untold: str | None = None

    def given(self, name: str) -> tuple[AssignedNode, ...]:
        """Return the nodes that were given to a provider."""
        return tuple(n for n in self.assigned or () if n.provider == name)


def collect(request: LoadRequest, row: Provider, feed: list[Array], runs: int) -> Evidence:
    """Run the request's graph ``runs`` times in a session of its own, with every witness on.

    Raises EngineError where a witness contradicts itself or is incomplete.
    """
    graph = read_graph(request.graph)
    with tempfile.TemporaryDirectory(prefix="npumark-", ignore_cleanup_errors=True) as folder:
        session = open_session(
            request, row, profile=Path(folder) / "profile", fresh=_names_anew(request, row)
        )
        assigned, why = read_assignment(session)
        if any(n.op == CONTEXT for n in assigned or ()):
            compiled = compiled_nodes(request)
            assigned = tuple(AssignedNode(*n) for n in compiled) if compiled else assigned
        values = {spec.name: array for spec, array in zip(request.inputs, feed, strict=True)}
        for _ in range(runs):
            session.run(None, values)
        profile = read_profile(Path(session.end_profiling()), runs)
        del session
        found = Evidence(profile, graph, assigned, why)
        try:
            if row.id == "ort-qnn":
                found = replace(found, qnn=read_qnn_profile(Path(folder) / QNN_PROFILE))
            if row.id == "ort-vitisai":
                found = replace(found, vitisai=_vitis_report(request, Path(folder)))
        except EngineError as fault:
            found = replace(found, untold=fault.message)
        return found


def _names_anew(request: LoadRequest, row: Provider) -> bool:
    """Say whether a compiled model would not tell what it runs.

    OpenVINO's NPU counts time only for what was compiled with counters, and kernels of a GPU's
    compiled model have lost their types.
    """
    device = request.options.get("device") or {}
    return row.id == "ort-openvino" and device.get("ov_device") != "CPU"


def _vitis_report(request: LoadRequest, folder: Path) -> VitisReport:
    """Return the report of the compiled model, or of the session that compiled for itself."""
    memo = request.cache_memo
    if memo.use is not None and memo.use.state != "unkept":
        return from_fact(memo.facts.get(VITIS_FACT))
    return read_report(folder)


def read_assignment(session: Any) -> tuple[tuple[AssignedNode, ...] | None, str | None]:
    """Return every node with the provider it was given to; null and why where untold."""
    if not hasattr(session, "get_provider_graph_assignment_info"):
        return None, "this ONNX Runtime does not tell what it assigned; 1.24 or newer does"
    try:
        told = session.get_provider_graph_assignment_info()
    except Exception as fault:  # noqa: BLE001 - it raises where nothing was recorded
        return None, f"what was assigned was not recorded: {' '.join(str(fault).split())}"[:300]
    return tuple(
        AssignedNode(str(part.ep_name), str(node.op_type), str(node.name))
        for part in told
        for node in part.get_nodes()
    ), None


def prove(evidence: Evidence, row: Provider, device: Mapping[str, Any]) -> Placement:
    """Return where the calls ran: the share of time on the row's own provider.

    Raises WrongDevice where nothing at all ran on it.
    """
    own = str(row.provider_name)
    kernels = evidence.profile.kernels
    if kernels and not any(k.provider == own for k in kernels):
        others = ", ".join(sorted({str(k.provider) for k in kernels}))
        raise WrongDevice(f"everything ran on {others}, and nothing on {own}")
    untold = (row.id, device.get("route")) in LISTS_ONLY_OTHERS
    op_share, gap = _operators(evidence, own, untold=untold)
    if own == CPU:
        # What the CPU provider was not given cannot have hidden on another CPU.
        gap = None
    partitions = _partitions(evidence.profile, own)
    source = "graph assignment and profile"

    def unproved(why: str) -> Placement:
        return Placement("unproved", None, op_share, partitions or None, source, why)

    if not kernels:
        return unproved("the profile shows no kernel")
    share, why = _time_share(evidence.profile, own, asynchronous=row.asynchronous)
    if share is None or why is not None:
        return unproved(why or "the profile accounts for no time")
    if gap is not None:
        return unproved(gap)
    if own != CPU and evidence.graph.products and not _multiplied(evidence, own):
        return unproved(
            f"the profile shows no kernel of {own} that can have done any of the graph's "
            f"{len(evidence.graph.products)} operators that multiply"
        )
    verdict = _beneath(evidence, row, device)
    share *= 1 - verdict.elsewhere
    if verdict.source:
        source += f", {verdict.source}"
    if verdict.refused is not None:
        return unproved(verdict.refused)
    if verdict.doubt is not None:
        return Placement("inferred", share, op_share, partitions, source, verdict.doubt)
    return Placement("proved", share, op_share, partitions, source, None)


def _time_share(
    profile: Profile, own: str, *, asynchronous: bool
) -> tuple[float | None, str | None]:
    """Return the provider's share of the time, or null and why.

    A provider that works behind the call is not timed by its kernels: their durations are of
    queueing. Its share is of the calls' own time, by the clock (ort_timeline).
    """
    if asynchronous:
        return share_of_calls(profile, own)
    total = sum(k.microseconds for k in profile.kernels)
    ours = sum(k.microseconds for k in profile.kernels if k.provider == own)
    return (ours / total, None) if total else (None, None)


def _operators(evidence: Evidence, own: str, *, untold: bool) -> tuple[float | None, str | None]:
    """Return the provider's share of operators, and what the assignment does not account for.

    Where ``untold``, the runtime lists what others got and the rest is the provider's. A graph
    compiled before lists its operators as they were when it was compiled; where nothing kept
    those, it holds nobody knows what.
    """
    nodes, in_file = evidence.assigned, len(evidence.graph.nodes)
    if nodes is None:
        return None, evidence.unlisted
    if any(n.op == CONTEXT for n in nodes):
        return None, (
            "which operators the compiled model holds was not recorded when it was compiled; "
            "remove it (npumark pack clean --compiled) and run again"
        )
    expected = len(evidence.graph.products)
    others = sum(1 for n in nodes if n.provider != own)
    multiplying = Counter(n.provider == own for n in nodes if n.op in MULTIPLYING)
    nothing = f"{own} was given none of the graph's {expected} operators that multiply"
    if untold:
        if expected and multiplying[False] >= expected:
            return None, nothing
        return (max(0.0, 1 - others / in_file) if in_file else None), None
    share = 1 - others / len(nodes) if nodes else None
    listed = multiplying.total()
    if not nodes or listed < expected:
        return share, (
            f"the runtime's list of assigned nodes has {listed} of the graph's {expected} "
            f"operators that multiply ({len(nodes)} nodes of {in_file})"
        )
    return share, (nothing if expected and not multiplying[True] else None)


def _multiplied(evidence: Evidence, own: str) -> bool:
    """Say whether a kernel of ``own`` can have multiplied: one of an operator that does, or of a
    part of the graph that it compiled, which bears no operator's name."""
    plain = {n.op for n in evidence.graph.nodes} | {n.op for n in evidence.assigned or ()} | _COPIES
    return any(
        k.op in MULTIPLYING | MULTIPLIES or k.op not in plain
        for k in evidence.profile.kernels
        if k.provider == own
    )


def _partitions(profile: Profile, own: str) -> int:
    """Return how many unbroken stretches of one call's kernels ran on ``own``."""
    per_run = len(profile.kernels) // max(1, profile.runs)
    inside = [kernel.provider == own for kernel in profile.kernels[:per_run]]
    return sum(1 for i, here in enumerate(inside) if here and (i == 0 or not inside[i - 1]))


def _beneath(evidence: Evidence, row: Provider, device: Mapping[str, Any]) -> Beneath:
    """Ask what lies beneath the provider, where it could turn to another device unseen."""
    if row.id == "ort-qnn":
        return qnn(evidence.qnn, evidence.untold, evidence.profile.runs)
    if row.id == "ort-openvino" and device.get("ov_device") != "CPU":
        inner = (i for i in evidence.profile.inner if i.provider == row.provider_name)
        return openvino(inner, str(device.get("ov_device", "")))
    if row.id == "ort-vitisai":
        own = str(row.provider_name)
        return vitisai(evidence.vitisai, evidence.untold, evidence.profile, own)
    if row.id == "ort-coreml" and device.get("compute_units") != "CPUOnly":
        return Beneath(doubt=f"{row.title} does not tell on which device its part of the graph ran")
    if provider(row.id) is None and row.provider_name != CPU:
        return Beneath(doubt="this plug-in is not known to run on its one device only")
    return Beneath()


def assigned_counts(nodes: Iterable[AssignedNode] | None) -> dict[str, dict[str, int]] | None:
    """Return the number of nodes by provider and operator, for the record; null where untold."""
    if nodes is None:
        return None
    counts: dict[str, Counter[str]] = {}
    for node in nodes:
        counts.setdefault(node.provider, Counter())[node.op] += 1
    return {name: dict(sorted(ops.items())) for name, ops in sorted(counts.items())}
