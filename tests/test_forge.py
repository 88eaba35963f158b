"""Forged records are what they are taken for: honest by every check there is."""

from __future__ import annotations

import json
from typing import Any

import pytest

from npumark.pack.pin import PINNED_MANIFEST_SHA256
from npumark.policy import load_policy
from npumark.record.canonical import canonical_bytes
from npumark.record.files import read_record
from npumark.record.signing import build_holds, check_install, statement_holds
from npumark.score.recompute import recompute
from tests import forge

KINDS: dict[str, dict[str, Any]] = {
    "cpu": {},
    "quick": {"quick": True},
    "small": {"small": True},
    "box": {"cards": 2},
    "npu": {"npu": forge.NPU},
}


@pytest.mark.parametrize("kind", KINDS)
def test_it_recomputes_exactly(kind: str) -> None:
    payload = forge.forge_payload(**KINDS[kind])
    pinned = PINNED_MANIFEST_SHA256
    found = recompute(payload, forge.pack(), load_policy(), pinned_sha256=pinned, now=forge.NOW)
    assert [str(difference) for difference in found] == []


@pytest.mark.parametrize(
    ("kind", "reasons"),
    [("cpu", []), ("box", []), ("quick", ["quick"]), ("small", ["quick", "selection"])],
)
def test_it_is_comparable_unless_it_is_quick(kind: str, reasons: list[str]) -> None:
    payload = forge.forge_payload(**KINDS[kind])
    assert payload.not_comparable_because == reasons
    assert payload.score is not None


def test_a_varied_one_is_another_run_with_the_same_figures() -> None:
    payload = forge.forge_payload(small=True)
    other = forge.vary(payload, run_id="another", created="2026-11-29T08:00:00Z")
    assert other.score == payload.score
    assert (other.run_id, other.finished) == ("another", "2026-11-29T08:00:48Z")
    seeds = [p.entries[0].attempts[0].seed for p in (payload, other)]
    assert seeds[0] != seeds[1]
    assert recompute(other, forge.pack(), load_policy()) == []


def test_another_seed_gives_other_figures() -> None:
    one, other = (forge.forge_payload(small=True, seed=seed).score for seed in (0, 1))
    assert one is not None
    assert other is not None
    assert one.tops != other.tops


def test_its_record_is_signed_and_canonical() -> None:
    record = forge.forge_record(forge.forge_payload(small=True))
    digest, signatures = record["payload_sha256"], record["signatures"]
    assert read_record(canonical_bytes(record)).payload_sha256 == digest
    check_install(digest, signatures)
    assert build_holds(digest, signatures["build"]["hmac"], forge.BUILD)


def test_its_submission_is_canonical_and_signed() -> None:
    body = forge.forge_submission(forge.forge_record(forge.forge_payload(small=True)))
    envelope = json.loads(body)["envelope"]
    assert canonical_bytes(json.loads(body)) == body
    signature = envelope.pop("signature")
    assert statement_holds(envelope, "submission", forge.INSTALL.public.hex(), signature)


@pytest.mark.parametrize("factor", [0.5, 0.8, 1.25])
def test_an_attempt_at_another_rate_agrees_with_itself(factor: float) -> None:
    payload = forge.forge_payload(small=True)
    path = ("entries", 0, "attempts", 0)
    slowed = forge.edited(payload, path, lambda a: forge.at_rate(a, factor))
    told = slowed["entries"][0]["attempts"][0]["measurement"]
    before = payload.entries[0].attempts[0].measurement
    assert before is not None
    assert told["ips"] == pytest.approx(before.ips * factor, rel=1e-6)
