"""Gates by rule, from reference runs on a CPU, before any accelerator is measured.

- ``strict`` (near-lossless): the worst, measure by measure, of the runs that lose no more
  than half precision does, loosened by the policy's margins; no flip budget.
- ``standard``: the neutral 8-bit run, loosened by the same margins, plus a flip budget.
- Where the neutral run is itself degenerate, the standard gate takes fixed floors instead.

No bound is picked by hand: every figure is a measured one moved by a margin of the policy.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from npumark.gates.measures import MEASURES
from npumark.pack.manifest import GateSpec
from npumark.policy import GateRules

Run = Mapping[str, float | None]
"""Measures by name, as ``npumark.gates.metrics`` reports them."""

FIXED_FLOORS = {
    "classification": ("kl",),
    "segmentation": ("miou",),
    "embedding": ("cosine_mean", "cosine_p10", "token_cosine"),
}
"""Task -> the measures that its fixed-floor gate bounds besides flips and SNR."""

NEUTRAL = "int8-u8s8"
"""The variant whose run on ONNX Runtime's CPU provider the standard gate is derived from."""


def derive_gates(task: str, runs: Mapping[str, Run], rules: GateRules) -> dict[str, GateSpec]:
    """Return both gates of a network from its reference runs, by variant (and the emulation)."""
    near = {
        "PyTorch-emulated FP16": runs["emulated fp16"],
        "ONNX Runtime CPU FP16": runs["fp16"],
        "ONNX Runtime CPU FP32": runs["fp32"],
    }
    label = f"ONNX Runtime CPU {NEUTRAL}"
    return {
        "standard": standard_gate(task, label, runs[NEUTRAL], rules),
        "strict": strict_gate(near, rules),
    }


def loosen(name: str, value: float, rules: GateRules) -> float:
    """Return the bound that a measured value gives: the value, moved by the policy's margin."""
    if name == "snr_db":
        return value - rules.snr_margin_db
    if name == "kl":
        return value * rules.kl_factor
    return value - rules.gap_fraction * (1 - value)


def flip_budget(decisive: float, rules: GateRules) -> float:
    """Return max(1, 5 % of the decisive samples rounded up)."""
    return float(max(1, math.ceil(rules.flip_fraction * decisive)))


def strict_gate(runs: Mapping[str, Run], rules: GateRules) -> GateSpec:
    """Return the near-lossless gate from reference runs by name.

    Raises ValueError where there is no run, or one lacks a finite measure that another has.
    """
    bounds = {}
    worst_of = {}
    for name in _bounded(runs.values(), continuous=True):
        values = {run: _finite(run, name, measures) for run, measures in runs.items()}
        pick = min if MEASURES[name].floor else max
        worst_of[name] = pick(values, key=values.__getitem__)
        bounds[name] = loosen(name, values[worst_of[name]], rules)
    shares = {run: [n for n, worst in worst_of.items() if worst == run] for run in runs}
    origin = "; ".join(f"{', '.join(names)} from {run}" for run, names in shares.items() if names)
    return GateSpec(f"near-lossless: worst of {', '.join(runs)} ({origin})", bounds)


def standard_gate(task: str, label: str, neutral: Run, rules: GateRules) -> GateSpec:
    """Return the standard gate from the neutral 8-bit run, which ``label`` names.

    Raises ValueError where the run lacks a finite measure, or the task has no fixed floors.
    """
    measured = {name: _finite(label, name, neutral) for name in _bounded([neutral])}
    budget = {}
    if "flips" in measured:
        del measured["flips"]
        budget["flips"] = flip_budget(_finite(label, "decisive", neutral), rules)
    fault = degeneracy(neutral, rules)
    if fault is None:
        bounds = {name: loosen(name, value, rules) for name, value in measured.items()}
        return GateSpec(f"standard: {label}", bounds | budget)
    if task not in FIXED_FLOORS:
        raise ValueError(f"{task}: {label} is degenerate ({fault}) and there are no fixed floors")
    floors = {name: float(getattr(rules.fixed_floors, name)) for name in FIXED_FLOORS[task]}
    # The margin rule still says something about SNR as long as its bound has signal above
    # noise; without that, a floor on decisions alone is blind to many a defect.
    snr = loosen("snr_db", measured["snr_db"], rules)
    if snr > 0:
        floors["snr_db"] = snr
    return GateSpec(f"fixed floors: {label} is degenerate ({fault})", floors | budget)


def degeneracy(neutral: Run, rules: GateRules) -> str | None:
    """Return why the neutral run cannot serve as a reference, or None where it can.

    It cannot where its SNR does not exceed the margin, so that the bound would accept noise as
    loud as the signal; where it changes too many decisive answers; or where it loses classes,
    so that the mean IoU derived from it would accept a map that is mostly wrong.
    """
    snr, flips, decisive = (neutral.get(k) for k in ("snr_db", "flips", "decisive"))
    rule = rules.degenerate
    if snr is None or snr <= rule.min_snr_db:
        return f"its SNR is {'unknown' if snr is None else f'{snr:.1f} dB'}"
    if flips is not None and flips > rule.max_flip_fraction * (decisive or 0):
        return f"it changes {flips:g} of {decisive or 0:g} decisive answers"
    for name in ("miou", "miou_decisive"):
        value = neutral.get(name)
        if value is not None and loosen(name, value, rules) < rule.min_miou_bound:
            return f"its {name} is {value:.2f}"
    return None


def peak_gate(rules: GateRules) -> GateSpec:
    """Return the peak test's gate: one fixed bound for every format and shape."""
    return GateSpec("fixed: methodology 3.2, section 3", {"snr_db": rules.peak_snr_db})


def enough_decisive(measures: Run, rules: GateRules) -> bool:
    """Whether an eval set has the decisive samples that a classifier's must have."""
    return (measures.get("decisive") or 0) >= rules.min_decisive


def _bounded(runs: Iterable[Run], *, continuous: bool = False) -> list[str]:
    present = {name for run in runs for name in run}
    names = [n for n, m in MEASURES.items() if n in present and (m.continuous or not continuous)]
    if not names:
        raise ValueError("no reference run has a measure that a gate could bound")
    return names


def _finite(run: str, name: str, measures: Run) -> float:
    value = measures.get(name)
    if value is None or not math.isfinite(value):
        raise ValueError(f"{run} has no finite {name}: it cannot serve as a reference")
    return value
