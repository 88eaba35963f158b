"""Whether what a server keeps belongs together: log, results, receipts, and the board's counts.

Everything is read in one transaction, so that a server may go on meanwhile, and nothing of the
log is believed: hashes, tiles and the root are computed again from the entries.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import ValidationError
from sqlalchemy import Connection, Engine, Row, func, select

from npumark.errors import IntegrityError
from npumark.record.canonical import canonical_bytes
from npumark.record.envelope import Receipt, leaf_entry
from npumark.record.signing import InstallKey, statement_holds
from npumark.server import log
from npumark.server.answers import instant
from npumark.server.database import snapshot
from npumark.server.tables import (
    bodies,
    facets,
    figures,
    log_leaves,
    log_tiles,
    processors,
    results,
)
from npumark.transparency.merkle import Frontier, leaf_hash
from npumark.transparency.note import decoded
from npumark.transparency.proof import check_log_proof
from npumark.transparency.receipt import log_key_of
from npumark.transparency.tiles import WIDTH

_ROWS: Final = 500
MOST_FAULTS: Final = 100
"""Faults that are told; where there are more, the rest would say the same."""


@dataclass(slots=True)
class Audit:
    """``faults`` are sentences, at most ``MOST_FAULTS``; empty: all is as it should be."""

    leaves: int = 0
    root: str = ""
    results: int = 0
    withdrawn: int = 0
    figures: int = 0
    faults: list[str] = field(default_factory=list)

    def fault(self, sentence: str) -> None:
        if len(self.faults) < MOST_FAULTS:
            self.faults.append(sentence)


def audit(engine: Engine, key: InstallKey | None) -> Audit:
    """Return what was found; ``key`` is the one that must have signed the log's head, where it is
    known."""
    found = Audit()
    with snapshot(engine) as connection:
        head = log.head(connection)
        found.leaves, found.root = head.size, head.root.hex()
        if key is not None and not log.is_signed_by(head, key):
            found.fault("the log's head is not signed with the server's key")
        roots = _check_tree(connection, head, found)
        _check_results(connection, roots, found)
        _check_counts(connection, found)
    return found


def _check_tree(connection: Connection, head: log.Head, found: Audit) -> list[bytes]:
    """Compute the tree from its entries; return its root after each leaf."""
    frontier = Frontier()
    roots: list[bytes] = []
    columns = (log_leaves.c.index.label("at"), log_leaves.c.hash, log_leaves.c.entry)
    query = select(*columns).order_by(log_leaves.c.index).execution_options(yield_per=_ROWS)
    tiles = _Tiles(connection, found)
    for row in connection.execute(query):
        if row.at != frontier.size:
            found.fault(f"the log has no leaf {frontier.size}, but a leaf {row.at}")
            break
        computed = leaf_hash(row.entry)
        if computed != row.hash:
            found.fault(f"leaf {row.at} has another hash than its entry")
        frontier = frontier.append(computed)
        roots.append(frontier.root())
        tiles.add(computed)
    if (frontier.size, frontier.root()) != (head.size, head.root):
        found.fault(
            f"the log has {frontier.size} leaves and the root {frontier.root().hex()[:16]}…; its "
            f"head states {head.size} and {head.root.hex()[:16]}…"
        )
    stored = connection.scalar(select(func.count()).select_from(log_tiles))
    if stored != tiles.full:
        found.fault(f"there are {stored} hashes of full tiles, and {tiles.full} tiles are full")
    return roots


class _Tiles:
    """Fills tiles with leaves, and compares each that is full with the hash that is stored."""

    def __init__(self, connection: Connection, found: Audit) -> None:
        self._connection = connection
        self._found = found
        self._levels: dict[int, list[bytes]] = {}
        self._counts: dict[int, int] = {}
        self.full = 0

    def add(self, hash_: bytes, level: int = 0) -> None:
        row = self._levels.setdefault(level, [])
        row.append(hash_)
        if len(row) < WIDTH:
            return
        index = self._counts.get(level, 0)
        self._counts[level] = index + 1
        self._levels[level] = []
        self.full += 1
        root = Frontier().extend(row)[0].root()
        at = (log_tiles.c.level == level + 1) & (log_tiles.c.index == index)
        if self._connection.scalar(select(log_tiles.c.hash).where(at)) != root:
            self._found.fault(f"tile {index} of level {level} has another hash than its content")
        self.add(root, level + 1)


def _check_results(connection: Connection, roots: list[bytes], found: Audit) -> None:
    """Check each result against its leaf, its receipt and its bytes."""
    query = (
        select(results, log_leaves.c.entry, bodies.c.record)
        .join(log_leaves, log_leaves.c.index == results.c.leaf_index, isouter=True)
        .join(bodies, bodies.c.result_id == results.c.id, isouter=True)
        .order_by(results.c.leaf_index)
        .execution_options(yield_per=_ROWS)
    )
    for row in connection.execute(query):
        found.results += 1
        found.withdrawn += row.withdrawn_at is not None
        for sentence in _faults_of(row, roots):
            found.fault(f"result {row.id}: {sentence}")
    if found.results != found.leaves:
        found.fault(f"the log has {found.leaves} leaves, and there are {found.results} results")


def _faults_of(row: Row[Any], roots: list[bytes]) -> Iterator[str]:
    due = leaf_entry(
        result_id=row.id,
        record_sha256=row.record_sha256,
        payload_sha256=row.payload_sha256,
        key_id=row.key_id,
        received_at=instant(row.received_at),
    )
    if row.entry != canonical_bytes(due):
        yield f"leaf {row.leaf_index} of the log is not its"
    yield from _receipt_faults(row, roots)
    if row.record is None:
        if row.withdrawn_at is None:
            yield "its record is missing"
        return
    if row.withdrawn_at is not None:
        yield "it was withdrawn, and its record is still there"
    try:
        raw = zlib.decompress(row.record)
    except zlib.error:
        raw = b""
    if hashlib.sha256(raw).hexdigest() != row.record_sha256:
        yield "its record is not what was accepted"


def _receipt_faults(row: Row[Any], roots: list[bytes]) -> Iterator[str]:
    try:
        receipt = Receipt.model_validate_json(row.receipt)
        head = check_log_proof(receipt.log, log_key_of(receipt))
    except (ValidationError, IntegrityError) as fault:
        told = fault.message if isinstance(fault, IntegrityError) else "it cannot be read"
        yield f"its receipt does not hold: {told}"
        return
    signed = receipt.signature
    if not statement_holds(receipt.statement(), "receipt", signed.public_key, signed.signature):
        yield "the signature of its receipt does not hold"
    if receipt.log.index != row.leaf_index or decoded(receipt.log.entry) != row.entry:
        yield "its receipt speaks of another leaf"
    if head.size > len(roots) or roots[head.size - 1] != head.root:
        yield f"its receipt's head of {head.size} leaves is not one of this log"


def _check_counts(connection: Connection, found: Audit) -> None:
    found.figures = connection.scalar(select(func.count()).select_from(figures)) or 0
    shown = (results.c.withdrawn_at.is_(None), results.c.hidden_at.is_(None))
    query = select(figures.c.result_id).distinct().join(results)
    for name in connection.scalars(query.where(~(shown[0] & shown[1]))):
        found.fault(f"result {name} is not shown, and its figures are on the board")
    ranked = (
        select(results.c.id)
        .distinct()
        .join(figures, figures.c.result_id == results.c.id)
        .join(facets, facets.c.id == figures.c.facet_id)
        .where(facets.c.ranked != results.c.ranked)
    )
    for name in connection.scalars(ranked):
        found.fault(f"result {name} is ranked by the board or by its verdict, and not by both")
    of_facet = select(func.count()).where(figures.c.facet_id == facets.c.id).scalar_subquery()
    for row in connection.execute(
        select(facets.c.id, facets.c.figures, of_facet.label("held")).where(
            facets.c.figures != of_facet
        )
    ):
        found.fault(f"facet {row.id} counts {row.figures} figures and has {row.held}")
    runs = func.count(figures.c.result_id.distinct())
    of_processor = select(runs).where(figures.c.processor_id == processors.c.id).scalar_subquery()
    for row in connection.execute(
        select(processors.c.slug, processors.c.runs, of_processor.label("held")).where(
            processors.c.runs != of_processor
        )
    ):
        found.fault(f"processor {row.slug} counts {row.runs} runs and has {row.held}")
