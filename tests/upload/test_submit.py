"""Sending to a server that refuses, forgets, lies, or has another time."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from npumark.errors import IntegrityError, NetworkError, UsageError
from npumark.record.model import Record
from npumark.record.signing import BuildKey, build_holds, check_install, sign_record
from npumark.upload.address import parse_address
from npumark.upload.item import BAD_RECEIPT
from npumark.upload.prepare import prepare, resigned
from npumark.upload.servers import known
from npumark.upload.submit import discard, withdraw
from tests import forge
from tests.transparency.paper_log import OTHER_SERVER, PaperLog, accepted, signed
from tests.upload.paper_server import (
    FIRST_KEY,
    SECOND_KEY,
    URL,
    Desk,
    edited,
    local_record,
    made,
    receipt_of,
)

RESULTS, KEYS, ABOUT = "/api/v1/results", "/api/v1/keys", "/api/v1/server"


def lost(request: httpx.Request) -> httpx.Response:
    raise httpx.ReadError("the connection was lost", request=request)


def test_a_run_is_sent_and_its_receipt_is_kept_byte_for_byte(desk: Desk) -> None:
    done = desk.submit("run-1")
    (item,) = done.items
    assert (done.fault, item.status) == (None, "sent")
    assert (item.folder / "receipt.json").read_bytes() == desk.server.receipts[
        item.state.payload_sha256
    ][1]


def test_the_key_is_registered_before_the_first_upload_and_not_again(desk: Desk) -> None:
    desk.submit("run-1", "run-2")
    assert desk.server.asked == [
        f"GET {ABOUT}",
        f"POST {RESULTS}",
        f"POST {KEYS}",
        f"POST {RESULTS}",
        f"POST {RESULTS}",
    ]


def test_what_waits_is_sent_the_oldest_first(desk: Desk) -> None:
    desk.submit("run-3", "run-1", "run-2")
    assert [run for run, _ in desk.server.receipts.values()] == ["run-3", "run-1", "run-2"]


def test_what_was_sent_is_not_sent_again(desk: Desk) -> None:
    desk.submit("run-1")
    desk.server.asked.clear()
    assert desk.submit("run-1").items == []
    assert desk.server.asked == []


def test_an_answer_that_was_lost_is_asked_for_again_and_the_result_is_there_once(
    desk: Desk,
) -> None:
    def taken_and_lost(request: httpx.Request) -> httpx.Response:
        desk.server.by_rule(request)
        return lost(request)

    desk.server.overrides[RESULTS] = [desk.server.by_rule, taken_and_lost]
    done = desk.submit("run-1")
    assert (done.fault, desk.statuses()) == (None, {"run-1": "sent"})
    assert len(desk.server.log.entries) == 1


def test_a_server_that_cannot_be_reached_leaves_it_queued(desk: Desk) -> None:
    desk.server.overrides[ABOUT] = [lost] * 6
    done = desk.submit("run-1")
    assert isinstance(done.fault, NetworkError)
    assert desk.statuses() == {"run-1": "queued"}
    assert desk.submit().fault is None
    assert desk.statuses() == {"run-1": "sent"}


def test_a_refusal_is_kept_and_holds_up_no_other(desk: Desk) -> None:
    desk.server.refusing["run-1"] = (422, "above_ceiling")
    done = desk.submit("run-1", "run-2")
    assert done.fault is None
    assert desk.statuses() == {"run-1": "refused", "run-2": "sent"}
    refused = done.items[0].state.refused
    assert refused is not None
    assert (refused.code, refused.message, refused.details) == (
        "above_ceiling",
        "it is above_ceiling",
        {"n": 1},
    )


@pytest.mark.parametrize(
    "code", ["replayed", "withdrawn", "run_already_submitted", "private_data", "machine_refused"]
)
def test_every_refusal_is_final(desk: Desk, code: str) -> None:
    desk.server.refusing["run-1"] = (409, code)
    desk.submit("run-1")
    desk.server.asked.clear()
    desk.submit()
    assert desk.server.asked == []
    assert desk.statuses() == {"run-1": "refused"}


def test_a_refused_run_that_is_named_again_is_tried_again(desk: Desk) -> None:
    desk.server.refusing["run-1"] = (422, "ceiling")
    desk.submit("run-1")
    desk.server.refusing.clear()
    desk.submit("run-1")
    assert desk.statuses() == {"run-1": "sent"}


def test_a_record_that_is_too_large_is_told_and_not_sent(desk: Desk) -> None:
    limits = {"body_bytes": 1000, "skew_s": 600.0}
    about = {**desk.server.about(), "limits": limits}
    desk.server.overrides[ABOUT] = [lambda _: httpx.Response(200, json=about)]
    (item,) = desk.submit("run-1").items
    assert item.state.refused is not None
    assert (item.state.refused.code, item.state.refused.details["most"]) == ("too_large", 1000)
    assert desk.server.asked == [f"GET {ABOUT}"]


def test_a_word_of_something_else_than_the_server_is_no_refusal(desk: Desk) -> None:
    desk.server.overrides[RESULTS] = [lambda _: httpx.Response(403, text="<html>proxy</html>")]
    done = desk.submit("run-1")
    assert isinstance(done.fault, NetworkError)
    assert desk.statuses() == {"run-1": "queued"}


def test_what_is_no_results_server_is_told_from_one(desk: Desk) -> None:
    desk.server.overrides[ABOUT] = [lambda _: httpx.Response(200, text="hello")]
    fault = desk.submit("run-1").fault
    assert isinstance(fault, NetworkError)
    assert "is no results server" in fault.message


# Keys


def test_a_refused_key_is_replaced_and_what_waits_is_signed_anew(desk: Desk) -> None:
    desk.submit("run-1")
    desk.server.refused_keys.add(FIRST_KEY.public.hex())
    done = desk.submit("run-2", "run-3")
    assert done.fault is None
    assert desk.key == SECOND_KEY
    assert {receipt_of(item).key_id for item in done.items} == {SECOND_KEY.key_id}
    assert desk.statuses() == dict.fromkeys(("run-1", "run-2", "run-3"), "sent")


def test_a_key_is_replaced_once_at_most(desk: Desk) -> None:
    desk.server.refused_keys |= {FIRST_KEY.public.hex(), SECOND_KEY.public.hex()}
    done = desk.submit("run-1")
    assert isinstance(done.fault, IntegrityError)
    assert desk.rotations == 1
    assert desk.statuses() == {"run-1": "queued"}


def test_an_upload_that_arrived_before_the_key_was_replaced_keeps_its_first_receipt(
    desk: Desk,
) -> None:
    def taken_and_lost(request: httpx.Request) -> httpx.Response:
        desk.server.by_rule(request)
        return lost(request)

    desk.server.overrides[RESULTS] = [desk.server.by_rule, taken_and_lost, *[lost] * 5]
    assert desk.submit("run-1").fault is not None
    desk.server.refused_keys.add(FIRST_KEY.public.hex())
    done = desk.submit()
    assert done.fault is None
    assert receipt_of(done.items[0]).key_id == FIRST_KEY.key_id
    assert len(desk.server.log.entries) == 1


def test_a_machine_with_all_its_keys_is_told_when_it_will_work(desk: Desk) -> None:
    desk.server.most_keys = 0
    fault = desk.submit("run-1").fault
    assert isinstance(fault, NetworkError)
    assert fault.hint is not None
    assert "from 2026-12-01T14:00:00Z on" in fault.hint
    assert desk.statuses() == {"run-1": "queued"}
    assert desk.slept == []


# Clocks


@pytest.mark.parametrize(
    ("off_s", "told"), [(3 * 3600, "3 hours ahead of"), (-25 * 60, "25 minutes behind")]
)
def test_a_wrong_clock_is_told_from_a_bad_signature(desk: Desk, off_s: int, told: str) -> None:
    desk.clock += off_s
    done = desk.submit("run-1")
    assert (done.fault, desk.statuses()) == (None, {"run-1": "sent"})
    assert done.skew_s == -off_s
    assert [line for line in desk.told if told in line and "No signature is at fault" in line]


def test_a_clock_that_is_nearly_right_is_used_as_it_is(desk: Desk) -> None:
    desk.clock += 60
    assert desk.submit("run-1").fault is None
    assert desk.told == []


def test_a_clock_that_jumps_on_the_way_is_corrected_by_the_refusal(desk: Desk) -> None:
    def jump(request: httpx.Request) -> httpx.Response:
        desk.clock -= 86_400
        return desk.server.refuse(403, "clock_skew")

    desk.server.overrides[RESULTS] = [jump]
    done = desk.submit("run-1")
    assert (done.fault, desk.statuses()) == (None, {"run-1": "sent"})


# Receipts


def _put(*path: str | int, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        place: Any = document
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = value

    return change


TAMPERED: dict[str, Callable[[dict[str, Any]], Any]] = {
    "origin": _put("origin", value="evil.example"),
    "result_id": _put("result_id", value="a" * 16),
    "url": _put("url", value="https://evil.example/results/x"),
    "url scheme": _put("url", value="javascript:alert(1)"),
    "run_id": _put("run_id", value="run-2"),
    "record_sha256": _put("record_sha256", value="0" * 64),
    "payload_sha256": _put("payload_sha256", value="0" * 64),
    "key_id": _put("key_id", value="0" * 32),
    "received_at": _put("received_at", value="2026-12-01T00:00:01Z"),
    "trust": _put("trust", value="release"),
    "ranked": _put("ranked", value=True),
    "not_ranked_because": _put("not_ranked_because", value=[]),
    "log index": _put("log", "index", value=1),
    "log entry": _put("log", "entry", value="AAAA"),
    "log checkpoint": _put("log", "checkpoint", value="results.example\n1\nAAAA\n"),
    "log proof": _put("log", "proof", value=["A" * 43 + "="]),
    "signer": _put("signature", "key_id", value="0" * 32),
    "public key": _put("signature", "public_key", value=OTHER_SERVER.public.hex()),
    "signature": _put("signature", "signature", value="0" * 128),
    "a field missing": lambda document: document.pop("trust"),
    "a field more": _put("more", value=1),
}


@pytest.mark.parametrize("what", TAMPERED)
def test_a_receipt_that_was_tampered_with_is_not_one(desk: Desk, what: str) -> None:
    desk.server.changed = edited(TAMPERED[what])
    done = desk.submit("run-1")
    assert isinstance(done.fault, IntegrityError)
    assert desk.statuses() == {"run-1": "queued"}
    item = desk.queue.find("run-1")
    assert (item.folder / BAD_RECEIPT).exists()
    desk.server.changed = lambda raw: raw
    assert desk.submit().fault is None
    assert desk.statuses() == {"run-1": "sent"}


def test_a_receipt_of_another_server_is_not_one(desk: Desk) -> None:
    record = made("run-1").signed(desk.key)
    other = accepted(PaperLog([], key=OTHER_SERVER), record)
    desk.server.changed = lambda _: other.model_dump_json(by_alias=True).encode()
    assert isinstance(desk.submit("run-1").fault, IntegrityError)
    assert desk.statuses() == {"run-1": "queued"}


def test_a_receipt_that_the_server_signed_for_another_leaf_is_not_one(desk: Desk) -> None:
    def another_leaf(raw: bytes) -> bytes:
        receipt = accepted(PaperLog([b"x"]), made("run-2").signed(desk.key))
        mine = accepted(PaperLog([b"x"]), made("run-1").signed(desk.key))
        wrong = mine.model_copy(update={"log": receipt.log})
        return signed(wrong, desk.server.log.key).model_dump_json(by_alias=True).encode()

    desk.server.changed = another_leaf
    fault = desk.submit("run-1").fault
    assert isinstance(fault, IntegrityError)
    assert "says something else than the receipt" in fault.message


def test_the_receipts_used_here_are_good_without_tampering(desk: Desk) -> None:
    desk.server.changed = edited(lambda document: document)
    assert desk.submit("run-1").fault is None


# The server's own key


def test_a_server_with_another_key_is_another_server(desk: Desk) -> None:
    desk.submit("run-1")
    desk.server.log = PaperLog([], key=OTHER_SERVER)
    fault = desk.submit("run-2").fault
    assert isinstance(fault, IntegrityError)
    assert "--trust-new-key" in (fault.hint or "")
    assert desk.statuses()["run-2"] == "queued"
    assert not any("history begins anew" in told for told in desk.told)
    assert desk.submit("run-2", trust_new_key=True).fault is None
    assert sum("history begins anew" in told for told in desk.told) == 1
    assert desk.submit("run-3", trust_new_key=True).fault is None
    assert sum("history begins anew" in told for told in desk.told) == 1
    assert known(parse_address(URL)).public_key == OTHER_SERVER.public.hex()


def test_a_first_receipt_of_a_key_that_was_exchanged_meanwhile_is_taken(desk: Desk) -> None:
    def taken_and_lost(request: httpx.Request) -> httpx.Response:
        desk.server.by_rule(request)
        desk.server.log = PaperLog([], key=OTHER_SERVER)
        return lost(request)

    desk.server.overrides[RESULTS] = [desk.server.by_rule, taken_and_lost]
    assert desk.submit("run-1").fault is None
    (item,) = desk.queue.items()[0]
    assert item.receipt is not None
    assert item.receipt.signature.public_key == PaperLog([]).key.public.hex()


def test_a_server_that_calls_itself_another_is_not_sent_to(desk: Desk) -> None:
    desk.server.origin = "victim.example"
    fault = desk.submit("run-1").fault
    assert isinstance(fault, IntegrityError)
    assert "calls itself victim.example" in fault.message
    assert desk.server.asked == [f"GET {ABOUT}"]


# Withdrawing and dropping


def test_a_result_is_withdrawn_with_the_present_key_however_often(desk: Desk) -> None:
    desk.submit("run-1")
    desk.server.refused_keys.add(FIRST_KEY.public.hex())
    for _ in range(2):
        item = withdraw(desk.queue.find("run-1"), desk.session())
        assert item.status == "withdrawn"
    assert list(desk.server.withdrawn) == [item.state.result_id]
    assert desk.statuses() == {"run-1": "withdrawn"}


def test_a_result_that_the_server_knows_as_withdrawn_is_withdrawn_here_too(desk: Desk) -> None:
    desk.submit("run-1")
    item = desk.queue.find("run-1")
    path = f"{RESULTS}/{item.state.result_id}/withdrawal"
    desk.server.overrides[path] = [lambda _: desk.server.refuse(410, "withdrawn")]
    assert withdraw(item, desk.session()).status == "withdrawn"


def test_a_withdrawal_that_is_refused_changes_nothing(desk: Desk) -> None:
    desk.submit("run-1")
    item = desk.queue.find("run-1")
    path = f"{RESULTS}/{item.state.result_id}/withdrawal"
    desk.server.overrides[path] = [lambda _: desk.server.refuse(403, "not_the_owner")]
    with pytest.raises(IntegrityError, match="not_the_owner"):
        withdraw(item, desk.session())
    assert desk.statuses() == {"run-1": "sent"}


def test_what_was_withdrawn_is_not_sent_again(desk: Desk) -> None:
    desk.submit("run-1")
    withdraw(desk.queue.find("run-1"), desk.session())
    with pytest.raises(UsageError, match="you withdrew run run-1"):
        desk.submit("run-1")


def test_what_was_not_sent_cannot_be_withdrawn(desk: Desk) -> None:
    item = desk.enqueue("run-1")
    with pytest.raises(UsageError, match="was not sent"):
        withdraw(item, desk.session())


def test_what_was_never_tried_or_was_refused_can_be_dropped(desk: Desk) -> None:
    discard(desk.enqueue("run-1"), desk.queue)
    desk.server.refusing["run-2"] = (422, "digest")
    desk.submit("run-2")
    discard(desk.queue.find("run-2"), desk.queue)
    assert desk.statuses() == {}


def test_what_arrived_or_may_have_is_not_dropped(desk: Desk) -> None:
    desk.submit("run-1")
    desk.server.overrides[RESULTS] = [lost] * 6
    desk.submit("run-2")
    for run, says in (("run-1", "was sent"), ("run-2", "may have arrived")):
        with pytest.raises(UsageError, match=says):
            discard(desk.queue.find(run), desk.queue)
    assert desk.statuses() == {"run-1": "sent", "run-2": "queued"}


# What is signed


def test_a_record_that_was_signed_and_edited_is_not_submitted() -> None:
    record = local_record("run-1")
    assert record.signatures is not None
    forged = record.model_copy(update={"payload_sha256": "0" * 64})
    with pytest.raises(IntegrityError, match="is not submitted"):
        prepare(forged, None)


@pytest.mark.parametrize(
    ("measured_by", "sent_by", "vouched"),
    [
        (forge.BUILD, forge.BUILD, True),
        (None, forge.BUILD, False),
        (BuildKey(b"x" * 32), forge.BUILD, False),
        (forge.BUILD, None, False),
    ],
)
def test_a_release_vouches_for_what_it_measured_itself_and_nothing_else(
    measured_by: BuildKey | None, sent_by: BuildKey | None, vouched: bool
) -> None:
    document = local_record("run-1").model_dump()
    signatures = sign_record(document["payload_sha256"], FIRST_KEY, measured_by)
    record = Record.model_validate({**document, "signatures": signatures})
    sent = prepare(record, sent_by).signed(SECOND_KEY)
    build = sent["signatures"]["build"]
    assert (build is not None) == vouched
    if build is not None:
        assert build_holds(sent["payload_sha256"], build["hmac"], forge.BUILD)


def test_a_new_key_leaves_the_builds_signature_as_it_is() -> None:
    document = local_record("run-1").model_dump()
    signed_record = {
        **document,
        "signatures": sign_record(document["payload_sha256"], FIRST_KEY, forge.BUILD),
    }
    anew = resigned(signed_record, SECOND_KEY)
    check_install(anew["payload_sha256"], anew["signatures"])
    assert anew["signatures"]["install"]["key_id"] == SECOND_KEY.key_id
    assert anew["signatures"]["build"] == signed_record["signatures"]["build"]


def test_the_bytes_that_are_sent_are_those_that_were_queued(desk: Desk) -> None:
    seen: list[bytes] = []

    def note(request: httpx.Request) -> httpx.Response:
        seen.append(request.content)
        return desk.server.by_rule(request)

    desk.server.overrides[RESULTS] = [desk.server.by_rule, note]
    item = desk.submit("run-1").items[0]
    record = item.signed_by(FIRST_KEY.key_id)
    assert record is not None
    assert seen[0].endswith(b',"record":' + record + b"}")
    assert json.loads(seen[0])["envelope"]["origin"] == "results.example"
