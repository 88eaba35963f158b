"""Nothing private is published: what an upload holds passes, every planted secret is found."""

from __future__ import annotations

from typing import Any

import pytest

from npumark.policy import load_policy
from npumark.record.model import Payload
from npumark.server.plausibility import judge, load_rules
from npumark.server.privacy import private_data
from npumark.upload.payload import upload_payload
from tests import forge

KINDS: dict[str, dict[str, Any]] = {
    "cpu": {},
    "small": {"small": True},
    "box": {"cards": 2},
    "npu": {"npu": forge.NPU, "cpu": "Intel Core Ultra 7 258V"},
}

SECRETS = {
    "a UUID": "the card GPU-1f2e3d4c-5b6a-7089-90ab-cdef01234567 is gone",
    "a PCI bus address": "the device 0000:65:00.0 does not answer",
    "a short bus address": "at 65:00.0: no answer",
    "an adapter's LUID": "adapter LUID 0x0000d3a8",
    "a LUID as a pair": "0x00000000_0x0000D3A8 was removed",
    "a LUID as Windows counts by it": "pid_4_luid_0x00000000_0x0000d3a8_phys_0",
    "a LUID in one word": "gpu_luid_0x0000d3a8",
    "a network address": "over 3c:7c:3f:1d:2a:9b",
    "a home folder": "/home/maria/models/x.onnx was not found",
    "a home folder under macOS": "/Users/maria/Library/Caches was full",
    "a home folder under Windows": r"C:\Users\maria\AppData is read-only",
    "an e-mail address": "ask maria.muster@example.org",
    "a serial number": "disk serial number: S4EVNX0R123456",
}

HARMLESS = (
    "driver 32.0.15.6094, firmware 1.2.3.4",
    "at 12:34:56 after 00:01.55 minutes",
    "#33-Ubuntu SMP PREEMPT_DYNAMIC Fri Sep 26 10:11:12 UTC 2026",
    "/proc/cpuinfo lists no flags; /sys/class/dmi/id/bios_version does not exist",
    "1 kernel of MatMul@layer.3 ran on CPUExecutionProvider",
    "8086:7d1d",
    "serial execution of 4 threads",
    "a" * 64,
)


def document() -> dict[str, Any]:
    return forge.as_document(forge.forge_payload(small=True))


def found(changed: dict[str, Any]) -> list[tuple[str, str]]:
    payload = Payload.model_validate(changed, strict=True)
    return [(private.path, private.what) for private in private_data(payload)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_forged_payload_holds_nothing_private(kind: str) -> None:
    assert private_data(forge.forge_payload(**KINDS[kind])) == []


@pytest.mark.parametrize("kind", KINDS)
def test_what_an_upload_is_made_of_passes(kind: str) -> None:
    payload = forge.forge_payload(**KINDS[kind])
    assert private_data(upload_payload(payload, forge.pack(), load_policy())) == []


def test_an_upload_of_a_run_that_is_full_of_secrets_passes_all_rules() -> None:
    upload = upload_payload(talkative(), forge.pack(), load_policy())
    assert private_data(talkative()) != []
    assert judge(upload, rules=load_rules(), now=forge.NOW).refusals == []


@pytest.mark.parametrize("text", SECRETS.values(), ids=SECRETS)
@pytest.mark.parametrize(
    ("path", "place"),
    [
        (("machine", "board_product"), "machine.board_product"),
        (("machine", "why", "boot"), "machine.why.boot"),
        (("processors", 0, "name"), "processors[0].name"),
        (("processors", 0, "details", "runtimes", 0), "processors[0].details.runtimes[0]"),
        (("engines", 0, "versions", "onnxruntime"), "engines[0].versions.onnxruntime"),
        (("environment", "checks", "kernel", "why"), "environment.checks.kernel.why"),
        (("entries", 0, "why"), "entries[0].why"),
        (
            ("entries", 0, "attempts", 0, "observed", "precision_why"),
            "entries[0].attempts[0].observed.precision_why",
        ),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)
def test_a_planted_secret_is_found_where_it_stands(
    path: tuple[str | int, ...], place: str, text: str
) -> None:
    changed = forge.edited(forge.forge_payload(small=True), path, text)
    assert {where for where, _ in found(changed)} == {place}


def test_a_secret_in_the_name_of_a_field_is_found() -> None:
    changed = document()
    changed["engines"][0]["requested"] = {"0000:65:00.0": True}
    ((_, what),) = found(changed)
    assert what == "a PCI bus address"


@pytest.mark.parametrize("name", ["uuid", "LUID", "serial", "bus", "hostname", "machine_id"])
def test_a_field_that_names_a_key_may_hold_nothing(name: str) -> None:
    changed = document()
    changed["entries"][0]["attempts"][0]["observed"]["details"][name] = "x"
    assert found(changed) == [
        (f"entries[0].attempts[0].observed.details.{name}", f"a field {name.lower()}")
    ]
    changed["entries"][0]["attempts"][0]["observed"]["details"][name] = None
    assert found(changed) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("machine", "boot"), "ab12"),
        (("machine", "owner"), "x"),
        (("environment", "facts", "environment_variables"), {"noted": ["X"]}),
        (("harness", "cwd"), "x"),
        (("processors", 0, "details", "location"), "x"),
    ],
    ids=lambda part: ".".join(map(str, part)) if isinstance(part, tuple) else "",
)
def test_a_fact_that_is_on_no_list_is_found(path: tuple[str | int, ...], value: Any) -> None:
    changed = forge.edited(forge.forge_payload(small=True), path, value)
    ((_, what),) = found(changed)
    assert what == "a fact that is not published"


def test_the_words_of_the_command_line_are_found() -> None:
    changed = forge.edited(forge.forge_payload(small=True), ("plan", "argv"), ["run", "--quick"])
    assert found(changed) == [("plan.argv", "the words of a command line")]


def test_a_workers_log_is_found() -> None:
    path = ("entries", 0, "attempts", 0, "log_tail")
    changed = forge.edited(forge.forge_payload(small=True), path, "it said hello")
    assert found(changed) == [("entries[0].attempts[0].log_tail", "a log")]


def test_a_cards_log_is_found() -> None:
    path = ("box", "roles", 0, "attempts", 0, "cards", 1, "log_tail")
    changed = forge.edited(forge.forge_payload(cards=2), path, "it said hello")
    assert found(changed) == [("box.roles[0].attempts[0].cards[1].log_tail", "a log")]


@pytest.mark.parametrize("text", HARMLESS)
def test_what_only_resembles_a_secret_passes(text: str) -> None:
    assert found(forge.edited(forge.forge_payload(small=True), ("machine", "bios"), text)) == []


def talkative() -> Payload:
    """Return a run whose free-form parts tell everything that a computer could."""
    told = forge.as_document(forge.forge_payload())
    told["plan"]["argv"] = ["run", "--out", "/home/maria/x.json"]
    told["machine"] |= {"boot": "ab12cd34"}
    told["machine"]["why"] |= {"bios": SECRETS["a home folder under Windows"]}
    told["environment"]["facts"]["environment_variables"] = {"noted": ["MARIAS_TOKEN"]}
    told["processors"][0]["details"] |= {"uuid": SECRETS["a UUID"], "bus": "0000:65:00.0"}
    told["engines"][0]["requested"] |= {"folder": "/Users/maria/models"}
    for entry in told["entries"]:
        for attempt, text in zip(entry["attempts"], SECRETS.values(), strict=False):
            attempt["observed"]["details"]["said"] = text
    return Payload.model_validate(told, strict=True)


def test_a_text_of_letters_without_end_is_searched_in_one_pass() -> None:
    """A search that began anew at each letter would take hours for this."""
    changed = document()
    changed["machine"]["board_product"] = "a" * 3_000_000
    assert found(changed) == []
    changed["machine"]["board_product"] += "@example.org"
    assert found(changed) == [("machine.board_product", "an e-mail address")]
