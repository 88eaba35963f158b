"""A diagnostics run from request to document: what ``npumark diagnose`` calls.

Order: the output is checked, the machine locked, engines probed, variants chosen, the pack
verified, the machine watched; then, target by target, the one attempt and each probe's steps.
The document is saved after every probe, so that a signal costs no more than the step it met.
"""

from __future__ import annotations

import secrets
import shlex
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from npumark import paths
from npumark.diagnose.document import NAME, Diagnostics, Document, encode, seal
from npumark.diagnose.probe import Probe
from npumark.errors import (
    EXIT_MEASURED_WITH_FAULTS,
    EXIT_OK,
    Interrupted,
    NothingToMeasure,
    SetupError,
    UsageError,
)
from npumark.machine import cpu_limits, sensors
from npumark.orchestrator import compiled, surroundings
from npumark.orchestrator.awake import KeepAwake
from npumark.orchestrator.book import machine_facts, now, suite_of, tool
from npumark.orchestrator.clock import RunClock
from npumark.orchestrator.compiled import CompiledModels
from npumark.orchestrator.diagnose_request import DiagnoseRequest, asked_probes
from npumark.orchestrator.diagnose_steps import Steps
from npumark.orchestrator.diagnose_target import TargetRun, probe_target, timed_s
from npumark.orchestrator.diagnose_targets import (
    Asked,
    Earlier,
    Pair,
    asked_for,
    candidates,
    earlier_choices,
    saved_benchmarks,
)
from npumark.orchestrator.events import Checked, Listener, Note, Saved, Stage
from npumark.orchestrator.interrupts import Interrupts
from npumark.orchestrator.jobs import JobMaker
from npumark.orchestrator.lock import Holder, measuring_with
from npumark.orchestrator.plan import Host
from npumark.orchestrator.preparation import (
    ensure_pack,
    manifest_of,
    resident_bytes,
    tell_failed,
)
from npumark.orchestrator.redaction import redact, replacements
from npumark.orchestrator.select import left_out, told_left_out
from npumark.orchestrator.survey import Survey, probe_all
from npumark.orchestrator.teller import Teller
from npumark.pack.manifest import Manifest
from npumark.policy import Policy, load_policy
from npumark.record.files import check_output, write_atomically
from npumark.record.model import Environment, Suite
from npumark.score.attempt import DEATHS


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a diagnostics run came to. ``path`` is the document in the run's own folder."""

    document: Document
    path: Path
    exit_code: int


def diagnostics_dir() -> Path:
    """Return the folder that holds every diagnostics run's folder."""
    return paths.data_dir() / "diagnostics"


def execute(
    request: DiagnoseRequest, listen: Listener = lambda _: None, *, policy: Policy | None = None
) -> Outcome:
    """Carry out a diagnostics run and return its document.

    A signal ends the workers within two seconds; what was measured is saved, and the outcome's
    exit code is 130. Raises UsageError, SetupError, NothingToMeasure and PackError before
    anything is measured, Interrupted where a signal came before then.
    """
    rules = policy or load_policy()
    if request.sustained_s is not None:
        rules = _sustained_for(request.sustained_s, rules)
    probes = asked_probes(request)
    if request.out is not None:
        check_output(request.out, force=request.force)
    paths.make(paths.data_dir())
    tell = Teller(listen)
    words = shlex.join(("npumark", *(request.argv or ("diagnose",))))
    try:
        with Interrupts() as interrupts, measuring_with(paths.engines_dir(), words) as holder:
            run = _prepare(request, rules, probes, interrupts, holder, tell)
            return run.measure()
    except KeyboardInterrupt:
        raise Interrupted(
            "stopped before anything was measured", "Nothing is saved; start it again."
        ) from None


def _sustained_for(seconds: float, policy: Policy) -> Policy:
    """Return the policy with sustained load of so long. Raises UsageError where that gives no
    pace to compare with the first."""
    least = 2 * policy.diagnose.pace_window_s
    if seconds < least:
        raise UsageError(
            f"sustained load for {seconds:g} s has no two windows to compare",
            f"Ask for {least:g} s or more: --sustained-s {least:g}.",
        )
    return replace(policy, diagnose=replace(policy.diagnose, sustained_s=seconds))


def exit_code(payload: Diagnostics) -> int:
    """Return the exit status of a run that was not interrupted: 0, or 1 where a worker crashed,
    hung or left nothing, 3 where nothing at all could be diagnosed."""
    statuses = [
        status
        for target in payload.targets
        for status in (
            *(candidate.status for candidate in target.candidates),
            *((target.single.status,) if target.single else ()),
            *(step.status for finding in target.findings for step in finding.steps),
        )
    ]
    if any(status in DEATHS for status in statuses):
        return EXIT_MEASURED_WITH_FAULTS
    if not any(target.status == "ok" for target in payload.targets):
        return NothingToMeasure.exit_code
    return EXIT_OK


def _prepare(
    request: DiagnoseRequest,
    policy: Policy,
    probes: tuple[Probe, ...],
    interrupts: Interrupts,
    holder: Holder,
    tell: Teller,
) -> _Run:
    run = request.as_run()
    manifest = manifest_of(run)
    tell(Stage("discover", "Looking for engines"))
    survey = probe_all(request.virtual, policy, interrupts, holder.marker)
    tell_failed(survey, tell, run)
    host = Host(sys.platform, sensors.available_memory())
    asked = asked_for(manifest, survey, request, policy, host)
    emulated = request.include_emulated
    gone = left_out(survey.infos, request.engines, include_emulated=emulated)
    for sentence in told_left_out(gone):
        tell(Note(sentence))
    infos = {e: survey.engine(e).info for e, _ in asked.pairs}
    machine = machine_facts()
    earlier = earlier_choices(asked, infos, manifest, machine, saved_benchmarks())
    plan = tuple(
        planned
        for pair in asked.pairs
        for planned in ((earlier[pair].planned,) if pair in earlier else candidates(asked, pair))
    )
    pack = ensure_pack(manifest, plan, tell)
    quick = replace(run, quick=True, all_variants=False)
    environment = surroundings.look(quick, policy, resident_bytes(manifest, plan), tell)
    environment = surroundings.with_rebuilt(environment, pack.rebuilt)
    environment = surroundings.with_unavailable(environment, survey.failed)
    tell(Checked(environment))
    interrupts.check()
    created = datetime.now(UTC)
    run_id = f"{created:%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"
    jobs = JobMaker(
        manifest=manifest,
        policy=policy,
        engines={e: survey.engine(e) for e, _ in asked.pairs},
        pack_root=pack.root,
        cache_root=compiled.root(),
        run_id=run_id,
        quick=True,
        threads=cpu_limits.thread_count(),
        host=compiled.host_facts(machine),
        drivers=survey.details(),
    )
    compiled.prune(jobs.cache_root, [jobs.cache_dir(p) for p in plan if p.skip is None])
    folder = diagnostics_dir() / run_id
    _make_folder(folder)
    return _Run(
        request=request,
        policy=policy,
        probes=probes,
        manifest=manifest,
        survey=survey,
        asked=asked,
        earlier=earlier,
        suite=suite_of(manifest, policy, verified=pack.verified, why_not=pack.why_not),
        environment=environment,
        machine=machine,
        id=run_id,
        created=now(),
        folder=folder,
        steps=Steps(
            jobs, CompiledModels(jobs), folder, interrupts, holder.marker, dict(pack.stamps)
        ),
        interrupts=interrupts,
        tell=tell,
        cores=cpu_limits.limits().usable,
    )


def _make_folder(folder: Path) -> None:
    try:
        for place in (folder, folder / "samples", folder / "logs"):
            place.mkdir(parents=True)
    except OSError as fault:
        raise paths.unwritable(folder, fault) from fault


@dataclass(slots=True)
class _Run:
    """A diagnostics run that is ready to measure."""

    request: DiagnoseRequest
    policy: Policy
    probes: tuple[Probe, ...]
    manifest: Manifest
    survey: Survey
    asked: Asked
    earlier: Mapping[Pair, Earlier]
    suite: Suite
    environment: Environment
    machine: dict[str, Any]
    id: str
    created: str
    folder: Path
    steps: Steps
    interrupts: Interrupts
    tell: Teller
    cores: int
    targets: list[TargetRun] = field(default_factory=list)

    @property
    def path(self) -> Path:
        return self.folder / NAME

    def measure(self) -> Outcome:
        """Diagnose every target and save what came of it, whatever ends it.

        Signals are deferred throughout: they are looked for wherever a worker is waited for.
        """
        self._say_what_is_unknown()
        self._say_how_long()
        interrupted = False
        with self.interrupts.deferred():
            try:
                with KeepAwake() as awake:
                    try:
                        for pair in self.asked.pairs:
                            self._target(pair)
                    except KeyboardInterrupt:
                        interrupted = True
                    facts = {**self.environment.facts, "sleep_held_off": awake.state()}
                    self.environment = self.environment.model_copy(update={"facts": facts})
                document = self._save(complete=not interrupted)
            except SetupError as fault:
                raise self._kept(fault) from fault
            if self.request.out is not None:
                write_atomically(self.request.out, encode(document), force=self.request.force)
            self.tell(Saved(self.request.out or self.path, not interrupted))
        code = Interrupted.exit_code if interrupted else exit_code(document.payload)
        return Outcome(document, self.path, code)

    def _say_how_long(self) -> None:
        """Tell what the loops alone take, before the first begins."""
        seconds = sum(
            timed_s(self.probes, probe_target(pair, "", self.survey, self.cores), self.policy)
            for pair in self.asked.pairs
        )
        told = f"{seconds / 60:.0f} min" if seconds >= 60 else f"{seconds:.0f} s"
        self.tell(
            Note(
                f"the loops of these probes take {told}; starting workers, loading, warming up and "
                "checking answers come on top and can take longer than those"
            )
        )

    def _target(self, pair: Pair) -> None:
        target = TargetRun(
            pair=pair,
            earlier=self.earlier.get(pair),
            candidates=tuple(candidates(self.asked, pair)),
            probes=self.probes,
            survey=self.survey,
            steps=self.steps,
            cores=self.cores,
            clock=RunClock.start(),
            tell=self.tell,
            saved=lambda: self._save(complete=False),
        )
        self.targets.append(target)
        target.run()

    def _say_what_is_unknown(self) -> None:
        pairs = [p for p in self.asked.pairs if p not in self.earlier]
        if pairs:
            named = ", ".join(f"{engine} · {workload}" for engine, workload in pairs)
            self.tell(
                Note(
                    "no earlier benchmark on this computer says which variant is the fastest, so "
                    f"each is measured first, quickly: {named}"
                )
            )

    def _save(self, *, complete: bool) -> Document:
        known = replacements()
        payload = Diagnostics(
            schema="npumark-diagnostics/1",
            id=self.id,
            created=self.created,
            finished=now() if complete else None,
            complete=complete,
            comparable=False,
            tool=tool(),
            machine=self.machine,
            processors=list(self.survey.processors),
            environment=self.environment,
            suite=self.suite,
            policy_sha256=self.policy.sha256,
            rules=asdict(self.policy.diagnose),
            deep=self.request.deep,
            probes=[probe.name for probe in self.probes],
            argv=[redact(word, known) for word in self.request.argv],
            targets=[target.told() for target in self.targets],
        )
        document = seal(payload)
        write_atomically(self.path, encode(document), force=True)
        return document

    def _kept(self, fault: SetupError) -> SetupError:
        hint = f"{fault.hint} " if fault.hint else ""
        return SetupError(fault.message, f"{hint}What was measured is in {self.folder}.")
