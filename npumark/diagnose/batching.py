"""Batching: what the same network gives with several inputs per call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from npumark.diagnose.latency import median_ns, p95_ns
from npumark.diagnose.noise import MOVED, QUIET, Noise, noise
from npumark.diagnose.probe import Finding, Probe, Ratio, Seen, Step, Target, rate
from npumark.diagnose.reading import failed, not_applicable
from npumark.policy import DiagnoseRules

_COLUMNS = (
    ("batch", "inputs per call"),
    ("ips", "inf/s"),
    ("gain_ratio", "of one per call"),
    ("median_ns", "median latency"),
    ("p95_ns", "p95 latency"),
    ("why", "not measured because"),
)


def steps(target: Target, rules: DiagnoseRules) -> tuple[Step, ...]:
    """Return a step for each batch but that of one, which the single attempt is."""
    del target
    return tuple(
        Step(_name(n), "batch", {"batch": n, "seconds": rules.level_s}, seconds=rules.level_s)
        for n in rules.batches
        if n != 1
    )


def finding(
    target: Target, single: Seen, seen: Mapping[str, Seen], rules: DiagnoseRules
) -> Finding:
    """Return the best batch's inferences/s against one input per call.

    A call of a batch counts as so many inferences as it has inputs. Where no batch is allowed
    the probe does not apply; where some are, their rows say why not.
    """
    del target
    alone = rate(single.samples["calls"])
    rows = [_row(1, single, alone, rules)]
    tried = [(n, seen[_name(n)]) for n in rules.batches if n != 1 and _name(n) in seen]
    rows += [_row(n, step, alone, rules) for n, step in tried]
    levels = {row["batch"]: row["gain_ratio"] for row in rows if row["gain_ratio"] is not None}
    if len(levels) == 1:
        why = next((row["why"] for row in rows if row["why"]), "no batch was measured")
        refused = bool(tried) and all(step.status == "unsupported" for _, step in tried)
        return not_applicable(why) if refused else failed(why)
    strays = noise(single, seen, rules)
    figures = len(levels) - 1
    best = strays.fewest(levels, figures)
    ratio = Ratio(
        "batching_gain",
        levels[best],
        f"inferences/s with {best} inputs per call ÷ those with one",
    )
    limits = strays.loss(figures), strays.gain(figures)
    told = _impossible(levels, limits[1]) or _words(levels, best, rows, strays, limits)
    said, advice = strays.told(*told)
    shown = tuple(c for c in _COLUMNS if c[0] != "why" or any(row["why"] for row in rows))
    return Finding("ok", None, shown, tuple(rows), "ips", (ratio,), said, advice)


def _row(n: int, step: Seen, alone: float, rules: DiagnoseRules) -> dict[str, Any]:
    row: dict[str, Any] = {key: None for key, _ in _COLUMNS}
    row["batch"] = n
    if step.status != "ok":
        why = step.why or step.status
        row["why"] = f"not allowed: {why}" if step.status == "unsupported" else why
        return row
    durations = step.samples["calls"]
    ips = n * rate(durations)
    row["ips"] = ips
    row["gain_ratio"] = ips / alone
    row["median_ns"] = median_ns(durations, rules)
    row["p95_ns"] = p95_ns(durations, rules)
    return row


def _impossible(levels: Mapping[int, float], limit: float) -> tuple[str, str] | None:
    """Return what to say of a batch whose call is faster than one input's; null for none."""
    for n, gain in levels.items():
        if gain > n * limit:
            said = (
                f"{n} inputs per call would give {gain:.2f} × the inferences/s of one, so that a "
                f"call is faster than one with one input: {MOVED}"
            )
            return said, f"Go by none of this: {QUIET}."
    return None


def _words(
    levels: Mapping[int, float],
    best: int,
    rows: list[dict[str, Any]],
    strays: Noise,
    limits: tuple[float, float],
) -> tuple[str, str]:
    """Return the finding and the advice, a sentence each. ``limits`` are the ratios below which
    a batch is a loss, and above which it is a gain."""
    if best == 1:
        return _no_gain(levels, strays, limits)
    latency = {row["batch"]: row["median_ns"] for row in rows}
    longer = latency[best] / latency[1]
    said = (
        f"{best} inputs per call give {levels[best]:.2f} × the inferences/s of one, and a call "
        f"takes {longer:.1f} × as long."
    )
    advice = (
        f"Where inputs come together, collect {best} per call, if each can wait for the answer "
        f"to all."
    )
    return said, advice


def _no_gain(
    levels: Mapping[int, float], strays: Noise, limits: tuple[float, float]
) -> tuple[str, str]:
    least, most = limits
    advice = "Send inputs one by one: a batch only makes each of them wait for the others."
    worst, top = (pick(levels, key=lambda n: levels[n]) for pick in (min, max))
    if levels[worst] < least:
        return (
            f"Batches give less than one input per call: {worst} give {levels[worst]:.2f} ×.",
            advice,
        )
    if levels[top] <= 1 + strays.notable:
        return "Several inputs per call give what one per call gives.", advice
    said = (
        f"{top} inputs per call give {levels[top]:.2f} × the inferences/s of one, which chance may "
        f"give here: up to {most:.2f} ×."
    )
    return said, "Send inputs one by one, unless a run on a quiet machine shows that a batch helps."


def _name(n: int) -> str:
    return f"batch-{n}"


PROBE = Probe("batching", "Batching", False, steps, finding)
