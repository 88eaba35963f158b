"""Accepting results: one transaction, one leaf each, one answer for one submission."""

from __future__ import annotations

import base64
import json
import multiprocessing
import zlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import select, text, update

from npumark.errors import IntegrityError
from npumark.record.canonical import canonical_bytes
from npumark.record.envelope import Receipt, leaf_entry, result_id_of
from npumark.record.signing import InstallKey
from npumark.server import log
from npumark.server.audit import audit
from npumark.server.database import reading, writing
from npumark.server.figures import Device
from npumark.server.keys import machine_digest
from npumark.server.refusal import Refused
from npumark.server.store import NewResult, Store
from npumark.server.tables import bodies, facets, figures, log_leaves, processors, results
from npumark.transparency.merkle import leaf_hash, node_hash
from npumark.transparency.receipt import check_receipt
from tests import forge
from tests.server import stored
from tests.server.conftest import NOW, SERVER_KEY, Clock, config_of

OTHER = InstallKey(b"\x09" * 32)
OTHER_MACHINE = "ab" * 32


def refused_by(store: Store, new: NewResult) -> str:
    with pytest.raises(Refused) as caught:
        store.accept(new)
    return caught.value.fault.code


def naive_root(hashes: list[bytes]) -> bytes:
    """The Merkle tree hash as RFC 9162 §2.1.1 defines it."""
    if len(hashes) == 1:
        return hashes[0]
    k = 1 << (len(hashes) - 1).bit_length() - 1
    return node_hash(naive_root(hashes[:k]), naive_root(hashes[k:]))


def assert_whole(store: Store, count: int) -> None:
    """The log has ``count`` leaves without a gap, each of one result, under their own root."""
    with reading(store.engine) as connection:
        rows = connection.execute(
            select(log_leaves.c.index, log_leaves.c.entry).order_by(log_leaves.c.index)
        ).all()
        head = log.head(connection)
        names = list(connection.scalars(select(results.c.id).order_by(results.c.leaf_index)))
    assert [at for at, _ in rows] == list(range(count))
    assert head.size == count
    assert head.root == naive_root([leaf_hash(entry) for _, entry in rows])
    assert [json.loads(entry)["result_id"] for _, entry in rows] == names
    assert audit(store.engine, SERVER_KEY).faults == []


def test_a_receipt_proves_what_was_accepted(store: Store) -> None:
    store.register_key(stored.registration())
    new = stored.new_result()
    raw = store.accept(new)
    receipt = Receipt.model_validate_json(raw)
    assert raw == canonical_bytes(json.loads(raw))
    check_receipt(receipt, json.loads(new.record), SERVER_KEY.public.hex())
    assert receipt.result_id == result_id_of(new.envelope.payload_sha256)
    assert receipt.url == f"https://{forge.ORIGIN}/results/{receipt.result_id}"
    assert (receipt.ranked, receipt.not_ranked_because, receipt.trust) == (True, [], "release")
    assert json.loads(base64.b64decode(receipt.log.entry)) == leaf_entry(
        result_id=receipt.result_id,
        record_sha256=receipt.record_sha256,
        payload_sha256=new.envelope.payload_sha256,
        key_id=forge.INSTALL.key_id,
        received_at=forge.stamp(forge.NOW),
    )


def test_the_accepted_bytes_come_back_unchanged(store: Store) -> None:
    store.register_key(stored.registration())
    new = stored.new_result()
    store.accept(new)
    assert store.record_bytes(result_id_of(new.envelope.payload_sha256)) == new.record
    assert store.record_bytes("a" * 16) is None


def test_the_machine_id_is_kept_nowhere(store: Store) -> None:
    stored.submit(store, 1)
    with reading(store.engine) as connection:
        for table in ("machines", "keys", "results", "log_leaves"):
            rows = connection.execute(text(f"SELECT * FROM {table}")).all()
            assert rows
            assert forge.MACHINE_ID not in repr(rows)


def test_the_same_again_gets_the_first_receipt(store: Store, clock: Clock) -> None:
    store.register_key(stored.registration())
    first = store.accept(stored.new_result())
    clock.now += 60
    assert store.accept(stored.new_result()) == first
    digest = stored.new_result().envelope.payload_sha256
    earlier = store.earlier(digest, "another run")
    assert earlier is not None
    assert (earlier.payload_sha256, earlier.receipt) == (digest, first)
    assert earlier.machine == machine_digest(forge.MACHINE_ID)
    assert_whole(store, 1)


def test_the_same_machine_may_send_it_again_with_another_key(store: Store) -> None:
    store.register_key(stored.registration())
    store.register_key(stored.registration(OTHER))
    first = store.accept(stored.new_result())
    assert store.accept(stored.new_result(install=OTHER)) == first


def test_another_machine_replays_nothing(store: Store) -> None:
    stored.submit(store, 0)
    store.register_key(stored.registration(OTHER, OTHER_MACHINE))
    new = stored.new_result(install=OTHER, machine_id=OTHER_MACHINE)
    assert refused_by(store, new) == "replayed"
    assert_whole(store, 1)


def test_a_run_is_accepted_once(store: Store) -> None:
    stored.submit(store, 0)
    other = stored.small().model_copy(update={"run_id": "run-0", "score_why": "edited"})
    assert refused_by(store, stored.new_result(payload=other)) == "run_already_submitted"
    earlier = store.earlier("0" * 64, "run-0")
    assert earlier is not None
    assert earlier.payload_sha256 == stored.new_result(0).envelope.payload_sha256
    assert store.earlier("0" * 64, "run-1") is None


def test_a_key_has_to_be_usable_when_it_is_stored(store: Store) -> None:
    assert refused_by(store, stored.new_result()) == "unknown_key"
    stored.submit(store, 0)
    assert refused_by(store, stored.new_result(1, machine_id=OTHER_MACHINE)) == (
        "key_of_another_machine"
    )
    store.moderation.ban_key(forge.INSTALL.key_id, "it was stolen")
    assert refused_by(store, stored.new_result(1)) == "key_refused"
    store.moderation.unban_key(forge.INSTALL.key_id)
    store.accept(stored.new_result(1))


def test_a_batch_answers_each_for_itself(store: Store) -> None:
    store.register_key(stored.registration())
    first, again, stranger, second = store.accept_many(
        [
            stored.new_result(1),
            stored.new_result(1),
            stored.new_result(2, install=OTHER),
            stored.new_result(3),
        ]
    )
    assert isinstance(first, bytes)
    assert again == first
    assert isinstance(stranger, Refused)
    assert stranger.fault.code == "unknown_key"
    assert isinstance(second, bytes)
    heads = [Receipt.model_validate_json(r).log.checkpoint for r in (first, second)]
    assert heads[0] == heads[1]
    for n, receipt in ((1, first), (3, second)):
        record = json.loads(stored.new_result(n).record)
        check_receipt(Receipt.model_validate_json(receipt), record, SERVER_KEY.public.hex())
    assert_whole(store, 2)


def test_a_batch_of_nothing_but_refusals_leaves_the_log_alone(store: Store) -> None:
    with reading(store.engine) as connection:
        before = log.head(connection)
    assert isinstance(store.accept_many([stored.new_result()])[0], Refused)
    with reading(store.engine) as connection:
        assert log.head(connection) == before


def test_what_fails_leaves_nothing_behind(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.register_key(stored.registration())

    def fail(*_: object) -> None:
        raise RuntimeError("the disk burns")

    with monkeypatch.context() as patched:
        patched.setattr("npumark.server.showing.show", fail)
        with pytest.raises(RuntimeError, match="burns"):
            store.accept(stored.new_result(1))
    assert_whole_after_failure(store)


def assert_whole_after_failure(store: Store) -> None:
    with reading(store.engine) as connection:
        assert log.head(connection).size == 0
        assert connection.execute(select(results.c.id)).all() == []
        assert connection.execute(select(processors.c.id)).all() == []
    store.accept(stored.new_result(1))
    assert_whole(store, 1)


def test_threads_fill_the_log_without_gaps(store: Store) -> None:
    store.register_key(stored.registration())
    news = [stored.new_result(n) for n in range(40)]
    with ThreadPoolExecutor(8) as pool:
        receipts = list(pool.map(store.accept, news + news[:8]))
    assert receipts[40:] == receipts[:8]
    assert_whole(store, 40)


def test_stores_of_one_database_share_the_log(store: Store, clock: Clock) -> None:
    """Two servers append at the same time, each from its own connections."""
    store.register_key(stored.registration())
    other = Store(store.config, now=clock)
    try:
        with ThreadPoolExecutor(8) as pool:
            done = [
                pool.submit((store, other)[n % 2].accept, stored.new_result(n // 2))
                for n in range(32)
            ]
            receipts = [future.result() for future in done]
    finally:
        other.close()
    assert receipts[::2] == receipts[1::2]
    assert_whole(store, 16)


def _accept_elsewhere(url: str, first: int, count: int) -> None:
    store = Store(config_of(url), now=lambda: NOW)
    try:
        for n in range(first, first + count):
            store.accept(stored.new_result(n))
    finally:
        store.close()


def test_a_second_process_writes_to_the_same_file(sqlite_store: Store) -> None:
    sqlite_store.register_key(stored.registration())
    url = sqlite_store.config.database_url
    child = multiprocessing.get_context("spawn").Process(
        target=_accept_elsewhere, args=(url, 100, 10)
    )
    child.start()
    for n in range(10):
        sqlite_store.accept(stored.new_result(n))
    child.join(60)
    assert child.exitcode == 0
    assert_whole(sqlite_store, 20)


def _accept_forever(url: str, told: Any) -> None:
    store = Store(config_of(url), now=lambda: NOW)
    for n in range(1000):
        told.send_bytes(store.accept(stored.new_result(n)))


def test_what_was_acknowledged_survives_sigkill(sqlite_store: Store) -> None:
    sqlite_store.register_key(stored.registration())
    context = multiprocessing.get_context("spawn")
    receives, sends = context.Pipe(duplex=False)
    child = context.Process(target=_accept_forever, args=(sqlite_store.config.database_url, sends))
    child.start()
    receipts = [receives.recv_bytes() for _ in range(10)]
    child.kill()
    child.join(60)
    with reading(sqlite_store.engine) as connection:
        size = log.head(connection).size
    assert size >= 10
    assert_whole(sqlite_store, size)
    for n, receipt in enumerate(receipts):
        assert sqlite_store.accept(stored.new_result(n)) == receipt


def test_a_database_that_stays_locked_is_busy(
    sqlite_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    sqlite_store.register_key(stored.registration())
    monkeypatch.setattr("npumark.server.database.BUSY_MS", 1)
    sqlite_store.engine.dispose()
    with writing(sqlite_store.engine):
        assert refused_by(sqlite_store, stored.new_result()) == "busy"
    sqlite_store.accept(stored.new_result())


def test_figures_are_counted(store: Store) -> None:
    stored.submit(store, 1, 2)
    with reading(store.engine) as connection:
        (processor,) = connection.execute(select(processors)).all()
        rows = connection.execute(select(figures.c.result_id)).all()
        counted = list(connection.scalars(select(facets.c.figures)))
    assert (processor.role, processor.name, processor.runs) == ("CPU", forge.CPU, 2)
    assert processor.slug == "cpu-amd-ryzen-9-7950x"
    assert len(rows) == sum(counted) >= 2


def test_processors_whose_names_fold_to_one_slug_have_two_pages(store: Store) -> None:
    store.register_key(stored.registration())
    for n, name in enumerate(("Chip 5", "Chip-5", "chip 5")):
        base = stored.small()
        renamed = [p.model_copy(update={"name": name}) for p in base.processors]
        payload = base.model_copy(update={"run_id": f"run-{n}", "processors": renamed})
        store.accept(stored.new_result(payload=payload))
    with reading(store.engine) as connection:
        slugs = list(connection.scalars(select(processors.c.slug).order_by(processors.c.id)))
    assert slugs[0] == "cpu-chip-5"
    assert len(set(slugs)) == 3
    assert all(slug.startswith("cpu-chip-5") for slug in slugs)


def test_withdrawing_deletes_the_content_and_keeps_the_leaf(store: Store, clock: Clock) -> None:
    one, other = stored.submit(store, 1, 2)
    clock.now += 5
    assert store.withdraw(stored.withdrawal(one)) == NOW + 5
    clock.now += 5
    assert store.withdraw(stored.withdrawal(one)) == NOW + 5
    assert store.record_bytes(one) is None
    row = store.result(one)
    assert row is not None
    assert (row.withdrawn_at, row.label, row.tops) == (NOW + 5, None, None)
    with reading(store.engine) as connection:
        assert set(connection.scalars(select(figures.c.result_id))) == {other}
        assert connection.scalar(select(processors.c.runs)) == 1
    assert_whole(store, 2)


def test_any_key_of_the_machine_may_withdraw(store: Store) -> None:
    (one,) = stored.submit(store, 1)
    store.register_key(stored.registration(OTHER))
    store.withdraw(stored.withdrawal(one, OTHER))
    assert store.record_bytes(one) is None


def test_nobody_else_withdraws(store: Store) -> None:
    (one,) = stored.submit(store, 1)
    store.register_key(stored.registration(OTHER, OTHER_MACHINE))
    with pytest.raises(Refused) as caught:
        store.withdraw(stored.withdrawal(one, OTHER, OTHER_MACHINE))
    assert caught.value.fault.code == "not_the_owner"
    with pytest.raises(Refused) as caught:
        store.withdraw(stored.withdrawal("a" * 16))
    assert caught.value.fault.code == "not_found"
    assert store.record_bytes(one) is not None


def test_hiding_takes_figures_off_and_unhiding_brings_them_back(store: Store) -> None:
    one, two = stored.submit(store, 1, 2)

    def board() -> list[tuple[object, ...]]:
        columns = (figures.c.result_id, figures.c.facet_id, figures.c.tops, facets.c.figures)
        with reading(store.engine) as connection:
            query = select(*columns).join(facets, facets.c.id == figures.c.facet_id)
            return sorted(tuple(row) for row in connection.execute(query))

    before = board()
    store.moderation.hide(one, "implausible")
    store.moderation.hide(one, "implausible")
    assert {row[0] for row in board()} == {two}
    assert audit(store.engine, SERVER_KEY).faults == []
    store.moderation.unhide(one)
    store.moderation.unhide(one)
    assert board() == before
    assert_whole(store, 2)


def test_what_was_withdrawn_does_not_come_back(store: Store) -> None:
    (one,) = stored.submit(store, 1)
    store.moderation.hide(one, "a doubt")
    store.withdraw(stored.withdrawal(one))
    store.moderation.unhide(one)
    with reading(store.engine) as connection:
        assert connection.execute(select(figures.c.id)).all() == []
    assert_whole(store, 1)


def test_a_record_of_a_form_that_is_read_no_more_stays_hidden(store: Store) -> None:
    one, other = stored.submit(store, 1, 2)
    store.moderation.hide(one, "a doubt")
    with writing(store.engine) as connection:
        older = zlib.compress(b'{"payload":{"form":"older"}}')
        connection.execute(update(bodies).where(bodies.c.result_id == one).values(record=older))
    with pytest.raises(IntegrityError, match="does not read"):
        store.moderation.unhide(one)
    row = store.result(one)
    assert row is not None
    assert row.hidden_at is not None
    with pytest.raises(Refused) as caught:
        store.payload(one)
    assert caught.value.fault.code == "record_form"
    assert store.payload(other).run_id == "run-2"


def test_nobody_can_take_the_page_of_a_processor_to_come(store: Store) -> None:
    store.register_key(stored.registration())
    honest = Device("CPU", "Foo")
    for n, name in enumerate(("foo", f"foo {honest.own_slug.rpartition('-')[2]}", honest.name)):
        payload = stored.new_result(n).payload
        renamed = [payload.processors[0].model_copy(update={"name": name})]
        store.accept(stored.new_result(payload=payload.model_copy(update={"processors": renamed})))
    with reading(store.engine) as connection:
        slugs = list(connection.scalars(select(processors.c.slug).order_by(processors.c.id)))
    assert (slugs[0], slugs[2]) == (honest.slug, honest.own_slug)
