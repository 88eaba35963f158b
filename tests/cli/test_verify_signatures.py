"""``npumark verify`` says whose signature a record bears, and refuses one that does not hold."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from npumark.cli.app import main
from npumark.record import keystore
from npumark.record.canonical import payload_sha256
from tests import forge

Verify = Callable[[dict[str, Any]], tuple[int, dict[str, Any], str]]

PAYLOAD = forge.as_document(forge.forge_payload(small=True))


@pytest.fixture
def verify(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Verify:
    """Return a caller of ``npumark verify``: its exit status, document, and what people read."""
    monkeypatch.setenv("NPUMARK_HOME", str(tmp_path / "home"))

    def ask(document: dict[str, Any]) -> tuple[int, dict[str, Any], str]:
        path = tmp_path / "record.json"
        path.write_text(json.dumps(document))
        status = main(["verify", str(path), "--json"])
        told = json.loads(capsys.readouterr().out)
        assert main(["verify", str(path)]) == status
        shown = capsys.readouterr()
        return status, told, shown.out + shown.err

    return ask


def test_a_record_of_this_computer_and_later_of_its_former_key(verify: Verify) -> None:
    key = keystore.install_key()
    record = forge.forge_record(PAYLOAD, key, None)
    status, told, text = verify(record)
    assert (status, told["verified"]) == (0, True)
    assert told["signatures"] == {
        "signed": True,
        "verified": True,
        "error": None,
        "key_id": key.key_id,
        "whose": "own",
        "build": "development",
        "build_key_id": None,
    }
    assert f"signed with this computer's key, {key.key_id}; a development build made it" in text
    keystore.rotate()
    _, told, text = verify(record)
    assert told["signatures"]["whose"] == "former"
    assert f"signed with a former key of this computer, {key.key_id};" in text


def test_a_record_of_another_computer_and_a_build_that_cannot_be_checked_here(
    verify: Verify,
) -> None:
    status, told, text = verify(forge.forge_record(PAYLOAD))
    assert status == 0
    assert (told["signatures"]["whose"], told["signatures"]["build"]) == ("foreign", "unchecked")
    assert told["signatures"]["build_key_id"] == forge.BUILD.key_id
    assert "signed with another installation's key" in text
    assert "the build's signature is not checked here" in text


def test_a_build_whose_key_is_here(verify: Verify, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("npumark.record.signed.build_key", lambda: forge.BUILD)
    _, told, text = verify(forge.forge_record(PAYLOAD))
    assert told["signatures"]["build"] == "release"
    assert "the build's signature holds as well" in text


def test_an_unsigned_record(verify: Verify) -> None:
    status, told, text = verify({**forge.forge_record(PAYLOAD), "signatures": None})
    assert (status, told["verified"]) == (0, True)
    assert (told["signatures"]["signed"], told["signatures"]["verified"]) == (False, None)
    assert "unsigned: nothing says who made it" in text


def edited(record: dict[str, Any]) -> None:
    """Change a payload in a way that recomputes, and seal it anew under the old signatures."""
    record["payload"] = {**PAYLOAD, "machine": {**PAYLOAD["machine"], "kernel": "6.0"}}
    record["payload_sha256"] = payload_sha256(record["payload"])


def renamed(record: dict[str, Any]) -> None:
    record["signatures"]["install"]["key_id"] = "0" * 32


def of_another_build(record: dict[str, Any]) -> None:
    record["signatures"]["build"]["hmac"] = "0" * 64


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (edited, "the installation's signature does not hold for this payload"),
        (renamed, "the record's public key is not the one that its key id names"),
        (of_another_build, "the build's signature does not hold for this payload"),
    ],
)
def test_a_signature_that_does_not_hold(
    verify: Verify,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[dict[str, Any]], None],
    words: str,
) -> None:
    monkeypatch.setattr("npumark.record.signed.build_key", lambda: forge.BUILD)
    record = forge.forge_record(PAYLOAD)
    change(record)
    status, told, text = verify(record)
    assert (status, told["verified"]) == (5, False)
    assert told["error"].endswith(f"record.json is not what was signed: {words}")
    assert (told["signatures"]["verified"], told["signatures"]["error"]) == (False, words)
    assert told["differences"] == []
    assert words in text


def test_an_edited_record_is_told_as_edited_first(verify: Verify) -> None:
    record = forge.forge_record(PAYLOAD)
    record["payload"] = {**PAYLOAD, "comparable": not PAYLOAD["comparable"]}
    status, told, text = verify(record)
    assert status == 5
    assert "was changed after it was written" in told["error"]
    assert told["signatures"]["verified"] is False
    assert "comparable: recorded" in text


def test_a_scheme_of_another_version(verify: Verify) -> None:
    record = forge.forge_record(PAYLOAD)
    record["signatures"]["scheme"] = "npumark-sig/v9"
    status, told, text = verify(record)
    assert (status, told["signatures"]) == (5, None)
    assert 'signed by the scheme "npumark-sig/v9"' in text
