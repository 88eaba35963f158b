"""Concurrency: what several streams get out of one engine at once, as threads and as processes.

Every stream is a session of its own, as loaded by default, so that each asks for all the threads
that one alone would. A level's rate counts what all streams did while every one of them ran: from
the last first call's begin to the earliest last call's end, each call by the share of it that
lies inside, as a box's cards are counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from npumark.diagnose.latency import median_ns, p95_ns
from npumark.diagnose.probe import Finding, Probe, Ratio, Samples, Seen, Step, Target, rate
from npumark.diagnose.reading import failed
from npumark.policy import DiagnoseRules

_KINDS = (("threads", "thread"), ("processes", "process"))

_COLUMNS = (
    ("streams", "streams"),
    ("ips", "inf/s in all"),
    ("gain_ratio", "of one alone"),
    ("each_ips", "inf/s each"),
    ("median_ns", "median latency"),
    ("p95_ns", "p95 latency"),
    ("why", "not measured because"),
)


def steps(target: Target, rules: DiagnoseRules) -> tuple[Step, ...]:
    """Return a step for each number of streams, first as threads, then as processes."""
    del target
    return tuple(
        Step(
            _name(many, k),
            many,  # type: ignore[arg-type]
            {many: k, "seconds": rules.level_s},
            seconds=rules.level_s,
        )
        for many, _ in _KINDS
        for k in rules.streams
    )


def finding(
    target: Target, single: Seen, seen: Mapping[str, Seen], rules: DiagnoseRules
) -> Finding:
    """Return the best total rate of several streams against that of one."""
    del target
    alone = rate(single.samples["calls"])
    rows: list[dict[str, Any]] = []
    best: dict[str, tuple[float, int]] = {}
    last: dict[str, float] = {}
    for many, _ in _KINDS:
        levels: list[tuple[int, float]] = []
        for k in rules.streams:
            step = seen.get(_name(many, k))
            if step is None:
                continue
            row, ips = _row(step, many, k, alone)
            rows.append(row)
            if ips is not None:
                levels.append((k, ips))
        if levels:
            top = max(ips for _, ips in levels)
            # The fewest streams that give as much as any, but for what two loops differ by.
            enough = min(k for k, ips in levels if ips * (1 + rules.notable) >= top)
            best[many] = (dict(levels)[enough] / alone, enough)
            last[many] = levels[-1][1] / alone
    if not best:
        return failed(next((r["why"] for r in rows if r["why"]), "no level was measured"))
    ratios = tuple(
        Ratio(
            f"{many}_gain",
            best[many][0],
            f"inferences/s of {_streams(many, best[many][1])} ÷ those of the single stream",
        )
        for many in best
    )
    said, advice = _words(best, last, rules)
    shown = tuple(c for c in _COLUMNS if c[0] != "why" or any(row["why"] for row in rows))
    return Finding("ok", None, shown, tuple(rows), "ips", ratios, said, advice)


def together_ips(streams: list[Samples]) -> float:
    """Return the rate of all ``streams`` ([n, 2] each, on one clock) while every one ran.

    Raises ValueError where there was no such time.
    """
    if not streams or not all(len(calls) for calls in streams):
        raise ValueError("a stream made no call")
    begin = max(int(calls[:, 0].min()) for calls in streams)
    end = min(int(calls[:, 1].max()) for calls in streams)
    if end <= begin:
        raise ValueError("the streams never ran at once")
    counted = sum(_counted(calls, begin, end) for calls in streams)
    return counted / ((end - begin) / 1e9)


def _counted(calls: Samples, begin: int, end: int) -> float:
    """Return how many calls fit between two instants, each by its share inside."""
    inside = np.minimum(calls[:, 1], end) - np.maximum(calls[:, 0], begin)
    length = calls[:, 1] - calls[:, 0]
    # A call that the clock saw no time pass in is inside or not.
    whole = (length <= 0) & (inside == 0)
    share = np.clip(inside, 0, None) / np.maximum(length, 1)
    return float(share.sum() + whole.sum())


def _row(step: Seen, many: str, k: int, alone: float) -> tuple[dict[str, Any], float | None]:
    row: dict[str, Any] = {key: None for key, _ in _COLUMNS}
    row["streams"] = _streams(many, k)
    if step.status != "ok":
        row["why"] = step.why or step.status
        return row, None
    streams = list(step.samples.values())
    try:
        ips = together_ips(streams)
    except ValueError as fault:
        row["why"] = str(fault)
        return row, None
    durations = np.concatenate([calls[:, 1] - calls[:, 0] for calls in streams])
    row["ips"] = ips
    row["gain_ratio"] = ips / alone
    row["each_ips"] = ips / k
    row["median_ns"] = median_ns(durations)
    row["p95_ns"] = p95_ns(durations)
    return row, ips


def _words(
    best: Mapping[str, tuple[float, int]], last: Mapping[str, float], rules: DiagnoseRules
) -> tuple[str, str]:
    """Return the finding and the advice, a sentence each."""
    # Threads where they do as well: they share the model's memory.
    many = "threads" if "threads" in best else "processes"
    if "processes" in best and best["processes"][0] > best[many][0] * (1 + rules.notable):
        many = "processes"
    gain, k = best[many]
    if k == 1 or gain < 1 + rules.notable:
        advice = "Keep one session; requests at the same time wait for each other."
        worst = min(last.values())
        if worst >= 1 - rules.notable:
            return "Several streams at once get together what one gets alone.", advice
        return (
            f"Several streams at once get less than one: with the most tried {worst:.2f} ×.",
            advice,
        )
    more = "" if k == max(rules.streams) else "; more give nothing"
    if last[many] < gain * (1 - rules.notable):
        more = f"; the most tried give {last[many]:.2f} ×"
    said = f"{_streams(many, k)} give {gain:.2f} × the single stream{more}."
    advice = "Where throughput matters more than the latency of one call, serve requests with "
    return said, f"{advice}{_streams(many, k)}."


def _name(many: str, k: int) -> str:
    return f"{k}-{many}"


def _streams(many: str, k: int) -> str:
    return f"{k} {dict(_KINDS)[many] if k == 1 else many}"


PROBE = Probe("concurrency", "Concurrency", False, steps, finding)
