"""``npumark verify --log``: receipts checked offline, and a rewritten log caught online."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from npumark.cli.app import main
from npumark.errors import UsageError
from npumark.record.canonical import canonical_bytes
from npumark.record.envelope import Receipt
from npumark.record.history import run_folder
from npumark.record.model import Record
from npumark.record.signing import InstallKey
from npumark.upload import client, receipts, servers
from npumark.upload.address import parse_address
from npumark.upload.queue import Queue
from tests import forge
from tests.transparency.paper_log import ORIGIN, OTHER_SERVER, PaperLog, accepted, signed

ADDRESS = parse_address(f"https://{ORIGIN}")
RECORD = forge.forge_record(forge.forge_payload(run_id="20261130T120000Z-000001", small=True))
UPLOAD = forge.forge_record(
    forge.forge_payload(run_id="20261130T120000Z-000001", small=True, speed=1.5)
)
"""What was sent of the run: a payload of its own."""

Verify = Callable[..., tuple[int, str, str]]


class Machine:
    """A computer that measured a run and uploaded it, and the server's log."""

    def __init__(self, folder: Path) -> None:
        self.record = folder / "record.json"
        self.record.write_bytes(canonical_bytes(RECORD))
        self.log = PaperLog([b"leaf %d" % n for n in range(20)])
        self.receipt = accepted(self.log, UPLOAD)
        self.item = Queue(ADDRESS.slug).add(UPLOAD, "2026-12-01T00:00:00Z")
        self.keep(self.receipt)
        self.trust(self.log.key.public.hex())

    def keep(self, receipt: Receipt) -> None:
        self.item.with_receipt(canonical_bytes(receipt.model_dump(by_alias=True)), receipt)

    def trust(self, public_key: str) -> None:
        known = servers.KnownServer(ADDRESS.url, ORIGIN, public_key, self.log.vkey)
        servers.remember(ADDRESS, known)

    def exchange(self, key: InstallKey) -> None:
        """Let the server get another key, and this computer trust it."""
        known = servers.known(ADDRESS)
        self.log.key = key
        told = {
            "origin": ORIGIN,
            "url": ADDRESS.url,
            "version": "1",
            "time": "2027-01-01T00:00:00Z",
        }
        told |= {"log_key": self.log.vkey, "public_key": key.public.hex()}
        limits = {"body_bytes": 1, "skew_s": 1.0}
        info = servers.ServerInfo.model_validate(
            {**told, "limits": limits, "accepts_development": False}
        )
        servers.remember(ADDRESS, servers.pinned(known, info, ADDRESS, trust_new_key=True))

    def grow(self, more: int) -> None:
        self.log.entries += [b"more %d" % n for n in range(more)]
        self.log.shown = len(self.log.entries)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setenv("NPUMARK_HOME", str(tmp_path / "home"))
    made = Machine(tmp_path)
    asked = partial(
        client.Client,
        shell=client.Shell(sleep=lambda _: None, environ={}),
        transport=made.log.transport(),
    )
    monkeypatch.setattr(client, "Client", asked)
    return made


@pytest.fixture
def verify(machine: Machine, capsys: pytest.CaptureFixture[str]) -> Verify:
    def verified(*options: str, record: Path = machine.record) -> tuple[int, str, str]:
        status = main(["verify", str(record), *options])
        told = capsys.readouterr()
        return status, told.out, told.err

    return verified


def test_a_receipt_is_checked_without_a_connection(
    verify: Verify, monkeypatch: pytest.MonkeyPatch, machine: Machine
) -> None:
    def refused(*_: Any) -> None:
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", refused)
    status, out, err = verify("--log")
    assert (status, err) == (0, "")
    assert "proves leaf 20 under the log's head of 21 leaves" in out
    assert "the one that is known of it here" in out
    assert machine.log.asked == []


def test_without_log_no_receipt_is_looked_for(verify: Verify) -> None:
    status, out, _ = verify()
    assert status == 0
    assert ORIGIN not in out


def test_where_no_key_is_known_it_says_so(verify: Verify, machine: Machine) -> None:
    next((machine.record.parent / "home" / "data" / "servers").iterdir()).unlink()
    status, out, _ = verify("--log")
    assert status == 0
    assert "only the receipt itself says" in out


def test_a_receipt_of_a_key_that_was_exchanged_holds_and_says_until_when(
    verify: Verify, machine: Machine
) -> None:
    machine.exchange(OTHER_SERVER)
    status, out, _ = verify("--log")
    assert status == 0
    assert "which it had until 2027-01-01T00:00:00Z" in out
    assert json.loads(verify("--log", "--json")[1])["log"][0]["key_replaced_at"] == (
        "2027-01-01T00:00:00Z"
    )


def test_online_a_log_is_proved_across_an_exchange_of_its_key(
    verify: Verify, machine: Machine
) -> None:
    assert verify("--online")[0] == 0
    machine.exchange(OTHER_SERVER)
    machine.grow(10)
    status, out, _ = verify("--online")
    assert status == 0
    assert "nor since it was last seen (21 leaves)" in out
    machine.log.entries[3] = b"rewritten"
    assert verify("--online")[0] == 5


def test_a_receipt_of_another_key_than_the_known_one(verify: Verify, machine: Machine) -> None:
    machine.trust(OTHER_SERVER.public.hex())
    status, _, err = verify("--log")
    assert status == 5
    assert "is signed with the key" in err


def test_an_edited_receipt(verify: Verify, machine: Machine) -> None:
    machine.keep(machine.receipt.model_copy(update={"ranked": True}))
    status, _, err = verify("--log")
    assert status == 5
    assert "signature of the receipt does not hold" in err


def test_a_receipt_for_other_bytes_than_were_sent(verify: Verify, machine: Machine) -> None:
    other = accepted(PaperLog([]), {**UPLOAD, "signatures": {**UPLOAD["signatures"], "x": 1}})
    machine.keep(other)
    status, _, err = verify("--log")
    assert status == 5
    assert "is for the record of sha256" in err


def test_a_run_that_was_never_sent(verify: Verify, machine: Machine) -> None:
    other = forge.forge_record(forge.forge_payload(run_id="20261130T120000Z-000002", small=True))
    machine.record.write_bytes(canonical_bytes(other))
    status, out, err = verify("--log")
    assert status == 2
    assert "every figure recomputes exactly" in out
    assert "no server's receipt for run 20261130T120000Z-000002" in err
    status, out, _ = verify("--log", "--json")
    assert status == 2
    assert "no server's receipt" in json.loads(out)["error"]


def test_that_a_record_was_edited_weighs_more_than_that_it_was_never_sent(
    verify: Verify, machine: Machine
) -> None:
    other = forge.forge_record(forge.forge_payload(run_id="20261130T120000Z-000002", small=True))
    other["payload"] = {**other["payload"], "comparable": not other["payload"]["comparable"]}
    machine.record.write_bytes(canonical_bytes(other))
    status, _, err = verify("--log")
    assert status == 5
    assert "was changed after it was written" in err


def test_a_receipts_file_with_the_record_that_a_server_shows(
    verify: Verify, machine: Machine, tmp_path: Path
) -> None:
    public, receipt = tmp_path / "public.json", tmp_path / "receipt.json"
    public.write_bytes(canonical_bytes(UPLOAD))
    raw = canonical_bytes(machine.receipt.model_dump(by_alias=True))
    receipt.write_bytes(raw)
    assert verify("--receipt", str(receipt), record=public)[0] == 0
    assert verify("--receipt", str(receipt))[0] == 0  # of the run itself: what was sent is kept
    receipt.write_bytes(raw.replace(b'"ranked":false', b'"ranked":true'))
    assert verify("--receipt", str(receipt), record=public)[0] == 5


def test_somebody_else_checks_a_downloaded_record_with_its_receipt(
    verify: Verify, machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NPUMARK_HOME", str(tmp_path / "another"))
    public, receipt = tmp_path / "public.json", tmp_path / "receipt.json"
    public.write_bytes(canonical_bytes(UPLOAD))
    raw = canonical_bytes(machine.receipt.model_dump(by_alias=True))
    receipt.write_bytes(raw)
    status, _, err = verify("--log", record=public)
    assert status == 2
    assert "Download the receipt from the result's page" in err
    status, out, _ = verify("--receipt", str(receipt), record=public)
    assert (status, machine.log.asked) == (0, [])
    assert "only the receipt itself says" in out
    assert "proves leaf 20" in out
    assert verify("--receipt", str(receipt), "--online", record=public)[0] == 0
    assert machine.log.asked
    index = json.dumps(machine.receipt.log.index).encode()
    receipt.write_bytes(raw.replace(b'"index":' + index, b'"index":3'))
    assert verify("--receipt", str(receipt), record=public)[0] == 5


def test_a_run_without_a_score_is_not_said_to_be_uploadable(
    verify: Verify, machine: Machine
) -> None:
    payload = forge.forge_payload(run_id="20261130T120000Z-000003", small=True)
    whole = Record.model_validate(forge.forge_record(payload))
    folder = run_folder(payload.run_id)
    folder.path.mkdir(parents=True)
    folder.record.touch()
    hints = []
    for run in (whole.payload, whole.payload.model_copy(update={"score": None})):
        with pytest.raises(UsageError) as missing:
            receipts.of_run(run)
        hints.append(missing.value.hint or "")
    assert "`npumark submit" in hints[0]
    assert "no score" in hints[1]


def test_a_receipts_file_of_another_run_or_of_none(
    verify: Verify, machine: Machine, tmp_path: Path
) -> None:
    receipt = tmp_path / "receipt.json"
    status, _, err = verify("--receipt", str(receipt))
    assert status == 2
    assert "cannot be read" in err
    receipt.write_text("{}", encoding="utf-8")
    status, _, err = verify("--receipt", str(receipt))
    assert status == 5
    assert "holds no receipt" in err
    elsewhere = machine.receipt.model_copy(update={"run_id": "another"})
    receipt.write_bytes(canonical_bytes(elsewhere.model_dump(by_alias=True)))
    status, _, err = verify("--receipt", str(receipt))
    assert status == 5
    assert "is for run another" in err
    unknown = signed(machine.receipt.model_copy(update={"record_sha256": "0" * 64}), OTHER_SERVER)
    receipt.write_bytes(canonical_bytes(unknown.model_dump(by_alias=True)))
    status, _, err = verify("--receipt", str(receipt))
    assert status == 2
    assert "not kept here" in err


def test_online_a_log_that_grew_is_proved(verify: Verify, machine: Machine) -> None:
    machine.grow(300)
    status, out, _ = verify("--log", "--online")
    assert status == 0
    assert "The log has 321 leaves" in out
    machine.grow(1)
    status, out, _ = verify("--online")
    assert status == 0
    assert "since it was last seen (321 leaves)" in out


def test_online_a_rewritten_log_is_caught_with_both_heads(verify: Verify, machine: Machine) -> None:
    before = machine.log.head()
    machine.grow(300)
    machine.log.entries[3] = b"rewritten"
    status, out, err = verify("--online")
    assert status == 5
    assert "proves leaf 20" in out  # the receipt itself is good, and says so
    assert "forked" in err
    assert before.root.hex() in err
    assert machine.log.head().root.hex() in err


def test_one_json_document_whatever_is_found(verify: Verify, machine: Machine) -> None:
    status, out, _ = verify("--online", "--json")
    told = json.loads(out)
    (log,) = told["log"]
    head = {"size": 21, "root": machine.log.head().root.hex()}
    assert status == 0
    assert told["verified"]
    assert log["proved"] == log["present"] == head
    assert (log["origin"], log["leaf"], log["key_known"]) == (ORIGIN, 20, True)
    assert (log["seen_last"], log["error"]) == (None, None)
    machine.log.entries[3] = b"rewritten"
    status, out, _ = verify("--online", "--json")
    told = json.loads(out)
    assert status == 5
    assert not told["verified"]
    assert told["error"] == told["log"][0]["error"]
    assert json.loads(verify("--json")[1])["log"] is None
