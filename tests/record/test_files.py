from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import npumark
from npumark.errors import IntegrityError, NpumarkError, SetupError, UsageError
from npumark.record import files
from npumark.record.canonical import payload_sha256
from npumark.record.model import MAX_RECORD_BYTES, Record

BAD = Path(__file__).resolve().parent.parent / "records" / "bad"
EXPECTED: dict[str, str] = json.loads((BAD / "expected.json").read_text("utf-8"))


@pytest.mark.parametrize("name", EXPECTED)
def test_a_bad_record_is_refused_in_one_sentence_that_says_why(name: str) -> None:
    with pytest.raises(IntegrityError) as caught:
        files.read_record(BAD / f"{name}.json")
    message = caught.value.message
    assert EXPECTED[name] in message
    assert f"{name}.json" in message
    assert "\n" not in message
    assert caught.value.exit_code == 5


def test_the_corpus_on_disk_is_what_its_script_makes(corpus: ModuleType) -> None:
    made = corpus.bad_files()
    assert {name: words for name, (_, words) in made.items()} == EXPECTED
    assert {path.stem for path in BAD.glob("*.json")} == {*made, "expected"}
    for name, (raw, _) in made.items():
        assert (BAD / f"{name}.json").read_bytes() == raw, name


def test_a_record_survives_the_disk(record: Record, tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    files.write_record(path, record)
    assert files.read_record(path) == record
    assert files.read_record(path.read_bytes()) == record
    assert [p.name for p in tmp_path.iterdir()] == ["out.json"]
    # The layout is free: the digest is over the canonical bytes.
    document = json.loads(path.read_bytes())
    assert files.read_record(json.dumps(document, sort_keys=True).encode()) == record


@pytest.mark.parametrize(
    ("version", "maker"),
    [
        ("0.0.9", "another version of npumark (0.0.9)"),
        (npumark.__version__, f"another build of npumark {npumark.__version__}"),
        ("\x1b[31m0\n1", "another version of npumark,"),
        (7, "another version of npumark,"),
    ],
)
def test_a_whole_record_of_another_form_is_not_called_damaged(
    document: dict[str, Any], version: object, maker: str
) -> None:
    payload = document["payload"]
    del payload["plan"]["box"], payload["box_why"]
    payload["tool"]["version"] = version
    document["payload_sha256"] = payload_sha256(payload)
    with pytest.raises(IntegrityError) as told:
        files.read_record(json.dumps(document).encode())
    said = f"{told.value.message} {told.value.hint}"
    assert f"was written by {maker}" in said
    assert "payload." in said
    assert "damaged" not in said
    assert "edited" not in said
    assert said.isprintable()
    # The negative control: one edited value, and it is not as it was written.
    payload["finished"] = "never"
    with pytest.raises(IntegrityError, match=r"does not follow npumark-record/1") as told:
        files.read_record(json.dumps(document).encode())
    assert "damaged or edited" in str(told.value.hint)


def test_what_the_digest_does_not_cover_is_no_other_version(document: dict[str, Any]) -> None:
    document["signatures"] = 3
    with pytest.raises(IntegrityError, match="does not follow npumark-record/1: signatures"):
        files.read_record(json.dumps(document).encode())


def test_sealing_gives_the_digest_that_reading_expects(record: Record) -> None:
    sealed = files.seal(record.payload)
    assert sealed == record
    assert files.read_record(files.encode(sealed)) == record


def test_every_single_edited_value_of_a_record_is_noticed(document: dict[str, Any]) -> None:
    """Change each number, flag and text of the payload in turn."""
    changed = 0
    for holder, key in _leaves(document["payload"]):
        kept = holder[key]
        holder[key] = _other(kept)
        with pytest.raises(IntegrityError):
            files.read_record(json.dumps(document).encode())
        holder[key] = kept
        changed += 1
    assert changed > 100
    files.read_record(json.dumps(document).encode())


def _leaves(node: Any) -> Any:
    items = node.items() if isinstance(node, dict) else enumerate(node)
    for key, value in list(items):
        if isinstance(value, dict | list):
            yield from _leaves(value)
        else:
            yield node, key


def _other(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    return "x" if value is None else value + "x"


def test_a_value_without_canonical_form_cannot_be_sealed(record: Record) -> None:
    broken = record.payload.model_copy(update={"harness": {"overhead_ns": float("nan")}})
    with pytest.raises(IntegrityError, match="no canonical form"):
        files.seal(broken)


def test_an_oversized_record_is_not_written(
    record: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MAX_RECORD_BYTES", 1 << 10)
    with pytest.raises(IntegrityError, match="no reader would take it"):
        files.write_record(tmp_path / "r.json", record)
    assert not list(tmp_path.iterdir())


def test_an_oversized_file_is_not_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    with path.open("wb") as file:
        file.truncate(MAX_RECORD_BYTES * 64)
    with pytest.raises(IntegrityError, match="larger than"):
        files.read_record(path)


def test_an_existing_file_is_only_replaced_by_force(record: Record, tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text("precious")
    for refuse in (files.check_output, lambda p: files.write_record(p, record)):
        with pytest.raises(UsageError, match=r"mine\.json exists") as caught:
            refuse(path)
        assert "--force" in str(caught.value.hint)
    assert path.read_text() == "precious"
    files.check_output(path, force=True)
    files.write_record(path, record, force=True)
    assert files.read_record(path) == record


def test_a_file_that_appears_meanwhile_is_not_overwritten(
    record: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "r.json"
    real_fsync = os.fsync

    def appears(handle: int) -> None:
        path.write_text("precious")
        real_fsync(handle)

    monkeypatch.setattr(os, "fsync", appears)
    with pytest.raises(UsageError, match="exists"):
        files.write_record(path, record)
    assert path.read_text() == "precious"
    assert [p.name for p in tmp_path.iterdir()] == ["r.json"]


def test_a_file_system_without_hard_links_still_never_overwrites(
    record: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    files.write_record(tmp_path / "r.json", record)
    assert files.read_record(tmp_path / "r.json") == record
    assert [p.name for p in tmp_path.iterdir()] == ["r.json"]


def test_a_failed_write_leaves_the_old_record(
    record: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "r.json"
    files.write_record(path, record)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    changed = files.seal(record.payload.model_copy(update={"complete": True}))
    with pytest.raises(SetupError, match="no space left"):
        files.write_record(path, changed, force=True)
    assert files.read_record(path) == record
    assert [p.name for p in tmp_path.iterdir()] == ["r.json"]


def test_an_unusable_output_is_named_before_measuring(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="does not exist"):
        files.check_output(tmp_path / "nowhere" / "r.json")
    with pytest.raises(UsageError, match="not a regular file"):
        files.check_output(tmp_path, force=True)
    files.check_output(tmp_path / "r.json")
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(os.name != "posix" or os.getuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_named_before_measuring(tmp_path: Path) -> None:
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        with pytest.raises(SetupError, match="permission"):
            files.check_output(tmp_path / "r.json")
    finally:
        tmp_path.chmod(stat.S_IRWXU)


def test_a_missing_record_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no record at") as caught:
        files.read_record(tmp_path / "no.json")
    assert isinstance(caught.value, NpumarkError)
    with pytest.raises(UsageError):
        files.read_record(tmp_path)


def test_a_runs_folder_reads_as_its_record(record: Record, tmp_path: Path) -> None:
    files.write_record(tmp_path / "record.json", record)
    assert files.read_record(tmp_path) == record
