"""What a run stands on before it measures: manifest, engines, plan, a verified pack."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from npumark.engines.registry import RUNTIME_TITLES
from npumark.errors import PackError, UsageError
from npumark.machine import sensors
from npumark.orchestrator.box_choice import with_card_ids
from npumark.orchestrator.box_plan import BoxAhead, check_peaks, look_ahead, stage_s
from npumark.orchestrator.events import Event, Note, PlanMade, Stage
from npumark.orchestrator.interrupts import Interrupts
from npumark.orchestrator.lists import load_known_crashes, load_ladder
from npumark.orchestrator.plan import (
    Estimate,
    Host,
    estimate,
    files_read,
    large_peak_left_out,
    make_plan,
)
from npumark.orchestrator.request import RunRequest
from npumark.orchestrator.select import left_out, named_engines, told_left_out
from npumark.orchestrator.survey import Survey, probe_all
from npumark.pack import store
from npumark.pack.manifest import Manifest, load_manifest
from npumark.pack.materialize import with_needs
from npumark.pack.progress import Progress
from npumark.pack.verify import EnsureResult, ensure
from npumark.policy import Policy
from npumark.score.planned import Planned
from npumark.worker.protocol import EngineInfo

Tell = Callable[[Event], None]

_STAGES = {
    "wait": ("materialise", "Waiting for the pack"),
    "verify": ("verify", "Checking the pack"),
    "write": ("materialise", "Making the pack's files"),
}
_NAMED = 3
_STEP = 8 << 20
"""Bytes between two progress events: enough for a smooth bar, few enough to cost nothing."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request with all that its plan was made from. ``box`` is the box stage after it,
    ``large_why`` why ``--large-peak`` adds nothing, null where it does or was not given."""

    request: RunRequest
    policy: Policy
    manifest: Manifest
    survey: Survey
    plan: tuple[Planned, ...]
    estimate: Estimate
    box: BoxAhead
    large_why: str | None = None

    @property
    def runs(self) -> tuple[Planned, ...]:
        """Return all that is run, the plan's entries and what another record measured."""
        return (*self.plan, *self.box.plan)


def prepare(
    request: RunRequest, policy: Policy, interrupts: Interrupts, marker: str, tell: Tell
) -> Prepared:
    """Load the manifest, probe the engines and make the plan.

    Raises UsageError, NothingToMeasure and PackError as their parts do.
    """
    manifest = manifest_of(request)
    tell(Stage("discover", "Looking for engines"))
    found = probe_all(request.virtual, policy, interrupts, marker)
    tell_failed(found, tell, request)
    request = with_card_ids(request, found.processors)
    box = look_ahead(request, found, manifest, policy)
    for choice in box.choices if request.box != "auto" else ():
        if choice.why is not None:
            tell(Note(f"no total is formed over the role {choice.role}: {choice.why}"))
    if box.solo:
        for sentence in box.notes:
            tell(Note(sentence))
        return Prepared(request, policy, manifest, found, (), _nothing(box, manifest), box)
    plan = make_plan(
        manifest,
        found.infos,
        request,
        policy,
        ladder=load_ladder(request.ladder or "default"),
        known_crashes=load_known_crashes(),
        host=Host(sys.platform, sensors.available_memory()),
        only=box.engines if request.box == "only" else None,
    )
    if request.box in ("on", "only"):
        check_peaks(box, plan, found)
    # Only now: where nothing is left to measure, the refusal has told of each.
    for sentence in told_left_out(_left_out(found, request)):
        tell(Note(sentence))
    large_why = large_peak_left_out(request, plan, manifest, found.infos, sys.platform)
    if large_why is not None:
        tell(Note(f"the large-batch peak is left out: {large_why}"))
    projected = estimate(plan, manifest, policy, quick=request.quick)
    beside = watching_s(request, policy) + stage_s(box, policy, quick=request.quick)[0]
    tell(PlanMade(plan, projected.seconds[0], beside))
    return Prepared(request, policy, manifest, found, plan, projected, box, large_why)


def watching_s(request: RunRequest, policy: Policy) -> float:
    """Return how long the machine is watched before anything is measured."""
    if request.skip_preconditions:
        return 0.0
    rules = policy.preconditions
    return rules.quick_idle_window_s if request.quick else rules.idle_window_s


def _nothing(box: BoxAhead, manifest: Manifest) -> Estimate:
    """Return the projection of a run that measures no entry."""
    read = sum(manifest.files[path].size for path in files_read(box.plan, manifest))
    return Estimate((0, 0), (0.0, 0.0), read)


def tell_failed(found: Survey, tell: Tell, request: RunRequest) -> None:
    """Tell which runtimes are here and broke, where all engines are meant or some of theirs:
    what follows is measured without them.

    Raises UsageError where the request names an engine that there is none of.
    """
    meant = {e.id for e in named_engines(found.infos, request.engines)}
    meant -= {e.id for e in _left_out(found, request)}
    for name, reason in found.failed_of(meant).items():
        title = RUNTIME_TITLES.get(name, name)
        tell(Note(f"{title} could not be loaded, and is left out: {reason}"))


def _left_out(found: Survey, request: RunRequest) -> tuple[EngineInfo, ...]:
    return left_out(found.infos, request.engines, include_emulated=request.include_emulated)


def manifest_of(request: RunRequest) -> Manifest:
    """Return the manifest a request names. Raises UsageError where it cannot be read."""
    try:
        return load_manifest(request.manifest)
    except OSError as fault:
        reason = fault.strerror or str(fault)
        if request.manifest is None:
            raise PackError(
                f"the pack's manifest cannot be read: {reason}", "Reinstall npumark."
            ) from fault
        raise UsageError(
            f"the manifest {request.manifest} cannot be read: {reason}",
            "Name a manifest that this user may read.",
        ) from fault


def ensure_pack(manifest: Manifest, plan: tuple[Planned, ...], tell: Tell) -> EnsureResult:
    """Verify what the plan reads and make what is missing; see ``pack.verify.ensure``.

    Files that were damaged and are right again are told of by name.
    """
    told: dict[str, int] = {}

    def progress(step: Progress) -> None:
        name, text = _STAGES[step.stage]
        if step.stage == "wait":
            tell(Stage(name, step.note or text))
        elif step.done >= step.total or step.done - told.get(step.stage, -_STEP) >= _STEP:
            told[step.stage] = step.done
            tell(Stage(name, text, step.done, step.total))

    free = sensors.available_memory()
    result = ensure(manifest, files_read(plan, manifest), progress, memory=free)
    if result.rebuilt:
        named = "; ".join(fault.text for fault in result.rebuilt[:_NAMED])
        more = len(result.rebuilt) - _NAMED
        tell(Note(f"rebuilt in the pack: {named}" + (f"; and {more} more" if more > 0 else "")))
    return result


def missing_bytes(manifest: Manifest, plan: tuple[Planned, ...]) -> int:
    """Return how many bytes the first run of a plan writes into the pack: files that are not
    there in their size. Nothing is hashed and nothing written."""
    root = store.pack_root(manifest)
    return sum(
        file.size
        for path in with_needs(manifest, files_read(plan, manifest))
        if _size(root / (file := manifest.files[path]).path) != file.size
    )


def resident_bytes(manifest: Manifest, plan: tuple[Planned, ...]) -> int | None:
    """Return the most that one attempt keeps in memory at the least: the files it reads."""
    sizes = [
        sum(manifest.files[path].size for path in set(workload.files(planned.graph_variant)))
        for planned in plan
        if planned.skip is None
        for workload in (manifest.workloads[planned.workload],)
    ]
    return max(sizes, default=None)


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None
