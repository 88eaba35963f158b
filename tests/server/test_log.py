"""The log in the database: tiles, bundles and proofs against a tree that is computed naively."""

from __future__ import annotations

import pytest
from sqlalchemy import Connection, select

from npumark.record.signing import InstallKey
from npumark.server import log
from npumark.server.database import reading, writing
from npumark.server.refusal import Refused
from npumark.server.store import Store
from npumark.server.tables import cosignatures, log_tiles
from npumark.transparency.checkpoint import Checkpoint, parse_checkpoint
from npumark.transparency.merkle import (
    Frontier,
    leaf_hash,
    node_hash,
    verify_consistency,
    verify_inclusion,
)
from npumark.transparency.note import (
    COSIGNATURE,
    cosign,
    open_note,
    parse_note,
    parse_verifier_key,
    sign,
    verifier_key,
)
from npumark.transparency.proof import check_log_proof
from npumark.transparency.tiles import decode_bundle
from tests import forge
from tests.server.conftest import NOW, SERVER_KEY, config_of

SIZE = 600
ENTRIES = [f"entry {n}".encode() for n in range(SIZE)]
HASHES = [leaf_hash(entry) for entry in ENTRIES]
WITNESS = InstallKey(b"\x05" * 32)
WITNESS_KEY = verifier_key("witness.example", WITNESS.public, COSIGNATURE)
VKEY = verifier_key(forge.ORIGIN, SERVER_KEY.public)


def root(count: int) -> bytes:
    edge = Frontier()
    for hash_ in HASHES[:count]:
        edge = edge.append(hash_)
    return edge.root()


def grow(connection: Connection, store: Store, *sizes: int) -> None:
    """Append ``ENTRIES`` in batches up to each size."""
    for size in sizes:
        head = log.head(connection, lock=True)
        log.append(connection, head, ENTRIES[head.size : size], store.config)


@pytest.fixture
def grown(sqlite_store: Store) -> Store:
    with writing(sqlite_store.engine) as connection:
        grow(connection, sqlite_store, 1, 2, 255, 256, 257, 590, SIZE)
    return sqlite_store


def test_an_empty_log_has_a_signed_head(store: Store) -> None:
    with reading(store.engine) as connection:
        head = log.head(connection)
        assert (head.size, head.root) == (0, Frontier().root())
        assert log.checkpoint(connection) == head.checkpoint
        assert log.tile(connection, 0, 0, 1) is None
        assert log.bundle(connection, 0, 1) is None
        assert log.leaf(connection, 0) is None
        with pytest.raises(ValueError, match="no leaf 0"):
            log.proof(connection, 0)
    note = open_note(head.checkpoint, [parse_verifier_key(VKEY)])
    assert parse_checkpoint(note.text) == Checkpoint(forge.ORIGIN, 0, Frontier().root())


def test_appending_gives_the_root_and_each_proof(store: Store) -> None:
    with writing(store.engine) as connection:
        grow(connection, store, 3)
        head, proofs = log.append(connection, log.head(connection), ENTRIES[3:8], store.config)
        assert log.head(connection) == head
    assert (head.size, head.root) == (8, root(8))
    for index, proof in zip(range(3, 8), proofs, strict=True):
        assert verify_inclusion(HASHES[index], index, 8, proof, head.root)


def test_tiles_hold_the_hashes_of_their_level(grown: Store) -> None:
    tiles = [Frontier().extend(HASHES[n : n + 256])[0].root() for n in (0, 256)]
    with reading(grown.engine) as connection:
        assert log.tile(connection, 0, 0) == b"".join(HASHES[:256])
        assert log.tile(connection, 0, 2, 88) == b"".join(HASHES[512:])
        assert log.tile(connection, 0, 2, 10) == b"".join(HASHES[512:522])
        assert log.tile(connection, 1, 0, 2) == b"".join(tiles)
        for level, n, width in ((0, 2, 89), (0, 2, 256), (1, 0, 3), (1, 1, 1), (2, 0, 1)):
            assert log.tile(connection, level, n, width) is None


def test_a_tile_of_level_two_is_made_of_full_ones(store: Store) -> None:
    """As after 65,536 leaves: what is below is put there, so that the test need not append them."""
    above = [leaf_hash(bytes([n])) for n in range(255)]
    leaves = 256 * 256
    with writing(store.engine) as connection:
        rows = [{"level": 1, "index": n, "hash": h} for n, h in enumerate(above)]
        connection.execute(log_tiles.insert(), rows)
        nodes = Frontier().extend(above)[0].nodes
        start = Frontier(leaves - 256, nodes)
        log.append(connection, log.Head(start, ""), ENTRIES[:256], store.config)
        found = connection.scalar(select(log_tiles.c.hash).where(log_tiles.c.level == 2))
    last = Frontier().extend(HASHES[:256])[0].root()
    assert found == Frontier().extend([*above, last])[0].root()


def test_bundles_hold_the_entries(grown: Store) -> None:
    with reading(grown.engine) as connection:
        whole, partial = log.bundle(connection, 1), log.bundle(connection, 2, 88)
        assert log.bundle(connection, 2, 89) is None
        assert log.leaf(connection, SIZE - 1) == ENTRIES[-1]
    assert whole is not None
    assert partial is not None
    assert decode_bundle(whole) == ENTRIES[256:512]
    assert decode_bundle(partial) == ENTRIES[512:]


@pytest.mark.parametrize("index", [0, 1, 254, 255, 256, 511, 512, SIZE - 1])
def test_every_leaf_is_proved_under_every_head(grown: Store, index: int) -> None:
    with reading(grown.engine) as connection:
        for size in (index + 1, 256, 512, 513, SIZE):
            if size > index:
                proof = log.inclusion(connection, index, size)
                assert verify_inclusion(HASHES[index], index, size, proof, root(size))
        assert check_log_proof(log.proof(connection, index), VKEY).size == SIZE


@pytest.mark.parametrize(("m", "n"), [(0, 5), (1, 600), (255, 256), (256, 257), (511, 600)])
def test_the_log_only_grew(grown: Store, m: int, n: int) -> None:
    with reading(grown.engine) as connection:
        proof = log.consistency(connection, m, n)
    assert verify_consistency(m, n, root(m), root(n), proof)
    assert not verify_consistency(m, n, node_hash(root(m), b""), root(n), proof)


def test_a_smaller_log_begins_with_no_larger_one(grown: Store) -> None:
    with reading(grown.engine) as connection, pytest.raises(ValueError, match="beginning"):
        log.consistency(connection, 5, 4)


def cosigned(
    size: int,
    *,
    witness: InstallKey = WITNESS,
    origin: str = forge.ORIGIN,
    leaves: int | None = None,
) -> str:
    """Return a head of ``size`` leaves, under the root of another number of them if told so, that
    the log and a witness signed."""
    text = Checkpoint(origin, size, root(size if leaves is None else leaves)).encode()
    note = sign(text, origin, SERVER_KEY)
    return note + str(cosign(text, "witness.example", witness, int(NOW)))


def test_a_configured_witness_signs_a_head(store: Store) -> None:
    config = config_of(store.config.database_url, witnesses=(WITNESS_KEY,))
    with writing(store.engine) as connection:
        grow(connection, store, 5)
        note = cosigned(5)
        for _ in range(2):
            found = log.add_cosignature(connection, note, config, NOW)
            assert found == (5, ["witness.example"])
        assert log.checkpoint(connection) == note
        assert len(connection.execute(select(cosignatures)).all()) == 1
        grow(connection, store, 6)
        assert log.checkpoint(connection) == log.head(connection).checkpoint


def test_an_older_head_may_be_cosigned_late(store: Store) -> None:
    config = config_of(store.config.database_url, witnesses=(WITNESS_KEY,))
    with writing(store.engine) as connection:
        grow(connection, store, 5, 300)
        assert log.add_cosignature(connection, cosigned(5), config, NOW)[0] == 5
        assert len(parse_note(log.checkpoint(connection)).signatures) == 1


@pytest.mark.parametrize(
    ("note", "code"),
    [
        ("nonsense", "wrong_form"),
        (cosigned(6), "digest"),
        (cosigned(5, leaves=4), "digest"),
        (cosigned(5, witness=InstallKey(b"\x06" * 32)), "bad_signature"),
        (cosigned(5, origin="other.example"), "wrong_origin"),
    ],
    ids=["no note", "a head of the future", "a fork", "a stranger", "another log"],
)
def test_other_cosignatures_are_refused(store: Store, note: str, code: str) -> None:
    config = config_of(store.config.database_url, witnesses=(WITNESS_KEY,))
    with writing(store.engine) as connection:
        grow(connection, store, 5)
        with pytest.raises(Refused) as caught:
            log.add_cosignature(connection, note, config, NOW)
        assert caught.value.fault.code == code
        assert connection.execute(select(cosignatures)).all() == []


def test_without_witnesses_none_is_taken(store: Store) -> None:
    with writing(store.engine) as connection:
        grow(connection, store, 5)
        with pytest.raises(Refused) as caught:
            log.add_cosignature(connection, cosigned(5), store.config, NOW)
    assert caught.value.fault.code == "bad_signature"
