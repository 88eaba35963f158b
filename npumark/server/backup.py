"""A copy of an SQLite database, taken while a server works with it."""

from __future__ import annotations

import secrets
import sqlite3
from pathlib import Path

from sqlalchemy import Engine

from npumark.errors import IntegrityError, SetupError, UsageError
from npumark.paths import unwritable
from npumark.record.files import check_output
from npumark.server.database import shown


def backup(engine: Engine, target: Path, *, force: bool = False) -> int:
    """Write a copy of the database, of one instant, to a file; return its bytes.

    The file is whole or not there, and only its owner may read it. Raises UsageError where it
    exists and ``force`` is not given, or the database is PostgreSQL's, which has a program of its
    own for this; SetupError where it cannot be written; IntegrityError where the copy is damaged,
    as then the database is.
    """
    if engine.dialect.name != "sqlite":
        url = shown(engine.url.set(drivername="postgresql"))
        raise UsageError(
            "PostgreSQL makes its own backups",
            f"pg_dump --format=custom --file={target} '{url}'",
        )
    check_output(target, force=force)
    trial = target.parent / f".{target.name}.{secrets.token_hex(4)}.tmp"
    try:
        trial.touch(mode=0o600, exist_ok=False)
        _copy(str(engine.url.database), trial)
        trial.replace(target)
    except OSError as fault:
        raise unwritable(target, fault) from fault
    except sqlite3.Error as fault:
        raise SetupError(
            f"the database cannot be copied to {target}: {fault}",
            "Make room there, or name another file.",
        ) from fault
    finally:
        trial.unlink(missing_ok=True)
    return target.stat().st_size


def _copy(source: str, target: Path) -> None:
    live = sqlite3.connect(source)
    copy = sqlite3.connect(target)
    try:
        copy.execute("PRAGMA synchronous = FULL")
        # In one step: between steps every write of the server would begin it anew.
        live.backup(copy)
        # One file, that needs no neighbours to be whole.
        copy.execute("PRAGMA journal_mode = DELETE")
        found = copy.execute("PRAGMA quick_check").fetchone()[0]
    finally:
        copy.close()
        live.close()
    if found != "ok":
        raise IntegrityError(f"the copy of {source} is damaged: {found}", "Keep older backups.")
