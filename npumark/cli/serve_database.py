"""The database that ``npumark serve admin`` works on: its options, opening it, and answering."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from npumark.cli import output

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from npumark.record.signing import InstallKey

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


@contextmanager
def opened(data: Path | None, database: str | None) -> Iterator[Engine]:
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


def _folder(data: Path | None) -> Path:
    from npumark.paths import data_dir

    return data or data_dir() / "server"


def existing_key(data: Path | None, key: Path | None) -> InstallKey | None:
    """Return the server's key, which is never made here; null where it is not in its folder."""
    from npumark.errors import SetupError
    from npumark.server.settings import server_key

    path = key or _folder(data) / "server.key"
    if path.is_file():
        return server_key(path)
    if key is not None:
        raise SetupError(f"there is no key {key}", "Name the file that the server signs with.")
    return None


def told(as_json: bool, text: str, **document: Any) -> None:
    """Answer in words, or as one JSON document."""
    if as_json:
        output.put_json(document)
    else:
        output.put(f"{text}\n")
