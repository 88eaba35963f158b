"""``npumark serve``: run a results server."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from npumark.cli import output, serve_admin

if TYPE_CHECKING:
    from npumark.server.config import ServerConfig

app = typer.Typer(rich_markup_mode=None, add_completion=False)
app.add_typer(serve_admin.app, name="admin")


@app.callback(invoke_without_command=True)
def serve(
    context: typer.Context,
    host: Annotated[
        str, typer.Option("--host", metavar="ADDRESS", help="Listen on this address.")
    ] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option("--port", metavar="N", min=0, max=65535, help="Listen on it; 0 is any."),
    ] = 8000,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            metavar="DIR",
            help="The server's own folder, made where it is missing: database and key, unless "
            "named.",
        ),
    ] = None,
    database: Annotated[
        str | None,
        typer.Option(
            "--database",
            metavar="URL",
            help="sqlite:///FILE or postgresql://USER@HOST/NAME. Without it, a SQLite file.",
        ),
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(
            "--url",
            metavar="URL",
            help="Where people reach the server, if not where it listens: behind a proxy.",
        ),
    ] = None,
    origin: Annotated[
        str | None,
        typer.Option(
            "--origin",
            metavar="NAME",
            help="What the server is called in submissions and in its log, for good. Without it, "
            "what its log is called; at the first start, host and path of the URL.",
        ),
    ] = None,
    workers: Annotated[
        int, typer.Option("--workers", metavar="N", min=1, max=64, help="Serve in N processes.")
    ] = 1,
    allow_development: Annotated[
        bool,
        typer.Option(
            "--allow-development",
            help="Take records of development builds as well; they are never ranked.",
        ),
    ] = False,
    build_keys: Annotated[
        Path | None,
        typer.Option(
            "--build-keys",
            metavar="FILE",
            help="The keys of release builds, one a line, 64 hexadecimal digits.",
        ),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(
            "--key",
            metavar="FILE",
            help="The key that signs receipts and the log; made where it is missing.",
        ),
    ] = None,
    witness: Annotated[
        list[str] | None,
        typer.Option(
            "--witness",
            metavar="VKEY",
            help="The verifier key of somebody who may co-sign the log. May be repeated.",
        ),
    ] = None,
    body_seconds: Annotated[
        float,
        typer.Option(
            "--body-seconds", metavar="S", min=0.1, help="How long a body may take to arrive."
        ),
    ] = 20.0,
    ready_file: Annotated[
        Path | None,
        typer.Option(
            "--ready-file",
            metavar="FILE",
            help="Write where it listens to this file, as JSON, once requests are taken.",
        ),
    ] = None,
) -> None:
    """Run a results server: submissions are checked, recomputed and logged, and shown as pages.

    The first start makes the data folder, the database and the server's key. Keep a copy of the
    key: with another one, receipts and the log are those of another server. Behind a reverse proxy
    give the public address as --url. SIGTERM and Ctrl-C end it once what was begun is finished.

    It needs more packages than the rest of npumark: pip install 'npumark[server]'
    """
    _require_extra()
    if context.invoked_subcommand is not None:
        return
    from npumark import paths
    from npumark.server.database import check_usable, sqlite_url
    from npumark.server.process import listen
    from npumark.server.process import serve as run
    from npumark.server.settings import Settings, config_of, data_folder
    from npumark.server.store import Store, origin_in

    if url is None:
        _check_one_address(host)
    # Before the port, so that whoever named a wrong place is told that first.
    folder = data_folder(str((data or paths.data_dir() / "server").absolute()))
    check_usable(database or sqlite_url(folder / "server.sqlite"))
    with listen(host, port) as bound:
        listens = _address(*bound.getsockname()[:2])
        settings = Settings(
            data=str(folder),
            url=url or listens,
            origin=origin,
            database=database,
            key=str(key.absolute()) if key else None,
            build_keys=str(build_keys.absolute()) if build_keys else None,
            allow_development=allow_development,
            witnesses=tuple(witness or ()),
            body_s=body_seconds,
        )
        config = config_of(settings)
        if origin is None and (known := origin_in(config.database_url)) is not None:
            # Its log was named at the first start; a log keeps its name wherever it is served.
            settings, config = replace(settings, origin=known), replace(config, origin=known)
        store = Store(config)
        try:
            store.open()
            store.migrate()
        finally:
            store.close()
        run(settings, bound, workers, lambda: _announce(config, listens, ready_file))
    output.put("stopped\n")


def _announce(config: ServerConfig, listens: str, ready_file: Path | None) -> None:
    """Tell people, and tools that wait for the file, that requests are taken."""
    from npumark.record.files import write_atomically
    from npumark.transparency.note import verifier_key

    log_key = verifier_key(config.origin, config.key.public)
    if ready_file is not None:
        told = {
            "listens": listens,
            "url": config.url,
            "origin": config.origin,
            "log_key": log_key,
        }
        write_atomically(ready_file, json.dumps(told).encode() + b"\n", force=True)
    taken = "taken, never ranked" if config.allow_development else "refused"
    output.put(
        f"listening on {listens}; board: {config.url}/; log key: {log_key}; "
        f"development builds are {taken}\n"
    )


def _address(host: str, port: int) -> str:
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def _check_one_address(host: str) -> None:
    """Raises UsageError where a server that was given no URL listens on every address: none of
    them is its own."""
    from npumark.errors import UsageError

    if host in {"", "0.0.0.0", "::"}:  # noqa: S104 - it is compared, not bound
        raise UsageError(
            "a server that listens on every address has to be told which one people use",
            "Give it as in --url http://results.example.org:8000; it is part of every submission.",
        )


def _require_extra() -> None:
    """Raises SetupError where the packages of the server are not installed."""
    from importlib.util import find_spec

    from npumark.errors import SetupError

    needed = ("fastapi", "uvicorn", "sqlalchemy", "alembic", "jinja2", "prometheus_client")
    missing = [name for name in needed if find_spec(name) is None]
    if missing:
        raise SetupError(
            f"the server needs packages that are not installed: {', '.join(missing)}",
            "pip install 'npumark[server]'",
        )
