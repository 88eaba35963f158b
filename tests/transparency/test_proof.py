"""A receipt's proof holds for its leaf, its log and its record, and for no other."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from npumark.errors import IntegrityError
from npumark.record.envelope import LogProof, Receipt
from npumark.transparency.growth import check_growth, check_leaf
from npumark.transparency.merkle import leaf_hash
from npumark.transparency.proof import check_log_proof
from npumark.transparency.receipt import check_receipt, log_key_of
from tests.transparency.paper_log import (
    OTHER_SERVER,
    SERVER,
    PaperLog,
    accepted,
    sent_record,
    signed,
)

ENTRIES = [b"leaf %d" % n for n in range(300)]
LOG = PaperLog(ENTRIES)
PROOF = LOG.proof(133)


def test_the_proof_of_a_leaf_gives_its_head() -> None:
    assert check_log_proof(PROOF, LOG.vkey) == LOG.head()


def refusal(proof: LogProof, vkey: str = LOG.vkey) -> str:
    with pytest.raises(IntegrityError) as refused:
        check_log_proof(proof, vkey)
    assert refused.value.hint
    return refused.value.message


def changed(**fields: Any) -> LogProof:
    return PROOF.model_copy(update=fields)


def test_every_fault_of_a_proof_has_its_own_sentence() -> None:
    other = PaperLog(ENTRIES, OTHER_SERVER)
    elsewhere = PaperLog(ENTRIES, origin="elsewhere.example")
    told = [
        refusal(PROOF, "no key"),
        refusal(changed(checkpoint=other.note())),
        refusal(changed(checkpoint=PROOF.checkpoint.replace("\n300\n", "\n301\n"))),
        refusal(changed(checkpoint="nothing")),
        refusal(changed(entry="?")),
        refusal(changed(proof=[*PROOF.proof[:-1], "AAAA"])),
        refusal(changed(index=300)),
        refusal(changed(index=132)),
    ]
    assert len(set(told)) == len(told)
    assert "no key that is trusted" in refusal(changed(checkpoint=elsewhere.note()))


@pytest.mark.parametrize(
    "proof",
    [
        changed(entry=base64.b64encode(b"leaf 134").decode()),
        changed(checkpoint=LOG.note(299)),
        changed(proof=PROOF.proof[:-1]),
        changed(proof=[*PROOF.proof, PROOF.proof[0]]),
        changed(proof=PROOF.proof[::-1]),
    ],
)
def test_no_other_proof_shows_the_leaf(proof: LogProof) -> None:
    assert "does not show leaf 133" in refusal(proof)


RECORD = sent_record()


def took(before: int = 5) -> tuple[PaperLog, Receipt]:
    log = PaperLog(ENTRIES[:before])
    return log, accepted(log, RECORD)


def test_a_receipt_holds_for_the_record_that_was_sent() -> None:
    log, receipt = took()
    assert check_receipt(receipt, RECORD, SERVER.public.hex()) == log.head()
    assert log_key_of(receipt) == log.vkey


def receipt_refusal(receipt: Receipt, record: dict[str, Any] = RECORD) -> str:
    with pytest.raises(IntegrityError) as refused:
        check_receipt(receipt, record, SERVER.public.hex())
    assert refused.value.hint
    return refused.value.message


def test_a_receipt_of_another_key_is_refused() -> None:
    _, receipt = took()
    assert "signed with the key" in receipt_refusal(signed(receipt, OTHER_SERVER))


def test_a_receipt_that_names_its_key_wrongly_is_refused() -> None:
    _, receipt = took()
    renamed = receipt.signature.model_copy(update={"key_id": OTHER_SERVER.key_id})
    told = receipt_refusal(receipt.model_copy(update={"signature": renamed}))
    assert "another key's name" in told


@pytest.mark.parametrize("field", ["ranked", "received_at", "url", "run_id"])
def test_an_edited_receipt_is_refused(field: str) -> None:
    _, receipt = took()
    edits = {"ranked": True, "received_at": "2026-12-02T00:00:00Z", "url": "x", "run_id": "x"}
    edited = receipt.model_copy(update={field: edits[field]})
    assert "signature of the receipt does not hold" in receipt_refusal(edited)


def test_a_receipt_for_another_record_is_refused() -> None:
    _, receipt = took()
    assert "is for the record of" in receipt_refusal(receipt, sent_record("another"))
    resigned = {**RECORD, "signatures": None}
    assert "is for the record of" in receipt_refusal(receipt, resigned)


def test_a_receipt_that_credits_another_key_is_refused() -> None:
    _, receipt = took()
    elsewhere = receipt.model_copy(update={"key_id": OTHER_SERVER.key_id})
    told = receipt_refusal(signed(elsewhere, SERVER))
    assert f"says that the key {OTHER_SERVER.key_id} sent the record" in told


def test_a_server_that_logs_another_leaf_than_it_receipts_is_caught() -> None:
    log, receipt = took()
    log.entries[5] = b"something else"
    forged = signed(receipt.model_copy(update={"log": log.proof(5)}), SERVER)
    assert "says something else" in receipt_refusal(forged)


def test_a_server_that_proves_the_right_leaf_in_no_log_is_caught() -> None:
    log, receipt = took()
    entry = receipt.log.entry
    log.entries[5] = b"something else"
    forged = log.proof(5).model_copy(update={"entry": entry})
    told = receipt_refusal(signed(receipt.model_copy(update={"log": forged}), SERVER))
    assert "does not show leaf 5" in told


def growth_refusal(older: PaperLog, newer: PaperLog) -> str:
    with pytest.raises(IntegrityError) as refused:
        check_growth(older.head(), newer.head(), newer.node)
    assert str(older.head()) in refused.value.message  # both heads are shown
    assert str(newer.head()) in refused.value.message
    return refused.value.message


def test_a_log_that_grew_is_believed() -> None:
    for size in (0, 1, 255, 256, 299, 300):
        check_growth(LOG.head(size), LOG.head(), LOG.node)


@pytest.mark.parametrize("place", [0, 132, 198])
def test_a_changed_leaf_is_a_fork(place: int) -> None:
    forked = PaperLog([*ENTRIES[:place], b"changed", *ENTRIES[place + 1 :]])
    assert "forked" in growth_refusal(PaperLog(ENTRIES[:199]), forked)
    assert "forked" in growth_refusal(LOG, forked)


def test_a_dropped_leaf_is_a_fork() -> None:
    assert "forked" in growth_refusal(PaperLog(ENTRIES[:199]), PaperLog(ENTRIES[1:]))


def test_a_shorter_log_is_told_as_such() -> None:
    assert "shrank" in growth_refusal(LOG, PaperLog(ENTRIES[:299]))


def test_tiles_of_another_log_do_not_save_a_fork() -> None:
    forked = PaperLog([b"changed", *ENTRIES[1:]])
    with pytest.raises(IntegrityError, match="forked"):
        check_growth(LOG.head(199), forked.head(), LOG.node)


def test_a_leaf_is_proved_under_the_present_head_or_missed() -> None:
    leaf, proved = leaf_hash(ENTRIES[133]), LOG.head(200)
    check_leaf(leaf, 133, proved, LOG.head(), LOG.node)
    short, other = PaperLog(ENTRIES[:133]), PaperLog([*ENTRIES[:133], b"x", *ENTRIES[134:]])
    with pytest.raises(IntegrityError, match="dropped leaf 133"):
        check_leaf(leaf, 133, proved, short.head(), short.node)
    with pytest.raises(IntegrityError, match="no longer proves leaf 133"):
        check_leaf(leaf, 133, proved, other.head(), other.node)
