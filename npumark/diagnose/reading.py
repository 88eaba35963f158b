"""From raw samples to findings and back: what a diagnostics run does, and what checks it.

A finding is a pure reading of what its steps saw, so that whoever has the document and the files
beside it can read each one again.
"""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from npumark.diagnose.document import (
    Column,
    Diagnostics,
    ProbeFinding,
    RatioFields,
    SampleFile,
    StepSeen,
    TargetFields,
)
from npumark.diagnose.latency import latency_of
from npumark.diagnose.noise import AGAIN
from npumark.diagnose.probe import Finding, Probe, Samples, Seen, Step, Target, rate
from npumark.errors import IntegrityError
from npumark.policy import DiagnoseRules, Percentiles

_ODD = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What reading samples of another form than expected raises."""


def failed(why: str) -> Finding:
    """Return the finding of a probe that could not be carried out."""
    return Finding("failed", why, (), (), None, (), None, None)


def not_applicable(why: str) -> Finding:
    """Return the finding of a probe that has nothing to say of its target."""
    return Finding("not_applicable", why, (), (), None, (), None, None)


def find(
    probe: Probe, target: Target, single: Seen, seen: Mapping[str, Seen], rules: DiagnoseRules
) -> Finding:
    """Return what a probe finds; samples that it cannot read make it ``failed``."""
    try:
        return probe.finding(target, single, seen, rules)
    except _ODD as fault:
        return failed(f"what it measured cannot be read: {type(fault).__name__}: {fault}"[:300])


def told(probe: Probe, finding: Finding, steps: Sequence[StepSeen]) -> ProbeFinding:
    """Return a finding as the document tells it.

    Raises ValueError (pydantic's) where a cell is no JSON value or a number is not finite.
    """
    return ProbeFinding(
        probe=probe.name,
        title=probe.title,
        status=finding.status,
        why=finding.why,
        columns=[Column(key=key, title=title) for key, title in finding.columns],
        rows=[dict(row) for row in finding.rows],
        bars=finding.bars,
        ratios=[RatioFields(name=r.name, value=r.value, of=r.of) for r in finding.ratios],
        finding=finding.finding,
        advice=finding.advice,
        steps=list(steps),
    )


def origin_ns(samples: Mapping[str, Samples]) -> int | None:
    """Return when a step's first call began, on its own clock; null where its samples are
    durations alone."""
    begins = [int(s[:, 0].min()) for s in samples.values() if s.ndim == 2 and len(s)]
    return min(begins, default=None)


def from_first_call(samples: Mapping[str, Samples]) -> dict[str, Samples]:
    """Return samples with begin and end counted from the step's first call."""
    origin = origin_ns(samples)
    if origin is None:
        return dict(samples)
    found = {}
    for name, values in samples.items():
        if values.ndim == 2:
            values = values.copy()
            values[:, :2] -= origin
        found[name] = values
    return found


def read_samples(folder: Path, file: SampleFile) -> Samples:
    """Return the raw samples of a step, [n] or [n, columns] int64.

    Raises IntegrityError where the file does not lie below ``folder``, is missing or is not what
    the document says, which may be another's: nothing is opened that is no file of that size.
    """
    path = _below(folder, file.file)
    size = 8 * file.n * file.columns
    try:
        kind = path.stat()
        if not stat.S_ISREG(kind.st_mode) or not _inside(folder, path):
            raise IntegrityError(f"{file.file} is no file of the document's folder")
        if kind.st_size != size:
            raise IntegrityError(
                f"{file.file} was changed after it was written: it does not hold {file.n} samples "
                f"of {file.columns}"
            )
        with path.open("rb") as stream:
            raw = stream.read(size)
    except OSError as fault:
        raise IntegrityError(f"{file.file} cannot be read: {fault.strerror or fault}") from fault
    if hashlib.sha256(raw).hexdigest() != file.sha256:
        raise IntegrityError(f"{file.file} was changed after it was written")
    values = np.frombuffer(raw, dtype="<i8").astype(np.int64)
    return values if file.columns == 1 else values.reshape(file.n, file.columns)


def _below(folder: Path, name: str) -> Path:
    """Return where ``name`` lies: one form of path on every system, and downwards alone."""
    parts = name.split("/")
    if not name.isprintable() or any(part in ("", ".", "..") for part in parts):
        raise IntegrityError(f"{name!r} is no file of the document's folder")
    if any(character in name for character in "\\:"):
        raise IntegrityError(f"{name!r} is no file of the document's folder")
    return folder.joinpath(*parts)


def _inside(folder: Path, path: Path) -> bool:
    """Say whether no link leads ``path`` out of ``folder``."""
    return path.resolve().is_relative_to(folder.resolve())


def seen_of(step: StepSeen, folder: Path) -> Seen:
    """Return what a step saw, its samples read from ``folder``. Raises IntegrityError."""
    samples = {name: read_samples(folder, file) for name, file in step.samples.items()}
    asked = Step(step.name, step.kind, step.options, step.beside)  # type: ignore[arg-type]
    return Seen(
        asked, step.status, step.why, from_first_call(samples), step.facts, tuple(step.sensors)
    )


def target_of(fields: TargetFields) -> Target:
    """Return the target that a document's line is of. Raises ValueError where it has no variant."""
    if fields.variant is None:
        raise ValueError(f"{fields.engine} has no variant of {fields.workload} to probe")
    return Target(
        engine=fields.engine,
        runtime=fields.runtime,
        role=fields.role,
        workload=fields.workload,
        variant=fields.variant,
        compiles=fields.compiles,
        cores=fields.cores,
        card=fields.card,
    )


def differences(payload: Diagnostics, folder: Path, probes: Sequence[Probe]) -> list[str]:
    """Read every finding again from the raw samples in ``folder``; return a sentence for each
    that differs from the document's, for each file that is not what it was, and for each probe
    that is not known here."""
    rules = rules_of(payload.rules)
    if rules is None:
        return ["its rules are not those of this version"]
    known = {probe.name: probe for probe in probes}
    return [
        f"{fields.engine} · {fields.workload}: {text}"
        for fields in payload.targets
        for text in _target_differences(fields, folder, known, rules)
    ]


def _target_differences(
    fields: TargetFields, folder: Path, known: Mapping[str, Probe], rules: DiagnoseRules
) -> Iterator[str]:
    if fields.single is None or fields.status != "ok":
        return
    try:
        single = seen_of(fields.single, folder)
        calls = single.samples["calls"]
        if rate(calls) != fields.probe_ips:
            yield f"probe_ips is {fields.probe_ips}, the samples give {rate(calls)}"
        if latency_of(calls, rules) != fields.latency_ns:
            yield "latency_ns is not what the samples give"
        target = target_of(fields)
    except (IntegrityError, *_ODD) as fault:
        yield f"its single attempt cannot be read again: {fault}"
        return
    for stated in fields.findings:
        probe = known.get(stated.probe)
        if probe is None:
            yield f"there is no probe {stated.probe!r} in this version"
            continue
        try:
            seen = {step.name: seen_of(step, folder) for step in stated.steps}
            asked = probe.steps(target, rules)
        except (IntegrityError, *_ODD) as fault:
            yield f"{stated.probe}: {fault}"
            continue
        if not _asked(stated.steps, asked):
            yield f"{stated.probe}: its steps are not those of the probe"
            continue
        again = told(probe, find(probe, target, single, seen, rules), stated.steps)
        for name in ProbeFinding.model_fields:
            if getattr(stated, name) != getattr(again, name):
                yield f"{stated.probe}: {name} is not what the samples give"


def _asked(stated: Sequence[StepSeen], asked: Sequence[Step]) -> bool:
    """Say whether a document's steps are those that its probe asks for; the repetition of the
    single loop may follow them."""
    steps = list(stated)
    if steps and (steps[-1].name, steps[-1].kind, steps[-1].beside) == (AGAIN, "single", None):
        steps.pop()
    return [(s.name, s.kind, s.options, s.beside) for s in steps] == [
        (s.name, s.kind, s.options, s.beside) for s in asked
    ]


def rules_of(stated: Mapping[str, Any]) -> DiagnoseRules | None:
    """Return a document's rules, null where they are of another form."""
    given: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in stated.items()
    }
    try:
        percentiles = Percentiles(**given.pop("percentiles"))
        return DiagnoseRules(**given, percentiles=percentiles)
    except (KeyError, TypeError):
        return None
