"""Idle-wake tax: how much longer a call takes that follows a pause than one in a busy stretch."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from npumark.diagnose.latency import median_ns, p95_ns
from npumark.diagnose.noise import Noise, median_limit, noise
from npumark.diagnose.probe import Finding, Probe, Ratio, Seen, Step, Target
from npumark.diagnose.reading import failed
from npumark.policy import DiagnoseRules

_STEP = "idle"
_COLUMNS = (
    ("idle", "idle before"),
    ("median_ns", "median latency"),
    ("p95_ns", "p95 latency"),
    ("tax_ratio", "of a busy call"),
    ("calls", "calls"),
)


def steps(target: Target, rules: DiagnoseRules) -> tuple[Step, ...]:
    """Return the one step: calls after each length of idle, on one session."""
    del target
    waits = sum(ms * n for ms, n in zip(rules.idle_ms, rules.idle_calls, strict=True))
    options = {"idle_ms": list(rules.idle_ms), "calls": list(rules.idle_calls)}
    return (Step(_STEP, "idle", options, seconds=waits / 1e3),)


def finding(
    target: Target, single: Seen, seen: Mapping[str, Seen], rules: DiagnoseRules
) -> Finding:
    """Return the worst ratio of a call's median latency after idle to that when busy.

    A ratio is a tax where it is more than loops stray by, and its median more than as many calls
    of the busy stretch would have by chance.
    """
    del target
    step = seen[_STEP]
    if step.status != "ok":
        return failed(step.why or step.status)
    busy = median_ns(step.samples["busy"], rules)
    rows: list[dict[str, Any]] = []
    taxes: dict[int, float] = {}
    strays, taxed = noise(single, seen, rules), set()
    for ms in (0, *rules.idle_ms):
        durations = step.samples[f"after-{ms}-ms" if ms else "busy"]
        median = median_ns(durations, rules)
        taxes[ms] = median / busy
        limit = median_limit(step.samples["busy"], len(durations), len(rules.idle_ms))
        if taxes[ms] > 1 + strays.stray(len(rules.idle_ms)) and median > limit:
            taxed.add(ms)
        rows.append(
            {
                "idle": f"{ms} ms" if ms else "none",
                "median_ns": median,
                "p95_ns": p95_ns(durations, rules),
                "tax_ratio": taxes[ms],
                "calls": len(durations),
            }
        )
    worst = max(taxed or rules.idle_ms, key=lambda ms: taxes[ms])
    ratio = Ratio(
        "idle_wake_tax",
        taxes[worst],
        f"median latency after {worst} ms of idle ÷ that of calls back to back",
    )
    said, advice = strays.told(*_words(taxes, taxed, worst, strays))
    return Finding("ok", None, _COLUMNS, tuple(rows), "tax_ratio", (ratio,), said, advice)


def _words(
    taxes: Mapping[int, float], taxed: Collection[int], worst: int, strays: Noise
) -> tuple[str, str]:
    """Return the finding and the advice, a sentence each."""
    if not taxed and taxes[worst] < 1 + strays.notable:
        return (
            f"A call after up to {max(taxes)} ms of idle takes no longer than one of many.",
            "Nothing needs to keep it awake.",
        )
    if not taxed:
        said = (
            f"A call after {worst} ms of idle takes {taxes[worst]:.2f} × one of many back to back, "
            f"no more than chance may give here."
        )
        return said, "Nothing needs to keep it awake, as far as this can tell."
    said = f"A call after {worst} ms of idle takes {taxes[worst]:.2f} × one of many back to back."
    awake = 0
    for ms in sorted(taxes):
        if ms in taxed:
            break
        awake = ms
    if not awake:
        return said, "Judge an application that pauses by its own pace, not by the busy rate."
    advice = "Where the first answer after a pause must be fast, make a call at least every "
    return said, f"{advice}{awake} ms, or one ahead of the one that counts."


PROBE = Probe("idle_wake", "Idle-wake tax", False, steps, finding)
