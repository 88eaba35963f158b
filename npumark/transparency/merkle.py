"""The Merkle tree of RFC 9162 §2.1 (that of RFC 6962) over sha256, and its two proofs.

``Node`` is how a tree is asked for hashes: ``node(level, index)`` returns the root of the complete
subtree of the 2**level leaves from ``index * 2**level`` on. It is asked for nothing else, so that
leaves and tiles are enough to answer it (``tiles.node_of``). Every hash has 32 bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

HASH_BYTES: Final = 32
EMPTY_ROOT: Final = hashlib.sha256(b"").digest()
"""The root of the tree without leaves."""

Node = Callable[[int, int], bytes]
Proof = tuple[bytes, ...]


def leaf_hash(entry: bytes) -> bytes:
    """Return the hash of a leaf whose content is ``entry`` (RFC 9162 §2.1.1)."""
    return hashlib.sha256(b"\x00" + entry).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return the hash of the node above two others (RFC 9162 §2.1.1)."""
    return hashlib.sha256(b"\x01" + left + right).digest()


@dataclass(frozen=True, slots=True)
class Frontier:
    """The right edge of a tree of ``size`` leaves: all that is needed to append to it.

    ``nodes`` are the roots of its complete subtrees, the largest first: one for each bit of
    ``size`` that is set.
    """

    size: int = 0
    nodes: Proof = ()

    def append(self, leaf: bytes) -> Frontier:
        """Return the edge of the tree with one more leaf, of the hash ``leaf``."""
        nodes, rest = list(self.nodes), self.size
        while rest & 1:
            leaf = node_hash(nodes.pop(), leaf)
            rest >>= 1
        return Frontier(self.size + 1, (*nodes, leaf))

    def root(self) -> bytes:
        if not self.nodes:
            return EMPTY_ROOT
        *others, root = self.nodes
        for left in reversed(others):
            root = node_hash(left, root)
        return root

    def extend(self, leaves: Sequence[bytes]) -> tuple[Frontier, list[Proof]]:
        """Append all ``leaves`` (hashes): return the new edge, and the inclusion proof of each of
        them in the tree that ends with the last."""
        known = dict(zip(_complete(self.size), self.nodes, strict=True))
        known |= {(0, self.size + i): leaf for i, leaf in enumerate(leaves)}

        def node(level: int, index: int) -> bytes:
            if (level, index) not in known:
                halves = node(level - 1, 2 * index), node(level - 1, 2 * index + 1)
                known[level, index] = node_hash(*halves)
            return known[level, index]

        size = self.size + len(leaves)
        proofs = [inclusion_proof(i, size, node) for i in range(self.size, size)]
        return Frontier(size, tuple(node(*place) for place in _complete(size))), proofs

    def to_bytes(self) -> bytes:
        """Return ``nodes`` one after the other."""
        return b"".join(self.nodes)

    @classmethod
    def from_bytes(cls, size: int, raw: bytes) -> Frontier:
        """Return the edge of a tree of ``size`` leaves whose ``nodes`` are ``raw``.

        Raises ValueError where a tree of that size has another number of complete subtrees.
        """
        if size < 0 or len(raw) != size.bit_count() * HASH_BYTES:
            raise ValueError(f"{len(raw)} bytes are not the right edge of a tree of {size} leaves")
        starts = range(0, len(raw), HASH_BYTES)
        return cls(size, tuple(raw[i : i + HASH_BYTES] for i in starts))


def root_of(size: int, node: Node) -> bytes:
    """Return the root of the tree of the first ``size`` leaves."""
    return _root(0, size, node) if size else EMPTY_ROOT


def root_over(hashes: Sequence[bytes]) -> bytes:
    """Return the root of the complete subtree over ``hashes``, whose number is a power of two."""
    row = list(hashes)
    while len(row) > 1:
        row = [node_hash(left, right) for left, right in zip(row[::2], row[1::2], strict=True)]
    return row[0]


def inclusion_proof(index: int, size: int, node: Node) -> Proof:
    """Return the hashes beside the path from leaf ``index`` to the root of the tree of the first
    ``size`` leaves (RFC 9162 §2.1.3.1). Raises ValueError where that tree has no such leaf."""
    if not 0 <= index < size:
        raise ValueError(f"a tree of {size} leaves has no leaf {index}")
    start, end, path = 0, size, []
    while end - start > 1:
        middle = start + _split(end - start)
        if index < middle:
            path.append(_root(middle, end, node))
            end = middle
        else:
            path.append(_root(start, middle, node))
            start = middle
    return tuple(reversed(path))


def consistency_proof(m: int, n: int, node: Node) -> Proof:
    """Return the hashes by which the tree of the first ``m`` leaves is shown to be the beginning
    of that of the first ``n`` (RFC 9162 §2.1.4.1); none where one of them is trivial: ``m`` is 0
    or ``n``. Raises ValueError where ``m`` is above ``n``."""
    if not 0 <= m <= n:
        raise ValueError(f"a tree of {m} leaves is not the beginning of one of {n}")
    if m in (0, n):
        return ()
    start, end, path = 0, n, []
    while m != end:
        middle = start + _split(end - start)
        if m <= middle:
            path.append(_root(middle, end, node))
            end = middle
        else:
            path.append(_root(start, middle, node))
            start = middle
    if start:  # else this subtree is the older tree itself, whose root is known
        path.append(_root(start, end, node))
    return tuple(reversed(path))


def verify_inclusion(
    leaf: bytes, index: int, size: int, proof: Sequence[bytes], root: bytes
) -> bool:
    """Whether the leaf of hash ``leaf`` is number ``index`` of the ``size`` leaves under ``root``
    (RFC 9162 §2.1.3.2)."""
    if not 0 <= index < size or not _sound(leaf, root, *proof):
        return False
    fn, sn, found = index, size - 1, leaf
    for beside in proof:
        if sn == 0:
            return False
        if fn & 1 or fn == sn:
            found = node_hash(beside, found)
            while not fn & 1 and fn:
                fn, sn = fn >> 1, sn >> 1
        else:
            found = node_hash(found, beside)
        fn, sn = fn >> 1, sn >> 1
    return sn == 0 and found == root


def verify_consistency(
    m: int, n: int, root_m: bytes, root_n: bytes, proof: Sequence[bytes]
) -> bool:
    """Whether the ``m`` leaves under ``root_m`` are the first of the ``n`` under ``root_n``
    (RFC 9162 §2.1.4.2). Trees of one size need equal roots, and the tree without leaves begins
    every other; neither takes a proof."""
    if not 0 <= m <= n or not _sound(root_m, root_n, *proof):
        return False
    if m == n:
        return not proof and root_m == root_n and (m > 0 or root_m == EMPTY_ROOT)
    if m == 0:
        return not proof and root_m == EMPTY_ROOT
    path = list(proof)
    if m & (m - 1) == 0:  # the older tree is one complete subtree: its root is the first hash
        path.insert(0, root_m)
    if not path:
        return False
    fn, sn = m - 1, n - 1
    while fn & 1:
        fn, sn = fn >> 1, sn >> 1
    older = newer = path[0]
    for beside in path[1:]:
        if sn == 0:
            return False
        if fn & 1 or fn == sn:
            older, newer = node_hash(beside, older), node_hash(beside, newer)
            while not fn & 1 and fn:
                fn, sn = fn >> 1, sn >> 1
        else:
            newer = node_hash(newer, beside)
        fn, sn = fn >> 1, sn >> 1
    return sn == 0 and older == root_m and newer == root_n


def _split(count: int) -> int:
    """Return the largest power of two below ``count``: where RFC 9162 §2.1.1 parts a tree."""
    return 1 << (count - 1).bit_length() - 1


def _root(start: int, end: int, node: Node) -> bytes:
    """Return the root over the leaves ``start`` to ``end``, where a subtree of the tree starts."""
    count = end - start
    if count & (count - 1) == 0:
        level = count.bit_length() - 1
        return node(level, start >> level)
    middle = start + _split(count)
    return node_hash(_root(start, middle, node), _root(middle, end, node))


def _complete(size: int) -> Iterator[tuple[int, int]]:
    """Yield level and index of the complete subtrees of a tree, the largest first."""
    for level in reversed(range(size.bit_length())):
        if size >> level & 1:
            yield level, (size >> level) - 1


def _sound(*hashes: bytes) -> bool:
    return all(len(h) == HASH_BYTES for h in hashes)
