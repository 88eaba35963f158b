"""Registering keys: methodology §8's eight, the cool-down, and what is refused."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from npumark.record.signing import InstallKey
from npumark.server.keys import Registered, check_usable, machine_digest
from npumark.server.refusal import Refused
from npumark.server.store import Store
from tests import forge
from tests.server import stored
from tests.server.conftest import NOW, Clock

DAY = 86_400
OTHER_MACHINE = "ab" * 32
KEYS = [InstallKey(bytes([n]) * 32) for n in range(1, 12)]


def register(store: Store, key: InstallKey, machine_id: str = forge.MACHINE_ID) -> Registered:
    return store.register_key(stored.registration(key, machine_id))


def refused(store: Store, key: InstallKey, machine_id: str = forge.MACHINE_ID) -> Refused:
    with pytest.raises(Refused) as caught:
        register(store, key, machine_id)
    return caught.value


def fill(store: Store, clock: Clock) -> None:
    """Register eight keys, a minute after each other; the clock is at the last one's instant."""
    for n, key in enumerate(KEYS[:8]):
        clock.now = NOW + 60 * n
        register(store, key)


def test_a_key_becomes_known(store: Store) -> None:
    assert store.key(KEYS[0].key_id) is None
    made = register(store, KEYS[0])
    assert made == Registered(KEYS[0].key_id, int(NOW), None, new=True)
    key = store.key(KEYS[0].key_id)
    assert key is not None
    assert (key.public_key, key.machine) == (
        KEYS[0].public.hex(),
        machine_digest(forge.MACHINE_ID),
    )
    assert check_usable(key, key.key_id, key.machine) is key


def test_registering_again_changes_nothing(store: Store, clock: Clock) -> None:
    register(store, KEYS[0])
    clock.now += 100
    assert register(store, KEYS[0]) == Registered(KEYS[0].key_id, int(NOW), None, new=False)


def test_a_key_belongs_to_one_machine(store: Store) -> None:
    register(store, KEYS[0])
    assert refused(store, KEYS[0], OTHER_MACHINE).fault.code == "key_of_another_machine"


def test_a_ninth_key_waits_for_the_cool_down(store: Store, clock: Clock) -> None:
    fill(store, clock)
    newest = clock.now
    clock.now += DAY - 1
    caught = refused(store, KEYS[8])
    assert caught.fault.code == "too_many_keys"
    assert caught.retry_after_s == 1
    assert caught.fault.details == {"keys": 8, "allowed_at": "2026-12-02T12:07:00Z"}
    assert newest == NOW + 420
    assert refused(store, KEYS[9]).fault.code == "too_many_keys"


def test_after_the_cool_down_the_ninth_replaces_the_oldest(store: Store, clock: Clock) -> None:
    fill(store, clock)
    clock.now += DAY
    assert register(store, KEYS[8]).replaces == KEYS[0].key_id
    assert refused(store, KEYS[0]).fault.code == "key_refused"
    gone = store.key(KEYS[0].key_id)
    assert gone is not None
    assert gone.replaced_at == clock.now
    with pytest.raises(Refused, match="replaced"):
        check_usable(gone, gone.key_id, gone.machine)
    # The cool-down starts anew with it.
    assert refused(store, KEYS[9]).fault.code == "too_many_keys"
    clock.now += DAY
    assert register(store, KEYS[9]).replaces == KEYS[1].key_id


def test_another_machine_has_keys_of_its_own(store: Store, clock: Clock) -> None:
    fill(store, clock)
    assert register(store, KEYS[8], OTHER_MACHINE).replaces is None


def test_a_banned_key_is_refused_until_it_is_taken_again(store: Store) -> None:
    register(store, KEYS[0])
    store.moderation.ban_key(KEYS[0].key_id, "it was stolen")
    caught = refused(store, KEYS[0])
    assert (caught.fault.code, caught.fault.details["why"]) == ("key_refused", "banned")
    store.moderation.unban_key(KEYS[0].key_id)
    assert not register(store, KEYS[0]).new


def test_a_banned_key_makes_no_room_before_the_cool_down_of_the_newest(
    store: Store, clock: Clock
) -> None:
    fill(store, clock)
    store.moderation.ban_key(KEYS[3].key_id, "it was stolen")
    assert register(store, KEYS[8]).replaces is None
    assert refused(store, KEYS[9]).fault.code == "too_many_keys"


def test_a_banned_machine_registers_nothing(store: Store) -> None:
    (result,) = stored.submit(store, 1)
    store.moderation.ban_machine_of(result, "it forges")
    assert refused(store, KEYS[0]).fault.code == "machine_refused"
    assert refused(store, forge.INSTALL).fault.code == "machine_refused"
    register(store, KEYS[1], OTHER_MACHINE)
    store.moderation.unban_machine_of(result)
    assert register(store, KEYS[0]).new


def test_the_limit_holds_when_all_come_at_once(store: Store) -> None:
    def attempt(key: InstallKey) -> str:
        try:
            return "made" if register(store, key).new else "again"
        except Refused as fault:
            return fault.fault.code

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(attempt, KEYS))
    assert sorted(found) == ["made"] * 8 + ["too_many_keys"] * 3


def test_one_key_goes_to_one_machine_when_two_come_at_once(store: Store) -> None:
    machines = [f"{n:064x}" for n in range(8)]

    def attempt(machine: str) -> str:
        try:
            return "made" if register(store, KEYS[0], machine).new else "again"
        except Refused as fault:
            return fault.fault.code

    with ThreadPoolExecutor(8) as pool:
        found = sorted(pool.map(attempt, machines))
    assert found == ["key_of_another_machine"] * 7 + ["made"]
