"""Receipts that this computer holds, each with the very bytes that it was given for."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from npumark.errors import IntegrityError, UsageError
from npumark.record.canonical import canonical_bytes, strict_loads
from npumark.record.envelope import Receipt
from npumark.record.history import run_folder
from npumark.record.model import Payload
from npumark.transparency.checkpoint import Checkpoint
from npumark.transparency.receipt import check_receipt, log_key_of
from npumark.upload import servers
from npumark.upload.address import Address, parse_address
from npumark.upload.queue import Queue, uploads_dir

MAX_RECEIPT: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Proved:
    """The log's ``head`` under which a receipt proves its leaf. ``known``: this computer knows the
    receipt's key as the server's; ``replaced_at`` is until when it was, null where it still is."""

    head: Checkpoint
    known: bool
    replaced_at: str | None


@dataclass(frozen=True)
class Held:
    """A receipt and the record that was sent for it; ``place`` is where the receipt lies."""

    place: Path
    receipt: Receipt
    record: dict[str, Any]

    def check(self) -> Proved:
        """Check the receipt offline (``transparency.receipt``): with the key that this computer
        knows the server to have, or to have had; without one, with that which the receipt states.
        Raises IntegrityError."""
        server = self._server()
        stated = self.receipt.signature.public_key
        due = server.key_of(self.receipt) if server else None
        head = check_receipt(self.receipt, self.record, due or stated)
        former = server.had(stated) if server else None
        return Proved(head, due is not None, former.replaced_at if former else None)

    @property
    def log_key(self) -> str:
        """The vkey of the log as it is now: that of the server as it is known here, else the
        receipt's."""
        server = self._server()
        return (server.log_key if server else None) or log_key_of(self.receipt)

    @property
    def address(self) -> Address:
        """Where the server is: as it was reached last, or as the receipt says. Plain http will do:
        nothing that a log publishes is believed for where it came from."""
        server = self._server()
        page = f"/results/{self.receipt.result_id}"
        url = server.url if server else self.receipt.url.removesuffix(page)
        return parse_address(url, insecure_http=True)

    def _server(self) -> servers.KnownServer | None:
        return servers.of_origin(self.receipt.origin)


def of_run(run: Payload) -> list[Held]:
    """Return the receipts of a run: one for each server that took it. Raises UsageError where
    there is none, IntegrityError where one cannot be read."""
    found = list(_sent(run.run_id))
    if not found:
        raise UsageError(
            f"no server's receipt for run {run.run_id} is kept here", _without_receipt(run)
        )
    return found


def _without_receipt(run: Payload) -> str:
    try:
        own = run_folder(run.run_id).record.is_file()
    except (UsageError, OSError):  # a name that no run here has
        own = False
    if not own:
        return "Download the receipt from the result's page, and give its file with --receipt."
    if run.score is None and run.box is None:
        return "It has no score, and only a run with one can be uploaded."
    return f"`npumark submit {run.run_id}` uploads it; --receipt names a receipt's file."


def in_file(place: Path, record: dict[str, Any]) -> Held:
    """Return the receipt in a file with the bytes that it is for: ``record`` itself where that is
    what was sent, else what this computer sent of the same run.

    Raises UsageError where the file cannot be read or nothing of the kind was sent from here,
    IntegrityError where it holds no receipt or the receipt is another run's.
    """
    try:
        with place.open("rb") as file:
            raw = file.read(MAX_RECEIPT + 1)
    except OSError as fault:
        raise UsageError(
            f"the receipt {place} cannot be read: {fault.strerror or fault}",
            "Name the file that holds the server's receipt.",
        ) from fault
    try:
        receipt = Receipt.model_validate(strict_loads(raw, what=f"the receipt {place}"))
    except ValidationError:
        raise IntegrityError(
            f"{place} holds no receipt of a form that this npumark reads",
            "Download the receipt, and not the log's proof alone, from the result's page.",
        ) from None
    run_id = record["payload"]["run_id"]
    if receipt.run_id != run_id:
        raise IntegrityError(
            f"the receipt is for run {receipt.run_id}, and this is run {run_id}",
            "Name the receipt of this run.",
        )
    digest = hashlib.sha256(canonical_bytes(record)).hexdigest()
    if digest == receipt.record_sha256 and record["signatures"] is not None:
        return Held(place, receipt, record)
    for held in _sent(run_id):
        if held.receipt.record_sha256 == receipt.record_sha256:
            return Held(place, receipt, held.record)
    raise UsageError(
        "the receipt is for an upload whose bytes are not kept here",
        f"Download them from {receipt.url} and verify that file with --receipt {place}.",
    )


def _sent(run_id: str) -> Iterator[Held]:
    folder = uploads_dir()
    slugs = sorted(p.name for p in folder.iterdir() if p.is_dir()) if folder.is_dir() else []
    for slug in slugs:
        item = Queue(slug).of_run(run_id)
        if item is None or item.receipt is None:
            continue
        raw = item.signed_by(item.receipt.key_id)
        if raw is None:
            raise IntegrityError(
                f"the upload {item.state.result_id} is damaged: the record that its receipt is "
                "for is missing",
                f"Download it from {item.receipt.url} and verify that file with --receipt.",
            )
        record: dict[str, Any] = strict_loads(raw, what=f"the record in {item.folder}")
        yield Held(item.folder / "receipt.json", item.receipt, record)
