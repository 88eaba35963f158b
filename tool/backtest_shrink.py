"""Replay attempts under other repetition rules: what would they have changed, what saved?

    python tool/backtest_shrink.py RECORD... --network-screen 0.8 --agreement 0.015
    python tool/backtest_shrink.py --simulate 200 --seed 1 --agreement 0.05 --json

Attempts come from npumark records, or from simulated machines: rates that jitter, episodes of
interference that last seconds, and on some machines a thermal decline. The rule under test is
the shipped policy's with the thresholds given; it is held against ``--against full`` (every
entry runs to its maximum, nothing is screened; the default) or ``--against policy``.

A record holds only the attempts that its own rules ran. Where a rule wants more, the tape is
too short: the entry and the figures it may enter are left out and counted as ``short``.
The simulation is harsher than a quiet machine: entries of near-equal pace, so that picks are
close calls, and about a tenth of the time spent in episodes. Exits 0 whatever it finds: what is
acceptable is a judgement, and the numbers are printed.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from npumark.pack.manifest import load_manifest
from npumark.policy import Policy, load_policy
from npumark.record.model import Record
from npumark.score import repetition, stats
from npumark.score.attempt import JudgedAttempt
from npumark.score.demand import Contest, Demand, Key, contest, demand, tried
from npumark.score.entry import judge_run
from npumark.score.planned import Planned
from npumark.score.recompute import facts_of

THRESHOLDS = ("network_screen", "peak_screen", "agreement", "unstable_robust_cv")


@dataclass(frozen=True, slots=True)
class Tape:
    """One machine's plan with every attempt there is of each entry, judged."""

    name: str
    plan: tuple[Planned, ...]
    attempts: Mapping[Key, Sequence[JudgedAttempt]]


@dataclass(frozen=True, slots=True)
class Figure:
    """What a contest comes to: which entry is picked, its TOPS, whether it is unstable."""

    pick: Key
    tops: float
    unstable: bool


@dataclass(frozen=True, slots=True)
class Replay:
    """A tape under one rule. ``short`` are the contests with an entry that wanted more
    attempts than the tape holds."""

    attempts: int
    figures: Mapping[Contest, Figure]
    short: frozenset[Contest]


def read_tape(path: Path, manifest_path: Path | None, policy: Policy) -> Tape:
    """Return a record's tape. Raises ValueError where the file is no record of this pack."""
    try:
        payload = Record.model_validate_json(path.read_bytes()).payload
    except (OSError, ValidationError) as fault:
        raise ValueError(f"{path}: not a record: {str(fault).splitlines()[0]}") from fault
    manifest = load_manifest(manifest_path)
    if payload.suite.manifest_sha256 != manifest.sha256:
        raise ValueError(f"{path}: made with another pack; name its manifest with --manifest")
    facts = facts_of(payload, manifest)
    quick = payload.plan.quick
    run = judge_run(facts.plan, facts.attempts, facts.roles(), manifest, policy, quick=quick)
    return Tape(str(path), facts.plan, run.history)


def simulate(seed: int, index: int, policy: Policy) -> Tape:
    """Return a machine that does not exist: two engines, two shapes, four networks.

    All attempts are drawn at the instants of a run without any saving, so that every rule is
    held against the same attempts.
    """
    draw = random.Random(f"{seed}/{index}")
    plan = tuple(_plan(draw))
    pace = {p.key: draw.uniform(0.5, 1.0) for p in plan}
    declines = draw.random() < 1 / 3
    fall = draw.uniform(0.03, 0.15) if declines else 0.0
    settling_s = draw.uniform(60, 300)
    jitter = draw.uniform(0.001, 0.008)
    episodes = list(_episodes(draw, 9 * len(plan) * 5.0))
    attempts: dict[Key, list[JudgedAttempt]] = {p.key: [] for p in plan}
    clock = 0.0
    for n in range(1, policy.repetition.peak_max_attempts + 1):
        for planned in plan:
            if n > repetition.bounds(planned.kind, policy.repetition)[1]:
                continue
            slow = max((s for start, end, s in episodes if start <= clock < end), default=0.0)
            heat = 1 - fall * (1 - math.exp(-clock / settling_s))
            noise = max(0.5, draw.gauss(1.0, jitter))
            rate = 100 * pace[planned.key] * heat * noise * (1 - slow)
            attempts[planned.key].append(_attempt(n, round(clock * 1e9), rate))
            clock += 5.0
    return Tape(f"simulated {seed}/{index}", plan, attempts)


def replay(tape: Tape, policy: Policy) -> Replay:
    """Run a tape under a policy: first pass, screening, later passes until nothing is wanted."""
    history: dict[Key, list[JudgedAttempt]] = {p.key: [] for p in tape.plan}
    while True:
        state = demand(tape.plan, history, policy, quick=False)
        wanting = [p for p in tape.plan if state.wants[p.key]]
        if not state.first_pass:
            wanting = [p for p in wanting if not tried(history[p.key])]
        played = False
        for planned in wanting:
            ran, tape_of = history[planned.key], tape.attempts.get(planned.key, ())
            if len(ran) < len(tape_of):
                ran.append(tape_of[len(ran)])
                played = True
        if not played:
            break
    short = {contest(p) for p in tape.plan if state.wants[p.key]}
    return Replay(
        attempts=sum(len(a) for a in history.values()),
        figures=_figures(tape.plan, history, state, policy),
        short=frozenset(short),
    )


def compare(tapes: Sequence[Tape], rule: Policy, against: Policy) -> dict[str, Any]:
    """Return what ``rule`` changes against another over all tapes, as a plain document."""
    picks: list[dict[str, Any]] = []
    flags: list[dict[str, Any]] = []
    moved: list[dict[str, Any]] = []
    before = after = short = compared = 0
    for tape in tapes:
        old, new = replay(tape, against), replay(tape, rule)
        before += old.attempts
        after += new.attempts
        left_out = old.short | new.short
        short += len(left_out)
        for group in sorted(old.figures.keys() | new.figures.keys()):
            if group in left_out:
                continue
            compared += 1
            was, now = old.figures.get(group), new.figures.get(group)
            where = {"tape": tape.name, "contest": list(group)}
            if was is None or now is None or was.pick != now.pick:
                picks.append(
                    {**where, "was": was and list(was.pick), "now": now and list(now.pick)}
                )
            if was is None or now is None:
                continue
            moved.append({**where, "by": now.tops / was.tops - 1})
            if was.unstable != now.unstable:
                flags.append({**where, "was": was.unstable, "now": now.unstable})
    largest = max(moved, key=lambda m: abs(float(m["by"])), default=None)
    return {
        "tapes": len(tapes),
        "rule": _thresholds(rule),
        "against": _thresholds(against),
        "figures": compared,
        "short": short,
        "picks_changed": picks,
        "unstable_changed": flags,
        "largest_move": largest,
        "attempts": {
            "against": before,
            "rule": after,
            "saved": 1 - after / before if before else None,
        },
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit code."""
    args = _parser().parse_args(argv)
    shipped = load_policy()
    given = {k: getattr(args, k) for k in THRESHOLDS if getattr(args, k) is not None}
    rule = _with(shipped, **given)
    # No spread is below 0: nothing agrees, so everything runs to its maximum.
    full = _with(shipped, agreement=-1.0, network_screen=0.0, peak_screen=0.0)
    try:
        tapes = [read_tape(path, args.manifest, shipped) for path in args.records]
    except ValueError as fault:
        print(f"error: {fault}", file=sys.stderr)
        return 2
    tapes += [simulate(args.seed, i, shipped) for i in range(args.simulate)]
    if not tapes:
        print("error: nothing to replay: name records, or --simulate N", file=sys.stderr)
        return 2
    found = compare(tapes, rule, full if args.against == "full" else shipped)
    print(json.dumps(found, indent=2, allow_nan=False) if args.json else _text(found))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("records", nargs="*", type=Path, metavar="RECORD")
    parser.add_argument("--simulate", type=int, default=0, metavar="N", help="machines to invent")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--against", choices=("full", "policy"), default="full")
    parser.add_argument("--manifest", type=Path, help="the pack of the records (the shipped one)")
    for name in THRESHOLDS:
        parser.add_argument(f"--{name.replace('_', '-')}", type=float, metavar="X", dest=name)
    parser.add_argument("--json", action="store_true")
    return parser


def _with(policy: Policy, **changes: float) -> Policy:
    rules = dataclasses.replace(policy.repetition, **changes)  # type: ignore[arg-type]
    return dataclasses.replace(policy, repetition=rules)


def _thresholds(policy: Policy) -> dict[str, float]:
    return {name: getattr(policy.repetition, name) for name in THRESHOLDS}


def _figures(
    plan: Sequence[Planned],
    history: Mapping[Key, Sequence[JudgedAttempt]],
    state: Demand,
    policy: Policy,
) -> dict[Contest, Figure]:
    """Return each contest's figure: its best finished entry, the earlier one on a tie."""
    best: dict[Contest, Figure] = {}
    for planned in plan:
        attempts = tried(history[planned.key])
        landed = [a.ips for a in attempts if a.ips is not None]
        if state.wants[planned.key] or planned.key in state.screened or len(landed) < 2:
            continue
        if any(a.dead for a in attempts):
            continue
        rules = policy.repetition
        figure = repetition.tally([a.ips for a in attempts], planned.kind, rules).ips
        scale = next(a.tops / a.ips for a in attempts if a.ips and a.tops)
        if figure is None:
            continue
        group = contest(planned)
        if group not in best or figure * scale > best[group].tops:
            unstable = stats.robust_cv(landed) > rules.unstable_robust_cv
            best[group] = Figure(planned.key, figure * scale, unstable)
    return best


def _plan(draw: random.Random) -> Iterator[Planned]:
    formats = (("fp32", "FP32"), ("fp16", "FP16"), ("int8", "INT8"), ("w8", "W8"))
    engines = ("one", "two")[: draw.randint(1, 2)]
    for shape in ("narrow", "wide"):
        for engine in engines:
            for variant, family in formats[:3]:
                yield Planned(engine, shape, variant, variant, family, "peak", "peak")
    for network in ("n1", "n2", "n3", "n4"):
        for engine in engines:
            for variant, family in formats:
                yield Planned(engine, network, variant, variant, family, "network", "scored")


def _episodes(draw: random.Random, length_s: float) -> Iterator[tuple[float, float, float]]:
    """Yield (start, end, slowdown) of interference: about one a minute, 2 to 12 s long."""
    at = draw.expovariate(1 / 60)
    while at < length_s:
        end = at + draw.uniform(2, 12)
        yield at, end, draw.uniform(0.05, 0.30)
        at = end + draw.expovariate(1 / 60)


def _attempt(n: int, started_ns: int, rate: float) -> JudgedAttempt:
    return JudgedAttempt(
        n=n,
        outcome="landed",
        status="ok",
        why=None,
        started_ns=started_ns,
        wall_ns=5_000_000_000,
        ips=rate,
        tops=rate / 100,
        can_count=True,
        why_not=None,
        standard=None,
        strict=None,
        timed_check=True,
        placed=True,
        format=None,
    )


def _text(found: dict[str, Any]) -> str:
    attempts, largest = found["attempts"], found["largest_move"]
    lines = [
        f"tapes:                  {found['tapes']}",
        f"figures compared:       {found['figures']} ({found['short']} left out: short tapes)",
        "rule:    " + ", ".join(f"{k} {v:g}" for k, v in found["rule"].items()),
        "against: " + ", ".join(f"{k} {v:g}" for k, v in found["against"].items()),
        f"picks changed:          {len(found['picks_changed'])}",
        f"unstable flags changed: {len(found['unstable_changed'])}",
    ]
    if largest:
        where = " ".join(largest["contest"])
        lines.append(f"largest move:           {largest['by']:+.2%} ({largest['tape']}, {where})")
    saved = "none ran" if attempts["saved"] is None else f"{attempts['saved']:.1%}"
    lines.append(
        f"attempts:               {attempts['against']} -> {attempts['rule']} ({saved} saved)"
    )
    lines += [f"  pick: {json.dumps(p)}" for p in found["picks_changed"]]
    lines += [f"  unstable: {json.dumps(f)}" for f in found["unstable_changed"]]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
