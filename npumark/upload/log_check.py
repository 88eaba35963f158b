"""Whether the log that a receipt speaks of still holds its leaf, and only ever grew."""

from __future__ import annotations

from dataclasses import dataclass

from npumark.errors import IntegrityError
from npumark.record.envelope import Receipt
from npumark.transparency.checkpoint import Checkpoint
from npumark.transparency.growth import check_growth, check_leaf
from npumark.transparency.merkle import leaf_hash
from npumark.transparency.note import decoded
from npumark.upload import known_heads
from npumark.upload.published_log import PublishedLog


@dataclass(frozen=True, slots=True)
class Grown:
    """``present`` is the log's head now, ``known`` the last one that was seen of it before."""

    present: Checkpoint
    known: Checkpoint | None


def check_log(receipt: Receipt, proved: Checkpoint, log: PublishedLog) -> Grown:
    """Check ``log`` as it is now against the head that a checked receipt proves its leaf under, and
    against the last head that this computer saw; then remember the present one.

    Raises IntegrityError, with the heads in its sentence, where the log dropped the leaf, shrank,
    was forked, or does not serve what its head promises; the head that contradicts is kept.
    NetworkError where it cannot be asked.
    """
    note, present = log.head()
    known = known_heads.of(receipt.origin)
    try:
        _check(receipt, [proved, *([known] if known else [])], present, log)
    except IntegrityError as fault:
        kept = known_heads.keep_evidence(note, present)
        hint = f"{fault.hint} The present one is kept in {kept}."
        if known is not None:
            hint += (
                " If they announced that the log began anew, move "
                f"{known_heads.place_of(receipt.origin)} away to check receipts of the new one."
            )
        raise IntegrityError(fault.message, hint) from fault
    known_heads.remember(note, log.vkey)
    return Grown(present, known)


def _check(
    receipt: Receipt, earlier: list[Checkpoint], present: Checkpoint, log: PublishedLog
) -> None:
    """``earlier`` are heads of the log, that of the receipt first."""
    node, proved = log.node(present.size), earlier[0]
    entry, index = decoded(receipt.log.entry), receipt.log.index
    check_leaf(leaf_hash(entry), index, proved, present, node)
    for older in earlier:
        check_growth(older, present, node)
    if log.entry(index, present.size) != entry:
        raise IntegrityError(
            f"the log of {receipt.origin} shows something else as leaf {index} than its hash is "
            f"of: it had {proved} with it; now it has {present}",
            "Keep the receipt, and tell whoever runs the server.",
        )
