"""``npumark serve admin``: what the people behind a server decide and look after."""

from __future__ import annotations

import typer

from npumark.cli import serve_moderation, serve_upkeep

app = typer.Typer(
    rich_markup_mode=None,
    add_completion=False,
    no_args_is_help=True,
    help="Look after a results server: moderate, re-verify, back up, check. The server may run "
    "meanwhile.",
)

for command in (
    serve_moderation.hide,
    serve_moderation.unhide,
    serve_moderation.ban_key,
    serve_moderation.unban_key,
    serve_moderation.ban_machine_of,
    serve_moderation.unban_machine_of,
    serve_upkeep.stats,
    serve_upkeep.reverify,
    serve_upkeep.backup,
    serve_upkeep.export_log,
    serve_upkeep.check,
    serve_upkeep.adopt_key,
):
    app.command()(command)
