"""Contention: what an engine keeps of its pace while other programs want the machine too.

Beside it runs one process for each CPU that it may use: first such that compute in registers, then
such that stream through memory. Both take the same CPU time, so what the second costs beyond the
first is the memory's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from npumark.diagnose.latency import median_ns, p95_ns
from npumark.diagnose.noise import QUIET, Noise, noise, spread
from npumark.diagnose.probe import Beside, Finding, Probe, Ratio, Seen, Step, Target, rate
from npumark.diagnose.reading import failed
from npumark.policy import DiagnoseRules

_LOADS: tuple[tuple[Beside, str], ...] = (("cpu", "busy CPUs"), ("memory", "busy memory"))

_COLUMNS = (
    ("beside", "beside it"),
    ("ips", "inf/s"),
    ("kept_share", "of alone"),
    ("median_ns", "median latency"),
    ("p95_ns", "p95 latency"),
    ("load_busy_share", "load on each CPU"),
    ("moved_gb_per_s", "GB/s moved"),
    ("why", "not measured because"),
)


def steps(target: Target, rules: DiagnoseRules) -> tuple[Step, ...]:
    """Return the single attempt again, beside each load."""
    del target
    return tuple(Step(load, "single", beside=load, seconds=rules.loop_s) for load, _ in _LOADS)


def finding(
    target: Target, single: Seen, seen: Mapping[str, Seen], rules: DiagnoseRules
) -> Finding:
    """Return what share of its rate alone the engine keeps beside each load."""
    alone = rate(single.samples["calls"])
    rows = [_row("nothing", single, alone, rules)]
    kept: dict[str, float] = {}
    for load, name in _LOADS:
        step = seen.get(load)
        if step is not None:
            rows.append(_row(name, step, alone, rules))
            if rows[-1]["ips"] is not None:
                kept[load] = rows[-1]["kept_share"]
    if not kept:
        return failed(next((r["why"] for r in rows if r["why"]), "nothing was measured"))
    ratios = tuple(
        Ratio(f"{load}_kept", kept[load], f"inferences/s beside {name} ÷ probe_ips")
        for load, name in _LOADS
        if load in kept
    )
    shown = tuple(c for c in _COLUMNS if any(row[c[0]] is not None for row in rows))
    strays = noise(single, seen, rules)
    # Beside a load a loop may waver more than alone.
    apart = max(strays.share, *(spread(seen[load].samples["calls"]) for load in kept))
    starved = len(kept) == len(_LOADS) and kept["memory"] < kept["cpu"] * (1 - apart)
    said, advice = strays.told(_said(kept), _advice(target, kept, strays, starved=starved))
    return Finding("ok", None, shown, tuple(rows), "ips", ratios, said, advice)


def _row(beside: str, step: Seen, alone: float, rules: DiagnoseRules) -> dict[str, Any]:
    row: dict[str, Any] = {key: None for key, _ in _COLUMNS}
    row["beside"] = beside
    if (why := _why_not(step)) is not None:
        row["why"] = why
        return row
    durations, load = step.samples["calls"], step.facts.get("beside", {})
    row["ips"] = rate(durations)
    row["kept_share"] = row["ips"] / alone
    row["median_ns"] = median_ns(durations, rules)
    row["p95_ns"] = p95_ns(durations, rules)
    row["load_busy_share"] = load.get("busy_share")
    row["moved_gb_per_s"] = load["bytes_per_s"] / 1e9 if load.get("buffer_bytes") else None
    return row


def _why_not(step: Seen) -> str | None:
    if step.status != "ok":
        return step.why or step.status
    if step.step.beside is None:
        return None
    load = step.facts.get("beside")
    if not load:
        return "nothing tells what the load beside it did"
    if load["died"]:
        return f"{load['died']} of the load's {load['processes']} processes died meanwhile"
    return None


def _said(kept: Mapping[str, float]) -> str:
    words = {"cpu": "every CPU busy", "memory": "its memory busy as well"}
    if "cpu" not in kept:
        words["memory"] = "every CPU and the memory busy"
    parts = [f"{100 * share:.0f} % of its pace with {words[load]}" for load, share in kept.items()]
    return f"It keeps {' and '.join(parts)}."


def _advice(target: Target, kept: Mapping[str, float], strays: Noise, *, starved: bool) -> str:
    """Return what to do. ``starved``: the memory took more than CPU time alone does."""
    worst, figures = min(kept.values()), len(kept)
    if max(kept.values()) > strays.gain(figures):
        return (
            "It was faster beside a load than alone, so something else moved these figures: run it "
            "again on a quiet machine."
        )
    if worst >= 1 - strays.notable:
        return "Other programs hardly reach it: it can run beside a busy machine."
    if worst >= strays.loss(figures):
        return f"Chance may take as much here: {QUIET} to tell what other programs cost it."
    if target.role != "CPU":
        cause = "memory bandwidth, which it shares" if starved else "CPU time, to be fed"
        return f"The {target.role} waits for {cause}: leave it some where it must keep its pace."
    if starved:
        return (
            "It needs the memory for itself: keep programs that move much data off this machine "
            "while it runs."
        )
    return (
        "Its pace is that of the CPU time it gets: keep other programs off its CPUs, or give both "
        "CPUs of their own."
    )


PROBE = Probe("contention", "Contention", True, steps, finding)
