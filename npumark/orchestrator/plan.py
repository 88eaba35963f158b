"""The plan: every engine x workload x variant of a run, in the order of its first pass.

The order is: the peak test, the large-batch peak, the scored networks, the extras; within each
the workloads as the manifest lists them; within a workload the engines as they were found, and
on each engine its variants in the engine's own order. So the peaks, which the score is made
of, come first, and engines are compared on a workload within minutes of each other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from npumark.errors import NothingToMeasure, UsageError
from npumark.orchestrator.lists import KnownCrash, Ladder
from npumark.orchestrator.memory import lack_of_memory, needed_bytes
from npumark.orchestrator.request import RunRequest
from npumark.orchestrator.schedule import loop_and_warmup_s
from npumark.orchestrator.select import check_variants, select_engines, select_workloads
from npumark.pack.manifest import Manifest, Tier, Workload
from npumark.policy import Policy
from npumark.score import repetition
from npumark.score.labels import declared_label
from npumark.score.planned import Planned, derived_format
from npumark.worker.protocol import EngineInfo

TIERS: tuple[Tier, ...] = ("peak", "large", "scored", "extra")

LARGE_PLATFORMS = ("linux", "win32")
"""Where the files of the large-batch peak ship (methodology 3.2 §3a), as ``sys.platform``."""

_WINDOWS_AND_LINUX = "is measured under Windows and Linux only, where its files ship"


_NAMED = 3
"""Engines that a sentence names one by one."""


@dataclass(frozen=True, slots=True)
class Host:
    """What of the machine a plan depends on: ``sys.platform`` and free memory, null unread."""

    platform: str
    free_bytes: int | None


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a plan will take, projected from the policy alone, before anything is measured.

    ``attempts`` and ``seconds`` are (at the least, at the most); screening makes the first
    the likelier. Seconds cover loops, warm-ups and spacing; loading and the accuracy pass
    depend on the machine and are left out. ``pack_bytes`` is the size of the pack files read.
    """

    attempts: tuple[int, int]
    seconds: tuple[float, float]
    pack_bytes: int


def make_plan(
    manifest: Manifest,
    engines: Sequence[EngineInfo],
    request: RunRequest,
    policy: Policy,
    *,
    ladder: Ladder,
    known_crashes: Sequence[KnownCrash],
    host: Host,
    only: Collection[str] | None = None,
) -> tuple[Planned, ...]:
    """Return the plan of a run.

    ``ladder`` is the one that a quick run takes its network labels from, and the one that
    ``--ladder`` names. ``only`` are the ids of the engines whose peak test is all that is
    measured, null where everything asked for is. Raises UsageError for a name that is unknown or
    a combination of options that contradict each other, NothingToMeasure for an empty plan.
    """
    if request.all_variants and (request.quick or request.ladder):
        other = "--quick" if request.quick else "--ladder"
        raise UsageError(
            f"--all-variants and {other} contradict each other", "Give one of the two."
        )
    chosen = select_engines(engines, request.engines, include_emulated=request.include_emulated)
    workloads = select_workloads(manifest, request.workloads)
    _refuse_large(workloads, host.platform)
    if only is not None:
        chosen = tuple(e for e in chosen if e.id in only)
        workloads = tuple((w, named) for w, named in workloads if w.tier == "peak")
    check_variants(manifest, engines, request.variants)
    if request.quick:
        workloads = _one_peak_shape(workloads)
    plan = [
        planned
        for tier in TIERS
        for workload, named in workloads
        if workload.tier == tier
        for engine in chosen
        if named or _by_default(workload, engine, host.platform, large=request.large_peak)
        for planned in _entries(workload, engine, request, ladder)
    ]
    if not plan:
        raise NothingToMeasure(
            _why_empty(request, chosen, [w for w, _ in workloads]),
            "`npumark run --dry-run` without a selection shows what there is.",
        )
    versions = {e.id: e.version for e in chosen}
    return tuple(
        replace(p, skip=_skip(p, manifest, policy, request, known_crashes, host, versions))
        for p in plan
    )


def _why_empty(
    request: RunRequest, engines: Sequence[EngineInfo], workloads: Sequence[Workload]
) -> str:
    """Return why a plan is empty: the encodings of what was named, where it was named alone."""
    if request.workloads is None or request.variants is not None:
        return "no engine here runs any of the variants and workloads asked for"
    who = "no engine here runs any"
    if request.engines is not None and len(engines) <= _NAMED:
        verb = "runs" if len(engines) == 1 else "run"
        who = f"{' and '.join(e.id for e in engines)} {verb} none"
    if len(workloads) > 1:
        return f"{who} of the workloads asked for"
    encodings = ", ".join(v.id for v in workloads[0].variants)
    return f"{who} of the encodings that {workloads[0].id} comes in: {encodings}"


def files_read(plan: Sequence[Planned], manifest: Manifest) -> tuple[str, ...]:
    """Return the pack files that the plan's active entries read, each once, in plan order."""
    seen: dict[str, None] = {}
    for planned in plan:
        if planned.skip is None:
            files = manifest.workloads[planned.workload].files(planned.graph_variant)
            seen.update(dict.fromkeys(files))
    return tuple(seen)


def estimate(
    plan: Sequence[Planned], manifest: Manifest, policy: Policy, *, quick: bool = False
) -> Estimate:
    """Return a projection of the plan's attempts, time and pack size.

    At the least every entry runs once and only the leader of each screened group (an engine's
    peak configurations of one tier, a network's variants on an engine) is repeated, to its
    minimum; at the most nothing is screened and nothing agrees. Time is that of loops and
    warm-ups: loading and judging answers come on top, and depend on the machine.
    """
    active = [p for p in plan if p.skip is None]
    limits = [(1, 1) if quick else repetition.bounds(p.kind, policy.repetition) for p in active]
    leaders = {
        (p.engine, p.tier if p.kind == "peak" else p.workload): low
        for p, (low, _) in zip(active, limits, strict=True)
    }
    least = len(active) + sum(low - 1 for low in leaders.values())
    most = sum(high for _, high in limits)
    each = loop_and_warmup_s(policy, quick=quick)
    spacing = policy.repetition.spacing_s

    def seconds(attempts: int, passes: int) -> float:
        return max(attempts * each, (passes - 1) * spacing + each) if attempts else 0.0

    return Estimate(
        attempts=(least, most),
        seconds=(
            seconds(least, max((low for low, _ in limits), default=0)),
            seconds(most, max((high for _, high in limits), default=0)),
        ),
        pack_bytes=sum(manifest.files[path].size for path in files_read(plan, manifest)),
    )


def _one_peak_shape(
    workloads: Sequence[tuple[Workload, bool]],
) -> tuple[tuple[Workload, bool], ...]:
    """Keep the peak shape with the fewest operations, which a slow machine can still run."""
    shapes = [w for w, _ in workloads if w.tier == "peak"]
    keep = min(shapes, key=lambda w: w.macs, default=None)
    return tuple((w, named) for w, named in workloads if w.tier != "peak" or w is keep)


def large_peak_left_out(
    request: RunRequest,
    plan: Sequence[Planned],
    manifest: Manifest,
    engines: Sequence[EngineInfo],
    platform: str,
) -> str | None:
    """Return why ``--large-peak`` adds nothing, null where it does or was not given."""
    if not request.large_peak or any(p.tier == "large" for p in plan):
        return None
    if platform not in LARGE_PLATFORMS:
        return f"it {_WINDOWS_AND_LINUX}"
    if not any(w.tier == "large" for w, _ in select_workloads(manifest, request.workloads)):
        return "it is none of the workloads that were asked for"
    chosen = select_engines(engines, request.engines, include_emulated=request.include_emulated)
    if not any(e.processor.get("role") in ("dGPU", "iGPU") for e in chosen):
        if request.engines is not None:
            return "no engine that was asked for is on a GPU"
        return "no engine that works here is on a GPU"
    if request.variants is not None:
        return "no GPU that is measured here has a graph for it in the encodings asked for"
    return "no GPU that is measured here has a graph for it"


def _refuse_large(workloads: Sequence[tuple[Workload, bool]], platform: str) -> None:
    """Raise UsageError where a workload of the large tier is named and its files do not ship."""
    named = next((w.id for w, named in workloads if named and w.tier == "large"), None)
    if named is not None and platform not in LARGE_PLATFORMS:
        raise UsageError(f"{named} {_WINDOWS_AND_LINUX}", "Leave it out.")


def _by_default(workload: Workload, engine: EngineInfo, platform: str, *, large: bool) -> bool:
    role = engine.processor.get("role")
    if workload.tier == "large":
        if platform not in LARGE_PLATFORMS:
            return False
        return role == "dGPU" or (large and role == "iGPU")
    return workload.tier != "extra"


def _entries(
    workload: Workload, engine: EngineInfo, request: RunRequest, ladder: Ladder
) -> Iterator[Planned]:
    names = engine.variants
    if not names and request.engines is None:
        return  # measured only where it is named, whatever else is asked for
    if not names:
        names = engine.extra_variants
    if request.all_variants or request.variants is not None:
        names = (*names, *(v for v in engine.extra_variants if v not in names))
    entries = [p for name in names if (p := entry_of(workload, engine, name))]
    if request.variants is not None:
        wanted = {v.lower() for v in request.variants}
        entries = [p for p in entries if {p.variant.lower(), p.declared_format.lower()} & wanted]
    elif request.quick or request.ladder:
        entries = _representatives(entries, workload, engine, request, ladder)
    yield from entries


def entry_of(workload: Workload, engine: EngineInfo, name: str) -> Planned | None:
    """Return the entry for an encoding the engine supports, if the workload has a graph for it."""
    graph_name = engine.derived_from.get(name, name)
    graph = next((v for v in workload.variants if v.id == graph_name), None)
    if graph is None:
        return None
    derived = name in engine.derived_from
    return Planned(
        engine=engine.id,
        workload=workload.id,
        variant=name,
        graph_variant=graph.id,
        declared_format=derived_format(name) if derived else graph.format,
        kind=workload.kind,
        tier=workload.tier,
    )


def _representatives(
    entries: Sequence[Planned],
    workload: Workload,
    engine: EngineInfo,
    request: RunRequest,
    ladder: Ladder,
) -> list[Planned]:
    """Return one label per number family: of a network those of the ladder, of a peak the first.

    The ladder leaves the peak test alone except in a quick run.
    """
    if workload.kind == "peak":
        return _first_of_each_format(entries) if request.quick else list(entries)
    by_name = {p.variant: p for p in entries}
    chosen = [
        next((by_name[name] for name in family if name in by_name), None)
        for family in ladder.labels(engine.id)
    ]
    kept = [p for p in chosen if p is not None]
    return kept or _first_of_each_format(entries)


def _first_of_each_format(entries: Sequence[Planned]) -> list[Planned]:
    first: dict[str, Planned] = {}
    for planned in entries:
        # By the label: INT8 with activations of 16 bits is another family than INT8.
        first.setdefault(declared_label(planned.declared_format, planned.variant), planned)
    return list(first.values())


def _skip(
    planned: Planned,
    manifest: Manifest,
    policy: Policy,
    request: RunRequest,
    known_crashes: Sequence[KnownCrash],
    host: Host,
    versions: Mapping[str, str | None],
) -> str | None:
    if not request.include_known_crashes:
        for crash in known_crashes:
            if crash.hits(
                engine=planned.engine,
                workload=planned.workload,
                variant=planned.variant,
                platform=host.platform,
                version=versions[planned.engine],
            ):
                return f"known to abort: {crash.reason} (try it with --include-known-crashes)"
    return lack_of_memory(needed_bytes(planned, manifest, policy), host.free_bytes)
