"""Carrying out a step of a probe: in one worker or several at once, with what is beside it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from npumark.diagnose.document import SampleFile, StepSeen
from npumark.diagnose.probe import Samples, Seen, Step
from npumark.diagnose.reading import from_first_call, origin_ns, read_samples
from npumark.errors import IntegrityError
from npumark.machine.sensors import available_memory, load_between, load_sample
from npumark.orchestrator.beside import Load, NoLoad, beside
from npumark.orchestrator.clock import SleepWatch
from npumark.orchestrator.compiled import CompiledModels
from npumark.orchestrator.diagnose_answers import Levels, fault_of_all, fault_of_one
from npumark.orchestrator.interrupts import Interrupts
from npumark.orchestrator.jobs import JobMaker
from npumark.orchestrator.memory import lack_of_memory, needed_bytes
from npumark.orchestrator.redaction import redact, redact_all, replacements
from npumark.orchestrator.sensors_log import SensorLog
from npumark.orchestrator.supervisor import Outcome, supervise
from npumark.orchestrator.together import Member, run_together
from npumark.record.canonical import MAX_INTEGER, canonical_bytes
from npumark.score.planned import Planned
from npumark.worker.protocol import Job, ProbeSamples, Stamp, Status

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class _Raw:
    """What the workers of a step left. Files are named relative to the step's folder."""

    status: Status
    why: str | None
    samples: Mapping[str, ProbeSamples] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Steps:
    """Carries out steps, one after another. ``folder`` is the run's: raw samples and logs go
    below it. ``stamps`` are those of the pack's files as this run hashed them."""

    jobs: JobMaker
    models: CompiledModels
    folder: Path
    interrupts: Interrupts
    marker: str
    stamps: dict[str, Stamp]
    levels: dict[tuple[str, str, str], Levels] = field(default_factory=dict)
    """How each entry's first single attempt answered every eval input."""

    def run(self, planned: Planned, probe: str, step: Step) -> tuple[Seen, StepSeen]:
        """Return what a step saw, and how the document tells of it.

        Whatever its workers do is the step's status. Raises KeyboardInterrupt where a signal has
        come, and SetupError where workers cannot be started at all.
        """
        # Compiling would be slow under a load, and read as one.
        self.make_ready(planned)
        place = Path("samples", _safe(*planned.key), _safe(probe, step.name))
        watch, before = SleepWatch(), load_sample()
        sensors: tuple[dict[str, Any], ...] = ()
        load: Load | None = None
        log: SensorLog | None = None
        with ExitStack() as around:
            try:
                if step.beside is not None:
                    load = around.enter_context(
                        beside(
                            step.beside,
                            rules=self.jobs.policy.diagnose,
                            marker=self.marker,
                            check=self.interrupts.check,
                        )
                    )
                if step.kind == "sustained":
                    period_s = self.jobs.policy.diagnose.sensor_s
                    log = around.enter_context(SensorLog(period_s, marker=self.marker))
                raw = self._carry_out(planned, step, place)
            except NoLoad as fault:
                raw = _Raw("skipped", str(fault))
        self.interrupts.check()
        raw = self._answered(planned, step, raw)
        # What ran beside it has ended by now, so that its time counts as npumark's own.
        raw = replace(raw, facts={**raw.facts, "load": load_between(before, load_sample())})
        if log is not None:
            sensors = log.readings
        if load is not None:
            raw = replace(raw, facts={**raw.facts, "beside": load.facts})
        if slept := watch.slept_ns():
            raw = _Raw("interrupted", f"the machine slept for {slept / 1e9:.1f} s during the step")
        return self._seen(step, raw, place, sensors)

    def supervise(self, planned: Planned, job: Job, name: str, *, seconds: float = 0.0) -> Outcome:
        """Run one worker of an entry and return how it ended; ``seconds`` is what it times beyond
        an attempt's own. Raises KeyboardInterrupt where a signal has come."""
        outcome = supervise(
            job,
            limits=self.jobs.policy.worker,
            deadline_s=self.jobs.policy.worker.attempt_deadline_s + seconds,
            interrupts=self.interrupts,
            marker=f"{self.marker}/{name}",
            python=self._python(planned),
            log_path=self._log(planned, name),
        )
        self.interrupts.check()
        if outcome.result is not None:
            self.stamps.update(outcome.result.stamps)
        return outcome

    def make_ready(self, planned: Planned) -> None:
        """Have the entry's compiled model made and known to load, where its engine keeps one."""
        if self.models.wants(planned):
            self.models.prepare(
                planned, self.stamps, lambda job: self.supervise(planned, job, "prepare")
            )

    def _carry_out(self, planned: Planned, step: Step, place: Path) -> _Raw:
        if lack := self._no_memory(planned, step):
            return _Raw("skipped", lack)
        if step.kind == "processes":
            return self._together(planned, step, place)
        job = self.jobs.diagnose(
            planned,
            step.kind,
            step.options,
            self.stamps,
            self.folder / place,
            self.models.stamps(planned),
        )
        outcome = self.supervise(planned, job, place.name, seconds=step.seconds)
        self.models.attempted(planned, outcome)
        result = outcome.result
        if outcome.status != "ok":
            return _Raw(outcome.status, outcome.why)
        if result is None or result.probed is None:
            return _Raw("no_result", "the worker tells of no step that it carried out")
        return _Raw("ok", None, result.probed.samples, result.probed.facts)

    def _together(self, planned: Planned, step: Step, place: Path) -> _Raw:
        """Carry out a step of several processes: each a worker of its own, in one window."""
        seconds = float(step.options["seconds"])
        names = [f"process-{i}" for i in range(int(step.options["processes"]))]
        members = [
            Member(
                name=name,
                job=self.jobs.window(
                    planned,
                    self.stamps,
                    self.folder / place / f"{name}.i64",
                    self.models.stamps(planned),
                    seconds=seconds,
                ),
                marker=f"{self.marker}/{place.name}/{name}",
                python=self._python(planned),
                log_path=self._log(planned, f"{place.name}.{name}"),
            )
            for name in names
        ]
        together = run_together(
            members,
            limits=self.jobs.policy.worker,
            rules=self.jobs.policy.box,
            window_s=seconds,
            ready_deadline_s=self.jobs.policy.worker.attempt_deadline_s,
            interrupts=self.interrupts,
        )
        for i in together.at_fault[:1]:
            outcome = together.outcomes[i]
            return _Raw(outcome.status, f"{names[i]}: {outcome.why or outcome.status}")
        samples, answers, load_ns, late_ns = {}, {}, [], []
        for name, outcome in zip(names, together.outcomes, strict=True):
            window = outcome.result.window if outcome.result else None
            if window is None:
                return _Raw(outcome.status, f"{name}: {outcome.why or outcome.status}")
            if window.samples_sha256 is None:
                return _Raw("no_result", f"{name}: its raw samples could not be kept")
            samples[name] = ProbeSamples(f"{name}.i64", window.samples_sha256, window.calls, 2)
            check = window.check
            answers[name] = {"sample": check.sample, "snr_db": check.snr_db, "why": check.why}
            load_ns.append(window.load_ns)
            late_ns.append(window.late_ns)
        facts = {"load_ns": load_ns, "late_ns": late_ns, "last_answers": answers}
        return _Raw("ok", None, samples, facts)

    def _answered(self, planned: Planned, step: Step, raw: _Raw) -> _Raw:
        """Return what a step left, or that it answered wrong: then it has no figure."""
        policy, why = self.jobs.policy, None
        if (answers := raw.facts.get("answers")) is not None:
            workload = self.jobs.manifest.workloads[planned.workload]
            why = fault_of_all(answers, workload, policy, one_device=step.kind != "auto")
            self.levels.setdefault(planned.key, answers["levels_db"])
        levels = self.levels.get(planned.key, ())
        for stream, answer in raw.facts.get("last_answers", {}).items():
            why = why or fault_of_one(stream, answer, levels)
        return raw if why is None else _Raw("gate_failed", why, {}, raw.facts)

    def _no_memory(self, planned: Planned, step: Step) -> str | None:
        """Return why the sessions of a step would not fit into memory, null where they may: each
        needs at the least what a run's attempt needs (orchestrator.plan)."""
        streams = max(step.options.get(name, 1) for name in ("threads", "processes"))
        each = needed_bytes(planned, self.jobs.manifest, self.jobs.policy)
        return lack_of_memory(streams * each, available_memory())

    def _seen(
        self, step: Step, raw: _Raw, place: Path, sensors: tuple[dict[str, Any], ...]
    ) -> tuple[Seen, StepSeen]:
        files = {
            name: SampleFile(
                file=(place / told.file).as_posix(),
                sha256=told.sha256,
                n=told.n,
                columns=told.columns,
            )
            for name, told in raw.samples.items()
        }
        try:
            samples = {name: read_samples(self.folder, file) for name, file in files.items()}
            counted = _from_first_call(sensors, samples)
            told = _told(step, raw, files, counted)
            canonical_bytes(told.model_dump())
        except (IntegrityError, ValueError) as fault:
            raw = _Raw("no_result", f"what the workers left cannot be kept: {fault}"[:300])
            samples, counted = {}, []
            told = _told(step, raw, {}, [])
        # What a finding is made of is what is kept: without names, and read again as it was.
        seen = Seen(
            step,
            raw.status,
            told.why,
            from_first_call(samples),
            dict(told.facts),
            tuple(told.sensors),
        )
        return seen, told

    def _python(self, planned: Planned) -> str | None:
        return self.jobs.engines[planned.engine].runtime.python

    def _log(self, planned: Planned, name: str) -> Path:
        return self.folder / "logs" / f"{_safe(*planned.key)}.{_safe(name)}.log"


def _told(
    step: Step, raw: _Raw, files: dict[str, SampleFile], sensors: list[dict[str, Any]]
) -> StepSeen:
    known = replacements()
    return StepSeen(
        name=step.name,
        kind=step.kind,
        options=dict(step.options),
        beside=step.beside,
        status=raw.status,
        why=redact(raw.why, known) if raw.why else None,
        samples=files,
        facts=redact_all(dict(raw.facts), known),
        sensors=redact_all(sensors, known),
    )


def _from_first_call(
    sensors: tuple[dict[str, Any], ...], samples: Mapping[str, Samples]
) -> list[dict[str, Any]]:
    """Return readings with their instants counted from the step's first call; those that a
    document cannot hold (a virtual engine's calls are on another clock) are left out."""
    origin = origin_ns(samples)
    if origin is None:
        return []
    counted = [{**reading, "at_ns": reading["at_ns"] - origin} for reading in sensors]
    return [reading for reading in counted if abs(reading["at_ns"]) <= MAX_INTEGER]


def _safe(*names: str) -> str:
    return _UNSAFE.sub("-", ".".join(names))
