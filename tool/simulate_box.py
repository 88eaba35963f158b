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
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from npumark.engines.virtual_box import Pairs, VirtualBox, make_box  # noqa: E402
from npumark.pack.manifest import Manifest, Workload, load_manifest  # noqa: E402
from npumark.policy import Policy, load_policy  # noqa: E402
from npumark.record.box import BoxAttempt, BoxCheck, BoxSolo  # noqa: E402
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
    cards = RoleCards("dGPU", tuple(solos), (), None)
    found, _ = derive_box([cards], attempts, _processors(len(solos)), manifest, policy, quick=False)
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


class _Window(NamedTuple):
    """A card's window, as far as ``score.box`` reads it (BoxWindow)."""

    late_ns: int
    inside: int
    straddling: list[tuple[int, int]]
    check: BoxCheck


class _Run(NamedTuple):
    """A card's part of an attempt, as far as ``score.box`` reads it (BoxCardRun).

    Validating hundreds of thousands of whole ones would take most of a simulation's time.
    """

    card: str
    workload: str
    window: _Window
    status: str = "ok"
    passed: bool | None = None
    counted: float | None = None
    tops: float | None = None

    def model_copy(self, *, update: dict[str, Any]) -> _Run:
        return self._replace(**update)


_RIGHT = BoxCheck(iteration=0, sample=0, snr_db=60.0, why=None)


def _attempt(
    n: int, solos: Sequence[BoxSolo], calls: Sequence[Pairs], window_ns: int
) -> BoxAttempt:
    """Return what an attempt would leave in a record, not judged."""
    return BoxAttempt.model_construct(
        role="dGPU",
        n=n,
        status="ran",
        why=None,
        started_ns=n * 30_000_000_000,
        wall_ns=10_000_000_000,
        window_ns=window_ns,
        cards=[_run(s, pairs, window_ns) for s, pairs in zip(solos, calls, strict=True)],
        counts=False,
        void_because=[],
        skew_ns=None,
        tops=None,
    )


def _run(solo: BoxSolo, pairs: Pairs, window_ns: int) -> _Run:
    # What worker.window_loop.cut says of calls that follow one another from the start on.
    across = [(int(pairs[-1, 0]), int(pairs[-1, 1]))] if pairs[-1, 1] > window_ns else []
    window = _Window(int(pairs[0, 0]), len(pairs) - len(across), across, _RIGHT)
    return _Run(solo.card, solo.workload, window)


@cache
def _processors(count: int) -> list[Processor]:
    return [
        Processor(id=f"dgpu-{i}", role="dGPU", name="Virtual card", number=i, details={})
        for i in range(1, count + 1)
    ]


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
