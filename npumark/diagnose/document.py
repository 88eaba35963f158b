"""The document of a diagnostics run: what was measured on each target, and what it says.

Beside it lie the raw samples that every finding follows from (``diagnose.reading``). It is no
record: it is never comparable, never in the history, and holds nothing that a score could use.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from npumark.errors import IntegrityError, UsageError
from npumark.record.canonical import payload_sha256, strict_loads
from npumark.record.form import misfit
from npumark.record.model import (
    MAX_RECORD_BYTES,
    Count,
    Environment,
    Finite,
    LatencyFields,
    Processor,
    Suite,
    Tool,
)
from npumark.worker.protocol import Status

SCHEMA = "npumark-diagnostics/1"
NAME = "diagnostics.json"

Cell = Annotated[bool | int | Finite | str | None, Field(union_mode="left_to_right")]
Chosen = Literal["last benchmark", "measured here"]


class Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class SampleFile(Model):
    """Raw samples: ``file`` is relative to the document's folder and holds little-endian int64
    nanoseconds, ``n`` rows of ``columns`` (worker.protocol.ProbeSamples)."""

    file: str
    sha256: str
    n: Count
    columns: int = Field(ge=1, le=3)


class StepSeen(Model):
    """A step of a probe and what it came to (diagnose.probe.Step and Seen). ``sensors`` are the
    readings beside it, their ``at_ns`` counted from the step's first call.

    ``facts`` hold, beside what the worker told, ``load``: what the whole machine did meanwhile
    (machine.sensors.load_between). ``status`` is ``gate_failed`` where its answers were wrong;
    they are in ``facts`` as ``answers`` or ``last_answers`` (worker.answers)."""

    name: str
    kind: str
    options: dict[str, Any]
    beside: Literal["cpu", "memory"] | None
    status: Status
    why: str | None
    samples: dict[str, SampleFile]
    facts: dict[str, Any]
    sensors: list[dict[str, Any]]


class Column(Model):
    key: str
    title: str


class RatioFields(Model):
    name: str
    value: Finite
    of: str


class ProbeFinding(Model):
    """A probe's answer on a target (diagnose.probe.Finding), with the steps it was read from."""

    probe: str
    title: str
    status: Literal["ok", "not_applicable", "failed"]
    why: str | None
    columns: list[Column]
    rows: list[dict[str, Cell]]
    bars: str | None
    ratios: list[RatioFields]
    finding: str | None
    advice: str | None
    steps: list[StepSeen]


class Candidate(Model):
    """A variant that was measured to choose the fastest. ``ips`` is null where its attempt
    cannot count, ``why`` then the reason."""

    variant: str
    format: str
    status: Status
    ips: Finite | None
    why: str | None


class TargetFields(Model):
    """One engine and network. ``variant`` is null where none passes, ``why`` then the reason.

    ``chosen`` says where the fastest variant is known from: the run ``chosen_from``, or the
    ``candidates`` measured now for the reason ``chosen_why``. ``probe_ips`` is the rate of the
    one attempt, ``single``: calls ÷ their summed time. ``cores`` are the CPUs that this program
    may use, ``compiles`` whether the engine keeps compiled models, ``card`` the processor's bus
    address where it has a known one.
    """

    engine: str
    processor: str
    role: str
    runtime: str
    version: str | None
    compiles: bool
    cores: Count
    card: str | None = None
    workload: str
    variant: str | None
    format: str | None
    chosen: Chosen
    chosen_from: str | None
    chosen_why: str | None
    candidates: list[Candidate]
    status: Status
    why: str | None
    probe_ips: Finite | None
    py_ips: None
    latency_ns: LatencyFields | None
    single: StepSeen | None
    findings: list[ProbeFinding]


class Diagnostics(Model):
    """What a diagnostics run came to. ``rules`` are the policy's, as this run used them;
    ``probes`` the names of those that were asked for. ``complete`` is false where a signal ended
    it before all of them had run."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, populate_by_name=True)

    schema_: Literal["npumark-diagnostics/1"] = Field(alias="schema")
    id: str
    created: str
    finished: str | None
    complete: bool
    comparable: Literal[False]
    tool: Tool
    machine: dict[str, Any]
    processors: list[Processor]
    environment: Environment
    suite: Suite
    policy_sha256: str
    rules: dict[str, Any]
    deep: bool
    probes: list[str]
    argv: list[str]
    targets: list[TargetFields]


class Document(Model):
    """The payload and the sha256 of its RFC 8785 bytes."""

    payload: Diagnostics
    payload_sha256: str


def seal(payload: Diagnostics) -> Document:
    """Return the document of ``payload``. Raises IntegrityError where a value has no canonical
    form (NaN, an integer beyond 2**53, no JSON type at all)."""
    digest = payload_sha256(payload.model_dump(by_alias=True))
    return Document(payload=payload, payload_sha256=digest)


def encode(document: Document) -> bytes:
    """Return the JSON text that goes to disk and to ``--json``: indented UTF-8."""
    text = json.dumps(
        document.model_dump(by_alias=True), indent=1, ensure_ascii=False, allow_nan=False
    )
    return text.encode() + b"\n"


def read_document(path: Path) -> Document:
    """Return the document in a file or in a run's folder.

    Raises UsageError where there is no such file, IntegrityError where it is not strict JSON, no
    document of this version, or not the one that its digest was made from.
    """
    place = path / NAME if os.path.isdir(path) else path  # noqa: PTH112 - raises nowhere
    try:
        with place.open("rb") as file:
            raw = file.read(MAX_RECORD_BYTES + 1)
    except OSError as fault:
        reason = fault.strerror or str(fault)
        raise UsageError(
            f"{place} cannot be read: {reason}",
            "`npumark diagnose` says where it saves its document.",
        ) from fault
    return decode(raw, what=f"the document {place}")


def decode(raw: bytes, *, what: str = "the document") -> Document:
    """Return the document in ``raw``. Raises IntegrityError as ``read_document``."""
    value = strict_loads(raw, what=what)
    payload = value.get("payload") if isinstance(value, dict) else None
    schema = payload.get("schema") if isinstance(payload, dict) else None
    if schema != SCHEMA:
        raise IntegrityError(
            f"{what} is no {SCHEMA} document",
            "Name the diagnostics.json that `npumark diagnose` saved.",
        )
    try:
        found = Document.model_validate(value, strict=True)
    except ValidationError as fault:
        raise misfit(what, SCHEMA, fault, value) from None
    if payload_sha256(payload) != found.payload_sha256:
        raise IntegrityError(
            f"{what} was changed after it was written: its digest is not that of its payload",
            "Use an unedited copy; the run's own folder keeps one.",
        )
    return found
