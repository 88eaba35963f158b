"""``npumark keys``: what it shows, what it never shows, and that nothing is replaced unasked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from npumark.cli.app import main
from npumark.machine.machine_id import machine_id
from npumark.record import keystore, platform_keystore
from npumark.record.signing import BuildKey


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NPUMARK_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_looking_makes_no_key(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys", "show"]) == 0
    assert "no key was made yet" in capsys.readouterr().out
    assert main(["keys", "show", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document == {"key": None, "build": {"kind": "development", "key_id": None}}
    assert not home.exists()


def test_the_key_is_shown_and_never_its_private_half(capsys: pytest.CaptureFixture[str]) -> None:
    key = keystore.install_key()
    assert main(["keys", "show"]) == 0
    text = capsys.readouterr().out
    for said in (key.key_id, key.public.hex(), f"{key.key_id}.key", "development", "note: "):
        assert said in text
    assert main(["keys", "show", "--json"]) == 0
    raw = capsys.readouterr().out
    document = json.loads(raw)
    assert document["key"]["key_id"] == key.key_id
    assert (document["key"]["usable"], document["key"]["why_not"]) == (True, None)
    assert "machine_id" not in document
    assert key.seed.hex() not in text + raw
    assert machine_id() not in text + raw


def test_the_machine_id_is_shown_when_asked_for_with_what_it_is_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["keys", "show", "--machine-id"]) == 0
    text = capsys.readouterr().out
    assert machine_id() in text
    assert "outside what is published" in text
    assert main(["keys", "show", "--machine-id", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["machine_id"] == machine_id()


def test_a_release_names_its_build_key(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    build = BuildKey(bytes(range(32)))
    monkeypatch.setattr("npumark.record.build_key.build_key", lambda: build)
    assert main(["keys", "show"]) == 0
    text = capsys.readouterr().out
    assert f"release, build key {build.key_id}" in text
    assert build.secret.hex() not in text


def test_a_key_that_cannot_be_used_is_shown_with_why(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = keystore.install_key()
    (home / "config" / "keys" / f"{key.key_id}.key").write_text("damaged")
    assert main(["keys", "show", "--json"]) == 5
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    assert document["key"]["usable"] is False
    assert f"error: {document['key']['why_not']}\n" in captured.err
    assert "npumark keys rotate" in captured.err


def test_rotation_without_a_terminal_needs_a_yes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    key = keystore.install_key()
    assert main(["keys", "rotate"]) == 2
    assert "Give --yes" in capsys.readouterr().err
    assert keystore.install_key() == key


@pytest.mark.parametrize(("answer", "status"), [("y\n", 0), ("n\n", 2), ("", 2)])
def test_rotation_asks(
    answer: str,
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    import io

    key = keystore.install_key()
    terminal = io.StringIO(answer)
    monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stdin", terminal)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert main(["keys", "rotate"]) == status
    assert (keystore.install_key() != key) is (status == 0)
    err = capsys.readouterr().err
    assert "Replace this installation's key?" in err
    assert ("the key was not replaced" in err) is (status == 2)


def test_rotation_tells_both_keys(capsys: pytest.CaptureFixture[str]) -> None:
    old = keystore.install_key()
    assert main(["keys", "rotate", "--yes"]) == 0
    new = keystore.install_key()
    text = capsys.readouterr().out
    assert f"new key {new.key_id}, kept in " in text
    assert f"old key {old.key_id}: its private half is removed" in text
    assert main(["keys", "show"]) == 0
    assert f"former key  {old.key_id}" in capsys.readouterr().out


def test_the_first_key_replaces_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys", "rotate", "--yes"]) == 0
    assert "old key" not in capsys.readouterr().out


def test_an_old_file_that_could_not_be_removed_is_told(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    old = keystore.install_key()
    monkeypatch.setattr("npumark.record.keystore._removed", lambda _: False)
    assert main(["keys", "rotate", "--yes"]) == 0
    file = home / "config" / "keys" / f"{old.key_id}.key"
    assert f"delete {file} by hand" in capsys.readouterr().out


def test_an_old_entry_that_could_not_be_removed_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(keystore.VARIABLE)
    monkeypatch.setattr(platform_keystore, "lacking", lambda: None)
    monkeypatch.setattr(platform_keystore, "store", lambda *_: None)
    old = keystore.install_key()
    monkeypatch.setattr("npumark.record.keystore._removed", lambda _: False)
    assert main(["keys", "rotate", "--yes"]) == 0
    assert f"delete the entry {old.key_id} of npumark by hand" in capsys.readouterr().out
