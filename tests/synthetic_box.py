"""A box stage made of invented windows, after a run made of invented attempts (synthetic)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from npumark.pack.manifest import Manifest
from npumark.policy import Policy, load_policy
from npumark.record.box import (
    BoxAttempt,
    BoxCardRun,
    BoxCheck,
    BoxPin,
    BoxRoleName,
    BoxSolo,
    BoxWindow,
)
from npumark.score.box import judged, role_cards, stage_why, wants_attempt
from npumark.score.derive import RunFacts, derive
from npumark.score.planned import Planned
from npumark.worker.protocol import EngineInfo, Status
from tests import synthetic
from tests.synthetic import NS, Answer, Simulated

WINDOW_NS = 5 * NS


def card(number: int, role: BoxRoleName = "dGPU", name: str = "Some Card") -> EngineInfo:
    """Return the engine of one of several cards of a role; its processor is ``dgpu-<number>``."""
    word = role.lower()
    return synthetic.engine(
        f"ort-some-{word}-{number}",
        role,
        processor={"key": f"{word}-{number}", "role": role, "name": name},
        variants=("fp16", "int8-u8s8"),
        derived_from={},
    )


@cache
def cards(count: int) -> tuple[EngineInfo, ...]:
    return tuple(card(i) for i in range(1, count + 1))


@dataclass(frozen=True)
class Shown:
    """What a card shows in a window: the share of its solo rate, and how it fares."""

    share: float = 0.9
    status: Status = "ok"
    snr_db: float | None = 60.0
    late_ns: int = 400_000
    why: str | None = None


BoxModel = Callable[[str, int], Shown]
"""The card's id and the attempt's number -> what it shows."""


def even(card: str, n: int) -> Shown:
    """Show nine tenths of the solo rate, each attempt a little faster."""
    return Shown(share=0.9 + 0.001 * n, late_ns=400_000 + 1000 * int(card.split("-")[-1]))


def window_of(tops: float, shown: Shown, manifest: Manifest, workload: str) -> BoxWindow:
    """Return the window of a card that makes calls of one length from ``late_ns`` on."""
    described = manifest.workloads[workload]
    each = round(described.flops / (tops * shown.share * 1e12) * NS)
    calls = -(-(WINDOW_NS - shown.late_ns) // each)
    last = shown.late_ns + (calls - 1) * each
    across = [(last, last + each)] if last + each > WINDOW_NS else []
    return BoxWindow(
        late_ns=shown.late_ns,
        inside=calls - len(across),
        straddling=across,
        calls=calls,
        check=BoxCheck(
            iteration=calls - 1,
            sample=(calls - 1) % described.eval.n,
            snr_db=shown.snr_db,
            why=None if shown.snr_db is not None else "the output holds NaN",
        ),
        load_ns=1_000_003,
        warmup_ns=2_000_003,
        samples_sha256=None,
        peak_rss_bytes=1 << 20,
    )


def run_of(solo: BoxSolo, shown: Shown, manifest: Manifest) -> BoxCardRun:
    """Return what the orchestrator would have entered for one card."""
    ok = shown.status == "ok"
    return BoxCardRun(
        card=solo.card,
        engine=solo.engine,
        workload=solo.workload,
        variant=solo.variant,
        status=shown.status,
        why=shown.why,
        pid_exit=0 if ok else -9,
        window=window_of(solo.tops, shown, manifest, solo.workload) if ok else None,
        pin=BoxPin(numa_node=None, cpus=None, why="the machine has one node"),
        log_tail=None,
        passed=None,
        counted=None,
        tops=None,
    )


def attempt_of(
    role: BoxRoleName, runs: list[BoxCardRun], n: int, started_ns: int, **over: object
) -> BoxAttempt:
    """Return an attempt, not judged yet."""
    made = BoxAttempt(
        role=role,
        n=n,
        status="ran",
        why=None,
        started_ns=started_ns,
        wall_ns=9 * NS,
        window_ns=WINDOW_NS,
        cards=runs,
        counts=False,
        void_because=[],
        skew_ns=None,
        tops=None,
    )
    return made.model_copy(update=over)


def with_box(
    run: Simulated,
    shows: BoxModel = even,
    *,
    pack: Manifest | None = None,
    policy: Policy | None = None,
    limit: int | None = None,
) -> Simulated:
    """Return ``run`` with the attempts that its box stage wants; at most ``limit`` of a role."""
    pack, policy = pack or synthetic.manifest(), policy or load_policy()
    facts, attempts = run.facts, []
    options = facts.options
    derived = derive(facts, pack, policy)
    last = max((s for _, s in run.started), default=0)
    now = last + 60 * NS
    roles = role_cards(derived.engines, facts.processors, options.box, derived.entries, pack)
    for cards in roles if stage_why(options) is None else []:
        own: list[BoxAttempt] = []
        while wants_attempt(cards, own, policy, quick=options.quick) and len(own) != limit:
            n = len(own) + 1
            runs = [run_of(s, shows(s.card, n), pack) for s in cards.solos]
            own.append(judged(attempt_of(cards.role, runs, n, now), pack, policy))
            now += 31 * NS
        attempts += own
    return dataclasses.replace(run, facts=boxed(facts, attempts))


def boxed(facts: RunFacts, attempts: list[BoxAttempt]) -> RunFacts:
    return dataclasses.replace(facts, box_attempts=attempts)


def rates(of: dict[str, float]) -> synthetic.Model:
    """Return a model in which each engine runs at a multiple of ``synthetic.steady``."""

    def model(planned: Planned, n: int) -> Answer:
        answer = synthetic.steady(planned, n)
        assert answer.ips is not None
        return dataclasses.replace(answer, ips=answer.ips * of.get(planned.engine, 1.0))

    return model
