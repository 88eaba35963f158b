"""``npumark verify --log``: what servers said as they took a run, and whether they stand by it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from npumark.errors import IntegrityError, NetworkError

if TYPE_CHECKING:
    from npumark.record.model import Record
    from npumark.transparency.checkpoint import Checkpoint
    from npumark.upload.log_check import Grown
    from npumark.upload.receipts import Held


@dataclass
class LogReport:
    """What was found, for people and as JSON values; ``fault`` is the first thing that is not as
    it should be, null where there is none."""

    lines: list[str] = field(default_factory=list)
    documents: list[dict[str, Any]] = field(default_factory=list)
    fault: IntegrityError | NetworkError | None = None


def check_receipts(whole: Record, receipt: Path | None, *, online: bool) -> LogReport:
    """Check the receipts of a run, or the one in a file; with ``online`` ask each server for its
    log, else no connection is opened.

    Raises UsageError where there is no receipt, or not the upload that it is for.
    """
    from npumark.upload import receipts

    report = LogReport()
    try:
        if receipt is None:
            found: Sequence[Held] = receipts.of_run(whole.payload.run_id)
        else:
            found = [receipts.in_file(receipt, whole.model_dump(by_alias=True))]
    except IntegrityError as fault:
        report.fault = fault
        return report
    for held in found:
        document = _begun(held)
        report.documents.append(document)
        try:
            head, known = held.check()
            document |= {"proved": _plain(head), "key_known": known}
            report.lines.append(_offline(held, head, known=known))
            if online:
                grown = _asked(held, head)
                document |= {"present": _plain(grown.present), "seen_last": _plain(grown.known)}
                report.lines.append(_online(head, grown))
        except (IntegrityError, NetworkError) as fault:
            document["error"] = fault.message
            if report.fault:  # the first is told as the error
                report.lines.append(fault.message)
            report.fault = report.fault or fault
    return report


def _asked(held: Held, head: Checkpoint) -> Grown:
    from npumark.transparency.receipt import log_key_of
    from npumark.upload.client import Client
    from npumark.upload.log_check import check_log
    from npumark.upload.published_log import PublishedLog

    with Client(held.address) as client:
        return check_log(held.receipt, head, PublishedLog(client, log_key_of(held.receipt)))


def _offline(held: Held, head: Checkpoint, *, known: bool) -> str:
    receipt = held.receipt
    whose = "the one first seen of it" if known else "which only the receipt itself says is its own"
    return (
        f"{receipt.origin} took exactly what was sent of this run as {receipt.result_id}: its "
        f"receipt is signed with the key {receipt.signature.key_id}, {whose}, and proves leaf "
        f"{receipt.log.index} under the log's head of {head}."
    )


def _online(head: Checkpoint, grown: Grown) -> str:
    seen = f", nor since it was last seen ({grown.known.size} leaves)" if grown.known else ""
    return (
        f"The log has {grown.present} now; nothing of it changed since the receipt "
        f"({head.size} leaves){seen}."
    )


def _begun(held: Held) -> dict[str, Any]:
    receipt = held.receipt
    return {
        "origin": receipt.origin,
        "result_id": receipt.result_id,
        "receipt": str(held.place),
        "leaf": receipt.log.index,
        "key_id": receipt.signature.key_id,
        "key_known": None,
        "proved": None,
        "present": None,
        "seen_last": None,
        "error": None,
    }


def _plain(head: Checkpoint | None) -> dict[str, Any] | None:
    return None if head is None else {"size": head.size, "root": head.root.hex()}
