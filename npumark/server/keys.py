"""Which keys a machine may sign with (methodology §8).

A machine has at most ``Limits.keys_per_machine`` active keys. One more is refused while the
newest is younger than the cool-down, and replaces the oldest after it. The machine id that
statements carry is kept nowhere; rows hold a digest of it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, bindparam, select, update
from sqlalchemy.dialects import postgresql, sqlite

from npumark.record.envelope import Registration
from npumark.record.signing import key_id_of
from npumark.server.answers import instant
from npumark.server.config import Limits
from npumark.server.refusal import Refused, refuse
from npumark.server.tables import keys, machines


@dataclass(frozen=True, slots=True)
class KeyRow:
    """A registered key. ``machine`` is its machine's digest; instants are UTC seconds since 1970,
    null where it did not happen."""

    key_id: str
    public_key: str
    machine: str
    registered_at: int
    replaced_at: int | None
    banned_at: int | None
    machine_banned_at: int | None


@dataclass(frozen=True, slots=True)
class Registered:
    """``new`` is false where the key was registered before; ``replaces`` is the key that made
    room for it."""

    key_id: str
    registered_at: int
    replaces: str | None
    new: bool


_ROWS: Final = select(
    keys.c.key_id,
    keys.c.public_key,
    keys.c.machine,
    keys.c.registered_at,
    keys.c.replaced_at,
    keys.c.banned_at,
    machines.c.banned_at.label("machine_banned_at"),
).join(machines, machines.c.machine == keys.c.machine)
_ONE: Final = _ROWS.where(keys.c.key_id == bindparam("key_id"))


def machine_digest(machine_id: str) -> str:
    """Return how rows name a machine."""
    return hashlib.sha256(f"npumark-server-machine\n{machine_id}".encode()).hexdigest()


def find(connection: Connection, key_ids: Collection[str]) -> dict[str, KeyRow]:
    """Return those of the keys that are registered, by id."""
    rows = connection.execute(_ROWS.where(keys.c.key_id.in_(key_ids)))
    return {row.key_id: _key(row) for row in rows}


def find_one(connection: Connection, key_id: str) -> KeyRow | None:
    """Return a registered key."""
    row = connection.execute(_ONE, {"key_id": key_id}).first()
    return None if row is None else _key(row)


def check_usable(key: KeyRow | None, key_id: str, machine: str) -> KeyRow:
    """Return ``key``, the row of ``key_id``, where the machine of that digest may sign with it.

    Raises Refused (unknown_key, key_of_another_machine, machine_refused, key_refused).
    """
    if key is None:
        raise refuse(
            "unknown_key", "the key is not registered here; register it first", key_id=key_id
        )
    if key.machine != machine:
        raise refuse("key_of_another_machine", "the key belongs to another machine", key_id=key_id)
    if key.machine_banned_at is not None:
        since = instant(key.machine_banned_at)
        raise refuse("machine_refused", "this machine is banned here", since=since)
    for why, at in (("banned", key.banned_at), ("replaced", key.replaced_at)):
        if at is not None:
            raise refuse(
                "key_refused",
                f"the key was {why}; make a new one",
                key_id=key_id,
                why=why,
                since=instant(at),
            )
    return key


def register(
    connection: Connection, registration: Registration, limits: Limits, now: int
) -> Registered:
    """Make a key known, within a write transaction; again, where it is known already, without
    effect. The registration's signature is the caller's to check. Raises Refused."""
    machine = machine_digest(registration.machine_id)
    key_id = key_id_of(bytes.fromhex(registration.public_key))
    _insert_if_new(connection, "machines", {"machine": machine, "first_seen": now})
    # Held until the end, so that two registrations of a machine count one after the other.
    locked = select(machines.c.machine).where(machines.c.machine == machine).with_for_update()
    connection.execute(locked)
    known = find_one(connection, key_id)
    if known is not None:
        check_usable(known, key_id, machine)
        return Registered(key_id, known.registered_at, None, new=False)
    own = [_key(row) for row in connection.execute(_ROWS.where(keys.c.machine == machine))]
    _check_machine(connection, machine)
    replaced = _make_room(connection, own, limits, now)
    values = {
        "key_id": key_id,
        "public_key": registration.public_key,
        "machine": machine,
        "registered_at": now,
    }
    if not _insert_if_new(connection, "keys", values):  # another machine was quicker
        check_usable(find_one(connection, key_id), key_id, machine)
    return Registered(key_id, now, replaced, new=True)


def _make_room(connection: Connection, own: list[KeyRow], limits: Limits, now: int) -> str | None:
    """Replace the machine's oldest key where it has as many as it may; return that key."""
    active = [key for key in own if key.replaced_at is None and key.banned_at is None]
    if len(active) < limits.keys_per_machine:
        return None
    newest = max(key.registered_at for key in own)
    free_at = newest + math.ceil(limits.key_cooldown_s)
    if now < free_at:
        raise _too_many(len(active), free_at, now)
    oldest = min(active, key=lambda key: (key.registered_at, key.key_id))
    gone = update(keys).where(keys.c.key_id == oldest.key_id).values(replaced_at=now)
    connection.execute(gone)
    return oldest.key_id


def _too_many(active: int, free_at: int, now: int) -> Refused:
    return refuse(
        "too_many_keys",
        f"the machine has {active} keys, which is as many as it may; from {instant(free_at)} on a "
        "new one replaces the oldest",
        retry_after_s=free_at - now,
        keys=active,
        allowed_at=instant(free_at),
    )


def _check_machine(connection: Connection, machine: str) -> None:
    query = select(machines.c.banned_at).where(machines.c.machine == machine)
    banned_at = connection.scalar(query)
    if banned_at is not None:
        raise refuse("machine_refused", "this machine is banned here", since=instant(banned_at))


def _insert_if_new(connection: Connection, name: str, values: dict[str, Any]) -> bool:
    table = {"machines": machines, "keys": keys}[name]
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    made = connection.execute(dialect.insert(table).values(values).on_conflict_do_nothing())
    return made.rowcount > 0


def _key(row: Iterable[Any]) -> KeyRow:
    return KeyRow(*row)
