"""Whether a log only ever grew: two of its heads and one of its leaves, against its tiles."""

from __future__ import annotations

from npumark.errors import IntegrityError
from npumark.transparency.checkpoint import Checkpoint
from npumark.transparency.merkle import (
    Node,
    consistency_proof,
    inclusion_proof,
    verify_consistency,
    verify_inclusion,
)

_HINT = "Keep both heads: together they prove it. Tell whoever runs the server, and its witnesses."


def check_growth(older: Checkpoint, newer: Checkpoint, node: Node) -> None:
    """Check that the log of ``newer`` begins with all of ``older``.

    ``node`` answers from what the log publishes and is not trusted: the proof that is made from it
    is verified against both heads. Raises IntegrityError, with both heads in its sentence, where
    the log shrank or forked, or where its tiles do not belong to its head.
    """
    heads = f"the log of {newer.origin} had {older}; now it has {newer}"
    if newer.size < older.size:
        raise IntegrityError(f"the log shrank: {heads}", _HINT)
    if newer.size == older.size:
        if newer.root != older.root:
            raise IntegrityError(f"the log was forked: {heads}", _HINT)
        return
    proof = consistency_proof(older.size, newer.size, node)
    if not verify_consistency(older.size, newer.size, older.root, newer.root, proof):
        raise IntegrityError(
            f"the log was forked, or its tiles are not those of its head: {heads}", _HINT
        )


def check_leaf(
    leaf: bytes, index: int, proved: Checkpoint, present: Checkpoint, node: Node
) -> None:
    """Check that the leaf of hash ``leaf``, which was number ``index`` under the head ``proved``,
    is so under ``present`` as well. Raises IntegrityError with both heads where it is not."""
    heads = f"the log of {present.origin} had {proved} with it; now it has {present}"
    if index >= present.size:
        raise IntegrityError(f"the log dropped leaf {index}: {heads}", _HINT)
    proof = inclusion_proof(index, present.size, node)
    if not verify_inclusion(leaf, index, present.size, proof, present.root):
        raise IntegrityError(f"the log no longer proves leaf {index}: {heads}", _HINT)
