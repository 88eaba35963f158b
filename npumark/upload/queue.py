"""Uploads that wait for a server, or were sent to it: one folder each, whole at every instant.

    uploads/<server>/<result id>/
        record-<key id>.json   the bytes that are sent, as that key signed them
        state.json             when it was queued, tried, refused, withdrawn
        receipt.json           the server's receipt, once it was checked

A folder appears under its name with everything in it, and each file is replaced as a whole, so
that a process killed anywhere leaves the state before a step or after it. An upload is sent when
its receipt is there, and not before: until then it is sent again, which the server answers with
the receipt of the first time. What cannot be read is set aside under its own name and told, and
holds up nothing else.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from npumark import paths
from npumark.errors import IntegrityError, UsageError
from npumark.orchestrator.lock import Taken, measuring
from npumark.record.envelope import result_id_of
from npumark.record.files import sync_folder
from npumark.upload.item import RECEIPT, Item, State, check_record, read_item, read_state
from npumark.upload.servers import url_of

_ASIDE: Final = "set-aside"
_PASSING: Final = ".passing-"
"""How folders begin that are not whole yet, or not any more."""


class Queue:
    """The uploads of one server. Reading needs no lock; ``held`` is for whoever changes it."""

    def __init__(self, slug: str, root: Path | None = None) -> None:
        self.folder = (root or uploads_dir()) / slug

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the queue alone. Raises SetupError naming the process that holds it already."""
        try:
            with measuring("npumark submit", self.folder):
                for left in self.folder.glob(f"{_PASSING}*"):
                    shutil.rmtree(left, ignore_errors=True)
                yield
        except Taken as fault:
            raise Taken(
                fault.message.replace("is at work on this machine", "is sending to this server"),
                "Wait for it to end; it sends what is queued as well.",
            ) from None

    def add(self, record: Mapping[str, Any], queued_at: str) -> Item:
        """Queue a signed record; one that is there already stays as it is."""
        payload = record["payload"]
        result_id = result_id_of(record["payload_sha256"])
        score = payload.get("score")
        state = State(
            schema="npumark-upload/1",
            run_id=payload["run_id"],
            result_id=result_id,
            payload_sha256=record["payload_sha256"],
            label=score["label"] if score else None,
            queued_at=queued_at,
        )
        place = self.folder / result_id
        if not place.exists():
            paths.make(self.folder)
            new = self.folder / f"{_PASSING}{secrets.token_hex(4)}"
            try:
                new.mkdir()
                item = Item(new, state, None)
                item.keep_record(record)
                item.with_state()
                new.rename(place)
                sync_folder(self.folder)
            except OSError as fault:
                raise paths.unwritable(new, fault) from fault
        return read_item(place)

    def items(self) -> tuple[list[Item], list[str]]:
        """Return the uploads, oldest first, and a sentence for each that cannot be read."""
        found, faults = [], []
        for folder in item_folders(self.folder):
            try:
                found.append(read_item(folder))
            except IntegrityError as fault:
                faults.append(fault.message)
        return sorted(found, key=_age), faults

    def set_damaged_aside(self) -> list[str]:
        """Move what is damaged out of the way: a receipt, which is asked for again, or a whole
        upload that waits, whose record is read to the last byte. Return a sentence for each."""
        told = []
        for folder in item_folders(self.folder):
            sent = (folder / RECEIPT).exists()
            try:
                read_state(folder)
                if not sent:
                    check_record(folder)
            except IntegrityError as fault:
                told.append(self._set_aside(folder, fault))
                continue
            try:
                read_item(folder)
            except IntegrityError as fault:
                told.append(self._set_aside(folder / RECEIPT, fault))
        return told

    def _set_aside(self, part: Path, fault: IntegrityError) -> str:
        name = "-".join(part.relative_to(self.folder).parts)
        kept = _free(self.folder / _ASIDE, name)
        _move(part, kept)
        return f"{fault.message}; it is set aside as {kept}"

    def of_run(self, run_id: str) -> Item | None:
        """Return the upload of a run, null where there is none that can be read."""
        return next((item for item in self.items()[0] if item.state.run_id == run_id), None)

    def remove(self, item: Item) -> None:
        """Take an upload that was not sent out of the queue."""
        gone = self.folder / f"{_PASSING}{secrets.token_hex(4)}"
        _move(item.folder, gone)
        shutil.rmtree(gone, ignore_errors=True)

    def find(self, name: str) -> Item:
        """Return the upload that ``name`` means: a result's id, or a run's. Raises UsageError."""
        items, _ = self.items()
        fits = [i for i in items if name in (i.state.result_id, i.state.run_id)]
        if not fits:
            raise UsageError(
                f"nothing called {name[:60]!r} is queued for this server, or was sent to it",
                "`npumark submit --list` shows every upload.",
            )
        return fits[0]


def uploads_dir() -> Path:
    """Return the folder that holds every server's queue."""
    return paths.data_dir() / "uploads"


def queues() -> list[Queue]:
    """Return the queue of every server that something was queued for."""
    root = uploads_dir()
    names = sorted(p.name for p in root.iterdir() if p.is_dir()) if root.is_dir() else []
    return [Queue(name) for name in names]


def find_waiting(name: str) -> tuple[Queue, Item]:
    """Return the upload that ``name`` means, as ``Queue.find``, whatever server it is for, and its
    queue: the one that was not sent where there are several. Raises UsageError where that is not
    just one."""
    fits = [
        (queue, item)
        for queue in queues()
        for item in queue.items()[0]
        if name in (item.state.result_id, item.state.run_id)
    ]
    waiting = [fit for fit in fits if fit[1].status in ("queued", "refused")]
    found = waiting or fits
    if not found:
        raise UsageError(
            f"nothing called {name[:60]!r} is queued, or was sent",
            "`npumark submit --list` shows every upload.",
        )
    if len(found) > 1:
        urls = ", ".join(url_of(item.slug) or item.slug for _, item in found)
        raise UsageError(
            f"{len(found)} servers have an upload called {name[:60]!r}: {urls}",
            "Name the one that is meant with --server.",
        )
    return found[0]


def item_folders(queue: Path) -> list[Path]:
    """Return the folders of a server's uploads, whole or not."""
    if not queue.is_dir():
        return []
    return sorted(
        p for p in queue.iterdir() if p.is_dir() and p.name[0] != "." and p.name != _ASIDE
    )


def _free(folder: Path, name: str) -> Path:
    """Return a path in ``folder`` that nothing has yet."""
    paths.make(folder)
    return next(
        place
        for n in range(10_000)
        if not (place := folder / (f"{name}-{n}" if n else name)).exists()
    )


def _move(source: Path, target: Path) -> None:
    try:
        source.rename(target)
    except OSError as fault:
        raise paths.unwritable(target, fault) from fault


def _age(item: Item) -> tuple[str, str]:
    return (item.state.queued_at, item.state.result_id)
