"""What the box total does under real contention: virtual cards that compute, on two cores.

    python tool/box_cards.py [--quick] [--scene NAME …] [--json]

Each scene is one run of `npumark box` on two virtual cards, each of which does a fixed amount of
work per call on a core that it is bound to (engines.virtual_work):

    two-cores   each card on its own core: they scale, start together, and every figure follows
                from the raw samples by a count that shares no code with the product
    one-core    both on one core: half of what they reach alone, and never the sum of that
    slow        one card needs half as much work again: it is flagged, alone and in the box
    wrong       one card answers wrong in the window: the attempt is void and there is no total
    crash       one card dies in the window: the attempt is void, the next one counts

Attempts are closer together and shorter than the policy's; the window has the policy's length, or
with --quick a second. It needs two CPUs and little else on them. Everything lands in a folder of
its own, which is removed. Exit status: 0 every expectation held, 1 not, 3 there is one CPU only.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from npumark.orchestrator.request import RunRequest
from npumark.orchestrator.run import execute
from npumark.pack import store
from npumark.pack.manifest import load_manifest
from npumark.policy import Policy, load_policy
from npumark.record.box import BoxAttempt, BoxRole

SCALES = 0.9
ONE_CORE = (0.4, 0.6)
SKEW_MS = 5.0
AGREES = 1e-9
"""Relative: sums in another order differ by less."""

ROUNDS = 200
"""Of work per call: a few milliseconds on a core of today, thousands of calls in a window."""

ROWS, WIDTH, SAMPLES = 4, 8, 3
MACS = 10**9


@dataclass(frozen=True)
class Check:
    """One expectation, and what was seen."""

    what: str
    expected: str
    seen: str
    held: bool


@dataclass(frozen=True)
class Ran:
    """What a scene's run left: its one role, and the folder of its raw samples."""

    role: BoxRole
    samples: Path

    @property
    def counted(self) -> list[BoxAttempt]:
        return [a for a in self.role.attempts if a.counts]


@dataclass(frozen=True)
class Scene:
    """Two cards, as a script states them, and what is expected of them. A ``quick`` run has one
    solo attempt per card, so that a fault of the second load lies in the window."""

    name: str
    title: str
    cards: Callable[[Sequence[int]], list[dict[str, Any]]]
    judge: Callable[[Ran], list[Check]]
    quick: bool = False


def card(n: int, core: int, rounds: int = ROUNDS, *faults: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": f"virtual-dgpu-{n}",
        "variants": ["fp32"],
        "processor": {"key": f"0000:0{n}:00.0", "role": "dGPU", "name": "Virtual card"},
        "work": {"core": core, "rounds": rounds},
        "faults": list(faults),
    }


def scaling(ran: Ran, low: float, high: float) -> Check:
    role = ran.role
    expected = f"at least {low}" if high == float("inf") else f"{low} to {high}"
    if role.scaling is None or role.tops is None:
        return Check("scaling", expected, f"no total: {role.why}", held=False)
    seen = f"{role.scaling:.3f}: {role.tops:.4f} TOPS of {role.solo_tops:.4f}, the solo peaks' sum"
    return Check("scaling", expected, seen, held=low <= role.scaling <= high)


def start_skew(ran: Ran) -> Check:
    skews = [a.skew_ns / 1e6 for a in ran.counted if a.skew_ns is not None]
    seen = ", ".join(f"{ms:.3f} ms" for ms in skews) or "no attempt counts"
    held = bool(skews) and max(skews) < SKEW_MS
    return Check("start skew of each attempt", f"under {SKEW_MS:g} ms", seen, held=held)


def raw_pairs(samples: Path, attempt: BoxAttempt, name: str) -> list[tuple[int, int]]:
    """Return a card's calls, (begin, end) in nanoseconds after the window's start."""
    raw = (samples / f"box-{attempt.role}-{attempt.n}-{name}.i64").read_bytes()
    known = next(c.window for c in attempt.cards if c.card == name)
    if known is None or hashlib.sha256(raw).hexdigest() != known.samples_sha256:
        raise ValueError(f"the raw samples of {name} are not those of the record")
    flat = np.frombuffer(raw, "<i8").tolist()
    return list(zip(flat[::2], flat[1::2], strict=True))


def brute_force(pairs: Sequence[tuple[int, int]], window_ns: int) -> Fraction:
    """Return the calls in the window, counted one by one and without rounding."""
    total = Fraction(0)
    for begin, end in pairs:
        inside = min(end, window_ns) - max(begin, 0)
        if inside > 0:
            total += Fraction(inside, end - begin)
    return total


def arithmetic(ran: Ran) -> list[Check]:
    """Count every call of every attempt again, from the raw samples alone."""
    worst, calls, cut, totals = 0.0, 0, 0, []
    late = True
    for attempt in ran.counted:
        total = 0.0
        for run in attempt.cards:
            pairs = raw_pairs(ran.samples, attempt, run.card)
            counted = brute_force(pairs, attempt.window_ns)
            worst = max(worst, abs(float(counted) / (run.counted or 1.0) - 1))
            calls += len(pairs)
            cut += sum(b < 0 < e or b < attempt.window_ns < e for b, e in pairs)
            late &= run.window is not None and run.window.late_ns == pairs[0][0]
            total += float(counted) * 2 * MACS / (attempt.window_ns / 1e9) / 1e12
        totals.append(total)
    seen = f"{worst:.1e} over {calls} calls, {cut} of them cut by an end of the window"
    off = abs(median(totals) / ran.role.tops - 1) if totals and ran.role.tops else 1.0
    return [
        Check(
            "calls of a card against a count of the raw samples, relative",
            f"within {AGREES:g}",
            seen,
            held=bool(totals) and worst <= AGREES and late,
        ),
        Check(
            "the total against the same count, relative",
            f"within {AGREES:g}",
            f"{off:.1e}",
            held=off <= AGREES,
        ),
    ]


def flags(ran: Ran, slow: set[str]) -> list[Check]:
    found = []
    for what, field in (("flagged alone", "slow_alone"), ("flagged in the box", "slow_in_box")):
        seen = {c.card for c in ran.role.cards if getattr(c, field)}
        expected = ", ".join(sorted(slow)) or "none"
        found.append(Check(what, expected, ", ".join(sorted(seen)) or "none", held=seen == slow))
    return found


def voided(ran: Ran, n: int, who: str, what: str) -> Check:
    """Attempt ``n`` is void, and names the card and what it did, and no other card."""
    attempt = next((a for a in ran.role.attempts if a.n == n), None)
    why = attempt.void_because if attempt else []
    held = len(why) == 1 and why[0].startswith(f"{who} {what}")
    seen = "; ".join(why) or "not void"
    return Check(f"attempt {n} is void", f"{who} {what} …", seen, held=held)


def judge_two(ran: Ran) -> list[Check]:
    return [
        scaling(ran, SCALES, float("inf")),
        start_skew(ran),
        *arithmetic(ran),
        *flags(ran, set()),
    ]


def judge_one(ran: Ran) -> list[Check]:
    return [scaling(ran, *ONE_CORE), *arithmetic(ran)]


def judge_slow(ran: Ran) -> list[Check]:
    return [*flags(ran, {"dgpu-2"}), scaling(ran, SCALES, float("inf"))]


def judge_wrong(ran: Ran) -> list[Check]:
    role = ran.role
    seen = f"{len(role.attempts)} attempt, {role.why}" if role.tops is None else f"{role.tops} TOPS"
    nothing = role.tops is None and len(role.attempts) == 1
    return [
        voided(ran, 1, "dgpu-2", "answered wrong"),
        Check("the total", "none, and no further attempt", seen, held=nothing),
    ]


def judge_crash(ran: Ran) -> list[Check]:
    first = ran.role.attempts[0] if ran.role.attempts else None
    ends = {c.card: c.status for c in first.cards} if first else {}
    other = ends.get("dgpu-1", "no attempt")
    stopped = Check("the other card", "interrupted", other, held=other == "interrupted")
    then = [a.n for a in ran.counted]
    seen = f"{ran.role.tops:.4f} TOPS" if ran.role.tops is not None else str(ran.role.why)
    repeated = Check("the total", "of attempt 2, which counts", seen, held=then == [2])
    return [voided(ran, 1, "dgpu-2", "crashed"), stopped, repeated]


IN_WINDOW = {"attempts": [2]}
"""A quick run loads a card once for its solo peak, and then for each attempt of the box."""

SCENES = (
    Scene(
        "two-cores",
        "Two cards on two cores",
        lambda cores: [card(1, cores[0]), card(2, cores[1])],
        judge_two,
    ),
    Scene(
        "one-core",
        "Two cards on one core",
        lambda cores: [card(1, cores[0]), card(2, cores[0])],
        judge_one,
    ),
    Scene(
        "slow",
        "Two cards on two cores, the second one slow",
        lambda cores: [card(1, cores[0]), card(2, cores[1], ROUNDS * 3 // 2)],
        judge_slow,
    ),
    Scene(
        "wrong",
        "The second card answers wrong in the window",
        lambda cores: [
            card(1, cores[0]),
            card(2, cores[1], ROUNDS, {"do": "noise", "snr_db": 3.0, **IN_WINDOW}),
        ],
        judge_wrong,
        quick=True,
    ),
    Scene(
        "crash",
        "The second card dies in the window",
        lambda cores: [
            card(1, cores[0]),
            card(2, cores[1], ROUNDS, {"do": "abort", "after_s": 2.0, **IN_WINDOW}),
        ],
        judge_crash,
        quick=True,
    ),
)


def short_policy(*, quick: bool) -> Policy:
    """Return the shipped policy without waits and with short loops; ``quick``: a short window."""
    shipped = load_policy()
    window_s = 1.0 if quick else shipped.box.window_s
    return replace(
        shipped,
        timing=replace(shipped.timing, loop_s=0.5, quick_loop_s=0.5, warmup_max_s=0.5),
        repetition=replace(shipped.repetition, spacing_s=0.0),
        preconditions=replace(
            shipped.preconditions, idle_window_s=0.0, quick_idle_window_s=0.0, max_busy=1.0
        ),
        box=replace(shipped.box, window_s=window_s),
        sha256=hashlib.sha256(
            f"tool/box_cards.py {shipped.sha256} {window_s}".encode()
        ).hexdigest(),
    )


def make_pack(folder: Path) -> Path:
    """Write a peak chain of a few bytes into the store; return its manifest's path."""
    draw = np.random.default_rng(0)
    x = draw.standard_normal((SAMPLES, ROWS, WIDTH)).astype("<f2")
    files = {"x.bin": x.tobytes(), "y.bin": np.maximum(x, 0).tobytes(), "graph.onnx": b"a graph"}
    spec = {"dtype": "float32", "shape": [ROWS, WIDTH]}
    stored = {"dtype": "float16", "shape": [SAMPLES, ROWS, WIDTH]}
    variant = {
        "id": "fp32",
        "format": "FP32",
        "encoding": "fp32",
        "graph": "graph.onnx",
        "files": ["graph.onnx"],
        "inputs": [{"name": "x", **spec}],
        "outputs": [{"name": "y", **spec}],
        "validated": True,
        "division": "standard",
    }
    workload = {
        "id": f"peak-{ROWS}x{WIDTH}x1",
        "kind": "peak",
        "tier": "peak",
        "task": "chain",
        "title": "A chain for virtual cards",
        "macs": MACS,
        "params": WIDTH * WIDTH,
        "eval": {
            "n": SAMPLES,
            "canonical": 0,
            "inputs": [{"name": "x", "file": "x.bin", **stored}],
            "references": [{"name": "y", "file": "y.bin", **stored}],
        },
        "gates": {"standard": {"basis": "test", "bounds": {"snr_db": 20.0}}},
        "variants": [variant],
    }
    listed = [
        {
            "path": p,
            "size": len(raw),
            "sha256": hashlib.sha256(raw).hexdigest(),
            "origin": "shipped",
        }
        for p, raw in files.items()
    ]
    suite = {"name": "virtual", "version": "1", "edition": "seeded", "basis": "none"}
    path = folder / "manifest.json"
    path.write_text(json.dumps({"suite": suite, "files": listed, "workloads": [workload]}))
    root = store.pack_root(load_manifest(path))
    root.mkdir(parents=True)
    for name, raw in files.items():
        (root / name).write_bytes(raw)
    return path


def play(scene: Scene, manifest: Path, cores: Sequence[int], policy: Policy) -> Ran:
    script = manifest.with_name(f"{scene.name}.json")
    script.write_text(json.dumps({"engines": scene.cards(cores), "clock": "real"}))
    request = RunRequest(
        quick=scene.quick,
        box="only",
        manifest=manifest,
        virtual=script,
        skip_preconditions=True,
        argv=("box",),
    )
    outcome = execute(request, policy=policy)
    box = outcome.record.payload.box
    if box is None:
        raise ValueError(f"{scene.name}: no box stage: {outcome.record.payload.box_why}")
    return Ran(box.roles[0], outcome.path.parent / "samples")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a window of one second")
    parser.add_argument("--scene", action="append", choices=[s.name for s in SCENES])
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    given = parser.parse_args(argv)
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if len(cores) < 2:
        print("this needs two CPUs, and Linux to bind cards to them; nothing was tried")
        return 3
    policy = short_policy(quick=given.quick)
    load = os.getloadavg()[0]
    if not given.json:
        window = f"windows of {policy.box.window_s:g} s"
        print(f"{len(cores)} CPUs, load {load:.1f} when it began, {window}")
    told: dict[str, list[Check]] = {}
    with tempfile.TemporaryDirectory(prefix="npumark-box-cards.") as folder:
        os.environ["NPUMARK_HOME"] = folder
        manifest = make_pack(Path(folder))
        for scene in SCENES:
            if given.scene and scene.name not in given.scene:
                continue
            told[scene.name] = scene.judge(play(scene, manifest, cores, policy))
            if not given.json:
                show(scene, told[scene.name])
    failed = sum(not check.held for checks in told.values() for check in checks)
    if given.json:
        rows = {name: [asdict(check) for check in checks] for name, checks in told.items()}
        facts = {"cpus": len(cores), "load": load, "window_s": policy.box.window_s}
        print(json.dumps({**facts, "scenes": rows, "ok": not failed}, indent=1))
    else:
        print(f"{failed} expectations did not hold" if failed else "every expectation held")
    return 1 if failed else 0


def show(scene: Scene, checks: Sequence[Check]) -> None:
    print(scene.title)
    for check in checks:
        print(f"  {'held  ' if check.held else 'FAILED'}  {check.what}")
        print(f"          expected {check.expected}")
        print(f"          seen     {check.seen}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
