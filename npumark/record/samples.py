"""Raw samples beside the record: one file per attempt, little-endian int64 nanoseconds.

The record holds each file's sha256 and what was derived from it. This module derives it again
from the integers, apart from the worker's own code, so that a wrong or edited figure shows.
"""

from __future__ import annotations

import hashlib
import math
import sys
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import accumulate
from pathlib import Path

from npumark.errors import IntegrityError
from npumark.policy import Percentiles, load_policy
from npumark.record.box import BoxWindow
from npumark.record.box_samples import calls_of, window_differences, windows
from npumark.record.model import Entry, LatencyFields, MeasurementFields, Payload, Record

_WIDTH = 8
_RANKS = (("p90", 900), ("p95", 950), ("p99", 990), ("p999", 999))


def encode_samples(durations: list[int]) -> bytes:
    """Return the file of ``durations`` (nanoseconds, each at least 0)."""
    values = array("q", durations)
    if sys.byteorder == "big":
        values.byteswap()
    return values.tobytes()


def decode_samples(raw: bytes) -> list[int]:
    """Return the durations in a file. Raises IntegrityError where it cannot be such a file."""
    if not raw or len(raw) % _WIDTH:
        raise IntegrityError(f"a file of {len(raw)} bytes holds no whole number of raw samples")
    values = array("q")
    values.frombytes(raw)
    if sys.byteorder == "big":
        values.byteswap()
    if min(values) < 0:
        raise IntegrityError("a file of raw samples holds a negative duration")
    return values.tolist()


def latency(durations: list[int], support: Percentiles) -> LatencyFields:
    """Return median, nearest-rank percentiles and extremes; null where too few samples.

    The median of an even number of samples is the mean of the middle two, rounded down.
    """
    ordered = sorted(durations)
    n = len(ordered)
    tail = {
        name: ordered[-(-n * permille // 1000) - 1] if n >= getattr(support, name) else None
        for name, permille in _RANKS
    }
    return LatencyFields(
        median=(ordered[(n - 1) // 2] + ordered[n // 2]) // 2,
        min=ordered[0],
        max=ordered[-1],
        **tail,
    )


def burst_ips(durations: list[int], burst_s: float) -> float | None:
    """Return the rate of the calls that ended within the first ``burst_s`` of timed time.

    Null where none did, or where all calls together were shorter than that.
    """
    ends = list(accumulate(durations))
    span = math.floor(burst_s * 1e9)
    calls = bisect_right(ends, span)
    if not calls or ends[-1] < span or not ends[calls - 1]:
        return None
    return calls / (ends[calls - 1] / 1e9)


def drift(durations: list[int], window_s: float) -> float | None:
    """Return by what share the mean call of the slowest window is slower than the median call.

    From each call on, a window takes as few calls as fill ``window_s``; those that the end of
    the loop cuts short are none. Null where no window is whole.
    """
    span = math.ceil(window_s * 1e9)
    slowest, end, filled = 0.0, 0, 0
    for start, duration in enumerate(durations):
        while end < len(durations) and filled < span:
            filled += durations[end]
            end += 1
        if filled < span:
            break
        slowest = max(slowest, filled / (end - start))
        filled -= duration
    if not end or not slowest:
        return None
    ordered, n = sorted(durations), len(durations)
    median = (ordered[(n - 1) // 2] + ordered[n // 2]) / 2
    return slowest / median - 1.0 if median else None


def sustained_ips(durations: list[int]) -> float | None:
    """Return the rate of the calls that began when half the timed time or more had passed.

    Null where none did.
    """
    total = began = sum(durations)
    calls = 0
    for duration in reversed(durations):
        if 2 * (began - duration) < total:
            break
        began -= duration
        calls += 1
    return calls / ((total - began) / 1e9) if total > began else None


def check_samples(record: Record, folder: Path) -> list[str]:
    """Return a sentence for each attempt whose figures its raw samples do not give, and for each
    card of the box stage whose window they do not.

    Files are found by their sha256, whatever they are called. An attempt without a digest
    kept no samples and is not judged here.
    """
    found = _by_digest(folder)
    faults: list[str] = []
    for entry, n, measured in _measured(record):
        where = f"{entry.engine} · {entry.workload} · {entry.variant}, attempt {n}"
        told = partial(_differences, measured)
        faults += _held_to_raw(where, measured.samples_sha256, found, folder, told)
    for where, attempt, _, seen in windows(record.payload):
        told = partial(_of_window, seen, attempt.window_ns)
        faults += _held_to_raw(where, seen.samples_sha256, found, folder, told)
    return faults


def without_samples(payload: Payload) -> tuple[int, int]:
    """Return how many measurements kept no raw samples, and of how many; each card's window in
    the box stage is one."""
    entries = [a.measurement for e in payload.entries for a in e.attempts if a.measurement]
    digests = [m.samples_sha256 for m in entries]
    digests += [seen.samples_sha256 for *_, seen in windows(payload)]
    return digests.count(None), len(digests)


def _held_to_raw(
    where: str,
    digest: str | None,
    found: Mapping[str, Path],
    folder: Path,
    differences: Callable[[list[int]], Iterator[str]],
) -> list[str]:
    if digest is None:
        return []
    path = found.get(digest)
    if path is None:
        return [f"{where}: no file in {folder} is its raw samples (missing or changed)"]
    try:
        return [f"{where}: {text}" for text in differences(decode_samples(path.read_bytes()))]
    except (IntegrityError, OSError) as fault:
        return [f"{where}: {fault}"]


def _of_window(seen: BoxWindow, window_ns: int, times: list[int]) -> Iterator[str]:
    return window_differences(seen, window_ns, calls_of(times))


def _differences(measured: MeasurementFields, durations: list[int]) -> Iterator[str]:
    if measured.iterations != len(durations):
        yield f"iterations is {measured.iterations}, the samples are {len(durations)}"
    if measured.timed_ns != sum(durations):
        yield f"timed_ns is {measured.timed_ns}, the samples sum to {sum(durations)}"
    policy = load_policy()
    again = latency(durations, policy.percentiles)
    for name in type(again).model_fields:
        stated, derived = getattr(measured.latency_ns, name), getattr(again, name)
        if stated != derived:
            yield f"latency_ns.{name} is {stated}, the samples give {derived}"
    pace = {
        "burst_ips": burst_ips(durations, policy.timing.burst_s),
        "drift": drift(durations, policy.timing.drift_window_s),
        "sustained_ips": sustained_ips(durations),
    }
    for field, rate in pace.items():
        if getattr(measured, field) != rate:
            yield f"{field} is {getattr(measured, field)}, the samples give {rate}"


def _measured(record: Record) -> Iterator[tuple[Entry, int, MeasurementFields]]:
    for entry in record.payload.entries:
        for attempt in entry.attempts:
            if attempt.measurement is not None:
                yield entry, attempt.n, attempt.measurement


def _by_digest(folder: Path) -> dict[str, Path]:
    found = {}
    for path in sorted(folder.rglob("*")) if folder.is_dir() else ():
        if path.is_file():
            with path.open("rb") as file:
                found[hashlib.file_digest(file, "sha256").hexdigest()] = path
    return found
