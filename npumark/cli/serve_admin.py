"""``npumark serve admin``: what the people behind a server decide and look after."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from npumark.cli import output

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from npumark.record.signing import InstallKey
    from npumark.server.moderation import Moderation

app = typer.Typer(
    rich_markup_mode=None,
    add_completion=False,
    no_args_is_help=True,
    help="Look after a results server: moderate, re-verify, back up, check. The server may run "
    "meanwhile.",
)

Data = Annotated[
    Path | None, typer.Option("--data", metavar="DIR", help="The server's own folder.")
]
Database = Annotated[
    str | None,
    typer.Option("--database", metavar="URL", help="The server's database, if not in that folder."),
]
Key = Annotated[
    Path | None,
    typer.Option("--key", metavar="FILE", help="The server's key, if not in that folder."),
]
Json = Annotated[bool, typer.Option("--json", help="Put one JSON document on standard output.")]
Why = Annotated[
    str, typer.Option("--why", metavar="TEXT", help="The reason, which is kept with it.")
]
HideToo = Annotated[bool, typer.Option("--hide", help="Hide what was submitted before as well.")]
ResultArgument = Annotated[
    str, typer.Argument(metavar="RESULT", help="The last part of its page's address.")
]
KeyArgument = Annotated[
    str, typer.Argument(metavar="KEY", help="The id of an installation's key, 32 digits.")
]


@app.command()
def hide(
    result: ResultArgument,
    why: Why,
    data: Data = None,
    database: Database = None,
    json: Json = False,
) -> None:
    """Take a result off the pages; the log and what is stored stay."""
    with _moderation(data, database) as moderation:
        moderation.hide(result, _reason(why))
    _told(json, f"{result} is hidden", result=result, hidden=True)


@app.command()
def unhide(
    result: ResultArgument, data: Data = None, database: Database = None, json: Json = False
) -> None:
    """Show a hidden result again."""
    with _moderation(data, database) as moderation:
        moderation.unhide(result)
    _told(json, f"{result} is shown", result=result, hidden=False)


@app.command()
def ban_key(
    key: KeyArgument,
    why: Why,
    also_hide: HideToo = False,
    data: Data = None,
    database: Database = None,
    json: Json = False,
) -> None:
    """Refuse what a key signs from now on."""
    with _moderation(data, database) as moderation:
        moderation.ban_key(key, _reason(why))
        hidden = moderation.hide_all_of(why, key_id=key) if also_hide else 0
    _told(
        json,
        f"the key {key} is banned; {hidden} results were hidden",
        key=key,
        banned=True,
        results_hidden=hidden,
    )


@app.command()
def unban_key(
    key: KeyArgument, data: Data = None, database: Database = None, json: Json = False
) -> None:
    """Take what a banned key signs again; hidden results stay hidden."""
    with _moderation(data, database) as moderation:
        moderation.unban_key(key)
    _told(json, f"the key {key} is not banned", key=key, banned=False)


@app.command()
def ban_machine_of(
    result: ResultArgument,
    why: Why,
    also_hide: HideToo = False,
    data: Data = None,
    database: Database = None,
    json: Json = False,
) -> None:
    """Refuse all that the machine of a result sends, and new keys for it."""
    with _moderation(data, database) as moderation:
        machine = moderation.ban_machine_of(result, _reason(why))
        hidden = moderation.hide_all_of(why, machine=machine) if also_hide else 0
    _told(
        json,
        f"the machine of {result} is banned; {hidden} results were hidden",
        result=result,
        banned=True,
        results_hidden=hidden,
    )


@app.command()
def unban_machine_of(
    result: ResultArgument, data: Data = None, database: Database = None, json: Json = False
) -> None:
    """Take what the machine of a result sends again; hidden results stay hidden."""
    with _moderation(data, database) as moderation:
        moderation.unban_machine_of(result)
    _told(json, f"the machine of {result} is not banned", result=result, banned=False)


@app.command()
def stats(data: Data = None, database: Database = None, json: Json = False) -> None:
    """Count results, machines, keys and leaves."""
    with _moderation(data, database) as moderation:
        found = moderation.stats()
    text = "\n".join(f"{name.replace('_', ' '):<16}{n:>10}" for name, n in found.items())
    _told(json, text, **found)


@app.command()
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
    from npumark.server.plausibility import load_rules
    from npumark.server.reverify import reverify as judge_again

    with _engine(data, database) as engine, _progress() as progress:
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
    _told(
        json,
        "\n".join(lines),
        checked=found.checked,
        changed=found.changed,
        failed=found.failed,
    )
    if found.failed:
        raise IntegrityError(
            f"{len(found.failed)} records could not be judged; their last verdict stands",
            "`npumark serve admin check` says whether their bytes are those that were accepted.",
        )


@app.command()
def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write the copy.")],
    force: Annotated[bool, typer.Option("--force", help="Replace a file that exists.")] = False,
    data: Data = None,
    database: Database = None,
    json: Json = False,
) -> None:
    """Copy the database while the server runs (SQLite). Keep a copy of the key beside it."""
    from npumark.server.backup import backup as copy

    with _engine(data, database) as engine:
        size = copy(engine, file, force=force)
    _told(
        json,
        f"{file} holds the database ({size / 1e6:.1f} MB); the key is not in it",
        file=str(file),
        bytes=size,
    )


@app.command()
def export_log(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="What is served below `/log`.")],
    data: Data = None,
    database: Database = None,
    json: Json = False,
) -> None:
    """Write the log as static files for a CDN; what lies there already stays."""
    from npumark.server.static_log import export_log as export

    with _engine(data, database) as engine:
        found = export(engine, folder)
    _told(
        json,
        f"{folder} holds the log of {found.size} leaves; {found.written} files are new",
        folder=str(folder),
        size=found.size,
        written=found.written,
        kept=found.kept,
    )


@app.command()
def check(
    data: Data = None, database: Database = None, key: Key = None, json: Json = False
) -> None:
    """Check that log, results and receipts belong together; exit 5 where they do not.

    The tree is computed again from its entries, each receipt's signature and proof are verified
    against it, and each record against its sha256.
    """
    from dataclasses import asdict

    from npumark.errors import IntegrityError
    from npumark.server.audit import audit

    with _engine(data, database) as engine:
        found = audit(engine, _existing_key(data, key))
    text = (
        f"{found.leaves} leaves, root {found.root}\n"
        f"{found.results} results, {found.withdrawn} of them withdrawn; {found.figures} figures "
        "on the board"
    )
    _told(json, "\n".join([text, *found.faults]), **asdict(found))
    if found.faults:
        raise IntegrityError(
            f"{len(found.faults)} faults were found in the database",
            "Stop the server and restore a backup that passes this check.",
        )


@app.command()
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

    own = _existing_key(data, key)
    if own is None:
        raise SetupError(
            "the server's key is not there", "Name it with --key, or its folder with --data."
        )
    with _engine(data, database) as engine, writing(engine) as connection:
        new = log.adopt_key(connection, own)
    text = "the log's head is signed with" if new else "the log's head was signed already with"
    _told(json, f"{text} the key {own.key_id}", key_id=own.key_id, new=new)


@contextmanager
def _engine(data: Path | None, database: str | None) -> Iterator[Engine]:
    """Open the server's database, and turn what it cannot do into an error with a sentence."""
    from sqlalchemy.exc import DBAPIError

    from npumark.errors import SetupError
    from npumark.server.database import sqlite_url
    from npumark.server.refusal import Refused
    from npumark.server.store import open_existing

    engine = open_existing(database or sqlite_url(_folder(data) / "server.sqlite"))
    try:
        yield engine
    except (Refused, DBAPIError) as fault:
        cause = fault.orig if isinstance(fault, DBAPIError) else fault.__cause__
        raise SetupError(
            f"the database does not take this now: {' '.join(str(cause or fault).split())}"[:300],
            "Try again; the server may be writing, or the database be gone.",
        ) from fault
    finally:
        engine.dispose()


@contextmanager
def _moderation(data: Path | None, database: str | None) -> Iterator[Moderation]:
    from npumark.server.moderation import Moderation

    with _engine(data, database) as engine:
        yield Moderation(engine, time.time)


def _folder(data: Path | None) -> Path:
    from npumark.paths import data_dir

    return data or data_dir() / "server"


def _existing_key(data: Path | None, key: Path | None) -> InstallKey | None:
    """Return the server's key, which is never made here; null where it is not in its folder."""
    from npumark.errors import SetupError
    from npumark.server.settings import server_key

    path = key or _folder(data) / "server.key"
    if path.is_file():
        return server_key(path)
    if key is not None:
        raise SetupError(f"there is no key {key}", "Name the file that the server signs with.")
    return None


def _reason(why: str) -> str:
    from npumark.errors import UsageError
    from npumark.plain import bounded, one_line

    if not (reason := bounded(one_line(why), 500)):
        raise UsageError("--why says nothing", "Write the reason; it is kept.")
    return reason


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


def _told(as_json: bool, text: str, **document: Any) -> None:
    if as_json:
        output.put_json(document)
    else:
        output.put(f"{text}\n")
