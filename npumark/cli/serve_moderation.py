"""``npumark serve admin``: which results are shown, and whose are taken."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from npumark.cli.serve_database import Data, Database, Json, opened, told

if TYPE_CHECKING:
    from npumark.server.moderation import Moderation

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
    told(json, f"{result} is hidden", result=result, hidden=True)


def unhide(
    result: ResultArgument, data: Data = None, database: Database = None, json: Json = False
) -> None:
    """Show a hidden result again."""
    with _moderation(data, database) as moderation:
        moderation.unhide(result)
    told(json, f"{result} is shown", result=result, hidden=False)


def ban_key(
    key: KeyArgument,
    why: Why,
    also_hide: HideToo = False,
    data: Data = None,
    database: Database = None,
    json: Json = False,
) -> None:
    """Refuse what a key signs from now on."""
    from npumark.plain import count

    with _moderation(data, database) as moderation:
        moderation.ban_key(key, reason := _reason(why))
        hidden = moderation.hide_all_of(reason, key_id=key) if also_hide else 0
    told(
        json,
        f"the key {key} is banned; {count(hidden, 'result')} hidden",
        key=key,
        banned=True,
        results_hidden=hidden,
    )


def unban_key(
    key: KeyArgument, data: Data = None, database: Database = None, json: Json = False
) -> None:
    """Take what a banned key signs again; hidden results stay hidden."""
    with _moderation(data, database) as moderation:
        moderation.unban_key(key)
    told(json, f"the key {key} is not banned", key=key, banned=False)


def ban_machine_of(
    result: ResultArgument,
    why: Why,
    also_hide: HideToo = False,
    data: Data = None,
    database: Database = None,
    json: Json = False,
) -> None:
    """Refuse all that the machine of a result sends, and new keys for it."""
    from npumark.plain import count

    with _moderation(data, database) as moderation:
        machine = moderation.ban_machine_of(result, reason := _reason(why))
        hidden = moderation.hide_all_of(reason, machine=machine) if also_hide else 0
    told(
        json,
        f"the machine of {result} is banned; {count(hidden, 'result')} hidden",
        result=result,
        banned=True,
        results_hidden=hidden,
    )


def unban_machine_of(
    result: ResultArgument, data: Data = None, database: Database = None, json: Json = False
) -> None:
    """Take what the machine of a result sends again; hidden results stay hidden."""
    with _moderation(data, database) as moderation:
        moderation.unban_machine_of(result)
    told(json, f"the machine of {result} is not banned", result=result, banned=False)


@contextmanager
def _moderation(data: Path | None, database: str | None) -> Iterator[Moderation]:
    from npumark.server.moderation import Moderation

    with opened(data, database) as engine:
        yield Moderation(engine, time.time)


def _reason(why: str) -> str:
    from npumark.errors import UsageError
    from npumark.plain import bounded, one_line

    if not (reason := bounded(one_line(why), 500)):
        raise UsageError("--why says nothing", "Write the reason; it is kept.")
    return reason
