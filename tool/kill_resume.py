"""Kill a quick run at random moments and complete each: nothing measured may be lost.

    python tool/kill_resume.py [--trials 10] [--seed 1] [--json] [-- RUN-ARGUMENTS]

First a quick run is timed undisturbed. Each trial then starts another, sends the orchestrator
SIGKILL at a moment drawn from that time (drawn again where the run ended before it), resumes
what is left with ``npumark run --resume``, and verifies the record with ``npumark verify``. A
trial holds when the run completes, verifies, and still has every attempt that had ended before
the kill, unchanged. One that was killed before its run had begun (no journal yet) must leave
nothing behind; a new run is then made. Arguments after ``--`` go to every run; records land
where NPUMARK_HOME says.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from npumark.orchestrator.journal import Replay, read_journal, replay
from npumark.record.files import read_record
from npumark.record.history import RunFolder, runs_dir
from npumark.record.model import Record

NPUMARK = (sys.executable, "-m", "npumark")


@dataclass(frozen=True, slots=True)
class Trial:
    """``killed_s`` after the start, during ``stage``; ``held`` attempts had ended by then, and
    the completed run has ``attempts``. ``fault`` is empty where the trial holds."""

    number: int
    killed_s: float
    stage: str
    held: int
    attempts: int
    run_id: str
    fault: str

    def line(self) -> str:
        verdict = f"FAILED: {self.fault}" if self.fault else "completed, verified"
        return (
            f"trial {self.number:2}  killed at {self.killed_s:6.2f} s  {self.stage:<24} "
            f"{self.held} of {self.attempts} attempts held  {verdict}"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    parser.add_argument("arguments", nargs="*", metavar="RUN-ARGUMENT")
    given = parser.parse_args()
    command = (*NPUMARK, "run", "--quick", *given.arguments)

    began = time.monotonic()
    first = subprocess.run((*command, "--json"), capture_output=True, text=True, check=False)
    length = time.monotonic() - began
    if first.returncode not in (0, 1):
        sys.stderr.write(first.stderr)
        print(f"the undisturbed run ended with {first.returncode}; nothing can be tried")
        return 1
    draw = random.Random(given.seed)
    window = length
    trials: list[Trial] = []
    while len(trials) < given.trials:
        trial = attempt(len(trials) + 1, command, draw.uniform(0.0, window), given.arguments)
        if isinstance(trial, float):  # it ended before its moment came: draw from less
            window = trial
            continue
        trials.append(trial)
        if not given.json:
            print(trial.line(), flush=True)
    failed = sum(bool(trial.fault) for trial in trials)
    summary = {
        "undisturbed_s": round(length, 3),
        "seed": given.seed,
        "trials": [asdict(trial) for trial in trials],
        "held": len(trials) - failed,
        "ok": not failed,
    }
    if given.json:
        print(json.dumps(summary, indent=1))
    else:
        print(
            f"{len(trials) - failed} of {len(trials)} killed runs were completed and verified "
            f"(seed {given.seed}, an undisturbed run takes {length:.1f} s)"
        )
    return 1 if failed else 0


def attempt(
    number: int, command: tuple[str, ...], moment_s: float, arguments: list[str]
) -> Trial | float:
    """Carry out one trial: kill after ``moment_s`` seconds, resume, verify.

    Returns the seconds it took where the run ended by itself before.
    """
    before = folders()
    began = time.monotonic()
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL
    ) as process:
        try:
            process.wait(moment_s)
            return time.monotonic() - began
        except subprocess.TimeoutExpired:
            process.kill()
        process.wait()
    killed_s = round(time.monotonic() - began, 3)
    left = folders() - before
    if not left:
        return _afresh(number, command, killed_s, arguments)
    (path,) = left
    folder = RunFolder(path)
    told = replay(read_journal(folder.journal))
    stage = _stage(told)
    held = _attempts_of(told)
    if not told.finished:
        done = subprocess.run(
            (*NPUMARK, "run", "--resume", folder.run_id, "--json"),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode not in (0, 1):
            why = f"the resumption ended with {done.returncode}: {done.stderr.strip()[-300:]}"
            return Trial(number, killed_s, stage, len(held), 0, folder.run_id, why)
    record = read_record(folder.record)
    fault = _judge(record, held, arguments, folder.record)
    return Trial(number, killed_s, stage, len(held), _count(record), folder.run_id, fault)


def folders() -> set[Path]:
    """Return the folders of all runs, half-made ones not among them."""
    root = runs_dir()
    return {p for p in root.iterdir() if p.name[0] != "."} if root.is_dir() else set()


def _afresh(number: int, command: tuple[str, ...], killed_s: float, arguments: list[str]) -> Trial:
    """Judge a trial that was killed before its run began: the next run must not be hindered."""
    done = subprocess.run((*command, "--json"), capture_output=True, text=True, check=False)
    stage = "before the run began"
    if done.returncode not in (0, 1):
        why = f"the next run ended with {done.returncode}: {done.stderr.strip()[-300:]}"
        return Trial(number, killed_s, stage, 0, 0, "", why)
    run_id = json.loads(done.stdout)["payload"]["run_id"]
    path = runs_dir() / run_id / "record.json"
    record = read_record(path)
    fault = _judge(record, [], arguments, path)
    return Trial(number, killed_s, stage, 0, _count(record), run_id, fault)


def _judge(
    record: Record, held: list[tuple[list[str], dict[str, Any]]], arguments: list[str], path: Path
) -> str:
    if not record.payload.complete:
        return "the record is not complete"
    entries = {(e.engine, e.workload, e.variant): e for e in record.payload.entries}
    for key, attempt in held:
        kept = [a.model_dump(mode="json") for a in entries[key[0], key[1], key[2]].attempts]
        if attempt not in kept:
            return f"attempt {attempt['n']} of {' · '.join(key)} was lost or changed"
    manifest: list[str] = []
    if "--manifest" in arguments:
        manifest = ["--manifest", arguments[arguments.index("--manifest") + 1]]
    checked = subprocess.run(
        (*NPUMARK, "verify", str(path), *manifest), capture_output=True, text=True, check=False
    )
    return "" if checked.returncode == 0 else f"verify: {checked.stderr.strip()[-300:]}"


def _attempts_of(told: Replay) -> list[tuple[list[str], dict[str, Any]]]:
    return [(list(key), a) for key, runs in told.attempts.items() for a in runs]


def _stage(told: Replay) -> str:
    if told.finished:
        return "after its end"
    if told.in_flight is not None:
        return f"in an attempt ({told.in_flight['entry'][1]})"
    return "between attempts" if told.attempts else "before attempt 1"


def _count(record: Record) -> int:
    return sum(len(entry.attempts) for entry in record.payload.entries)


if __name__ == "__main__":
    sys.exit(main())
