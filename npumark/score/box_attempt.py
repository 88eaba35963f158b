"""Judging one attempt of the box stage: what each card counts with, and whether it counts.

Sums are correctly rounded (``math.fsum``): the built-in ``sum`` of floats has changed its last
bit between Python versions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from npumark.gates.judge import judge
from npumark.pack.manifest import Manifest
from npumark.policy import Policy
from npumark.record.box import BoxAttempt, BoxCardRun
from npumark.record.model import Gate
from npumark.score.attempt import inferences_per_second, tera_operations

MS = 1_000_000


def counted_calls(inside: int, straddling: Sequence[tuple[int, int]], window_ns: int) -> float:
    """Return the calls that a window of ``window_ns`` counts: those inside whole, those that an
    end of it cuts by the share of their own duration that lies inside (docs/adr/0014).

    ``straddling`` are (begin, end) in nanoseconds after the window's start.
    """
    return math.fsum([float(inside), *(_share(b, e, window_ns) for b, e in straddling)])


def _share(begin: int, end: int, window_ns: int) -> float:
    if end <= begin:
        return 1.0 if 0 <= begin < window_ns else 0.0
    return max(0, min(end, window_ns) - max(begin, 0)) / (end - begin)


def judged(attempt: BoxAttempt, manifest: Manifest, policy: Policy) -> BoxAttempt:
    """Return ``attempt`` with every derived field filled in from its raw ones.

    Raises KeyError for a workload that the manifest does not hold.
    """
    cards = [_judged_card(run, attempt.window_ns, manifest) for run in attempt.cards]
    faults = [why for run in cards for why in _faults(run, attempt.window_ns, manifest, policy)]
    counts = attempt.status == "ran" and not faults and all(run.passed for run in cards)
    if not counts and not faults:
        faults.append(attempt.why or "it was interrupted")
    late = [run.window.late_ns if run.window else None for run in cards]
    started = [ns for ns in late if ns is not None]
    tops = [run.tops for run in cards if run.tops is not None]
    return attempt.model_copy(
        update={
            "cards": cards,
            "counts": counts,
            "void_because": faults,
            "skew_ns": max(started) - min(started) if started and None not in late else None,
            "tops": math.fsum(tops) if counts else None,
        }
    )


def _judged_card(run: BoxCardRun, window_ns: int, manifest: Manifest) -> BoxCardRun:
    if run.status != "ok" or run.window is None:
        return run.model_copy(update={"passed": None, "counted": None, "tops": None})
    counted = counted_calls(run.window.inside, run.window.straddling, window_ns)
    ips = inferences_per_second(counted, window_ns) if window_ns else 0.0
    verdict = _verdict(run, manifest)
    return run.model_copy(
        update={
            "passed": verdict is not None and verdict.passed,
            "counted": counted,
            "tops": tera_operations(manifest.workloads[run.workload].flops, ips),
        }
    )


def _verdict(run: BoxCardRun, manifest: Manifest) -> Gate | None:
    """Return the verdict of the peak's own standard gate on the one call that was checked."""
    spec = manifest.workloads[run.workload].gates.get("standard")
    if spec is None or run.window is None:
        return None
    return judge({"snr_db": run.window.check.snr_db}, spec)


def _faults(run: BoxCardRun, window_ns: int, manifest: Manifest, policy: Policy) -> Iterator[str]:
    """Yield what a card did that voids the attempt; one that was stopped did nothing."""
    if run.status == "interrupted":
        return
    if run.status != "ok":
        yield f"{run.card} {_ENDED.get(run.status, run.status)}" + (
            f": {run.why}" if run.why else ""
        )
        return
    if run.window is None:
        yield f"{run.card} gave no result" + (f": {run.why}" if run.why else "")
        return
    if not run.passed:
        verdict = _verdict(run, manifest)
        said = verdict.why if verdict else "its workload has no standard gate"
        yield f"{run.card} answered wrong: {run.window.check.why or said}"
    allowed = policy.box.late_share * window_ns
    if run.window.late_ns > allowed:
        late = f"{run.window.late_ns / MS:.1f} ms late; {allowed / MS:.1f} ms are allowed"
        yield f"{run.card} started {late}"
    if not run.counted:
        yield f"{run.card} made no call inside the window"


_ENDED = {
    "crashed": "crashed",
    "timeout": "hung",
    "no_result": "gave no result",
    "pack_error": "met a damaged pack file",
    "unsupported": "cannot run its configuration",
}
