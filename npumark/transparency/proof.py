"""What a log says of one leaf, checked without asking the log."""

from __future__ import annotations

from typing import Final

from npumark.errors import IntegrityError
from npumark.plain import count
from npumark.record.envelope import LogProof
from npumark.transparency.checkpoint import Checkpoint, open_checkpoint
from npumark.transparency.merkle import HASH_BYTES, leaf_hash, verify_inclusion
from npumark.transparency.note import decoded, parse_verifier_key

ASK: Final = "Keep the receipt: it shows what the server said. Ask whoever runs the server."


def check_log_proof(proof: LogProof, vkey: str) -> Checkpoint:
    """Return the head under which ``proof`` shows its leaf to be, signed by the log ``vkey``.

    Raises IntegrityError, with a sentence for each, where the key, the checkpoint, its signature,
    the entry or the path is not what it should be.
    """
    try:
        key = parse_verifier_key(vkey)
    except ValueError as fault:
        raise IntegrityError(f"the log's key cannot be read: {fault}", ASK) from None
    try:
        head = open_checkpoint(proof.checkpoint, key)
    except ValueError as fault:
        raise IntegrityError(f"the log's checkpoint is not to be trusted: {fault}", ASK) from None
    try:
        entry, path = decoded(proof.entry), [decoded(text) for text in proof.proof]
    except ValueError:
        raise IntegrityError("the log's proof is not base64 throughout", ASK) from None
    if any(len(beside) != HASH_BYTES for beside in path):
        raise IntegrityError("the log's proof holds what is no sha256", ASK)
    if proof.index >= head.size:
        raise IntegrityError(
            f"the log's proof is of leaf {proof.index}, and the log had "
            f"{count(head.size, 'leaf', 'leaves')}",
            ASK,
        )
    if not verify_inclusion(leaf_hash(entry), proof.index, head.size, path, head.root):
        raise IntegrityError(
            f"the log's proof does not show leaf {proof.index} under the head of "
            f"{count(head.size, 'leaf', 'leaves')}",
            ASK,
        )
    return head
