"""Compile cache: how long a load takes that compiles, and one that finds the compiled model.

A load that compiles also writes the model down and hashes it, as an attempt's would. What drivers
keep of their own accord is not emptied.
"""

from __future__ import annotations

import statistics
from collections.abc import Collection, Mapping
from typing import Any

from npumark.diagnose.noise import QUIET, noise
from npumark.diagnose.probe import Finding, Probe, Ratio, Seen, Step, Target
from npumark.diagnose.reading import failed, not_applicable
from npumark.policy import DiagnoseRules

_COLUMNS = (
    ("load", "load"),
    ("load_ns", "median load"),
    ("first_call_ns", "median first call"),
    ("loads", "loads"),
    ("why", "not measured because"),
)


def steps(target: Target, rules: DiagnoseRules) -> tuple[Step, ...]:
    """Return cold and warm loads in turn, each in a process of its own. The warm ones find the
    model that was compiled ahead of the first attempt."""
    if not target.compiles:
        return ()
    found = []
    for i in range(1, rules.cold_loads + 1):
        found.append(Step(f"cold-{i}", "load_times", {"cold": True}))
        found.append(Step(f"warm-{i}", "load_times", {"cold": False}))
    return tuple(found)


def finding(
    target: Target, single: Seen, seen: Mapping[str, Seen], rules: DiagnoseRules
) -> Finding:
    """Return the median cold load against the median warm one.

    A load counts as warm where the runtime took the compiled model, and as cold where it
    compiled, whatever was asked for.
    """
    if not target.compiles:
        load = single.facts.get("load_ns")
        took = "" if load is None else f" ({load / 1e6:.0f} ms here)"
        return not_applicable(f"this engine keeps no compiled model; every load compiles{took}")
    cold, cold_why = _loads(seen, "cold", {"built", "rebuilt"}, rules)
    warm, warm_why = _loads(seen, "warm", {"reused"}, rules)
    if not cold or not warm:
        return failed(cold_why or warm_why or "no load was measured")
    rows = (_row("cold", cold, cold_why), _row("warm", warm, warm_why))
    ratios = (
        Ratio("cold_load", rows[0]["load_ns"] / rows[1]["load_ns"], "cold load ÷ warm load"),
        Ratio(
            "cold_first_call",
            rows[0]["first_call_ns"] / rows[1]["first_call_ns"],
            "first call after a cold load ÷ that after a warm one",
        ),
    )
    apart = min(_ns(cold, "load_ns")) > max(_ns(warm, "load_ns"))
    strays = noise(single, seen, rules, repeated=False)
    said, advice = strays.told(*_words(ratios[0].value, rows, rules, apart=apart))
    shown = tuple(c for c in _COLUMNS if c[0] != "why" or cold_why or warm_why)
    return Finding("ok", None, shown, rows, "load_ns", ratios, said, advice)


def _loads(
    seen: Mapping[str, Seen], kind: str, states: Collection[str], rules: DiagnoseRules
) -> tuple[list[Seen], str | None]:
    """Return the loads of a kind that were what was asked for, and why another was not."""
    found, why = [], None
    for i in range(1, rules.cold_loads + 1):
        step = seen.get(f"{kind}-{i}")
        if step is None:
            continue
        if step.status != "ok":
            why = step.why or step.status
        elif step.facts["cache"] in states:
            found.append(step)
        else:
            told = step.facts.get("cache_why") or f"the compiled model was {step.facts['cache']}"
            why = f"a {kind} load was none: {told}"
    return found, why


def _row(kind: str, loads: list[Seen], why: str | None) -> dict[str, Any]:
    return {
        "load": kind,
        "load_ns": _median(loads, "load_ns"),
        "first_call_ns": _median(loads, "first_call_ns"),
        "loads": len(loads),
        "why": why,
    }


def _median(loads: list[Seen], fact: str) -> int:
    return round(statistics.median(_ns(loads, fact)))


def _ns(loads: list[Seen], fact: str) -> list[int]:
    return [int(step.facts[fact]) for step in loads]


def _words(
    ratio: float, rows: tuple[dict[str, Any], ...], rules: DiagnoseRules, *, apart: bool
) -> tuple[str, str]:
    """Return the finding and the advice, a sentence each. ``apart``: every cold load was longer
    than every warm one, which of three and three chance brings about in 1 of 20."""
    cold, warm = (row["load_ns"] / 1e6 for row in rows)
    if ratio < 1 + rules.notable:
        said = f"A load takes {cold:.0f} ms where it compiles, and {warm:.0f} ms where it need not."
        return said, "Ship no compiled model: finding one saves nothing here."
    if not apart:
        said = (
            f"A load takes {cold:.0f} ms where it compiles, and {warm:.0f} ms where it need not, "
            f"no further apart than loads of one kind are."
        )
        return said, f"These loads differ too much to say what a compiled model saves: {QUIET}."
    said = (
        f"A load that compiles takes {cold:.0f} ms, {ratio:.1f} × one that finds the compiled "
        f"model ({warm:.0f} ms); writing that model down and hashing it is part of it."
    )
    advice = (
        "Give the application a folder for compiled models that outlives it, and load once when "
        "it is installed."
    )
    return said, advice


PROBE = Probe("compile_cache", "Compile cache", True, steps, finding)
