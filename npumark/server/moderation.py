"""What the people behind a server decide: which results are shown, and whose are taken.

Nothing is deleted, and everything has its reason and can be undone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from sqlalchemy import Connection, Engine, Select, func, select, update

from npumark.errors import UsageError
from npumark.server import log, results
from npumark.server.database import reading, writing
from npumark.server.tables import keys, log_head, machines
from npumark.server.tables import results as table

_BATCH: Final = 500
"""Results that are hidden in one transaction, which keeps submissions waiting."""


class Moderation:
    """Each method is one transaction unless it says otherwise; ``now`` tells the time in UTC
    seconds since 1970. All raise UsageError where what they are told is not there."""

    def __init__(self, engine: Engine, now: Callable[[], float]) -> None:
        self._engine = engine
        self._now = now

    def hide(self, result_id: str, why: str) -> None:
        """Take a result off the pages."""
        with writing(self._engine) as connection:
            self._existing(connection, result_id)
            results.hide(connection, [result_id], why, int(self._now()))

    def unhide(self, result_id: str) -> None:
        """Show a hidden result again. Raises IntegrityError, too, where this version does not read
        its record."""
        with writing(self._engine) as connection:
            self._existing(connection, result_id)
            results.unhide(connection, result_id)

    def ban_key(self, key_id: str, why: str) -> None:
        """Refuse what a key signs from now on; its results stay as they are."""
        self._set_key(key_id, banned_at=int(self._now()), banned_why=why)

    def unban_key(self, key_id: str) -> None:
        self._set_key(key_id, banned_at=None, banned_why=None)

    def ban_machine_of(self, result_id: str, why: str) -> str:
        """Refuse all that the machine of a result sends, and new keys for it; return the machine
        (its digest)."""
        return self._set_machine(result_id, banned_at=int(self._now()), banned_why=why)

    def unban_machine_of(self, result_id: str) -> str:
        return self._set_machine(result_id, banned_at=None, banned_why=None)

    def hide_all_of(
        self, why: str, *, key_id: str | None = None, machine: str | None = None
    ) -> int:
        """Hide what a key or a machine submitted, some at a time; return how many were shown."""
        of = table.c.key_id == key_id if key_id is not None else table.c.machine == machine
        shown = select(table.c.id).where(of, *_SHOWN).limit(_BATCH)
        hidden = 0
        while True:
            with writing(self._engine) as connection:
                log.head(connection, lock=True)
                ids = list(connection.scalars(shown))
                results.hide(connection, ids, why, int(self._now()))
            hidden += len(ids)
            if len(ids) < _BATCH:
                return hidden

    def _existing(self, connection: Connection, result_id: str) -> Any:
        row = results.find(connection, result_id)
        if row is None:
            raise UsageError(
                f"there is no result {result_id!r}",
                "A result's name is the last part of its address, 16 characters.",
            )
        return row

    def _set_key(self, key_id: str, **values: Any) -> None:
        with writing(self._engine) as connection:
            changed = connection.execute(update(keys).where(keys.c.key_id == key_id).values(values))
            if changed.rowcount == 0:
                raise UsageError(
                    f"there is no key {key_id!r}", "A result's page and receipt name its key."
                )

    def _set_machine(self, result_id: str, **values: Any) -> str:
        with writing(self._engine) as connection:
            machine: str = self._existing(connection, result_id).machine
            of = machines.c.machine == machine
            connection.execute(update(machines).where(of).values(values))
            return machine


def stats(engine: Engine) -> dict[str, int]:
    """Return how many there are of what."""
    with reading(engine) as connection:
        found = {name: connection.scalar(query) for name, query in _COUNTS.items()}
    return {name: int(count or 0) for name, count in found.items()}


def _of_results(*where: Any) -> Select[Any]:
    return select(func.count()).select_from(table).where(*where)


_SHOWN: Final = (table.c.withdrawn_at.is_(None), table.c.hidden_at.is_(None))
_COUNTS: Final[dict[str, Select[Any]]] = {
    "results": _of_results(),
    "shown": _of_results(*_SHOWN),
    "ranked": _of_results(*_SHOWN, table.c.ranked),
    "withdrawn": _of_results(table.c.withdrawn_at.is_not(None)),
    "hidden": _of_results(table.c.hidden_at.is_not(None)),
    "machines": select(func.count()).select_from(machines),
    "machines_banned": select(func.count(machines.c.banned_at)),
    "keys": select(func.count()).select_from(keys),
    "keys_banned": select(func.count(keys.c.banned_at)),
    "log_size": select(log_head.c.size),
}
