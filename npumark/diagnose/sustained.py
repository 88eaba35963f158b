"""Sustained load: the pace of one session called without a pause for minutes, and what the
sensors said meanwhile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from npumark.diagnose.noise import QUIET, Noise, noise
from npumark.diagnose.probe import Finding, Probe, Ratio, Samples, Seen, Step, Target, rate
from npumark.diagnose.reading import failed
from npumark.diagnose.slowdowns import Slowdowns, slowdowns
from npumark.policy import DiagnoseRules

_STEP = "sustained"
_COLUMNS = (
    ("window", "from"),
    ("ips", "inf/s"),
    ("pace_share", "of the first"),
    ("cpu_mhz", "CPU MHz"),
    ("hottest_celsius", "hottest"),
    ("gpu_mhz", "GPU MHz"),
    ("gpu_celsius", "hottest GPU"),
)


def steps(target: Target, rules: DiagnoseRules) -> tuple[Step, ...]:
    """Return the one step: calls for ``sustained_s``, on one session."""
    del target
    seconds = rules.sustained_s
    return (Step(_STEP, "sustained", {"seconds": seconds}, seconds=seconds),)


def finding(
    target: Target, single: Seen, seen: Mapping[str, Seen], rules: DiagnoseRules
) -> Finding:
    """Return the pace of the last whole window against that of the first, and of the slowest."""
    step = seen[_STEP]
    if step.status != "ok":
        return failed(step.why or step.status)
    calls, width = step.samples["calls"], rules.pace_window_s
    pace = paces(calls, width)
    if len(pace) < 2:
        return failed(f"it ended within two windows of {width:g} s: there is no pace to compare")
    during = _during(step.sensors, calls, target)
    rows = tuple(
        {
            "window": f"{i * width:g} s",
            "ips": ips,
            "pace_share": ips / pace[0],
            **_sensed(during, i * width, (i + 1) * width),
        }
        for i, ips in enumerate(pace)
    )
    columns = tuple(c for c in _COLUMNS if any(row[c[0]] is not None for row in rows))
    slowest = min(range(len(pace)), key=lambda i: pace[i])
    window = f"{width:g} s"
    ratios = (
        Ratio("pace_kept", pace[-1] / pace[0], f"pace of the last {window} ÷ pace of the first"),
        Ratio("slowest", pace[slowest] / pace[0], f"pace of the slowest {window} ÷ of the first"),
        Ratio(
            "first_of_single",
            pace[0] / rate(single.samples["calls"]),
            f"pace of the first {window} ÷ probe_ips",
        ),
    )
    slowed = slowdowns(during, _own_cpus(step.facts), rules)
    course = _Course(
        kept=ratios[0].value,
        least=ratios[1].value,
        least_s=slowest * width,
        seconds=len(pace) * width,
        of_single=pace[-1] / rate(single.samples["calls"]),
        # Right after minutes of load, the repetition would show what the load did.
        strays=noise(single, {}, rules, repeated=False),
    )
    said, advice = course.strays.told(_said(course, slowed), _advice(target, course, slowed))
    return Finding("ok", None, columns, rows, "ips", ratios, said, advice)


def paces(calls: Samples, window_s: float) -> list[float]:
    """Return calls per second of each whole window since the first call began.

    ``calls`` are int64 [n, 2], begin and end of each call, or [n, 3], begin and end of each block
    of calls and their number; one after another. A call that a window's end cuts counts in both
    by the share of it that lies in each. Raises ValueError where there is none.
    """
    if calls.ndim != 2 or not len(calls):
        raise ValueError("no call was timed")
    number = calls[:, 2] if calls.shape[1] == 3 else np.ones(len(calls), dtype=np.int64)
    done = np.cumsum(number)
    instants = (calls[:, :2] - calls[0, 0]).reshape(-1)
    counted = np.column_stack((done - number, done)).reshape(-1)
    width = round(window_s * 1e9)
    edges = np.arange(0, int(instants[-1]) + 1, width)
    at_edges = np.interp(edges, instants, counted)
    return [float(n) / window_s for n in np.diff(at_edges)]


def _own_cpus(facts: Mapping[str, Any]) -> float | None:
    """Return how many CPUs the worker kept busy, null where it does not say."""
    spent, lasted = facts.get("loop_cpu_ns"), facts.get("loop_ns")
    return spent / lasted if spent is not None and lasted else None


def _during(
    sensors: Sequence[Mapping[str, Any]], calls: Samples, target: Target
) -> list[dict[str, Any]]:
    """Return the readings between the first call's begin and the last one's end, graphics cards
    left out that are known to have no part in the work."""
    begin, end = int(calls[0, 0]), int(calls[-1, 1])
    during = [{**r, "at_ns": r["at_ns"] - begin} for r in sensors if begin <= r["at_ns"] <= end]
    for reading in during:
        cards = reading.pop("gpus", ())
        if target.role not in ("iGPU", "dGPU"):
            continue
        if target.card is not None:
            cards = [card for card in cards if card["card"] == target.card]
        if cards:
            reading["gpus"] = cards
    return during


def _sensed(during: Sequence[Mapping[str, Any]], since_s: float, to_s: float) -> dict[str, Any]:
    """Return what the sensors told in a window: the mean clock of the fastest CPU domain, and of
    the card where there is one alone; the highest temperatures. Null is what none told."""
    inside = [r for r in during if since_s <= r["at_ns"] / 1e9 < to_s]
    cpu = [r["cpu_khz"]["max"] / 1000 for r in inside if r.get("cpu_khz")]
    hot = [r["hottest_celsius"] for r in inside if r.get("hottest_celsius") is not None]
    gpus = [r["gpus"] for r in inside if r.get("gpus")]
    mhz = [c["clock_mhz"] for c, *others in gpus if not others and c["clock_mhz"] is not None]
    gpu_hot = [c["celsius"] for cards in gpus for c in cards if c["celsius"] is not None]
    return {
        "cpu_mhz": _mean(cpu),
        "hottest_celsius": max(hot, default=None),
        "gpu_mhz": _mean(mhz),
        "gpu_celsius": max(gpu_hot, default=None),
    }


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


@dataclass(frozen=True, slots=True)
class _Course:
    """How the pace went over ``seconds``: the last window's and the slowest's of the first's,
    the slowest one's begin, and the last window's of the single attempt's rate."""

    kept: float
    least: float
    least_s: float
    seconds: float
    of_single: float
    strays: Noise

    @property
    def lost(self) -> bool:
        return self.kept < 1 - self.strays.notable

    @property
    def dipped(self) -> bool:
        return self.least < min(self.kept, 1) - self.strays.notable

    @property
    def grew(self) -> bool:
        return self.kept > 1 + self.strays.notable

    @property
    def below_single(self) -> bool:
        return self.of_single < self.strays.loss()

    @property
    def above_single(self) -> bool:
        return self.of_single > self.strays.gain()

    @property
    def differs_from_single(self) -> bool:
        """Say whether the single attempt's rate tells more than the first window's does."""
        same = (self.lost or self.grew) and abs(self.of_single - self.kept) < self.strays.notable
        return (self.below_single or self.above_single) and not same


def _said(course: _Course, slowed: Slowdowns) -> str:
    after = f"After {_time(course.seconds)}"
    if course.lost or course.grew:
        said = f"{after} it runs at {100 * course.kept:.0f} % of its first pace"
    else:
        said = f"{after} it still runs at its first pace ({100 * course.kept:.0f} %)"
    if course.differs_from_single:
        said += f" and at {100 * course.of_single:.0f} % of the single attempt's"
    if course.dipped:
        said += f", having been at {100 * course.least:.0f} % at {_time(course.least_s)}"
    return f"{said}; {slowed.said}."


def _advice(target: Target, course: _Course, slowed: Slowdowns) -> str:
    if course.lost or course.below_single:
        return f"Plan long work by the last pace, not by a short benchmark, and {slowed.advice}."
    if course.dipped and slowed.known:
        return f"The pace dipped and came back: {slowed.advice}, and run it again."
    if course.dipped:
        return "The pace dipped and came back: look for what else ran then, and run it again."
    if course.grew and slowed.known:
        return f"Something slowed its beginning: {slowed.advice}, and run it again."
    if course.grew:
        return "It was not yet at its pace when it began: warm it up before work that must be fast."
    if course.above_single:
        return f"The single attempt was slower than long work is, so it was disturbed: {QUIET}."
    if slowed.known:
        return f"Its pace held all the same; to be sure of it, {slowed.advice}."
    what = "processor" if target.role == "CPU" else target.role
    return f"What a short benchmark says of this {what} holds for long work too."


def _time(seconds: float) -> str:
    minutes, rest = divmod(seconds, 60)
    parts = [f"{minutes:.0f} min"] if minutes else []
    if rest or not minutes:
        parts.append(f"{rest:g} s")
    return " ".join(parts)


PROBE = Probe("sustained", "Sustained load", True, steps, finding)
