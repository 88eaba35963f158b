"""``npumark serve admin``: counting, judging again, copying and checking what a server keeps."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from npumark.cli.serve_database import Data, Database, Json, Key, existing_key, opened, told


def stats(data: Data = None, database: Database = None, json: Json = False) -> None:
    """Count results, machines, keys and leaves."""
    from npumark.server.moderation import stats as counted

    with opened(data, database) as engine:
        found = counted(engine)
    text = "\n".join(f"{name.replace('_', ' '):<16}{n:>10}" for name, n in found.items())
    told(json, text, **found)


def reverify(
    jobs: Annotated[
        int, typer.Option("--jobs", metavar="N", min=1, max=256, help="Judge in N processes.")
    ] = 1,
    everything: Annotated[
        bool,
        typer.Option("--all", help="Judge those as well that the present rules judged already."),
    ] = False,
    data: Data = None,
    database: Database = None,
    json: Json = False,
) -> None:
    """Judge every stored record again after the rules have changed.

    Stopped at any point, the same command goes on with what remains. Exit 5 where a record
    could not be judged.
    """
    from npumark.errors import IntegrityError
    from npumark.plain import count
    from npumark.server.plausibility import load_rules
    from npumark.server.reverify import reverify as judge_again

    with opened(data, database) as engine, _progress() as progress:
        found = judge_again(
            engine,
            load_rules().sha256,
            now=time.time,
            jobs=jobs,
            everything=everything,
            progress=progress,
        )
    lines = [f"{found.checked} checked, {found.changed} changed, {len(found.failed)} failed"]
    lines += [f"{result}: {why}" for result, why in found.failed.items()]
    told(
        json,
        "\n".join(lines),
        checked=found.checked,
        changed=found.changed,
        failed=found.failed,
    )
    if found.failed:
        raise IntegrityError(
            f"{count(len(found.failed), 'record')} could not be judged; their last verdict stands",
            "`npumark serve admin check` says whether their bytes are those that were accepted.",
        )


def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write the copy.")],
    force: Annotated[bool, typer.Option("--force", help="Replace a file that exists.")] = False,
    data: Data = None,
    database: Database = None,
    json: Json = False,
) -> None:
    """Copy the database while the server runs (SQLite). Keep a copy of the key beside it."""
    from npumark.server.backup import backup as copy

    with opened(data, database) as engine:
        size = copy(engine, file, force=force)
    told(
        json,
        f"{file} holds the database ({size / 1e6:.1f} MB); the key is not in it",
        file=str(file),
        bytes=size,
    )


def export_log(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="What is served below `/log`.")],
    data: Data = None,
    database: Database = None,
    json: Json = False,
) -> None:
    """Write the log as static files for a CDN; what lies there already stays."""
    from npumark.plain import count
    from npumark.server.static_log import export_log as export

    with opened(data, database) as engine:
        found = export(engine, folder)
    told(
        json,
        f"{folder} holds the log of {count(found.size, 'leaf', 'leaves')}; new files: "
        f"{found.written}",
        folder=str(folder),
        size=found.size,
        written=found.written,
        kept=found.kept,
    )


def check(
    data: Data = None, database: Database = None, key: Key = None, json: Json = False
) -> None:
    """Check that log, results and receipts belong together; exit 5 where they do not.

    The tree is computed again from its entries, each receipt's signature and proof are verified
    against it, and each record against its sha256.
    """
    from dataclasses import asdict

    from npumark.errors import IntegrityError
    from npumark.plain import count
    from npumark.server.audit import audit

    with opened(data, database) as engine:
        found = audit(engine, existing_key(data, key))
    text = (
        f"{count(found.leaves, 'leaf', 'leaves')}, root {found.root}\n"
        f"{count(found.results, 'result')}, {found.withdrawn} of them withdrawn; "
        f"{count(found.figures, 'figure')} on the board"
    )
    verdict = found.faults or ["All is well: log, results and receipts belong together."]
    told(json, "\n".join([text, *verdict]), **asdict(found))
    if found.faults:
        raise IntegrityError(
            f"the database is not as it should be: {count(len(found.faults), 'fault')}",
            "Stop the server and restore a backup that passes this check.",
        )


def adopt_key(
    data: Data = None, database: Database = None, key: Key = None, json: Json = False
) -> None:
    """Sign the log's head with the server's present key, after it was exchanged on purpose.

    Receipts that were given before stay signed with the key of then. Announce the new log key:
    whoever watches the log has to trust it.
    """
    from npumark.errors import SetupError
    from npumark.server import log
    from npumark.server.database import writing

    own = existing_key(data, key)
    if own is None:
        raise SetupError(
            "the server's key is not there", "Name it with --key, or its folder with --data."
        )
    with opened(data, database) as engine, writing(engine) as connection:
        new = log.adopt_key(connection, own)
    text = "the log's head is signed with" if new else "the log's head was signed already with"
    told(json, f"{text} the key {own.key_id}", key_id=own.key_id, new=new)


@contextmanager
def _progress() -> Iterator[Any]:
    """A bar on stderr where that is a terminal, silence elsewhere."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("judging", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
