"""One target of a diagnostics run: its variant chosen, its one attempt, its probes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pydantic import ValidationError

from npumark.diagnose.document import Candidate, ProbeFinding, StepSeen, TargetFields
from npumark.diagnose.latency import latency_of
from npumark.diagnose.noise import AGAIN
from npumark.diagnose.probe import Probe, Seen, Step, rate
from npumark.diagnose.probe import Target as ProbeTarget
from npumark.diagnose.reading import failed, find, told
from npumark.errors import IntegrityError
from npumark.orchestrator.attempts import attempt_of
from npumark.orchestrator.clock import RunClock, SleepWatch
from npumark.orchestrator.diagnose_steps import Steps
from npumark.orchestrator.diagnose_targets import Earlier, Pair
from npumark.orchestrator.events import Event, Stage
from npumark.orchestrator.redaction import redact
from npumark.orchestrator.survey import Survey
from npumark.policy import DiagnoseRules, Policy
from npumark.record.canonical import canonical_bytes
from npumark.record.model import LatencyFields, Processor
from npumark.score.attempt import judge_attempt
from npumark.score.planned import Planned
from npumark.worker.protocol import Status

_SINGLE = Step("single", "single")


@dataclass(slots=True)
class TargetRun:
    """An engine and a network while they are diagnosed. ``saved`` is called whenever there is
    more to keep; ``told`` tells of everything so far. ``cores`` are the CPUs that this program may
    use."""

    pair: Pair
    earlier: Earlier | None
    candidates: tuple[Planned, ...]
    probes: tuple[Probe, ...]
    survey: Survey
    steps: Steps
    cores: int
    clock: RunClock
    tell: Callable[[Event], None]
    saved: Callable[[], object]
    planned: Planned | None = None
    measured: list[Candidate] = field(default_factory=list)
    status: Status = "skipped"
    why: str | None = "it was not reached"
    single: StepSeen | None = None
    probe_ips: float | None = None
    latency: LatencyFields | None = None
    findings: list[ProbeFinding] = field(default_factory=list)

    def run(self) -> None:
        """Carry everything out. Raises KeyboardInterrupt where a signal has come."""
        self.planned = self.earlier.planned if self.earlier else self._fastest()
        if self.planned is None:
            reasons = [f"{c.variant}: {c.why or c.status}" for c in self.measured]
            self.why = "; ".join(("no variant passes here", *reasons))
            return
        baseline = self._attempt(self.planned)
        if baseline is None:
            return
        target = probe_target(self.pair, self.planned.variant, self.survey, self.cores)
        for probe in self.probes:
            self._probe(probe, target, self.planned, baseline)
            self.saved()

    def told(self) -> TargetFields:
        """Return the target as the document tells of it."""
        engine, workload = self.pair
        info = self.survey.engine(engine).info
        processor = self._processor()
        return TargetFields(
            engine=engine,
            processor=processor.id,
            role=processor.role,
            runtime=info.runtime,
            version=info.version,
            compiles=bool(info.options.get("cache")),
            cores=self.cores,
            card=self.survey.bus.get(processor.id),
            workload=workload,
            variant=self.planned.variant if self.planned else None,
            format=self.planned.declared_format if self.planned else None,
            chosen="last benchmark" if self.earlier else "measured here",
            chosen_from=self.earlier.run_id if self.earlier else None,
            chosen_why=None if self.earlier else _NO_BENCHMARK,
            candidates=self.measured,
            status=self.status,
            why=self.why,
            probe_ips=self.probe_ips,
            py_ips=None,
            latency_ns=self.latency,
            single=self.single,
            findings=self.findings,
        )

    def _fastest(self) -> Planned | None:
        """Measure each default variant once, quickly; return the fastest that can count."""
        best: tuple[float, Planned] | None = None
        for planned in self.candidates:
            found = self._candidate(planned)
            self.measured.append(found)
            if found.ips is not None and (best is None or found.ips > best[0]):
                best = (found.ips, planned)
            self.saved()
        return best[1] if best else None

    def _candidate(self, planned: Planned) -> Candidate:
        if planned.skip is not None:
            return _candidate(planned, "skipped", None, planned.skip)
        self.tell(
            Stage(
                f"{planned} candidate", f"{planned}: one quick attempt, to find the fastest variant"
            )
        )
        steps = self.steps
        steps.make_ready(planned)
        job = steps.jobs.measure(
            planned,
            1,
            steps.stamps,
            steps.folder / "samples" / f"{'.'.join(planned.key)}.candidate.i64",
            steps.models.stamps(planned),
        )
        watch = SleepWatch()
        outcome = steps.supervise(planned, job, "candidate")
        steps.models.attempted(planned, outcome)
        attempt = attempt_of(
            1, job.seed, outcome, self.clock, slept_ns=watch.slept_ns(), redact=redact
        )
        judged = judge_attempt(
            planned,
            attempt,
            steps.jobs.manifest,
            steps.jobs.policy,
            self._processor().role,
            quick=True,
        )
        ips = judged.ips if judged.can_count else None
        return _candidate(planned, judged.status, ips, judged.why or judged.why_not)

    def _attempt(self, planned: Planned) -> Seen | None:
        """Carry out the one attempt; return what it saw, null where it measured nothing."""
        self.tell(Stage(f"{planned} single", f"{planned}: one attempt, to compare with"))
        seen, self.single = self.steps.run(planned, "single", _SINGLE)
        self.status, self.why = self.single.status, self.single.why
        if seen.status != "ok":
            return None
        try:
            rules = self.steps.jobs.policy.diagnose
            self.probe_ips = rate(seen.samples["calls"])
            self.latency = latency_of(seen.samples["calls"], rules)
        except (ValueError, KeyError) as fault:
            self.status, self.why = "no_result", f"the attempt timed nothing: {fault}"
            return None
        return seen

    def _probe(self, probe: Probe, target: ProbeTarget, planned: Planned, single: Seen) -> None:
        rules = self.steps.jobs.policy.diagnose
        seen: dict[str, Seen] = {}
        kept: list[StepSeen] = []
        steps = probe.steps(target, rules)
        timed = any(step.kind != "load_times" for step in steps)

        def carry_out(i: int, step: Step) -> None:
            # A log tells of each probe once, a live view of each step.
            name, text = f"{planned} {probe.name}", f"{planned}: {probe.title.lower()}"
            text = f"{text}, {step.name}" if i else text
            self.tell(Stage(name, text, i + 1, len(steps) + timed))
            seen[step.name], one = self.steps.run(planned, probe.name, step)
            kept.append(one)

        for i, step in enumerate(steps):
            carry_out(i, step)
        if any(s.status == "ok" and s.step.kind != "load_times" for s in seen.values()):
            carry_out(len(steps), _again(rules))
        finding = find(probe, target, single, seen, rules)
        try:
            said = told(probe, finding, kept)
            canonical_bytes(said.model_dump())
        except (ValidationError, IntegrityError) as fault:
            said = told(probe, failed(redact(f"what it found cannot be kept: {fault}"[:300])), kept)
        self.findings.append(said)

    def _processor(self) -> Processor:
        return _processor(self.survey, self.pair[0])


def probe_target(pair: Pair, variant: str, survey: Survey, cores: int) -> ProbeTarget:
    """Return what probes are told of an engine and a network."""
    info = survey.engine(pair[0]).info
    return ProbeTarget(
        engine=info.id,
        runtime=info.runtime,
        role=_processor(survey, pair[0]).role,
        workload=pair[1],
        variant=variant,
        compiles=bool(info.options.get("cache")),
        cores=cores,
        card=survey.bus.get(survey.owner[pair[0]]),
    )


def timed_s(probes: Sequence[Probe], target: ProbeTarget, policy: Policy) -> float:
    """Return how many seconds the loops of a target take: the single attempt's and those of every
    step."""
    rules = policy.diagnose
    seconds = rules.loop_s
    for probe in probes:
        steps = probe.steps(target, rules)
        seconds += sum(step.seconds for step in steps)
        if any(step.kind != "load_times" for step in steps):
            seconds += _again(rules).seconds
    return seconds


def _again(rules: DiagnoseRules) -> Step:
    """Return the step that ends a probe: the single loop, as short as a level's."""
    return Step(AGAIN, "single", {"seconds": rules.level_s}, seconds=rules.level_s)


def _processor(survey: Survey, engine: str) -> Processor:
    owner = survey.owner[engine]
    return next(p for p in survey.processors if p.id == owner)


_NO_BENCHMARK = "no earlier benchmark of this pack has it with this version of the engine"


def _candidate(planned: Planned, status: Status, ips: float | None, why: str | None) -> Candidate:
    return Candidate(
        variant=planned.variant,
        format=planned.declared_format,
        status=status,
        ips=ips,
        why=None if ips is not None else why,
    )
