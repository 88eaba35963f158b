"""``npumark verify --log``: what servers said as they took a run, and whether they stand by it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from npumark.errors import NpumarkError
from npumark.plain import count

if TYPE_CHECKING:
    from npumark.record.model import Record
    from npumark.transparency.checkpoint import Checkpoint
    from npumark.upload.log_check import Grown
    from npumark.upload.receipts import Held, Proved


@dataclass
class LogReport:
    """What was found, for people and as JSON values; ``fault`` is the first thing that is not as
    it should be, null where there is none."""

    lines: list[str] = field(default_factory=list)
    documents: list[dict[str, Any]] = field(default_factory=list)
    fault: NpumarkError | None = None


def check_receipts(whole: Record, receipt: Path | None, *, online: bool) -> LogReport:
    """Check the receipts of a run, or the one in a file; with ``online`` ask each server for its
    log, else no connection is opened. What is wrong is in the report, also where there is no
    receipt: the record's own faults weigh more."""
    from npumark.upload import receipts

    report = LogReport()
    try:
        if receipt is None:
            found: Sequence[Held] = receipts.of_run(whole.payload)
        else:
            found = [receipts.in_file(receipt, whole.model_dump(by_alias=True))]
    except NpumarkError as fault:
        report.fault = fault
        return report
    for held in found:
        document = _begun(held)
        report.documents.append(document)
        try:
            proved = held.check()
            document |= {"proved": _plain(proved.head), "key_known": proved.known}
            document["key_replaced_at"] = proved.replaced_at
            report.lines.append(_offline(held, proved))
            if online:
                grown = _asked(held, proved.head)
                document |= {"present": _plain(grown.present), "seen_last": _plain(grown.known)}
                report.lines.append(_online(proved.head, grown))
        except NpumarkError as fault:
            document["error"] = fault.message
            if report.fault:  # the first is told as the error
                report.lines.append(fault.message)
            report.fault = report.fault or fault
    return report


def _asked(held: Held, head: Checkpoint) -> Grown:
    from npumark.cli.submit import tell
    from npumark.upload.client import Client, Shell
    from npumark.upload.log_check import check_log
    from npumark.upload.published_log import PublishedLog

    with Client(held.address, shell=Shell(tell=tell)) as client:
        return check_log(held.receipt, head, PublishedLog(client, held.log_key))


def _offline(held: Held, proved: Proved) -> str:
    receipt = held.receipt
    if not proved.known:
        whose = "which only the receipt itself says is its own"
    elif proved.replaced_at is None:
        whose = "the one that is known of it here"
    else:
        whose = f"which it had until {proved.replaced_at}"
    return (
        f"{receipt.origin} took exactly what was sent of this run as {receipt.result_id}: its "
        f"receipt is signed with the key {receipt.signature.key_id}, {whose}, and proves leaf "
        f"{receipt.log.index} under the log's head of {proved.head}."
    )


def _online(head: Checkpoint, grown: Grown) -> str:
    seen = f", nor since it was last seen ({_leaves(grown.known)})" if grown.known else ""
    return (
        f"The log has {grown.present} now; nothing of it changed since the receipt "
        f"({_leaves(head)}){seen}."
    )


def _leaves(head: Checkpoint) -> str:
    return count(head.size, "leaf", "leaves")


def _begun(held: Held) -> dict[str, Any]:
    receipt = held.receipt
    return {
        "origin": receipt.origin,
        "result_id": receipt.result_id,
        "receipt": str(held.place),
        "leaf": receipt.log.index,
        "key_id": receipt.signature.key_id,
        "key_known": None,
        "key_replaced_at": None,
        "proved": None,
        "present": None,
        "seen_last": None,
        "error": None,
    }


def _plain(head: Checkpoint | None) -> dict[str, Any] | None:
    return None if head is None else {"size": head.size, "root": head.root.hex()}
