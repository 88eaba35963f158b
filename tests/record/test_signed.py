"""What a record's signatures show: whose key, which build, and every forgery by its own words."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import pytest

from npumark.errors import IntegrityError
from npumark.record import key_info, keystore, signed
from npumark.record.files import encode, read_record, seal
from npumark.record.model import Record
from npumark.record.signed import Shown, check_signatures
from npumark.record.signing import BuildKey
from tests.records.signature_corpus import BUILD, INSTALL

RECORDS = Path(__file__).resolve().parent.parent / "records"
EXPECTED: dict[str, str] = json.loads((RECORDS / "bad_signatures/expected.json").read_text("utf-8"))


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NPUMARK_HOME", str(tmp_path))
    monkeypatch.setattr(signed, "build_key", lambda: BUILD)
    return tmp_path


def good(name: str) -> Record:
    return read_record(RECORDS / "good" / f"{name}.json")


def shown(record: Record) -> Shown:
    assert record.signatures is not None
    return check_signatures(record.payload_sha256, record.signatures)


@pytest.mark.parametrize("name", EXPECTED)
def test_a_bad_signature_is_refused_in_one_sentence_that_says_why(name: str) -> None:
    record = read_record(RECORDS / "bad_signatures" / f"{name}.json")
    with pytest.raises(IntegrityError) as caught:
        shown(record)
    assert caught.value.message == EXPECTED[name]
    assert caught.value.exit_code == 5


def test_the_corpus_on_disk_is_what_its_script_makes(corpus: ModuleType) -> None:
    made = corpus.bad_signature_files()
    assert {name: words for name, (_, words) in made.items()} == EXPECTED
    assert {path.stem for path in (RECORDS / "bad_signatures").iterdir()} == {*made, "expected"}
    for name, (raw, _) in made.items():
        assert (RECORDS / "bad_signatures" / f"{name}.json").read_bytes() == raw, name
    files = corpus.good_files()
    assert {path.stem for path in (RECORDS / "good").iterdir()} == set(files)
    for name, raw in files.items():
        assert (RECORDS / "good" / f"{name}.json").read_bytes() == raw, name


def test_good_signatures_hold_and_say_what_made_them() -> None:
    assert shown(good("signed_by_a_release")) == Shown(INSTALL.key_id, "foreign", "release")
    made = shown(good("signed_by_a_development_build"))
    assert made == Shown(INSTALL.key_id, "foreign", "development")
    assert good("unsigned").signatures is None


@pytest.mark.parametrize("here", [None, BuildKey(bytes(32))])
def test_a_builds_signature_is_not_checked_without_its_key(
    here: BuildKey | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signed, "build_key", lambda: here)
    assert shown(good("signed_by_a_release")).build == "unchecked"
    forged = read_record(RECORDS / "bad_signatures" / "hmac_of_another_build.json")
    assert shown(forged).build == "unchecked"


def test_the_forms_of_signatures_survive_the_disk() -> None:
    record = good("signed_by_a_release")
    assert record.signatures is not None
    assert read_record(encode(record)) == record
    assert seal(record.payload, record.signatures.model_dump()) == record


def test_a_record_signed_here_is_told_as_this_computers_own_and_later_as_its_former_key() -> None:
    made = signed.sign(good("unsigned"))
    assert read_record(encode(made)) == made
    assert shown(made).whose == "own"
    assert shown(made).build == "release"
    keystore.rotate()
    assert shown(made).whose == "former"
    again = signed.sign(made)
    assert (shown(again).whose, again.payload) == ("own", made.payload)
    assert again.signatures != made.signatures


def test_whose_key_it_is_stays_open_where_the_note_of_keys_is_damaged() -> None:
    made = signed.sign(good("unsigned"))
    key_info.info_path().write_text("{")
    assert shown(made).whose is None


def test_checking_makes_no_key(home: Path) -> None:
    shown(good("signed_by_a_release"))
    assert not list(home.iterdir())
