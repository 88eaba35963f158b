"""Complete, believable records of the shipped pack, made without measuring anything.

A forged record passes everything that a server can check: the real plan, scheduler and
arithmetic over invented attempts (``synthetic``), answers that pass the gates of the manifest,
processors of known names, seeds and draws that belong to its run id. So whatever refuses one
that was tampered with does so for that alone.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import random
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import npumark
from npumark.gates.draw import drawn
from npumark.gates.measures import MEASURES
from npumark.orchestrator.request import RunRequest
from npumark.pack.manifest import Manifest, Workload, load_manifest
from npumark.pack.pin import PINNED_MANIFEST_SHA256
from npumark.policy import load_policy
from npumark.record.canonical import canonical_bytes, payload_sha256
from npumark.record.envelope import Envelope
from npumark.record.model import Attempt, Check, Entry, Environment, Payload, Processor, Tool
from npumark.record.signing import BuildKey, InstallKey, sign_record, sign_statement
from npumark.score.attempt import inferences_per_second
from npumark.score.planned import Planned, attempt_seed
from npumark.score.recompute import planned_of
from npumark.worker.protocol import EngineInfo
from tests import synthetic, synthetic_box
from tests.synthetic import NS, Answer

INSTALL = InstallKey(bytes(range(32)))
BUILD = BuildKey(bytes(range(32, 64)))
MACHINE_ID = hashlib.sha256(b"a machine").hexdigest()
ORIGIN = "results.example"
CREATED = "2026-11-30T12:00:00Z"
NOW = datetime(2026, 12, 1, 12, 0, 0, tzinfo=UTC)
"""An instant some while after ``CREATED``, for fake clocks."""

CPU = "AMD Ryzen 9 7950X"
CARD = "NVIDIA GeForce RTX 4090"
NPU = "Intel AI Boost"
ORT = "1.24.1"

_RATES: Mapping[str, Mapping[str, float]] = {
    "CPU": {"FP32": 1.5, "INT8": 4.6},
    "dGPU": {"FP32": 40.0, "FP16": 95.0},
    "NPU": {"FP16": 4.4, "INT8": 9.1},
}
"""TOPS of the widest peak shape by role and computed format, at speed 1: far below what chips of
these names can compute."""

_NETWORKS = {"CPU": 0.35, "dGPU": 0.04, "NPU": 0.3}
"""The share of that which networks reach."""

_FACTS: dict[str, Any] = {
    "os": "Ubuntu 24.04.3 LTS",
    "os_version": "#33-Ubuntu SMP PREEMPT_DYNAMIC",
    "kernel": "6.14.0-33-generic",
    "architecture": "x86_64",
    "cpu_vendor": "AuthenticAMD",
    "cpu_family": "25",
    "cpu_model_number": "97",
    "cpu_stepping": "2",
    "microcode": "0xa601209",
    "bios": "3.24",
    "bios_date": "03/11/2026",
    "board_vendor": "ASUS",
    "board_product": "ROG STRIX X670E-F",
    "virtualisation": None,
    "container": None,
    "boot": None,
    "isa": [
        *("avx", "avx2", "avx512_bf16", "avx512_vnni", "avx512bw", "avx512dq", "avx512f"),
        *("avx512vl", "f16c", "fma", "sse4_2"),
    ],
    "memory_bytes": 68_719_476_736,
    "why": {
        "virtualisation": "nothing says that this is a virtual machine",
        "container": "nothing says that this is a container",
        "boot": "it is not published",
    },
}


def forge_payload(
    *,
    run_id: str = "20261130T120000Z-f0f0f0",
    created: str = CREATED,
    speed: float = 1.0,
    quick: bool = False,
    small: bool = False,
    cpu: str = CPU,
    cards: int = 0,
    card: str = CARD,
    npu: str | None = None,
    seed: int = 0,
    spread: float = 0.008,
    box_share: float = 0.9,
) -> Payload:
    """Return the payload of a run on ``cpu``, on so many cards beside it and on an NPU.

    It recomputes exactly, and is comparable unless ``quick`` or spread too far. ``small`` is a
    quick run of a single entry, the smallest that has a score. ``speed`` multiplies every rate;
    those of an entry's attempts lie within ``spread``, as ``seed`` draws them. In the box stage
    each card shows ``box_share`` of its solo peak.
    """
    base = _base(speed, quick or small, small, cpu, cards, card, npu, seed, spread, box_share)
    return vary(base, run_id=run_id, created=created)


def vary(payload: Payload, *, run_id: str, created: str = CREATED) -> Payload:
    """Return the same figures as those of another run: its seeds and draws are its own."""
    manifest = pack()
    entries = [_drawn_anew(entry, run_id, manifest) for entry in payload.entries]
    ends = [a.started_ns + a.wall_ns for e in payload.entries for a in e.attempts]
    roles = payload.box.roles if payload.box else []
    ends += [a.started_ns + a.wall_ns for role in roles for a in role.attempts]
    finished = _instant(created) + timedelta(seconds=max(ends, default=0) // NS + 40)
    return payload.model_copy(
        update={
            "run_id": run_id,
            "created": created,
            "finished": stamp(finished) if payload.complete else None,
            "entries": entries,
        }
    )


def forge_record(
    payload: Payload | dict[str, Any],
    install: InstallKey = INSTALL,
    build: BuildKey | None = BUILD,
) -> dict[str, Any]:
    """Return the record's document, sealed and signed; ``payload`` may have been tampered with."""
    document = as_document(payload)
    digest = payload_sha256(document)
    return {
        "payload": document,
        "payload_sha256": digest,
        "signatures": sign_record(digest, install, build),
    }


def forge_submission(
    record: dict[str, Any],
    *,
    origin: str = ORIGIN,
    machine_id: str = MACHINE_ID,
    install: InstallKey = INSTALL,
    now: datetime = NOW,
    **over: Any,
) -> bytes:
    """Return the body of a submission; ``over`` replaces fields of its envelope before signing."""
    statement = {
        "schema": "npumark-envelope/1",
        "origin": origin,
        "machine_id": machine_id,
        "key_id": install.key_id,
        "payload_sha256": record["payload_sha256"],
        "sent_at": stamp(now),
        "attestation": None,
        **over,
    }
    signed = {**statement, "signature": sign_statement(statement, "submission", install)}
    Envelope.model_validate(signed)
    return canonical_bytes({"envelope": signed, "record": record})


def as_document(payload: Payload | dict[str, Any]) -> dict[str, Any]:
    """Return a payload as plain JSON values that may be edited."""
    if isinstance(payload, dict):
        return payload
    document: dict[str, Any] = json.loads(payload.model_dump_json(by_alias=True))
    return document


def edited(payload: Payload, path: Sequence[str | int], value: Any) -> dict[str, Any]:
    """Return the payload's document with the value at ``path`` replaced, to be signed anew."""
    document: Any = as_document(payload)
    place = document
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value(place[path[-1]]) if callable(value) else value
    return dict(document)


def at_rate(attempt: dict[str, Any], factor: float) -> dict[str, Any]:
    """Return an attempt's document at another rate, in agreement with itself."""
    measured = attempt["measurement"]
    calls, each = measured["iterations"], round(measured["latency_ns"]["median"] / factor)
    slowest = each + each // 10
    timed = each * (calls - 1) + slowest
    latency = {
        name: None if value is None else each for name, value in measured["latency_ns"].items()
    }
    told = {
        "timed_ns": timed,
        "loop_ns": timed + 1000,
        "ips": inferences_per_second(calls, timed),
        "latency_ns": {**latency, "max": slowest},
    }
    return {**attempt, "measurement": {**measured, **told}}


def stamp(at: datetime) -> str:
    """Return an instant as records and envelopes write it."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@cache
def pack() -> Manifest:
    """Return the shipped manifest."""
    manifest = load_manifest()
    assert manifest.sha256 == PINNED_MANIFEST_SHA256
    return manifest


def _instant(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _drawn_anew(entry: Entry, run_id: str, manifest: Manifest) -> Entry:
    planned = planned_of(entry, manifest)
    inputs = manifest.workloads[entry.workload].eval.n
    slots = load_policy().timing.timed_checks
    attempts = []
    for attempt in entry.attempts:
        seed = attempt_seed(run_id, planned, attempt.n)
        measured = attempt.measurement
        if measured is not None:
            calls = list(drawn(seed, slots, inputs, measured.iterations))
            check = measured.timed_check.model_copy(update={"iterations": calls})
            samples = hashlib.sha256(f"{run_id}/{seed}".encode()).hexdigest()
            update = {"timed_check": check, "samples_sha256": samples}
            measured = measured.model_copy(update=update)
        attempts.append(attempt.model_copy(update={"seed": seed, "measurement": measured}))
    return entry.model_copy(update={"attempts": attempts})


@cache
def _base(
    speed: float,
    quick: bool,
    small: bool,
    cpu: str,
    cards: int,
    card: str,
    npu: str | None,
    seed: int,
    spread: float,
    box_share: float,
) -> Payload:
    engines = _engines(cpu, cards, card, npu)
    request = RunRequest(quick=quick)
    if small:
        engines = engines[:1]
        request = RunRequest(
            quick=True,
            engines=(engines[0].id,),
            workloads=("peak-512x2048x8",),
            variants=("int8-u8s8",),
        )
    roles = {e.id: e.processor["role"] for e in engines}
    run = synthetic.simulate(
        _model(roles, speed, seed, spread),
        engines,
        request,
        pack=pack(),
        environment=_environment(),
    )
    run = dataclasses.replace(run, facts=_told(run.facts, engines))
    if cards > 1 and not quick:
        shares = {n: synthetic_box.Shown(share=box_share + 0.001 * n) for n in range(1, 10)}
        run = synthetic_box.with_box(run, lambda _, n: shares[n], pack=pack())
    payload = synthetic.payload_of(run, pack=pack())
    plan = payload.plan.model_copy(update={"spacing_s": load_policy().repetition.spacing_s})
    return payload.model_copy(
        update={
            "plan": plan,
            "machine": {**_FACTS, "cpu_model": f"{cpu} 16-Core Processor"},
            "tool": Tool(
                version=npumark.__version__,
                python="3.12.11",
                packages={"numpy": "2.3.4", "onnxruntime": ORT, "pydantic": "2.12.3"},
            ),
            "harness": {
                "overhead_ns": {"call": 4358, "bare_call": 4123, "added": 235, "timer": 41},
                "engine": engines[0].id,
            },
            "where_time_went_ns": {
                **payload.where_time_went_ns,
                "discover": 2_164_622_289,
                "pack": 103_370_525,
                "preconditions": 30_015_104_697,
            },
        }
    )


def _engines(cpu: str, cards: int, card: str, npu: str | None) -> tuple[EngineInfo, ...]:
    made = [_engine("ort-cpu", "cpu", "CPU", cpu, ("fp32", "fp16", "w8", "int8-u8s8"))]
    for i in range(1, cards + 1):
        number = f"-{i}" if cards > 1 else ""
        name = f"ort-cuda-dgpu{number}"
        made.append(_engine(name, f"dgpu{number}", "dGPU", card, ("fp32", "fp16", "w8")))
    if npu is not None:
        made.append(_engine("ort-dml-npu", "npu", "NPU", npu, ("fp16", "int8-u8s8")))
    return tuple(made)


def _engine(
    name: str, processor: str, role: str, device: str, variants: tuple[str, ...]
) -> EngineInfo:
    return synthetic.engine(
        name,
        role,
        version=ORT,
        versions={"onnxruntime": ORT},
        processor={"key": processor, "role": role, "name": device},
        variants=variants,
        derived_from={},
    )


def _model(roles: Mapping[str, str], speed: float, seed: int, spread: float) -> synthetic.Model:
    """Return what answers each attempt: a rate by role, format and workload, and measures that
    pass the gates."""

    def answer(planned: Planned, n: int) -> Answer:
        role, workload = roles[planned.engine], pack().workloads[planned.workload]
        computed = _computed(role, planned)
        rate = _RATES[role][computed] * speed
        if workload.kind == "network":
            rate *= _NETWORKS[role]
        elif workload.tier == "peak" and planned.workload != "peak-2048x2048x4":
            rate *= 0.92
        # What a format converts on its way costs a little.
        rate *= 1.0 if computed == planned.declared_format else 0.97
        jitter = random.Random(f"{seed}/{planned.key}/{n}").uniform(-spread / 2, spread / 2)
        return Answer(
            ips=rate * 1e12 / workload.flops * (1 + jitter),
            precision=computed,
            measures=measures_for(workload, computed),
            wall_s=8.0,
        )

    return answer


def _computed(role: str, planned: Planned) -> str:
    if planned.declared_format in _RATES[role]:
        return planned.declared_format
    return "FP32" if "FP32" in _RATES[role] else "FP16"


def measures_for(workload: Workload, computed: str) -> dict[str, float | None]:
    """Return measures that pass the workload's gates: the strict one too where floats computed."""
    standard = workload.gates["standard"].bounds
    strict = workload.gates["strict"].bounds if "strict" in workload.gates else {}
    found: dict[str, float | None] = {}
    for name in {**standard, **strict}:
        measure = MEASURES[name]
        bound = standard[name]
        if computed != "INT8":
            bound = strict.get(name, bound)
        if measure.unit == "dB":
            found[name] = bound + 6.0
        elif measure.floor:
            found[name] = 1.0 - (1.0 - bound) / 2
        else:
            found[name] = bound / 2 if measure.continuous else 0.0
    return found


def _told(facts: Any, engines: Sequence[EngineInfo]) -> Any:
    """Return a run's facts with what runtimes and processors tell of themselves."""
    attempts = {
        key: [a.model_copy(update={"observed": _observed(a)}) for a in ran]
        for key, ran in facts.attempts.items()
    }
    titles: dict[str, set[str]] = {}
    for engine in engines:
        own = titles.setdefault(engine.processor["key"], set())
        own.add(f"{engine.runtime_title} {engine.version}")
    processors = [
        Processor(
            id=p.id,
            role=p.role,
            name=p.name,
            number=1 + sum(q.name == p.name for q in facts.processors[:i]),
            details={"runtimes": sorted(titles[p.id]), "raw_name": p.name},
        )
        for i, p in enumerate(facts.processors)
    ]
    return dataclasses.replace(facts, attempts=attempts, processors=processors)


def _observed(attempt: Attempt) -> Any:
    seen = attempt.observed
    if seen is None:
        return None
    update = {"runtime": "onnxruntime", "version": ORT, "versions": {"onnxruntime": ORT}}
    return seen.model_copy(update=update)


def _environment() -> Environment:
    def seen(value: Any) -> Check:
        return Check(value=value, why=None, violation=False)

    threads = {"logical": 32, "affinity": 32, "quota": None, "usable": 32, "physical": 16}
    return Environment(
        checks={
            "power_source": seen("mains"),
            "cpu_busy": seen(0.013),
            "memory": seen({"available_bytes": 60_129_542_144, "needed_bytes": 301_989_888}),
            "clocks": seen(
                {
                    "current_khz": {"min": 3_000_000, "max": 5_400_000},
                    "permitted_max_khz": {"min": 5_700_000, "max": 5_700_000},
                    "hardware_max_khz": {"min": 5_700_000, "max": 5_700_000},
                    "boost": True,
                }
            ),
            "cpu_limits": seen(
                {**threads, "fast": 16, "core_types": {}, "capacities": {}, "threads": 16}
            ),
            "kernel": seen("6.14.0-33-generic"),
            "load_beside_measuring": seen(0.004),
        },
        noisy=False,
        skipped=False,
        facts={
            "idle_window_s": 30.0,
            "resident_bytes": 251_658_240,
        },
    )
