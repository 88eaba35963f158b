"""The book of a run: everything known of it, journaled as it happens, and the record it makes."""

from __future__ import annotations

import platform
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from typing import Any

import npumark
from npumark.machine import identity
from npumark.orchestrator.journal import Journal, Key
from npumark.orchestrator.redaction import redact, replacements
from npumark.orchestrator.request import RunRequest
from npumark.orchestrator.surroundings import Parts, with_observations
from npumark.pack.manifest import Manifest
from npumark.policy import Policy, load_policy
from npumark.record.box import BoxAttempt, BoxPlan, BoxSolo
from npumark.record.files import seal, write_record
from npumark.record.history import RunFolder
from npumark.record.model import (
    Attempt,
    EngineRecord,
    Environment,
    Payload,
    Plan,
    Preparation,
    Processor,
    Record,
    ResumeEvent,
    Suite,
    Tool,
)
from npumark.score.attempt import JudgedAttempt, Role, judge_attempt
from npumark.score.comparability import ENDED_BY
from npumark.score.derive import RunFacts, derive
from npumark.score.formula import formula_sha256
from npumark.score.planned import Planned

_PACKAGES = (
    "coremltools",
    "mlx",
    "numpy",
    "onnxruntime",
    "openvino",
    "psutil",
    "pydantic",
    "pyobjc-framework-CoreML",
    "rfc8785",
)


@dataclass(slots=True)
class Book:
    """State of one run. ``attempts`` and ``judged`` run in step, by entry.

    ``box`` are the judged attempts of the box stage. ``box_solo`` are the solo peaks that another
    record gave, ``box_plan`` how they are run again: they are no entries of this run.
    ``spent_ns`` is the run's time outside attempts by stage; ``parts`` what was seen of the
    machine while it measured.
    """

    folder: RunFolder
    journal: Journal
    run_id: str
    created: str
    request: RunRequest
    policy: Policy
    manifest: Manifest
    plan: tuple[Planned, ...]
    engines: tuple[EngineRecord, ...]
    processors: tuple[Processor, ...]
    machine: dict[str, Any]
    suite: Suite
    environment: Environment
    parts: Parts
    resumed: list[ResumeEvent] = field(default_factory=list)
    attempts: dict[Key, list[Attempt]] = field(default_factory=dict)
    judged: dict[Key, list[JudgedAttempt]] = field(default_factory=dict)
    prepared: list[Preparation] = field(default_factory=list)
    box: list[BoxAttempt] = field(default_factory=list)
    box_solo: tuple[BoxSolo, ...] = ()
    box_plan: tuple[Planned, ...] = ()
    harness: dict[str, Any] = field(default_factory=dict)
    spent_ns: dict[str, int] = field(default_factory=dict)

    def roles(self) -> dict[str, Role]:
        roles: dict[str, Role] = {p.id: p.role for p in self.processors}
        return {e.id: roles[e.processor] for e in self.engines}

    def done(self) -> int:
        """Return how many attempts have run, void ones not counted."""
        return sum(a.outcome != "void" for runs in self.judged.values() for a in runs)

    def take(self, planned: Planned, attempt: Attempt) -> JudgedAttempt:
        """Add an attempt and judge it; nothing is written."""
        judged = judge_attempt(
            planned,
            attempt,
            self.manifest,
            self.policy,
            self.roles()[planned.engine],
            quick=self.request.quick,
        )
        self.attempts.setdefault(planned.key, []).append(attempt)
        self.judged.setdefault(planned.key, []).append(judged)
        return judged

    def enter(self, planned: Planned, attempt: Attempt) -> JudgedAttempt:
        """Add an attempt and put it on the disk: journal first, then the record."""
        self.journal.append(
            "attempt",
            {
                "entry": list(planned.key),
                "attempt": attempt.model_dump(mode="json"),
                "spent_ns": self.spent_ns,
                "parts": self._parts(),
            },
        )
        judged = self.take(planned, attempt)
        self.save()
        return judged

    def enter_preparation(self, made: Preparation) -> None:
        """Add what was prepared, and put it on the disk."""
        self.journal.append(
            "prepared",
            {"preparation": made.model_dump(mode="json"), "spent_ns": self.spent_ns},
        )
        self.prepared.append(made)
        self.save()

    def enter_box(self, attempt: BoxAttempt) -> None:
        """Add a judged attempt of the box stage, and put it on the disk."""
        self.journal.append(
            "box_attempt",
            {
                "attempt": attempt.model_dump(mode="json"),
                "spent_ns": self.spent_ns,
                "parts": self._parts(),
            },
        )
        self.box.append(attempt)
        self.save()

    def planned_of(self, solo: BoxSolo) -> Planned:
        """Return how a card's best solo configuration is run. Raises KeyError."""
        key = (solo.engine, solo.workload, solo.variant)
        return {p.key: p for p in (*self.plan, *self.box_plan)}[key]

    def end_by_budget(self) -> None:
        """Note that the time budget ends the run."""
        facts = {**self.environment.facts, ENDED_BY: "time_budget"}
        self.environment = self.environment.model_copy(update={"facts": facts})

    def fact(self, name: str, value: Any) -> None:
        self.journal.append("fact", {"name": name, "value": value})

    def end_part(self) -> None:
        """Put on the disk what was seen up to the end of this part, for a later one."""
        self.journal.append("parts", {"parts": self._parts()})

    def _parts(self) -> list[dict[str, Any]]:
        return [asdict(part) for part in self.parts.seen()]

    def save(self) -> Record:
        """Write the record as it stands into the run's folder and return it."""
        record = seal(self.payload())
        write_record(self.folder.record, record, force=True)
        return record

    def payload(self) -> Payload:
        """Return the record's payload, every derived field computed from the attempts."""
        environment = with_observations(self.environment, self.parts.seen(), self.policy)
        options = self.options()
        facts = RunFacts(
            plan=self.plan,
            attempts=self.attempts,
            engines=self.engines,
            processors=self.processors,
            options=options,
            suite=self.suite,
            environment=environment,
            resumed=self.resumed,
            prepared=self.prepared,
            box_attempts=self.box,
        )
        derived = derive(facts, self.manifest, self.policy)
        return Payload(
            schema="npumark-record/1",
            score_version=self.policy.score_version,
            run_id=self.run_id,
            created=self.created,
            finished=now() if derived.complete else None,
            tool=tool(),
            suite=self.suite,
            policy_sha256=self.policy.sha256,
            formula_sha256=formula_sha256(),
            plan=options,
            machine=self.machine,
            processors=list(self.processors),
            environment=environment,
            prepared=self.prepared,
            resumed=self.resumed,
            harness=self.harness,
            **{
                **derived.fields(),
                "where_time_went_ns": {**derived.where_time_went_ns, **self.spent_ns},
            },
        )

    def options(self) -> Plan:
        """Return what was asked for, as the record states it."""
        request, timing = self.request, self.policy.timing
        known = replacements()
        return Plan(
            quick=request.quick,
            ladder=request.ladder,
            all_variants=request.all_variants,
            engines=_list(request.engines),
            workloads=_list(request.workloads),
            variants=_list(request.variants),
            time_budget_s=request.time_budget_s,
            include_known_crashes=request.include_known_crashes,
            include_emulated=request.include_emulated,
            large_peak=request.large_peak,
            box=BoxPlan(
                mode=request.box,
                roles=None if request.box_roles is None else list(request.box_roles),
                cards=_list(request.box_cards),
                solo=list(self.box_solo),
            ),
            argv=[redact(word, known) for word in request.argv],
            spacing_s=self.policy.repetition.spacing_s,
            loop_s=timing.quick_loop_s if request.quick else timing.loop_s,
        )


def suite_of(manifest: Manifest, policy: Policy, *, verified: bool, why_not: str | None) -> Suite:
    """Return the record's suite: names from the manifest, ``verified`` from this run's check.

    A policy other than the shipped one judges other figures: its suite is not verified.
    """
    said = manifest.suite
    if policy.sha256 != load_policy().sha256:
        verified = False
        why_not = why_not or "the thresholds are not those this npumark was built with"
    return Suite(
        name=said.get("name", "unnamed"),
        version=said.get("version", "unknown"),
        edition=said.get("edition", "unknown"),
        basis=said.get("basis", "unknown"),
        manifest_sha256=manifest.sha256,
        verified=verified,
        why_not=why_not,
    )


def machine_facts() -> dict[str, Any]:
    return identity.machine()


def tool() -> Tool:
    """Return what measured: this package, the interpreter, the packages that bear on figures."""
    versions = {}
    for name in _PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return Tool(version=npumark.__version__, python=platform.python_version(), packages=versions)


def now() -> str:
    """Return the present time as records write it: UTC, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _list(names: tuple[str, ...] | None) -> list[str] | None:
    return None if names is None else list(names)
