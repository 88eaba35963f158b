"""Concurrency: what several streams get out of one engine at once, as threads and as processes.

Every stream is a session of its own, as loaded by default, so that each asks for all the threads
that one alone would. A level's rate counts what all streams did while every one of them ran: from
the last first call's begin to the earliest last call's end, each call by the share of it that
lies inside, as a box's cards are counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from npumark.diagnose.latency import median_ns, p95_ns
from npumark.diagnose.probe import (
    Finding,
    Probe,
    Ratio,
    Samples,
    Seen,
    Step,
    StepKind,
    Target,
    rate,
)
from npumark.diagnose.reading import failed
from npumark.policy import DiagnoseRules

_KINDS: tuple[StepKind, ...] = ("threads", "processes")

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
    """Return a step for each number of streams, first as threads, then as processes; one stream
    is the single attempt itself."""
    del target
    return tuple(
        Step(_name(many, k), many, {many: k, "seconds": rules.level_s}, seconds=rules.level_s)
        for many in _KINDS
        for k in rules.streams
        if k > 1
    )


def finding(
    target: Target, single: Seen, seen: Mapping[str, Seen], rules: DiagnoseRules
) -> Finding:
    """Return the best total rate of several streams against that of one."""
    del target
    alone = rate(single.samples["calls"])
    rows = [_row("1 stream", 1, alone, alone, single.samples["calls"])]
    levels: dict[StepKind, dict[int, float]] = {}
    for many in _KINDS:
        for k in rules.streams:
            step = seen.get(_name(many, k))
            if step is None:
                continue
            try:
                ips, durations = _level(step)
            except ValueError as fault:
                rows.append({**dict.fromkeys(rows[0]), "streams": _streams(many, k)})
                rows[-1]["why"] = str(fault)
                continue
            rows.append(_row(_streams(many, k), k, ips, alone, durations))
            levels.setdefault(many, {1: alone})[k] = ips
    if not levels:
        return failed(next((r["why"] for r in rows if r["why"]), "no level was measured"))
    gains = {many: _gain(many, ips, alone, rules) for many, ips in levels.items()}
    ratios = tuple(
        Ratio(f"{g.many}_gain", g.best, f"inferences/s of {_streams(g.many, g.k)} ÷ probe_ips")
        for g in gains.values()
    )
    said, advice = _words(gains, rules)
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


def _level(step: Seen) -> tuple[float, Samples]:
    """Return the total rate of a level's streams and the durations of their calls.

    Raises ValueError with the reason where there is none.
    """
    if step.status != "ok":
        raise ValueError(step.why or step.status)
    streams = list(step.samples.values())
    return together_ips(streams), np.concatenate([calls[:, 1] - calls[:, 0] for calls in streams])


def _row(streams: str, k: int, ips: float, alone: float, durations: Samples) -> dict[str, Any]:
    return {
        "streams": streams,
        "ips": ips,
        "gain_ratio": ips / alone,
        "each_ips": ips / k,
        "median_ns": median_ns(durations),
        "p95_ns": p95_ns(durations),
        "why": None,
    }


@dataclass(frozen=True, slots=True)
class _Gain:
    """``k`` is the fewest streams that give as much as any, but for what two loops differ by,
    ``best`` what they give of the single stream; ``most`` streams are the most that were tried
    and give ``last``."""

    many: StepKind
    k: int
    best: float
    most: int
    last: float


def _gain(many: StepKind, ips: Mapping[int, float], alone: float, rules: DiagnoseRules) -> _Gain:
    top, most = max(ips.values()), max(ips)
    k = min(k for k in ips if ips[k] * (1 + rules.notable) >= top)
    return _Gain(many, k, ips[k] / alone, most, ips[most] / alone)


def _words(gains: Mapping[StepKind, _Gain], rules: DiagnoseRules) -> tuple[str, str]:
    """Return the finding and the advice, a sentence each."""
    gain = next(iter(gains.values()))
    processes = gains.get("processes", gain)
    # Threads where they do as well: they share the memory of a process.
    if processes.best > gain.best * (1 + rules.notable):
        gain = processes
    if gain.k == 1:
        advice = "Keep one session; requests at the same time wait for each other."
        worst = min(gains.values(), key=lambda g: g.last)
        if worst.last >= 1 - rules.notable:
            return "Several streams at once get together what one gets alone.", advice
        streams = _streams(worst.many, worst.most)
        return f"{streams} get together {worst.last:.2f} × what one stream gets.", advice
    said = f"{_streams(gain.many, gain.k)} give {gain.best:.2f} × the single stream"
    if gain.last < gain.best * (1 - rules.notable):
        said += f"; {gain.most} give {gain.last:.2f} ×"
    elif gain.k < gain.most:
        said += "; more give nothing"
    advice = "Where throughput matters more than the latency of one call, serve requests with "
    return f"{said}.", f"{advice}{_streams(gain.many, gain.k)}."


def _name(many: StepKind, k: int) -> str:
    return f"{k}-{many}"


def _streams(many: StepKind, k: int) -> str:
    return f"{k} {many}"


PROBE = Probe("concurrency", "Concurrency", False, steps, finding)
