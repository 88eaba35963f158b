"""Each check of a submission, and that the untouched one passes all of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest

from npumark.record.canonical import canonical_bytes
from npumark.record.signing import BuildKey, InstallKey, sign_record
from npumark.server import document, intake
from npumark.server.accept import NewResult
from npumark.server.config import ServerConfig
from npumark.server.plausibility import Verdict
from npumark.server.refusal import CODES, Fault, Refused
from npumark.server.rules import Rules, load_rules
from npumark.server.store import Store
from tests import forge
from tests.server.conftest import NOW, config_of
from tests.server.stored import registration, withdrawal

OTHER = InstallKey(b"\x01" * 32)
"""A second installation, of another machine."""
OTHER_MACHINE = "b" * 64


@dataclass
class Desk:
    """A server without HTTP around it, that knows the key of ``forge.INSTALL``."""

    store: Store
    config: ServerConfig
    rules: Rules
    now: float = NOW

    def take(self, body: bytes) -> tuple[int, bytes]:
        return intake.take(body, self.store, self.config, self.rules, self.now)

    def code_of(self, body: bytes) -> str:
        return self.refused(body).fault.code

    def refused(self, body: bytes) -> Refused:
        with pytest.raises(Refused) as caught:
            self.take(body)
        assert json.dumps(caught.value.fault.details, allow_nan=False)
        return caught.value


@pytest.fixture(scope="module")
def rules() -> Rules:
    return load_rules()


@pytest.fixture
def desk(sqlite: str, opened: Callable[[ServerConfig], Store], rules: Rules) -> Desk:
    config = config_of(sqlite, build_keys={forge.BUILD.key_id: forge.BUILD})
    store = opened(config)
    store.register_key(registration())
    return Desk(store, config, rules)


def small(run_id: str = "run-1") -> dict[str, Any]:
    """The document of the smallest record, to be edited."""
    return forge.forge_record(forge.vary(_SMALL, run_id=run_id))


_SMALL = forge.forge_payload(small=True)


def body_of(record: dict[str, Any], **over: Any) -> bytes:
    return forge.forge_submission(record, **over)


def edited(change: Callable[[dict[str, Any]], object]) -> bytes:
    """Return the body of a submission that was changed after everything in it was signed."""
    whole = json.loads(body_of(small()))
    change(whole)
    return canonical_bytes(whole)


def test_an_untouched_submission_is_accepted_with_its_receipt(desk: Desk) -> None:
    body = body_of(small())
    status, receipt = desk.take(body)
    told = json.loads(receipt)
    assert status == 201
    assert told["payload_sha256"] == json.loads(body)["record"]["payload_sha256"]
    assert told["trust"] == "release"


def test_what_is_kept_is_the_record_to_the_byte(desk: Desk) -> None:
    body = body_of(small())
    told = json.loads(desk.take(body)[1])
    kept = desk.store.record_bytes(told["result_id"])
    assert kept == canonical_bytes(json.loads(body)["record"])
    assert kept in body


def test_a_full_comparable_run_is_ranked(desk: Desk) -> None:
    told = json.loads(desk.take(body_of(forge.forge_record(forge.forge_payload())))[1])
    assert (told["ranked"], told["not_ranked_because"]) == (True, [])


def test_a_quick_run_is_accepted_and_not_ranked(desk: Desk) -> None:
    told = json.loads(desk.take(body_of(small()))[1])
    assert not told["ranked"]
    assert "quick" in told["not_ranked_because"]


# The body


NO_SUBMISSION = {
    b"": "not_json",
    b"{": "not_json",
    b'{"a":1,"a":2}': "not_json",
    b'{"a":NaN}': "not_json",
    b"\xff\xfe": "not_json",
    b'{"a":12345678901234567890}': "not_json",
    b"[" * 40_000: "too_deep",
    b"[" * 25 + b"]" * 25: "too_deep",
    b"[" * 24 + b"]" * 24: "wrong_form",
    b'{"envelope": {}, "record": {}}': "not_canonical",
    b'{"record":{},"envelope":{}}': "not_canonical",
    b'"\\u0041"': "not_canonical",
    b"1.0": "not_canonical",
    b"null": "wrong_form",
    b"[]": "wrong_form",
    b'{"envelope":{}}': "wrong_form",
    b'{"envelope":{},"more":1,"record":{}}': "wrong_form",
    b'{"envelope":[],"record":[]}': "record_form",
}


def test_a_body_that_is_no_submission(desk: Desk) -> None:
    assert {body: desk.code_of(body) for body in NO_SUBMISSION} == NO_SUBMISSION


def test_brackets_within_text_are_no_depth(desk: Desk) -> None:
    assert desk.code_of(canonical_bytes({"a": "[" * 1000})) == "wrong_form"


def test_more_values_than_a_record_has_are_not_parsed(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def parsed(*_: object, **__: object) -> None:
        raise AssertionError("it was parsed")

    monkeypatch.setattr(document, "strict_loads", parsed)
    many = b"{" + b",".join(b'"%d":1' % n for n in range(document.MOST_VALUES)) + b"}"
    refused = desk.refused(many)
    assert (refused.fault.code, refused.status) == ("too_large", 413)


# The envelope


@pytest.mark.parametrize("field", ["origin", "machine_id", "key_id", "sent_at", "signature"])
def test_a_field_of_another_type_or_form(desk: Desk, field: str) -> None:
    values = (None, 1, True, [], {}, "", "\x00", "A" * 64, "<b>'--")
    bodies = [
        edited(lambda whole, v=value: whole["envelope"].update({field: v})) for value in values
    ]
    assert {desk.code_of(body) for body in bodies} == {"wrong_form"}


def test_an_envelope_lacks_a_field(desk: Desk) -> None:
    assert desk.code_of(edited(lambda whole: whole["envelope"].pop("sent_at"))) == "wrong_form"


def test_an_envelope_has_a_field_more(desk: Desk) -> None:
    refused = desk.refused(edited(lambda whole: whole["envelope"].update({"<i>": 1})))
    assert refused.fault.code == "wrong_form"
    assert refused.fault.details["field"] == "<i>"


def test_a_field_by_the_name_that_only_code_uses(desk: Desk) -> None:
    def rename(whole: dict[str, Any]) -> None:
        whole["envelope"]["schema_"] = whole["envelope"].pop("schema")

    assert desk.code_of(edited(rename)) == "wrong_form"


def test_an_envelope_for_another_server(desk: Desk) -> None:
    refused = desk.refused(body_of(small(), origin="elsewhere.example"))
    assert refused.fault.code == "wrong_origin"
    assert refused.fault.details["origin"] == forge.ORIGIN


@pytest.mark.parametrize("away", [601, -601])
def test_a_clock_that_is_off(desk: Desk, away: int) -> None:
    refused = desk.refused(body_of(small(), now=forge.NOW + timedelta(seconds=away)))
    assert refused.fault.code == "clock_skew"
    assert refused.fault.details["difference_s"] == away
    assert refused.fault.details["server_time"] == forge.stamp(forge.NOW)


@pytest.mark.parametrize("away", [600, -600])
def test_a_clock_that_is_off_by_what_is_allowed(desk: Desk, away: int) -> None:
    assert desk.take(body_of(small(), now=forge.NOW + timedelta(seconds=away)))[0] == 201


def test_an_instant_that_no_calendar_has(desk: Desk) -> None:
    assert desk.code_of(body_of(small(), sent_at="2026-13-41T25:61:61Z")) == "wrong_form"


def test_a_key_that_nobody_registered(desk: Desk) -> None:
    assert desk.code_of(body_of(forge.forge_record(_SMALL, OTHER), install=OTHER)) == "unknown_key"


def test_a_key_of_another_machine(desk: Desk) -> None:
    assert desk.code_of(body_of(small(), machine_id=OTHER_MACHINE)) == "key_of_another_machine"


def test_a_banned_key(desk: Desk) -> None:
    desk.store.moderation.ban_key(forge.INSTALL.key_id, "forgeries")
    assert desk.code_of(body_of(small())) == "key_refused"


def test_a_banned_machine(desk: Desk) -> None:
    first = json.loads(desk.take(body_of(small()))[1])
    desk.store.moderation.ban_machine_of(first["result_id"], "forgeries")
    assert desk.code_of(body_of(small("run-2"))) == "machine_refused"


def test_an_envelope_edited_after_it_was_signed(desk: Desk) -> None:
    body = edited(lambda whole: whole["envelope"].update(sent_at="2026-12-01T12:00:01Z"))
    assert desk.code_of(body) == "bad_envelope_signature"


# The record


def test_a_record_of_another_form(desk: Desk) -> None:
    record = small()
    record["payload"]["surplus"] = 1
    resealed = forge.forge_record(record["payload"])
    refused = desk.refused(body_of(resealed))
    assert refused.fault.code == "record_form"
    assert refused.fault.details["field"] == "record.payload.surplus"


def test_a_record_that_holds_the_machines_id(desk: Desk) -> None:
    record = small()
    record["payload"]["machine"]["board_product"] = f"board {forge.MACHINE_ID}"
    resealed = forge.forge_record(record["payload"])
    refused = desk.refused(body_of(resealed))
    assert refused.fault.code == "private_data"
    assert forge.MACHINE_ID not in str(refused.fault)


@pytest.mark.parametrize("run_id", ["", "a\nb", "\0", "x" * 129, "é"])
def test_a_run_id_that_is_no_name_is_not_even_asked_for(
    desk: Desk, run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desk.store, "earlier", pytest.fail)
    record = small()
    record["payload"]["run_id"] = run_id
    assert desk.code_of(body_of(forge.forge_record(record["payload"]))) == "record_form"


def test_a_record_without_signatures(desk: Desk) -> None:
    assert desk.code_of(body_of({**small(), "signatures": None})) == "bad_signature"


def test_a_record_with_something_beside_its_signatures(desk: Desk) -> None:
    record = small()
    record["signatures"]["note"] = "not covered by anything"
    assert desk.code_of(body_of(record)) == "record_form"


def test_a_figure_edited_after_it_was_signed(desk: Desk) -> None:
    record = small()
    record["payload"]["score"]["tops"] *= 2
    refused = desk.refused(body_of(record))
    assert refused.fault.code == "digest"
    assert refused.fault.details["computed"] != record["payload_sha256"]


def test_an_envelope_of_another_payload(desk: Desk) -> None:
    assert desk.code_of(body_of(small(), payload_sha256="0" * 64)) == "digest"


def test_a_record_whose_signature_is_of_another_payload(desk: Desk) -> None:
    record = {**small(), "signatures": small("run-2")["signatures"]}
    assert desk.code_of(body_of(record)) == "bad_signature"


def test_a_record_that_another_key_signed(desk: Desk) -> None:
    record = forge.forge_record(_SMALL, OTHER)
    assert desk.code_of(body_of(record)) == "key_mismatch"


def test_a_build_key_that_is_unknown(desk: Desk) -> None:
    record = forge.forge_record(_SMALL, build=BuildKey(b"\x05" * 32))
    assert desk.code_of(body_of(record)) == "unknown_build_key"


def test_a_build_signature_that_does_not_hold(desk: Desk) -> None:
    record = small()
    record["signatures"]["build"]["hmac"] = "0" * 64
    assert desk.code_of(body_of(record)) == "bad_build_signature"


def test_a_development_build_where_none_is_taken(desk: Desk) -> None:
    assert desk.code_of(body_of(forge.forge_record(_SMALL, build=None))) == "development_build"


def test_a_development_build_where_it_is_taken_is_not_ranked(desk: Desk) -> None:
    desk.config = replace(desk.config, allow_development=True)
    record = forge.forge_record(forge.forge_payload(), build=None)
    told = json.loads(desk.take(body_of(record))[1])
    assert (told["trust"], told["ranked"]) == ("development", False)
    assert told["not_ranked_because"] == ["development_build"]


# What was accepted before


def test_the_same_again_brings_the_first_receipt(desk: Desk) -> None:
    record = small()
    _, first = desk.take(body_of(record))
    desk.now += 5
    later = forge.NOW + timedelta(seconds=5)
    assert desk.take(body_of(record, now=later)) == (200, first)


def test_the_same_signed_anew_by_its_own_machine_brings_the_first_receipt(desk: Desk) -> None:
    desk.store.register_key(registration(OTHER))
    record = small()
    _, first = desk.take(body_of(record))
    again = {**record, "signatures": sign_record(record["payload_sha256"], OTHER, forge.BUILD)}
    assert desk.take(body_of(again, install=OTHER)) == (200, first)


def test_another_machine_submits_the_same(desk: Desk) -> None:
    desk.store.register_key(registration(OTHER, OTHER_MACHINE))
    record = small()
    desk.take(body_of(record))
    stolen = {**record, "signatures": sign_record(record["payload_sha256"], OTHER, forge.BUILD)}
    body = body_of(stolen, install=OTHER, machine_id=OTHER_MACHINE)
    assert desk.code_of(body) == "replayed"


def test_another_record_of_the_same_run(desk: Desk) -> None:
    desk.take(body_of(small()))
    other = forge.forge_record(forge.vary(_SMALL, run_id="run-1", created="2026-11-30T12:00:01Z"))
    assert desk.code_of(body_of(other)) == "run_already_submitted"


def test_the_same_again_after_its_withdrawal(desk: Desk) -> None:
    body = body_of(small())
    told = json.loads(desk.take(body)[1])
    desk.store.withdraw(withdrawal(told["result_id"]))
    assert desk.code_of(body) == "withdrawn"


# What it claims


def test_an_implausible_record_is_refused_with_all_that_is_wrong(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = [Fault("above_ceiling", "too fast", {"tops": 9.0}), Fault("future_date", "tomorrow")]
    monkeypatch.setattr(intake, "judge", lambda *_, **__: Verdict(faults, []))
    refused = desk.refused(body_of(small()))
    assert refused.fault.code == "above_ceiling"
    assert refused.fault.details["tops"] == 9.0
    assert [told["code"] for told in refused.fault.details["all"]] == [
        "above_ceiling",
        "future_date",
    ]


def test_figures_that_the_attempts_do_not_give(desk: Desk) -> None:
    doubled = forge.edited(_SMALL, ["score", "tops"], lambda tops: 2 * tops)
    assert desk.code_of(body_of(forge.forge_record(doubled))) == "figures_differ"


def test_nothing_is_stored_of_what_is_refused(desk: Desk) -> None:
    body = body_of(small(), machine_id=OTHER_MACHINE)
    desk.refused(body)
    assert desk.store.earlier("", "run-1") is None


def test_verifying_stores_nothing(desk: Desk) -> None:
    checked = intake.verify(body_of(small()), desk.store, desk.config, desk.rules, desk.now)
    assert isinstance(checked, NewResult)
    assert desk.store.earlier("", "run-1") is None


def test_every_code_has_a_status_of_an_error() -> None:
    assert {status // 100 for status, _ in CODES.values()} == {4, 5}
