"""Tampering, each kind refused with its own code; and the untouched submission accepted.

Who tampers here holds a registered key and a build key, and signs everything anew: what is left
are the rules.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from typing import Any

import pytest

from npumark.record.canonical import canonical_bytes
from npumark.record.model import Payload
from npumark.record.signing import BuildKey, InstallKey
from npumark.server.config import ServerConfig
from npumark.server.intake import take
from npumark.server.plausibility import Rules, load_rules
from npumark.server.refusal import Fault, Refused
from npumark.server.store import Store
from tests import forge
from tests.server.conftest import NOW, config_of
from tests.server.stored import registration

THIEF = InstallKey(b"\x05" * 32)
"""A key of another machine, registered there."""
ELSEWHERE = "c" * 64
"""That machine."""


@dataclass
class Server:
    """A server that knows ``forge.INSTALL`` on its machine and ``THIEF`` on another."""

    store: Store
    config: ServerConfig
    rules: Rules = field(default_factory=cache(load_rules))

    def __post_init__(self) -> None:
        self.store.register_key(registration())
        self.store.register_key(registration(THIEF, ELSEWHERE))

    def take(self, body: bytes) -> tuple[int, bytes]:
        return take(body, self.store, self.config, self.rules, NOW)

    def refuses(self, body: bytes) -> Fault:
        """Return why a submission is refused; nothing of it is stored."""
        before = self.store.earlier("", json.loads(body)["record"]["payload"]["run_id"])
        with pytest.raises(Refused) as caught:
            self.take(body)
        after = self.store.earlier("", json.loads(body)["record"]["payload"]["run_id"])
        assert after == before
        return caught.value.fault


@pytest.fixture
def server(sqlite: str, opened: Callable[[ServerConfig], Store]) -> Server:
    config = config_of(sqlite, build_keys={forge.BUILD.key_id: forge.BUILD})
    return Server(opened(config), config)


def signed(payload: Payload | dict[str, Any], **over: Any) -> bytes:
    """Return the submission of a payload, sealed and signed by its owner."""
    return forge.forge_submission(forge.forge_record(payload), **over)


def small(run_id: str = "a-run") -> Payload:
    return forge.vary(forge.forge_payload(small=True), run_id=run_id)


def test_an_untouched_submission_is_accepted_and_ranked(server: Server) -> None:
    status, receipt = server.take(signed(forge.forge_payload()))
    assert status == 201
    assert json.loads(receipt)["ranked"] is True


def test_an_untouched_quick_run_is_accepted_and_not_ranked(server: Server) -> None:
    told = json.loads(server.take(signed(forge.forge_payload(quick=True)))[1])
    assert (told["ranked"], told["not_ranked_because"]) == (False, ["quick"])


# --- Without the keys ---------------------------------------------------------------------------


def test_an_edited_payload_has_another_digest(server: Server) -> None:
    record = forge.forge_record(small())
    record["payload"]["score"]["tops"] *= 2
    assert server.refuses(forge.forge_submission(record)).code == "digest"


def test_an_edited_payload_with_its_new_digest_is_not_signed(server: Server) -> None:
    record = forge.forge_record(small())
    other = forge.forge_record(small("another"))
    other["signatures"] = record["signatures"]
    assert server.refuses(forge.forge_submission(other)).code == "bad_signature"


def test_a_payload_that_was_signed_anew_lacks_the_builds_signature(server: Server) -> None:
    record, other = forge.forge_record(small()), forge.forge_record(small("another"))
    other["signatures"]["build"] = record["signatures"]["build"]
    assert server.refuses(forge.forge_submission(other)).code == "bad_build_signature"


def test_a_build_key_of_ones_own_is_unknown(server: Server) -> None:
    record = forge.forge_record(small(), build=BuildKey(b"\x09" * 32))
    assert server.refuses(forge.forge_submission(record)).code == "unknown_build_key"


def test_a_development_build_is_not_taken(server: Server) -> None:
    record = forge.forge_record(small(), build=None)
    assert server.refuses(forge.forge_submission(record)).code == "development_build"


def test_an_envelope_for_another_record_does_not_fit(server: Server) -> None:
    body = json.loads(signed(small()))
    body["envelope"]["payload_sha256"] = forge.forge_record(small("another"))["payload_sha256"]
    assert server.refuses(canonical_bytes(body)).code == "bad_envelope_signature"


# --- Replays and keys ---------------------------------------------------------------------------


def test_a_record_of_somebody_else_is_a_replay(server: Server) -> None:
    record = forge.forge_record(small())
    server.take(forge.forge_submission(record))
    stolen = forge.forge_record(small(), THIEF)
    body = forge.forge_submission(stolen, install=THIEF, machine_id=ELSEWHERE)
    assert server.refuses(body).code == "replayed"


def test_a_record_in_the_envelope_of_another_key_is_refused(server: Server) -> None:
    record = forge.forge_record(small())
    body = forge.forge_submission(record, install=THIEF, machine_id=ELSEWHERE)
    assert server.refuses(body).code == "key_mismatch"


def test_a_submission_that_was_caught_is_worth_nothing_on_another_server(server: Server) -> None:
    body = signed(small(), origin="another.example")
    assert server.refuses(body).code == "wrong_origin"
    redirected = json.loads(body)
    redirected["envelope"]["origin"] = forge.ORIGIN
    assert server.refuses(canonical_bytes(redirected)).code == "bad_envelope_signature"


def test_a_submission_that_was_caught_is_worth_nothing_later(server: Server) -> None:
    late = forge.NOW - timedelta(minutes=11)
    assert server.refuses(signed(small(), now=late)).code == "clock_skew"


def test_sent_again_it_brings_the_first_receipt(server: Server) -> None:
    body = signed(small())
    first = server.take(body)
    assert server.take(body) == (200, first[1])


def test_another_record_of_the_same_run_is_refused(server: Server) -> None:
    server.take(signed(small()))
    other = small().model_copy(update={"finished": "2026-11-30T12:09:00Z"})
    assert server.refuses(signed(other)).code == "run_already_submitted"


def test_a_stolen_key_is_worth_nothing_on_another_machine(server: Server) -> None:
    body = signed(small(), machine_id=ELSEWHERE)
    assert server.refuses(body).code == "key_of_another_machine"


def test_a_key_that_nobody_registered_is_unknown(server: Server) -> None:
    nobody = InstallKey(b"\x06" * 32)
    record = forge.forge_record(small(), nobody)
    assert server.refuses(forge.forge_submission(record, install=nobody)).code == "unknown_key"


def test_a_ninth_key_has_to_wait(server: Server) -> None:
    for n in range(7):
        server.store.register_key(registration(InstallKey(bytes([100 + n]) * 32)))
    with pytest.raises(Refused) as caught:
        server.store.register_key(registration(InstallKey(bytes([200]) * 32)))
    assert caught.value.fault.code == "too_many_keys"
    assert caught.value.retry_after_s == 86_400


# --- With all keys, signed anew -----------------------------------------------------------------


def whole(*path: str | int, to: Any, **of: Any) -> dict[str, Any]:
    """Return a full run's document with one value replaced."""
    return forge.edited(forge.forge_payload(**of), path, to)


def twice(number: float) -> float:
    return number * 2


def place(workload: str) -> int:
    """Return the place of the entry of a workload that counts."""
    entries = forge.forge_payload().entries
    return next(i for i, e in enumerate(entries) if e.workload == workload and e.counts)


PEAK = place("peak-2048x2048x4")
NETWORK = place("resnet50")


@pytest.mark.parametrize(
    "path",
    [
        ("score", "tops"),
        ("engines", 0, "peak", "tops"),
        ("engines", 0, "delivered", "tops"),
        ("entries", PEAK, "figure", "tops"),
        ("entries", PEAK, "figure", "ips"),
        ("entries", NETWORK, "stats", "spread"),
    ],
    ids=lambda path: ".".join(map(str, path)),
)
def test_an_edited_figure_is_not_what_the_attempts_give(
    server: Server, path: tuple[str | int, ...]
) -> None:
    fault = server.refuses(signed(whole(*path, to=twice)))
    assert fault.code == "figures_differ"
    assert (
        fault.details["differences"][0]["recorded"] != fault.details["differences"][0]["recomputed"]
    )


def test_attempts_that_contradict_themselves_are_refused(server: Server) -> None:
    path = ("entries", PEAK, "attempts", 0, "measurement", "ips")
    assert server.refuses(signed(whole(*path, to=twice))).code == "inconsistent"


def test_attempts_that_were_edited_in_agreement_leave_their_figures_behind(server: Server) -> None:
    path = ("entries", PEAK, "attempts")
    other = whole(*path, to=lambda ran: [forge.at_rate(a, 0.98) for a in ran])
    assert server.refuses(signed(other)).code == "figures_differ"


def test_another_packs_hash_is_refused(server: Server) -> None:
    document = whole("suite", "manifest_sha256", to="0" * 64)
    assert server.refuses(signed(document)).code == "another_pack"


def test_a_pack_that_was_not_verified_is_refused(server: Server) -> None:
    assert server.refuses(signed(whole("suite", "verified", to=False))).code == "another_pack"


def test_a_peak_above_the_ceiling_is_refused(server: Server) -> None:
    fault = server.refuses(signed(forge.forge_payload(speed=9.0)))
    assert fault.code == "above_ceiling"
    assert fault.details["tops"] > fault.details["ceiling_tops"]


def test_a_box_total_above_the_solo_peaks_is_refused(server: Server) -> None:
    fault = server.refuses(signed(forge.forge_payload(cards=2, box_share=1.08)))
    assert fault.code == "box_above_solo"
    assert fault.details["tops"] > 1.05 * fault.details["solo_tops"]


@pytest.mark.parametrize(("at", "least"), [(NETWORK, 3), (PEAK, 5)], ids=["network", "peak"])
def test_an_entry_that_stopped_at_attempts_that_disagree_is_refused(
    server: Server, at: int, least: int
) -> None:
    document = forge.as_document(forge.forge_payload())
    attempts = document["entries"][at]["attempts"]
    # Of a peak's five the fastest three must agree.
    attempts[0], attempts[1] = (forge.at_rate(attempts[n], 1.1 + 0.1 * n) for n in (0, 1))
    fault = server.refuses(signed(document))
    assert fault.code == "stopped_too_early"
    assert (fault.details["entry"], fault.details["attempts"]) == (at, least)


def test_a_counted_figure_of_a_single_attempt_is_refused(server: Server) -> None:
    path = ("entries", NETWORK, "attempts")
    assert server.refuses(signed(whole(*path, to=lambda ran: ran[:1]))).code == "single_attempt"


def test_a_run_that_hides_a_slow_network_is_refused(server: Server) -> None:
    document = forge.as_document(forge.forge_payload())
    document["entries"] = [e for e in document["entries"] if e["workload"] != "resnet50"]
    assert server.refuses(signed(document)).code == "plan_incomplete"


def test_a_future_date_is_refused(server: Server) -> None:
    tomorrow = forge.stamp(forge.NOW + timedelta(days=1))
    payload = forge.forge_payload(small=True, created=tomorrow)
    assert server.refuses(signed(payload)).code == "future_date"


def test_another_score_version_is_refused(server: Server) -> None:
    assert server.refuses(signed(whole("score_version", to="9.9"))).code == "unknown_score_version"


@pytest.mark.parametrize("name", ["policy_sha256", "formula_sha256"])
def test_another_arithmetic_is_refused(server: Server, name: str) -> None:
    assert server.refuses(signed(whole(name, to="0" * 64))).code == "another_policy"


def test_results_that_may_not_be_published_are_refused(server: Server) -> None:
    document = whole("engines", 0, "local_only", to=True)
    assert server.refuses(signed(document)).code == "local_only"


def test_private_data_is_refused(server: Server) -> None:
    document = whole("machine", "board_product", to="GPU-1f2e3d4c-5b6a-7089-90ab-cdef01234567")
    fault = server.refuses(signed(document))
    assert fault.code == "private_data"
    assert fault.details["found"] == [{"path": "machine.board_product", "what": "a UUID"}]
    assert "1f2e3d4c" not in json.dumps(fault.details)


def test_a_chip_of_ones_own_naming_is_never_ranked(server: Server) -> None:
    body = signed(forge.forge_payload(cards=1, card="NVIDIA GeForce RTX 9999", speed=3.0))
    told = json.loads(server.take(body)[1])
    assert (told["ranked"], told["not_ranked_because"]) == (False, ["ceiling_unknown"])
