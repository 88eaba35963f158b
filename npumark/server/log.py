"""The transparency log as it lies in the database.

``log_head`` has the size, the tree's right edge and the signed head; ``log_leaves`` each leaf's
entry and hash; ``log_tiles`` the hashes of the levels above (level L has one over 256**L leaves).
All of it is read within the caller's transaction, so that a proof and its head belong together.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, insert, select, update

from npumark.errors import SetupError
from npumark.record.envelope import LogProof
from npumark.record.signing import InstallKey
from npumark.server.config import ServerConfig
from npumark.server.refusal import refuse
from npumark.server.tables import cosignatures, log_head, log_leaves, log_tiles
from npumark.transparency.checkpoint import Checkpoint, open_checkpoint, parse_checkpoint
from npumark.transparency.merkle import (
    Frontier,
    Node,
    Proof,
    consistency_proof,
    inclusion_proof,
    leaf_hash,
    node_hash,
    root_of,
)
from npumark.transparency.note import open_note, parse_note, parse_verifier_key, sign, verifier_key
from npumark.transparency.tiles import HEIGHT, WIDTH, Tile, encode_bundle, node_of


@dataclass(frozen=True, slots=True)
class Head:
    """``frontier`` is the tree's right edge, ``checkpoint`` the signed note over size and root."""

    frontier: Frontier
    checkpoint: str

    @property
    def size(self) -> int:
        return self.frontier.size

    @property
    def root(self) -> bytes:
        return self.frontier.root()


def head(connection: Connection, *, lock: bool = False) -> Head:
    """Return the log's head; with ``lock`` nobody else appends until the transaction ends."""
    query = select(log_head.c.size, log_head.c.frontier, log_head.c.checkpoint)
    row = connection.execute(query.with_for_update() if lock else query).one()
    return Head(Frontier.from_bytes(row.size, row.frontier), row.checkpoint)


def begin(connection: Connection, config: ServerConfig) -> None:
    """Sign the head of the empty log, where there is no log yet."""
    if connection.execute(select(log_head.c.id)).first() is None:
        connection.execute(
            insert(log_head).values(id=1, **_row(Frontier(), config.origin, config.key))
        )


def check_signed_by(connection: Connection, config: ServerConfig) -> None:
    """Check that the log is the one of this server's name and key.

    Raises SetupError: servers of one database that sign with different keys would fork its log.
    """
    present = head(connection)
    origin = origin_of(present)
    if origin != config.origin:
        raise SetupError(
            f"the log in this database is that of {origin}, and this server is {config.origin}",
            f"Start it with --origin {origin}, or with another database.",
        )
    if not is_signed_by(present, config.key):
        raise SetupError(
            "the log in this database is signed with another key than this server's",
            "Put the key that it had back (server.key in its folder). If the key was exchanged on "
            "purpose: npumark serve admin adopt-key",
        )


def append(
    connection: Connection, before: Head, entries: Sequence[bytes], config: ServerConfig
) -> tuple[Head, list[Proof]]:
    """Append leaves to a head that was read with its lock; return the new head, and each leaf's
    inclusion proof under it."""
    hashes = [leaf_hash(entry) for entry in entries]
    after, proofs = before.frontier.extend(hashes)
    rows = zip(range(before.size, after.size), hashes, entries, strict=True)
    connection.execute(
        insert(log_leaves), [{"index": i, "hash": h, "entry": e} for i, h, e in rows]
    )
    _fill_tiles(connection, before.size, after.size)
    values = _row(after, config.origin, config.key)
    connection.execute(update(log_head).values(**values))
    return Head(after, values["checkpoint"]), proofs


def adopt_key(connection: Connection, key: InstallKey) -> bool:
    """Sign the present head with a server's new key. False: it is signed with that one."""
    present = head(connection, lock=True)
    origin = origin_of(present)
    if is_signed_by(present, key):
        return False
    connection.execute(update(log_head).values(**_row(present.frontier, origin, key)))
    return True


def is_signed_by(present: Head, key: InstallKey) -> bool:
    """Whether a head is signed with a server's key."""
    own = verifier_key(origin_of(present), key.public)
    try:
        open_checkpoint(present.checkpoint, parse_verifier_key(own))
    except ValueError:
        return False
    return True


def origin_of(present: Head) -> str:
    """Return the name of the log of a head."""
    return parse_checkpoint(parse_note(present.checkpoint).text).origin


def hashes(connection: Connection, tile: Tile) -> list[bytes]:
    """Return the hashes of a tile of exactly that width; fewer where the log is shorter."""
    first = tile.index * WIDTH
    if tile.level == 0:
        query = select(log_leaves.c.hash).where(
            log_leaves.c.index.between(first, first + tile.width - 1)
        )
        return list(connection.scalars(query.order_by(log_leaves.c.index)))
    query = select(log_tiles.c.hash).where(
        log_tiles.c.level == tile.level, log_tiles.c.index.between(first, first + tile.width - 1)
    )
    return list(connection.scalars(query.order_by(log_tiles.c.index)))


def tile(connection: Connection, level: int, n: int, width: int = WIDTH) -> bytes | None:
    """Return the content of a tile (C2SP tlog-tiles); null where the log has no such hashes yet."""
    found = hashes(connection, Tile(level, n, width))
    return b"".join(found) if len(found) == width else None


def bundle(connection: Connection, n: int, width: int = WIDTH) -> bytes | None:
    """Return the bundle of the entries under tile ``n`` of level 0; null where there are fewer."""
    found = list(entries(connection, n * WIDTH, n * WIDTH + width))
    return encode_bundle(found) if len(found) == width else None


def entries(connection: Connection, start: int, end: int) -> Iterator[bytes]:
    """Yield the entries from leaf ``start`` to the one before ``end``, as far as there are any."""
    query = select(log_leaves.c.entry).where(log_leaves.c.index.between(start, end - 1))
    yield from connection.scalars(query.order_by(log_leaves.c.index))


def leaf(connection: Connection, index: int) -> bytes | None:
    """Return the entry of a leaf; null where the log is shorter."""
    return next(entries(connection, index, index + 1), None)


def node(connection: Connection, size: int) -> Node:
    """Return how the tree of the first ``size`` leaves is asked for its hashes."""
    read: dict[Tile, list[bytes]] = {}

    def cached(wanted: Tile) -> list[bytes]:
        if wanted not in read:
            read[wanted] = hashes(connection, wanted)
        return read[wanted]

    return node_of(cached, size)


def consistency(connection: Connection, m: int, n: int) -> Proof:
    """Return the proof that the log of ``m`` leaves is the beginning of that of ``n``, which it
    has. Raises ValueError where ``m`` is above ``n``."""
    return consistency_proof(m, n, node(connection, n))


def inclusion(connection: Connection, index: int, size: int) -> Proof:
    """Return the proof of leaf ``index`` under the head of ``size`` leaves, which the log has.
    Raises ValueError where that head does not include it."""
    return inclusion_proof(index, size, node(connection, size))


def proof(connection: Connection, index: int) -> LogProof:
    """Return the proof of a leaf, which the log has, under its present head."""
    present = head(connection)
    entry = leaf(connection, index)
    if entry is None:
        raise ValueError(f"a log of {present.size} leaves has no leaf {index}")
    path = inclusion(connection, index, present.size)
    return as_proof(index, entry, present.checkpoint, path)


def as_proof(index: int, entry: bytes, checkpoint: str, path: Proof) -> LogProof:
    """Return a proof in the form that it travels in."""
    return LogProof(
        index=index,
        entry=base64.b64encode(entry).decode(),
        checkpoint=checkpoint,
        proof=[base64.b64encode(beside).decode() for beside in path],
    )


def checkpoint(connection: Connection) -> str:
    """Return the signed head with the witnesses' signatures of it: what is published."""
    present = head(connection)
    query = select(cosignatures.c.line).where(cosignatures.c.size == present.size)
    lines = connection.scalars(query.order_by(cosignatures.c.witness))
    return present.checkpoint + "".join(lines)


def add_cosignature(
    connection: Connection, note: str, config: ServerConfig, now: float
) -> tuple[int, list[str]]:
    """Keep what configured witnesses signed of a head of this log. Return that head's size, and
    the witnesses whose signatures of it are kept now.

    Raises Refused where it is no note, of another log, of a head that this log never had, or no
    configured witness signed it.
    """
    keys = [parse_verifier_key(text) for text in config.witnesses]
    try:
        stated = parse_checkpoint(parse_note(note).text)
    except ValueError as fault:
        raise refuse("wrong_form", f"it is no signed head of a log: {fault}") from None
    try:
        signed = open_note(note, keys)
    except ValueError as fault:
        raise refuse("bad_signature", f"the witness's signature is not taken: {fault}") from None
    _check_own(connection, stated, config)  # it holds the head: for known witnesses alone
    of_size = select(cosignatures.c.witness).where(cosignatures.c.size == stated.size)
    kept = set(connection.scalars(of_size))
    new = [signature for signature in signed.signatures if signature.name not in kept]
    if new:
        at = {"size": stated.size, "received_at": int(now)}
        connection.execute(
            insert(cosignatures), [{**at, "witness": s.name, "line": str(s)} for s in new]
        )
    return stated.size, sorted(kept | {signature.name for signature in new})


def _check_own(connection: Connection, stated: Checkpoint, config: ServerConfig) -> None:
    if stated.origin != config.origin:
        raise refuse("wrong_origin", "it is the head of another log", origin=config.origin)
    size = head(connection, lock=True).size
    known = stated.size <= size
    if not known or root_of(stated.size, node(connection, stated.size)) != stated.root:
        raise refuse("digest", "this log never had that head", size=size)


def _row(frontier: Frontier, origin: str, key: InstallKey) -> dict[str, Any]:
    text = Checkpoint(origin, frontier.size, frontier.root()).encode()
    return {
        "size": frontier.size,
        "frontier": frontier.to_bytes(),
        "checkpoint": sign(text, origin, key),
    }


def _fill_tiles(connection: Connection, before: int, after: int) -> None:
    """Write the hash of each tile that became full, and those of the levels above it."""
    read, level = node(connection, after), 0
    while full := range(before // WIDTH, after // WIDTH):
        level += 1
        below = level * HEIGHT - 1
        rows = [
            {
                "level": level,
                "index": n,
                "hash": node_hash(read(below, 2 * n), read(below, 2 * n + 1)),
            }
            for n in full
        ]
        connection.execute(insert(log_tiles), rows)
        before, after = before // WIDTH, after // WIDTH
