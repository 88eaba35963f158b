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
from npumark.diagnose.noise import MOVED, QUIET, Noise, noise
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
    alone = rate(single.samples["calls"])
    rows = [_row("1 stream", 1, alone, alone, single.samples["calls"], rules)]
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
            rows.append(_row(_streams(many, k), k, ips, alone, durations, rules))
            levels.setdefault(many, {1: alone})[k] = ips
    if not levels:
        return failed(next((r["why"] for r in rows if r["why"]), "no level was measured"))
    strays = noise(single, seen, rules)
    tried = sum(len(ips) - 1 for ips in levels.values())
    gains = {many: _gain(many, ips, alone, strays, tried) for many, ips in levels.items()}
    ratios = tuple(
        Ratio(f"{g.many}_gain", g.best, f"inferences/s of {_streams(g.many, g.k)} ÷ probe_ips")
        for g in gains.values()
    )
    limits = strays.loss(tried), strays.gain(tried)
    told = _impossible(target, gains, limits[1]) or _words(gains, strays, limits)
    said, advice = strays.told(*told)
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


def _row(
    streams: str, k: int, ips: float, alone: float, durations: Samples, rules: DiagnoseRules
) -> dict[str, Any]:
    return {
        "streams": streams,
        "ips": ips,
        "gain_ratio": ips / alone,
        "each_ips": ips / k,
        "median_ns": median_ns(durations, rules),
        "p95_ns": p95_ns(durations, rules),
        "why": None,
    }


@dataclass(frozen=True, slots=True)
class _Gain:
    """``levels`` maps numbers of streams to their total rates of the single stream's; ``k`` is
    the fewest that give as much as any, but for what figures stray by, and ``best`` what they
    give: 1 where no number gives more than one stream."""

    many: StepKind
    levels: Mapping[int, float]
    k: int
    best: float

    @property
    def top(self) -> int:
        return max(self.levels, key=lambda k: self.levels[k])

    @property
    def worst(self) -> int:
        return min(self.levels, key=lambda k: self.levels[k])


def _gain(
    many: StepKind, ips: Mapping[int, float], alone: float, strays: Noise, tried: int
) -> _Gain:
    """Return what streams of a kind bring, one of ``tried`` levels of all kinds."""
    levels = {k: total / alone for k, total in ips.items() if k > 1}
    k = strays.fewest(levels, tried)
    return _Gain(many, levels, k, levels.get(k, 1.0))


def _impossible(
    target: Target, gains: Mapping[StepKind, _Gain], limit: float
) -> tuple[str, str] | None:
    """Return what to say of a gain that a CPU cannot give: more than its streams, or than the
    CPUs that there are; null where there is none. ``limit`` is what figures may stray by."""
    if target.role != "CPU":
        return None
    for gain in gains.values():
        for k, ratio in gain.levels.items():
            if ratio <= min(k, target.cores) * limit:
                continue
            most = f"{k} streams" if k <= target.cores else _cpus(target.cores)
            said = (
                f"{_streams(gain.many, k)} would give {ratio:.2f} × the single stream, more than "
                f"{most} can: {MOVED}"
            )
            return said, f"Go by none of this: {QUIET}."
    return None


def _words(
    gains: Mapping[StepKind, _Gain], strays: Noise, limits: tuple[float, float]
) -> tuple[str, str]:
    """Return the finding and the advice, a sentence each. ``limits`` are the ratios below which
    a level is a loss, and above which it is a gain."""
    gain = next(iter(gains.values()))
    processes = gains.get("processes", gain)
    # Threads where they do as well: they share the memory of a process.
    if processes.best > gain.best * (1 + strays.share):
        gain = processes
    if gain.k == 1:
        return _no_gain(gains, strays, limits)
    said = f"{_streams(gain.many, gain.k)} give {gain.best:.2f} × the single stream"
    most = max(gain.levels)
    if gain.levels[most] < gain.best * (1 - strays.share):
        said += f"; {most} give {gain.levels[most]:.2f} ×"
    elif gain.k < most:
        said += "; more give nothing"
    advice = "Where throughput matters more than the latency of one call, serve requests with "
    return f"{said}.", f"{advice}{_streams(gain.many, gain.k)}."


def _no_gain(
    gains: Mapping[StepKind, _Gain], strays: Noise, limits: tuple[float, float]
) -> tuple[str, str]:
    least, most = limits
    advice = "Keep one session; requests at the same time wait for each other."
    worst = min(gains.values(), key=lambda g: g.levels[g.worst])
    if worst.levels[worst.worst] < least:
        ratio = worst.levels[worst.worst]
        streams = _streams(worst.many, worst.worst)
        return f"{streams} get together {ratio:.2f} × what one stream gets.", advice
    top = max(gains.values(), key=lambda g: g.levels[g.top])
    ratio = top.levels[top.top]
    if ratio <= 1 + strays.notable:
        return "Several streams at once get together what one gets alone.", advice
    said = (
        f"{_streams(top.many, top.top)} give {ratio:.2f} × the single stream, which chance may "
        f"give here: up to {most:.2f} ×."
    )
    return said, "Keep one session, unless a run on a quiet machine shows that more bring more."


def _name(many: StepKind, k: int) -> str:
    return f"{k}-{many}"


def _streams(many: StepKind, k: int) -> str:
    return "1 stream" if k == 1 else f"{k} {many}"


def _cpus(cores: int) -> str:
    return "1 CPU" if cores == 1 else f"{cores} CPUs"


PROBE = Probe("concurrency", "Concurrency", False, steps, finding)
