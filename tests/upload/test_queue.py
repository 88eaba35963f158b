"""The queue: one holder at a time, and what is damaged is named and out of the way."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from npumark.errors import SetupError, UsageError
from npumark.upload.item import Item
from npumark.upload.links import uploaded
from npumark.upload.queue import Queue, queues
from npumark.upload.submit import withdraw
from tests.upload.paper_server import FIRST_KEY, Desk, receipt_of


def test_a_second_process_is_told_who_is_at_it(desk: Desk) -> None:
    with desk.queue.held(), pytest.raises(SetupError) as refused, desk.queue.held():
        pytest.fail("two hold it")
    assert f"`npumark submit`, process {os.getpid()}" in refused.value.message
    assert "sending to this server" in refused.value.message


def test_queues_of_two_servers_do_not_wait_for_each_other(desk: Desk) -> None:
    with desk.queue.held(), Queue("another").held():
        assert {q.folder.name for q in queues()} == {desk.queue.folder.name, "another"}


def test_what_is_queued_twice_is_there_once(desk: Desk) -> None:
    first = desk.enqueue("run-1")
    desk.clock += 5
    assert desk.enqueue("run-1") == first
    assert desk.statuses() == {"run-1": "queued"}


def test_an_upload_is_found_by_its_run_and_by_its_result(desk: Desk) -> None:
    item = desk.enqueue("run-1")
    assert desk.queue.find("run-1") == item == desk.queue.find(item.state.result_id)
    with pytest.raises(UsageError, match="nothing called 'run-2'"):
        desk.queue.find("run-2")


def _records(item: Item) -> Path:
    return item.folder / f"record-{FIRST_KEY.key_id}.json"


def _edit(path: Path, old: bytes, new: bytes) -> None:
    raw = path.read_bytes()
    assert old in raw
    path.write_bytes(raw.replace(old, new))


DAMAGE: dict[str, Callable[[Item], object]] = {
    "its state is gone": lambda i: (i.folder / "state.json").unlink(),
    "its state is empty": lambda i: (i.folder / "state.json").write_bytes(b""),
    "its state is another's": lambda i: _edit(
        i.folder / "state.json", i.state.payload_sha256.encode(), b"0" * 64
    ),
    "its record is gone": lambda i: _records(i).unlink(),
    "its record is cut": lambda i: _records(i).write_bytes(_records(i).read_bytes()[:-100]),
    "its record was edited": lambda i: _edit(_records(i), b'"complete":true', b'"complete":false'),
    "its record is another's": lambda i: _records(i).write_bytes(
        Desk().queue.find("run-2").signed_by(FIRST_KEY.key_id) or b""
    ),
    "its record is named for another key": lambda i: _records(i).rename(
        i.folder / f"record-{'0' * 32}.json"
    ),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_a_damaged_upload_is_set_aside_and_named_and_holds_up_no_other(
    desk: Desk, what: str
) -> None:
    item = desk.enqueue("run-1")
    desk.clock += 1
    desk.enqueue("run-2")
    DAMAGE[what](item)
    done = desk.submit()
    assert done.fault is None
    assert desk.statuses() == {"run-2": "sent"}
    (told,) = done.damaged
    assert item.state.result_id in told
    assert (desk.queue.folder / "set-aside" / item.state.result_id).is_dir()
    assert desk.submit("run-1").damaged == []
    assert desk.statuses() == {"run-1": "sent", "run-2": "sent"}


def test_nothing_is_set_aside_where_nothing_is_damaged(desk: Desk) -> None:
    desk.enqueue("run-1")
    assert desk.submit().damaged == []


@pytest.mark.parametrize("raw", [b"", b"{}"])
def test_a_damaged_receipt_is_asked_for_again(desk: Desk, raw: bytes) -> None:
    item = desk.submit("run-1").items[0]
    (item.folder / "receipt.json").write_bytes(raw)
    done = desk.submit()
    assert len(done.damaged) == 1
    assert desk.statuses() == {"run-1": "sent"}
    assert len(desk.server.log.entries) == 1
    assert len(list((desk.queue.folder / "set-aside").iterdir())) == 1


def test_what_is_set_aside_twice_is_kept_twice(desk: Desk) -> None:
    for _ in range(2):
        item = desk.enqueue("run-1")
        (item.folder / "state.json").unlink()
        assert len(desk.queue.set_damaged_aside()) == 1
    assert len(list((desk.queue.folder / "set-aside").iterdir())) == 2


def test_a_run_links_to_where_it_was_uploaded(desk: Desk) -> None:
    assert uploaded("run-1") == []
    desk.enqueue("run-1")
    assert uploaded("run-1") == []
    receipt = receipt_of(desk.submit().items[0])
    (link,) = uploaded("run-1")
    assert (link.url, link.received_at, link.withdrawn_at) == (
        receipt.url,
        receipt.received_at,
        None,
    )
    withdraw(desk.queue.find("run-1"), desk.session())
    assert uploaded("run-1")[0].withdrawn_at == "2026-12-01T12:00:00Z"
    assert uploaded("run-2") == []
