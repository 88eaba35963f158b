"""Where Core ML says it runs a program: the compute plan, read by preferred device and cost.

A plan names, for each operation, the devices that support it and the one that is preferred.
Only the preferred one says anything about where the work goes. Costs are Core ML's estimates,
shares of one inference; constants cost nothing and count for neither side. It is a plan and not
a measurement: the evidence is called ``plan`` wherever it is shown.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from npumark.worker.protocol import Placement

Kind = Literal["NPU", "GPU", "CPU"]
"""What kind of device Core ML calls it: the Neural Engine, a GPU, the CPU."""

TITLES: dict[Kind, str] = {"NPU": "Neural Engine", "GPU": "GPU", "CPU": "CPU"}

EVIDENCE = "plan"


@dataclass(frozen=True, slots=True)
class PlannedOp:
    """One operation of a plan.

    ``operator`` is the runtime's name for it (``ios17.linear``). ``preferred`` is null where the
    plan names no device, or one that is none of ours. ``cost`` is the estimated share of one
    inference, 0 to 1, null where the plan has no estimate.
    """

    operator: str
    preferred: Kind | None
    supported: tuple[Kind, ...]
    cost: float | None

    @property
    def constant(self) -> bool:
        """Whether it holds or unpacks weights: nothing that an inference would compute."""
        name = self.operator.rpartition(".")[2]
        return name == "const" or name.startswith("constexpr_")


def prove(ops: Sequence[PlannedOp] | None, target: Kind, why: str | None = None) -> Placement:
    """Return the share of estimated cost that is planned on ``target``.

    An operation without a preferred device counts against the claim, and so does whatever cost
    the plan leaves unaccounted for. Without a plan (``ops`` null, for the reason ``why``), and
    where nothing in it has a cost, nothing is proved.
    """
    if ops is None:
        return _unproved(why or "Core ML gave no compute plan")
    computing = [op for op in ops if not op.constant]
    if not computing:
        return _unproved("the compute plan holds no operation")
    costs = [cost for op in computing if (cost := op.cost) is not None]
    if any(not (math.isfinite(cost) and 0 <= cost <= 1) for cost in costs):
        return _unproved("the compute plan has a cost that is no share")
    total = math.fsum(costs)
    if total <= 0:
        return _unproved("the compute plan estimates no cost")
    if len(costs) < len(computing):
        total = max(total, 1.0)  # what is missing to the whole belongs to what has no estimate
    own = [op for op in computing if op.preferred == target]
    share = min(1.0, math.fsum(op.cost or 0.0 for op in own) / total)
    runs = sum(1 for _ in groupby(op.preferred for op in computing))
    return Placement("proved", share, len(own) / len(computing), runs, EVIDENCE, None)


def summary(ops: Sequence[PlannedOp]) -> dict[str, dict[str, float | int]]:
    """Return operations and estimated cost by preferred device, for the record."""
    counts: Counter[str] = Counter()
    costs: Counter[str] = Counter()
    for op in ops:
        if not op.constant:
            name = "unknown" if op.preferred is None else TITLES[op.preferred]
            counts[name] += 1
            costs[name] += op.cost or 0.0  # type: ignore[assignment]
    return {name: {"ops": counts[name], "cost": costs[name]} for name in sorted(counts)}


def devices(ops: Sequence[PlannedOp]) -> tuple[str, ...]:
    """Return the devices that a plan prefers, the costliest first."""
    found = summary(ops)
    return tuple(sorted(found, key=lambda name: (-found[name]["cost"], name)))


def _unproved(why: str) -> Placement:
    return Placement("unproved", None, None, None, EVIDENCE, why)
