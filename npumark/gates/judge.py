"""Pass or fail: measures against a gate's bounds, with the margin that remains."""

from __future__ import annotations

import math
from collections.abc import Mapping

from npumark.gates.measures import MEASURES
from npumark.pack.manifest import GateSpec
from npumark.record.model import Gate


def judge(measures: Mapping[str, float | None], spec: GateSpec) -> Gate:
    """Return the verdict on ``measures``: passed only if every bounded one is finite and inside.

    ``binding`` is the bound of which the measure uses the largest share: its error (see
    gates.measures) over the error that the bound allows. ``margin`` is that bound's slack in
    the measure's own unit, 0 on the bound, negative beyond it; null where the measure is
    missing or not finite, which fails whatever the others say. On equal shares the first
    measure by name binds. Never raises: a gate that bounds nothing, or a measure without a
    known direction, fails and says so.
    """
    known = {k: v if v is not None and math.isfinite(v) else None for k, v in measures.items()}
    sane = {k: b for k, b in spec.bounds.items() if math.isfinite(b)}

    def verdict(binding: str | None, margin: float | None, why: str | None) -> Gate:
        return Gate(
            passed=why is None,
            basis=spec.basis,
            binding=binding,
            margin=margin,
            bounds=sane,
            measures=known,
            why=why,
        )

    if not spec.bounds:
        return verdict(None, None, "the gate bounds no measure")
    for name in sorted(spec.bounds):
        if name not in MEASURES or name not in sane:
            return verdict(name, None, f"the gate's bound on {name} cannot be judged")
    for name in sorted(sane):
        if known.get(name) is None:
            state = "is missing" if name not in measures else "is not a finite number"
            return verdict(name, None, f"{name} {state}")

    values = {name: value for name in sorted(sane) if (value := known[name]) is not None}
    binding = max(values, key=lambda name: MEASURES[name].used(values[name], sane[name]))
    broken = [n for n in values if MEASURES[n].slack(values[n], sane[n]) < 0]
    # A share above 1 and a negative slack are the same thing but for the last bit.
    if broken and binding not in broken:
        binding = broken[0]
    margin = MEASURES[binding].slack(values[binding], sane[binding])
    why = "; ".join(_broken(n, values[n], sane[n]) for n in broken) or None
    return verdict(binding, margin, why)


def _broken(name: str, value: float, bound: float) -> str:
    measure = MEASURES[name]
    unit = f" {measure.unit}" if measure.unit else ""
    side = "below" if measure.floor else "above"
    return f"{name} {value:.6g}{unit} is {side} the bound {bound:.6g}{unit}"
