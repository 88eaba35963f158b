"""Tests the statistics of the box total on simulated boxes, whose true total is known.

For each size: seeded boxes of that many cards, three windows each, through ``score.box``. Prints
how far the recovered totals lie from the true ones and whether exactly the planted slow cards were
flagged; what the sum of the solo peaks would have said stands beside it. Exit status 1 where a
total is off by more than 1 % or a flag is wrong.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from npumark.engines.virtual_box import Pairs, VirtualBox, make_box  # noqa: E402
from npumark.pack.manifest import Manifest, Workload, load_manifest  # noqa: E402
from npumark.policy import Policy, load_policy  # noqa: E402
from npumark.record.box import BoxAttempt, BoxSolo  # noqa: E402
from npumark.record.model import Processor  # noqa: E402
from npumark.score.attempt import tera_operations  # noqa: E402
from npumark.score.box import RoleCards, derive_box  # noqa: E402

BOUND = 0.01
"""A recovered total may be off by so much of the true one."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """What the box stage made of a simulated box whose slow cards are ``planted``.

    ``error`` and ``solo_error`` are the shares by which the total, and the sum of the solo peaks,
    differ from the true total; ``whole_error`` is that of a total of whole calls alone. ``alone``
    and ``in_box`` are the cards that were flagged.
    """

    planted: frozenset[int]
    alone: frozenset[int]
    in_box: frozenset[int]
    error: float
    solo_error: float
    whole_error: float

    @property
    def right(self) -> bool:
        return abs(self.error) <= BOUND and self.in_box == self.alone == self.planted


def recover(box: VirtualBox, seed: int, manifest: Manifest, policy: Policy) -> Recovered:
    """Return what the box stage makes of three windows of ``box`` that ``seed`` draws."""
    workload = next(w for w in manifest.workloads.values() if w.tier == "peak")
    window_ns = round(policy.box.window_s * 1e9)
    draw = np.random.default_rng((seed, 1))
    solos = [_solo(i, float(rate), workload) for i, rate in enumerate(box.alone)]
    attempts = [
        _attempt(n, solos, box.calls(window_ns, draw), window_ns)
        for n in range(1, policy.box.attempts + 1)
    ]
    names = [
        Processor(id=s.card, role="dGPU", name="Virtual card", number=i + 1, details={})
        for i, s in enumerate(solos)
    ]
    cards = RoleCards("dGPU", tuple(solos), (), None)
    found, _ = derive_box([cards], attempts, names, manifest, policy, quick=False)
    role = found.roles[0] if found else None
    if role is None or role.tops is None or role.solo_tops is None:
        raise ValueError("a simulated box has no total")
    calls_per_s = float(box.together().sum())
    true = tera_operations(workload.flops, calls_per_s)
    whole = sum(r.window.inside for a in role.attempts for r in a.cards if r.window)
    return Recovered(
        planted=box.slow,
        alone=frozenset(i for i, card in enumerate(role.cards) if card.slow_alone),
        in_box=frozenset(i for i, card in enumerate(role.cards) if card.slow_in_box),
        error=role.tops / true - 1,
        solo_error=role.solo_tops / true - 1,
        whole_error=whole / (calls_per_s * policy.box.window_s * len(attempts)) - 1,
    )


def _solo(i: int, rate: float, workload: Workload) -> BoxSolo:
    variant = workload.variants[0]
    return BoxSolo(
        card=f"dgpu-{i + 1}",
        engine=f"virtual-dgpu-{i + 1}",
        workload=workload.id,
        variant=variant.id,
        format=variant.format,
        label=variant.format,
        tops=tera_operations(workload.flops, rate),
        unstable=False,
        source=None,
    )


def _attempt(
    n: int, solos: Sequence[BoxSolo], calls: Sequence[Pairs], window_ns: int
) -> BoxAttempt:
    """Return what an attempt would leave in a record, not judged; validated all at once."""
    facts = {
        "role": "dGPU",
        "n": n,
        "status": "ran",
        "why": None,
        "started_ns": n * 30_000_000_000,
        "wall_ns": 10_000_000_000,
        "window_ns": window_ns,
        "cards": [_run(s, pairs, window_ns) for s, pairs in zip(solos, calls, strict=True)],
        "counts": False,
        "void_because": [],
        "skew_ns": None,
        "tops": None,
    }
    return BoxAttempt.model_validate(facts)


def _run(solo: BoxSolo, pairs: Pairs, window_ns: int) -> dict[str, Any]:
    # What worker.window_loop.cut says of calls that follow one another from the start on.
    across = [tuple(map(int, pairs[-1]))] if pairs[-1, 1] > window_ns else []
    return {
        "card": solo.card,
        "engine": solo.engine,
        "workload": solo.workload,
        "variant": solo.variant,
        "status": "ok",
        "why": None,
        "pid_exit": 0,
        "window": {
            "late_ns": int(pairs[0, 0]),
            "inside": len(pairs) - len(across),
            "straddling": across,
            "calls": len(pairs),
            "check": {"iteration": 0, "sample": 0, "snr_db": 60.0, "why": None},
            "load_ns": 0,
            "warmup_ns": 0,
            "samples_sha256": None,
            "peak_rss_bytes": None,
        },
        "pin": {"numa_node": None, "cpus": None, "why": "simulated"},
        "log_tail": None,
        "passed": None,
        "counted": None,
        "tops": None,
    }


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cards", type=int, action="append", help="default: 8, 16 and 64")
    parser.add_argument("--runs", type=int, default=1000)
    args = parser.parse_args(argv)
    manifest, policy, wrong = load_manifest(), load_policy(), 0
    for cards in args.cards or (8, 16, 64):
        found = [recover(make_box(cards, s), s, manifest, policy) for s in range(args.runs)]
        bad = sum(not r.right for r in found)
        wrong += bad
        print(
            f"{cards} cards, {len(found)} boxes with {sum(len(r.planted) for r in found)} slow "
            f"cards: total off by {max(abs(r.error) for r in found):.3%} at most, flags wrong in "
            f"{sum(r.in_box != r.planted for r in found)}; the sum of the solo peaks off by "
            f"{min(r.solo_error for r in found):.1%} at least",
            flush=True,
        )
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
