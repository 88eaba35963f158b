"""A run made of invented attempts: the real plan, scheduler and arithmetic, a fake clock.

``simulate`` lets a function answer each attempt and returns the run's facts; ``payload_of``
makes of them the payload a real run would write. Nothing is measured and nothing is read but
the shipped policy.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Literal

from npumark.engines.catalogue import PROVIDERS, Provider
from npumark.gates.draw import drawn
from npumark.orchestrator.lists import load_ladder
from npumark.orchestrator.plan import Host, make_plan
from npumark.orchestrator.request import RunRequest
from npumark.orchestrator.schedule import Done, Wait, next_action
from npumark.pack.manifest import Manifest, parse_manifest
from npumark.policy import Policy, load_policy
from npumark.record.box import BoxPlan
from npumark.record.model import (
    Attempt,
    Environment,
    LatencyFields,
    MeasurementFields,
    ObservedFields,
    Payload,
    PlacementFields,
    Plan,
    Processor,
    ResumeEvent,
    Suite,
    TimedCheckFields,
    Tool,
)
from npumark.score.attempt import JudgedAttempt, inferences_per_second, judge_attempt
from npumark.score.catalogued import evidence_of
from npumark.score.comparability import ENDED_BY
from npumark.score.derive import STAGES, RunFacts, derive, engine_facts
from npumark.score.formula import formula_sha256
from npumark.score.planned import Planned, attempt_seed
from npumark.worker.protocol import EngineInfo, Status

NS = 1_000_000_000
RUN_ID = "run"
INPUTS = 2
"""Inputs of every eval set."""
GOOD = {"snr_db": 60.0, "cosine_mean": 0.9999, "flips": 0.0}
STANDARD = {"snr_db": 20.0}
STRICT = {"snr_db": 50.0}
QUIET = Environment(checks={}, noisy=False, skipped=False, facts={})


def workload_doc(
    name: str, kind: str, tier: str, macs: int, variants: Sequence[tuple[str, str]], **over: Any
) -> dict[str, Any]:
    """Return a manifest's workload; ``variants`` are (id, format)."""
    spec = {"name": "x", "dtype": "float32", "shape": [1, 4]}
    gates = {"standard": {"basis": "test", "bounds": STANDARD}}
    if kind == "network":
        gates["strict"] = {"basis": "test", "bounds": STRICT}
    stored = {"name": "x", "file": "x.bin", "dtype": "float16", "shape": [INPUTS, 4]}
    return {
        "id": name,
        "kind": kind,
        "tier": tier,
        "task": "chain" if kind == "peak" else "classification",
        "title": name,
        "macs": macs,
        "params": 1,
        "eval": {"n": INPUTS, "canonical": 0, "inputs": [stored], "references": [stored]},
        "gates": gates,
        "variants": [
            {
                "id": v,
                "format": fmt,
                "encoding": v,
                "graph": f"{name}/{v}.onnx",
                "files": [f"{name}/{v}.onnx"],
                "inputs": [spec],
                "outputs": [spec],
                "validated": True,
                "division": "standard",
            }
            for v, fmt in variants
        ],
        **over,
    }


THREE = (("fp32", "FP32"), ("fp16", "FP16"), ("int8-u8s8", "INT8"))
WORKLOADS = (
    workload_doc("peak-s", "peak", "peak", 1_000_000_000, THREE),
    workload_doc("peak-l", "peak", "peak", 3_000_000_000, THREE),
    workload_doc("peak-xl", "peak", "large", 9_000_000_000, THREE),
    workload_doc("net-1", "network", "scored", 200_000_000, THREE),
    workload_doc("net-2", "network", "scored", 4_000_000_000, THREE),
    workload_doc("net-x", "network", "extra", 4_000_000_000, THREE),
)


def manifest_of(*workloads: dict[str, Any]) -> Manifest:
    """Return the manifest of these workloads, every file of 1 MiB."""
    return parse_manifest(manifest_bytes(*workloads))


def manifest_bytes(*workloads: dict[str, Any]) -> bytes:
    """Return that manifest as the file it would be read from."""
    paths = {"x.bin"} | {p for w in workloads for v in w["variants"] for p in v["files"]}
    files = [
        {"path": p, "size": 1 << 20, "sha256": "0" * 64, "origin": "shipped"} for p in sorted(paths)
    ]
    suite = {"name": "test", "version": "1", "edition": "seeded", "basis": "test"}
    doc = {"suite": suite, "files": files, "workloads": list(workloads)}
    return json.dumps(doc).encode()


@cache
def manifest() -> Manifest:
    """Return a small pack: two peak shapes, a large one, two scored networks and an extra."""
    return manifest_of(*WORKLOADS)


def _catalogued(engine_id: str) -> tuple[Provider | None, str]:
    """Return the catalogue's row of an engine's id, and the role of its device."""
    stem = re.sub(r"-[1-9][0-9]*$", "", engine_id)
    found = ((row, role) for row in PROVIDERS for role in row.roles)
    return next(((w, r) for w, r in found if stem == w.engine_id(r)), (None, ""))


def engine(name: str, role: str = "CPU", **over: Any) -> EngineInfo:
    """Return an available engine of that id on a processor of that role; one of the catalogue's
    is called what it is there."""
    row = _catalogued(name)[0]
    made = EngineInfo(
        id=name,
        available=True,
        reason=None,
        runtime=name.split("-")[0],
        runtime_title=name.split("-")[0].upper() if row is None else row.runtime_title,
        version="1.0",
        versions={name.split("-")[0]: "1.0"},
        processor={"key": f"key-{role}", "role": role, "name": f"Some {role}"},
        variants=("fp32", "bf16", "fp16", "int8-u8s8"),
        derived_from={"bf16": "fp32"},
    )
    return replace(made, **over)


CPU = engine("ort-cpu")
NPU = engine("ort-qnn-npu", "NPU", variants=("fp16", "int8-u8s8"), derived_from={})


@dataclass(frozen=True)
class Answer:
    """What an attempt comes to. ``ips`` null takes ``status``; ``precision`` ``declared`` is
    the entry's own declared format."""

    ips: float | None
    status: Status = "ok"
    precision: str | None = "declared"
    measures: dict[str, float | None] = field(default_factory=lambda: dict(GOOD))
    timed_check: bool = True
    verdict: Literal["proved", "inferred", "unproved"] = "proved"
    share: float | None = 0.99
    op_share: float | None = None
    partitions: int | None = None
    evidence: str | None = None
    wall_s: float = 5.0


Model = Callable[[Planned, int], Answer]


def steady(planned: Planned, n: int) -> Answer:
    """Answer with a rate of the entry's own, each attempt 0.3 % faster than the one before."""
    slow = manifest().workloads[planned.workload].macs / 1e9
    speed = {"FP32": 40.0, "FP16": 41.0, "BF16": 80.0, "INT8": 150.0}[planned.declared_format]
    return Answer(ips=speed / slow * (1 + 0.003 * (n - 1)))


def attempt_of(
    planned: Planned, n: int, started_ns: int, answer: Answer, *, loop_s: float = 2.0
) -> Attempt:
    """Return the attempt that a worker with this answer would have left."""
    measured = None
    if answer.status == "ok" and answer.ips is not None:
        measured = _measurement(answer, loop_s, attempt_seed(RUN_ID, planned, n))
    precision = planned.declared_format if answer.precision == "declared" else answer.precision
    row, role = _catalogued(planned.engine)
    op_share = answer.op_share
    if op_share is None and answer.verdict == "proved" and row is not None:
        op_share = 1.0
    observed = ObservedFields(
        device=None if row is None else row.provider_name,
        precision=precision,
        precision_why=None if precision else "the runtime does not say",
        threads=2,
        runtime="R",
        version="1.0",
        versions={},
        details={} if row is None or op_share is None else {"assigned": _assigned(row, op_share)},
    )
    placement = PlacementFields(
        verdict=answer.verdict,
        share=answer.share,
        op_share=op_share,
        partitions=answer.partitions,
        evidence=answer.evidence or ("profile" if row is None else evidence_of(row, role)[0]),
        why=None,
    )
    busy = 0
    if measured is not None:
        busy = sum(getattr(measured, f"{stage}_ns") for stage in STAGES)
    return Attempt(
        n=n,
        status=answer.status,
        why=None if answer.status == "ok" else f"it {answer.status}",
        started_ns=started_ns,
        wall_ns=max(busy, round(answer.wall_s * NS)),
        seed=attempt_seed(RUN_ID, planned, n),
        pid_exit=0 if answer.status == "ok" else -11,
        observed=observed if measured else None,
        placement=placement if measured else None,
        measurement=measured,
        log_tail=None,
        cache=None,
    )


def _assigned(row: Provider, op_share: float) -> dict[str, dict[str, int]]:
    """Return what ONNX Runtime would have listed of a graph of 1000 operators."""
    own = round(1000 * op_share)
    other = {"CPUExecutionProvider": {"MatMul": 1000 - own}} if own < 1000 else {}
    return {**other, str(row.provider_name): {"MatMul": own}}


def _measurement(answer: Answer, loop_s: float, seed: int) -> MeasurementFields:
    assert answer.ips is not None
    each = round(NS / answer.ips)
    iterations = max(30, -(-round(loop_s * NS) // each))
    slowest = each + each // 10
    timed = each * (iterations - 1) + slowest
    return MeasurementFields(
        iterations=iterations,
        timed_ns=timed,
        ips=inferences_per_second(iterations, timed),
        latency_ns=LatencyFields(
            median=each,
            p90=each if iterations >= 10 else None,
            p95=each if iterations >= 20 else None,
            p99=each if iterations >= 100 else None,
            p999=each if iterations >= 1000 else None,
            min=each,
            max=slowest,
        ),
        burst_ips=answer.ips,
        drift=0.01,
        sustained_ips=answer.ips,
        first_call_ns=each,
        warmup_calls=3,
        warmup_steady=True,
        import_ns=1000,
        verify_ns=1001,
        load_ns=1002,
        warmup_ns=3 * each,
        loop_ns=timed + 1000,
        accuracy_ns=1004,
        placement_ns=1005,
        timer_overhead_ns=50,
        peak_rss_bytes=1 << 20,
        measures=dict(answer.measures),
        accuracy_why=None,
        timed_check=TimedCheckFields(
            iterations=list(drawn(seed, load_policy().timing.timed_checks, INPUTS, iterations)),
            passed=answer.timed_check,
            bit_identical=answer.timed_check,
            min_snr_db=None,
            nondeterministic=False,
        ),
        samples_sha256=None,
        loaded_from_cache=None,
    )


@dataclass(frozen=True)
class Simulated:
    """A simulated run: its facts, and the instants at which attempts started, in order."""

    facts: RunFacts
    started: tuple[tuple[Planned, int], ...]
    complete: bool


def plan_for(
    engines: Sequence[EngineInfo], request: RunRequest, pack: Manifest | None = None
) -> tuple[Planned, ...]:
    """Return the plan of a request on a machine with endless memory and no known crashes."""
    return make_plan(
        pack or manifest(),
        engines,
        request,
        load_policy(),
        ladder=load_ladder("default"),
        known_crashes=(),
        host=Host(platform="linux", free_bytes=None),
    )


def simulate(
    answers: Model = steady,
    engines: Sequence[EngineInfo] = (CPU,),
    request: RunRequest | None = None,
    *,
    plan: Sequence[Planned] | None = None,
    pack: Manifest | None = None,
    policy: Policy | None = None,
    limit: int | None = None,
    environment: Environment = QUIET,
    resumed: Sequence[ResumeEvent] = (),
    verified: bool = True,
) -> Simulated:
    """Run a plan on a fake clock; ``limit`` ends it after that many attempts."""
    request, pack, policy = request or RunRequest(), pack or manifest(), policy or load_policy()
    lines = tuple(plan_for(engines, request, pack) if plan is None else plan)
    roles = {e.id: e.processor["role"] for e in engines}
    loop_s = policy.timing.quick_loop_s if request.quick else policy.timing.loop_s
    deadline = None if request.time_budget_s is None else round(request.time_budget_s * NS)
    attempts: dict[tuple[str, str, str], list[Attempt]] = {p.key: [] for p in lines}
    history: dict[tuple[str, str, str], list[JudgedAttempt]] = {p.key: [] for p in lines}
    started: list[tuple[Planned, int]] = []
    now = 0
    while limit is None or len(started) < limit:
        action = next_action(lines, history, now, policy, quick=request.quick, deadline_ns=deadline)
        if isinstance(action, Done):
            if not action.complete:
                told = {**environment.facts, ENDED_BY: "time_budget"}
                environment = environment.model_copy(update={"facts": told})
            break
        if isinstance(action, Wait):
            now = action.until_ns
            continue
        entry = action.entry
        attempt = attempt_of(entry, action.n, now, answers(entry, action.n), loop_s=loop_s)
        attempts[entry.key].append(attempt)
        history[entry.key].append(
            judge_attempt(entry, attempt, pack, policy, roles[entry.engine], quick=request.quick)
        )
        started.append((entry, now))
        now += attempt.wall_ns + 1_000_000
    facts = RunFacts(
        plan=lines,
        attempts=attempts,
        engines=[engine_facts(e, e.processor["key"], {"threads": 2}) for e in engines],
        processors=_processors(engines),
        options=_options(request, policy, loop_s),
        suite=_suite(pack, verified=verified),
        environment=environment,
        resumed=resumed,
    )
    return Simulated(facts, tuple(started), derive(facts, pack, policy).complete)


def payload_of(
    run: Simulated, pack: Manifest | None = None, policy: Policy | None = None
) -> Payload:
    """Return the payload that a real run with these facts would have written."""
    pack, policy = pack or manifest(), policy or load_policy()
    facts = run.facts
    return Payload(
        schema="npumark-record/1",
        score_version=policy.score_version,
        run_id=RUN_ID,
        created="2026-11-30T12:00:00Z",
        finished="2026-11-30T12:10:00Z",
        tool=Tool(version="0", python="3", packages={}),
        suite=facts.suite,
        policy_sha256=policy.sha256,
        formula_sha256=formula_sha256(),
        plan=facts.options,
        machine={},
        processors=list(facts.processors),
        environment=facts.environment,
        prepared=[],
        resumed=list(facts.resumed),
        harness={},
        **derive(facts, pack, policy).fields(),
    )


def _processors(engines: Sequence[EngineInfo]) -> list[Processor]:
    found: dict[str, Processor] = {}
    for e in engines:
        device = e.processor
        number = 1 + sum(p.role == device["role"] for p in found.values())
        found.setdefault(
            device["key"],
            Processor(
                id=device["key"],
                role=device["role"],
                name=device["name"],
                number=number,
                details={"emulated": True} if e.emulated else {},
            ),
        )
    return list(found.values())


def _options(request: RunRequest, policy: Policy, loop_s: float) -> Plan:
    def listed(names: tuple[str, ...] | None) -> list[str] | None:
        return None if names is None else list(names)

    return Plan(
        quick=request.quick,
        ladder=request.ladder,
        all_variants=request.all_variants,
        engines=listed(request.engines),
        workloads=listed(request.workloads),
        variants=listed(request.variants),
        time_budget_s=request.time_budget_s,
        include_known_crashes=request.include_known_crashes,
        include_emulated=request.include_emulated,
        large_peak=request.large_peak,
        box=BoxPlan(
            mode=request.box,
            roles=listed(request.box_roles),
            cards=listed(request.box_cards),
            solo=[],
        ),
        argv=[],
        spacing_s=0.0 if request.quick else policy.repetition.spacing_s,
        loop_s=loop_s,
    )


def _suite(pack: Manifest, *, verified: bool) -> Suite:
    return Suite(
        name=pack.suite["name"],
        version=pack.suite["version"],
        edition=pack.suite["edition"],
        basis=pack.suite["basis"],
        manifest_sha256=pack.sha256,
        verified=verified,
        why_not=None if verified else "a file differs",
    )
