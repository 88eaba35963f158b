"""Saved runs: one folder per run under the data directory, and what each of them holds.

    runs/<run id>/journal.jsonl   what happened, line by line
                  record.json     the record, rewritten after every attempt
                  samples/        raw durations
                  logs/           what workers printed

A run that cannot be read is listed with the reason; nothing that was measured is hidden.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from npumark import paths
from npumark.errors import NpumarkError, UsageError
from npumark.record.files import read_record
from npumark.record.model import Record

LATEST = "last"

State = Literal["complete", "partial", "unfinished", "unreadable"]
"""``partial``: a record of a run that was stopped. ``unfinished``: a journal and no record."""

_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Where one run's files lie; naming them creates nothing."""

    path: Path

    @property
    def run_id(self) -> str:
        return self.path.name

    @property
    def journal(self) -> Path:
        return self.path / "journal.jsonl"

    @property
    def record(self) -> Path:
        return self.path / "record.json"

    @property
    def samples(self) -> Path:
        return self.path / "samples"

    @property
    def logs(self) -> Path:
        return self.path / "logs"


@dataclass(frozen=True, slots=True)
class BoxTotal:
    """What all cards of a role reach at once, and of their solo peaks; ``why`` there is none."""

    role: str
    tops: float | None
    scaling: float | None
    why: str | None


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the history. ``created`` is UTC in ISO 8601 (for an unreadable run, when its
    folder was last touched); score, edition and flags are null where there is no record.
    ``box`` are its box totals; ``box_only`` says that it was made for them, so that its score is
    that of a single card or none, and ``why`` says why it has no totals."""

    folder: RunFolder
    state: State
    created: str
    tops: float | None
    label: str | None
    edition: str | None
    quick: bool | None
    comparable: bool | None
    noisy: bool | None
    why: str | None
    box: tuple[BoxTotal, ...] = ()
    box_only: bool = False


def runs_dir() -> Path:
    """Return the folder that holds every run's folder."""
    return paths.data_dir() / "runs"


def run_folder(run_id: str, root: Path | None = None) -> RunFolder:
    """Return the folder of ``run_id``. Raises UsageError where that cannot be a run id."""
    if not _RUN_ID.fullmatch(run_id):
        raise UsageError(
            f"{run_id[:60]!r} is not a run id", "`npumark history` lists the saved runs."
        )
    return RunFolder((root or runs_dir()) / run_id)


def list_runs(root: Path | None = None) -> list[Row]:
    """Return every saved run, the newest first."""
    base = root or runs_dir()
    if not base.is_dir():
        return []
    rows = [
        _row(RunFolder(path))
        for path in base.iterdir()
        if path.is_dir() and _RUN_ID.fullmatch(path.name)
    ]
    return sorted(rows, key=lambda row: (row.created, row.folder.run_id), reverse=True)


def latest(root: Path | None = None) -> RunFolder:
    """Return the newest run whose record can be read. Raises UsageError where there is none."""
    rows = list_runs(root)
    for row in rows:
        if row.state in ("complete", "partial"):
            return row.folder
    if not rows:
        raise UsageError("no run is saved yet", "`npumark run` makes one.")
    raise UsageError(
        "no saved run has a record that this npumark can read",
        "`npumark history` says why of each; `npumark run` makes a new one.",
    )


def find(name: str, root: Path | None = None) -> RunFolder:
    """Return the run that ``name`` means: ``last``, a run id, or the start of just one.

    Raises UsageError naming the candidates where none or several fit.
    """
    if name == LATEST:
        return latest(root)
    base = root or runs_dir()
    exact = run_folder(name, base)
    if exact.path.is_dir():
        return exact
    saved = sorted(p.name for p in base.iterdir() if p.is_dir()) if base.is_dir() else []
    fits = [run_id for run_id in saved if run_id.startswith(name)]
    if len(fits) == 1:
        return RunFolder(base / fits[0])
    if fits:
        raise UsageError(
            f"{name!r} begins {len(fits)} run ids: {', '.join(fits[:5])}", "Write more of it."
        )
    raise UsageError(f"no saved run begins with {name!r}", "`npumark history` lists them.")


def locate(name: str, root: Path | None = None) -> Path:
    """Return the record's file that ``name`` means: a path, or what ``find`` takes."""
    path = Path(name)
    # Path raises where a name is too long, or it may not look.
    if os.path.isdir(path):  # noqa: PTH112
        return path / "record.json"
    if os.path.exists(path) or path.suffix == ".json" or len(path.parts) != 1:  # noqa: PTH110
        return path
    return find(name, root).record


def _row(folder: RunFolder) -> Row:
    try:
        if not folder.record.exists():
            if folder.journal.exists():
                return _blank(folder, "unfinished", "it was stopped before its first record")
            return _blank(folder, "unreadable", "its folder holds neither a record nor a journal")
        return _readable(folder, read_record(folder.record))
    except NpumarkError as fault:
        return _blank(folder, "unreadable", fault.message)
    except OSError as fault:
        return _blank(folder, "unreadable", str(fault.strerror or fault))


def _readable(folder: RunFolder, record: Record) -> Row:
    payload = record.payload
    only = payload.plan.box.mode == "only"
    lacking = only and payload.box is None
    return Row(
        folder=folder,
        state="complete" if payload.complete else "partial",
        created=payload.created,
        tops=payload.score.tops if payload.score else None,
        label=payload.score.label if payload.score else None,
        edition=payload.suite.edition,
        quick=payload.plan.quick,
        comparable=payload.comparable,
        noisy=payload.environment.noisy,
        why=payload.box_why if lacking else None if payload.score else payload.score_why,
        box=tuple(
            BoxTotal(r.role, r.tops, r.scaling, r.why)
            for r in (payload.box.roles if payload.box else ())
        ),
        box_only=only,
    )


def _blank(folder: RunFolder, state: State, why: str) -> Row:
    try:
        touched = datetime.fromtimestamp(folder.path.stat().st_mtime, UTC)
    except OSError:
        touched = datetime.fromtimestamp(0, UTC)
    return Row(
        folder=folder,
        state=state,
        created=touched.strftime("%Y-%m-%dT%H:%M:%SZ"),
        tops=None,
        label=None,
        edition=None,
        quick=None,
        comparable=None,
        noisy=None,
        why=why,
    )
