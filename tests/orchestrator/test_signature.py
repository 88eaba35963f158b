"""Signing what is saved: told once, and whatever fails in it leaves the record as it was."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from npumark.errors import SetupError
from npumark.orchestrator import signature
from npumark.orchestrator.events import Event, Note
from npumark.orchestrator.signature import sign_saved
from npumark.record import keystore, signed
from npumark.record.files import read_record, seal, write_record
from npumark.record.history import RunFolder
from npumark.record.key_info import info_path
from npumark.record.model import Record
from tests import forge

SAVED = seal(forge.forge_payload(small=True))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    monkeypatch.setenv("NPUMARK_HOME", str(tmp_path / "home"))
    made = RunFolder(tmp_path)
    write_record(made.record, SAVED)
    return made


def signing(folder: RunFolder, record: Record = SAVED) -> tuple[Record, list[str]]:
    """Sign what lies in ``folder``; return what comes back, and the notes."""
    events: list[Event] = []
    made = sign_saved(folder, record, events.append)
    return made, [event.text for event in events if isinstance(event, Note)]


def test_what_comes_back_is_what_lies_there(folder: RunFolder) -> None:
    made, _ = signing(folder)
    assert made.payload == SAVED.payload
    assert made.signatures is not None
    assert read_record(folder.record) == made


def test_the_key_is_told_of_when_it_is_made_and_not_again(folder: RunFolder) -> None:
    made, notes = signing(folder)
    (told,) = notes
    assert "signs with a key of its own from now on; the key is kept in a file" in told
    assert signing(folder, made) == (made, [])


def test_it_is_signed_anew_with_the_key_of_then(folder: RunFolder) -> None:
    made, _ = signing(folder)
    new = keystore.rotate()
    again, _ = signing(folder, made)
    assert again.signatures is not None
    assert again.signatures.install.key_id == new.key_id


def damage_the_note(_: pytest.MonkeyPatch) -> None:
    keystore.install_key()
    info_path().write_text("{}")


def wish_for_a_cloud(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(keystore.VARIABLE, "cloud")


def break_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: Record) -> Record:
        raise RuntimeError("a library is damaged")

    monkeypatch.setattr(signed, "sign", fails)


def let_the_library_panic(monkeypatch: pytest.MonkeyPatch) -> None:
    class Panic(BaseException):
        """As libraries in Rust raise it."""

    def fails(_: Record) -> Record:
        raise Panic("Python API call failed")

    monkeypatch.setattr(signed, "sign", fails)


def fill_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise SetupError("no space left while writing to record.json", "Free some space.")

    monkeypatch.setattr(signature, "write_record", fails)


def block_the_settings(_: pytest.MonkeyPatch) -> None:
    folder = info_path().parent
    folder.parent.mkdir(parents=True)
    folder.write_text("a file is in the way")


@pytest.mark.parametrize(
    ("break_it", "words"),
    [
        (damage_the_note, "is damaged"),
        (wish_for_a_cloud, "NPUMARK_KEYSTORE is 'cloud'"),
        (break_the_library, "the record is not signed: RuntimeError: a library is damaged"),
        (let_the_library_panic, "Panic: Python API call failed"),
        (fill_the_disk, "no space left while writing to record.json. Free some space."),
        (block_the_settings, "the record is not signed: "),
    ],
)
def test_whatever_keeps_it_from_being_signed_leaves_it_as_it_was(
    folder: RunFolder,
    monkeypatch: pytest.MonkeyPatch,
    break_it: Callable[[pytest.MonkeyPatch], None],
    words: str,
) -> None:
    break_it(monkeypatch)
    made, notes = signing(folder)
    (told,) = notes
    assert made == read_record(folder.record) == SAVED
    assert words in told
    assert told.endswith("`npumark submit` signs what it sends anew.")


def test_whoever_stops_it_is_obeyed(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(_: Record) -> Record:
        raise KeyboardInterrupt

    monkeypatch.setattr(signed, "sign", stopped)
    with pytest.raises(KeyboardInterrupt):
        signing(folder)
    assert read_record(folder.record) == SAVED
