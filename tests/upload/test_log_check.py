"""A server that rewrites its log is caught by whoever holds a receipt or an older head."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest

from npumark import paths
from npumark.errors import IntegrityError, NetworkError
from npumark.record.envelope import Receipt
from npumark.transparency.checkpoint import Checkpoint
from npumark.transparency.note import MAX_NOTE, Signature
from npumark.transparency.tiles import encode_bundle
from npumark.upload import known_heads
from npumark.upload.address import parse_address
from npumark.upload.client import Client, Shell
from npumark.upload.log_check import Grown, check_log
from npumark.upload.published_log import PublishedLog
from tests.transparency.paper_log import ORIGIN, OTHER_SERVER, PaperLog, accepted, sent_record

ENTRIES = [b"leaf %d" % n for n in range(700)]
AT = 300
"""Where the result's leaf is."""


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path))


def taken() -> tuple[PaperLog, Receipt]:
    """Return a log that just took a result, and the receipt."""
    log = PaperLog(ENTRIES[:AT])
    return log, accepted(log, sent_record())


def grown(log: PaperLog, size: int) -> PaperLog:
    """Let ``log`` take more leaves until it has ``size``."""
    log.entries += ENTRIES[len(log.entries) : size]
    log.shown = size
    return log


def client(transport: httpx.MockTransport) -> Client:
    shell = Shell(sleep=lambda _: None, draw=lambda: 0.0, environ={})
    return Client(parse_address(f"https://{ORIGIN}"), shell=shell, transport=transport)


def check(log: PaperLog, receipt: Receipt, proved: Checkpoint) -> Grown:
    with client(log.transport()) as asked:
        return check_log(receipt, proved, PublishedLog(asked, PaperLog([]).vkey))


def caught(log: PaperLog, receipt: Receipt, proved: Checkpoint) -> str:
    with pytest.raises(IntegrityError) as refused:
        check(log, receipt, proved)
    assert refused.value.hint
    return refused.value.message


@pytest.mark.parametrize("size", [301, 302, 511, 512, 513, 700])
def test_a_log_that_only_grew_is_believed_and_remembered(size: int) -> None:
    log, receipt = taken()
    proved = log.head()
    found = check(grown(log, size), receipt, proved)
    assert found == Grown(log.head(), None)
    assert known_heads.of(ORIGIN) == log.head()


def test_the_longest_note_that_is_taken_is_remembered_and_read_again() -> None:
    log, receipt = taken()
    left = MAX_NOTE - len(log.note().encode()) - len(str(Signature("w", bytes(3), b"")).encode())
    note = log.note() + str(Signature("w", bytes(4), bytes(left // 4 * 3 - 1)))
    assert MAX_NOTE - 4 < len(note.encode()) <= MAX_NOTE
    log.lies["checkpoint"] = httpx.Response(200, text=note)
    check(log, receipt, log.head())
    assert known_heads.of(ORIGIN) == log.head()


def test_only_tiles_of_the_present_size_are_asked_for_and_each_once() -> None:
    log, receipt = taken()
    proved = log.head()
    check(grown(log, 700), receipt, proved)
    assert len(log.asked) == len(set(log.asked))
    assert set(log.asked) <= {
        "checkpoint",
        "tile/0/000",
        "tile/0/001",
        "tile/0/002.p/188",
        "tile/1/000.p/2",
        "tile/entries/001",
    }


def test_a_changed_leaf_is_caught() -> None:
    log, receipt = taken()
    proved = log.head()
    grown(log, 700).entries[17] = b"changed"
    told = caught(log, receipt, proved)
    assert "forked" in told
    assert proved.root.hex() in told
    assert log.head().root.hex() in told


def test_the_results_own_leaf_changed_or_dropped_is_caught() -> None:
    log, receipt = taken()
    proved = log.head()
    grown(log, 700).entries[AT] = b"changed"
    assert f"no longer proves leaf {AT}" in caught(log, receipt, proved)
    del log.entries[AT]
    log.shown = 699
    assert f"no longer proves leaf {AT}" in caught(log, receipt, proved)


def test_an_older_checkpoint_than_the_receipts_is_caught() -> None:
    log, receipt = taken()
    proved = log.head()
    log.shown = AT
    assert f"dropped leaf {AT}" in caught(log, receipt, proved)


def test_an_older_checkpoint_than_the_one_seen_last_is_caught() -> None:
    log, receipt = taken()
    proved = log.head()
    check(grown(log, 700), receipt, proved)
    log.shown = 600
    told = caught(log, receipt, proved)
    assert "shrank" in told
    assert "700 leaves" in told
    assert "600 leaves" in told
    assert known_heads.of(ORIGIN) == log.head(700)  # never backwards


def test_a_fork_after_the_receipt_is_caught_by_what_was_seen_last() -> None:
    log, receipt = taken()
    proved = log.head()
    check(grown(log, 500), receipt, proved)
    seen = log.head()
    grown(log, 700).entries[450] = b"changed"
    told = caught(log, receipt, proved)
    assert "forked" in told
    assert seen.root.hex() in told
    assert known_heads.of(ORIGIN) == seen


def test_the_contradicting_head_is_kept_as_evidence() -> None:
    log, receipt = taken()
    proved = log.head()
    grown(log, 700).entries[17] = b"changed"
    with pytest.raises(IntegrityError) as refused:
        check(log, receipt, proved)
    (kept,) = (paths.data_dir() / "logs").glob("*.note")
    assert str(kept) in (refused.value.hint or "")
    assert kept.read_text(encoding="utf-8") == log.note()


def test_whoever_was_told_of_a_new_log_can_begin_anew() -> None:
    log, receipt = taken()
    proved = log.head()
    check(grown(log, 700), receipt, proved)
    log.shown = 600
    with pytest.raises(IntegrityError) as refused:
        check(log, receipt, proved)
    place = known_heads.place_of(ORIGIN)
    assert f"move {place} away" in (refused.value.hint or "")
    place.unlink()
    assert check(log, receipt, proved).known is None


def test_a_checkpoint_by_another_key_is_caught() -> None:
    log, receipt = taken()
    proved = log.head()
    log.key = OTHER_SERVER
    assert "no key that is trusted" in caught(log, receipt, proved)
    assert known_heads.of(ORIGIN) is None


def test_tiles_that_do_not_belong_to_the_head_are_caught() -> None:
    log, receipt = taken()
    proved = log.head()
    grown(log, 700)
    tile = log.file("tile/0/001") or b""
    log.lies["tile/0/001"] = httpx.Response(200, content=tile[::-1])
    assert f"no longer proves leaf {AT}" in caught(log, receipt, proved)


@pytest.mark.parametrize("content", [None, b"", b"x" * 33, b"x" * 32, b"x" * 8224])
def test_a_tile_that_is_missing_or_misshapen_is_caught(content: bytes | None) -> None:
    log, receipt = taken()
    proved = log.head()
    grown(log, 700)
    log.lies["tile/0/001"] = (
        httpx.Response(404) if content is None else httpx.Response(200, content=content)
    )
    assert "tile/0/001" in caught(log, receipt, proved)


def test_a_log_that_shows_another_entry_than_it_has_hashed_is_caught() -> None:
    log, receipt = taken()
    proved = log.head()
    grown(log, 700)
    log.lies["tile/entries/001"] = httpx.Response(200, content=encode_bundle(ENTRIES[:256]))
    assert f"something else as leaf {AT}" in caught(log, receipt, proved)


@pytest.mark.parametrize("content", [None, b"", b"\x00\x01", encode_bundle(ENTRIES[:44])])
def test_a_bundle_that_is_missing_or_misshapen_is_caught(content: bytes | None) -> None:
    log, receipt = taken()
    proved = log.head()
    grown(log, 700)
    log.lies["tile/entries/001"] = (
        httpx.Response(404) if content is None else httpx.Response(200, content=content)
    )
    assert "tile/entries/001" in caught(log, receipt, proved)


def test_a_partial_tile_that_is_gone_is_read_from_the_full_one() -> None:
    log, receipt = taken()
    proved = log.head()
    grown(log, 700)
    content = log.file("tile/0/002.p/188") or b""
    log.lies["tile/0/002.p/188"] = httpx.Response(404)
    log.lies["tile/0/002"] = httpx.Response(200, content=content + bytes(68 * 32))
    assert check(log, receipt, proved).present == log.head()


@pytest.mark.parametrize("content", [b"", b"\xff\n\n", b"x" * (300 << 10), b"text\n\n"])
def test_no_checkpoint_is_caught(content: bytes) -> None:
    log, receipt = taken()
    log.lies["checkpoint"] = httpx.Response(200, content=content)
    assert "/log/checkpoint" in caught(log, receipt, log.head())


@pytest.mark.parametrize(
    ("status", "told"), [(301, "no redirect"), (403, "403"), (429, "429"), (503, "503")]
)
def test_a_server_that_cannot_answer_now_is_no_cheat(status: int, told: str) -> None:
    log, receipt = taken()
    log.lies["checkpoint"] = httpx.Response(status)
    with pytest.raises(NetworkError, match=told) as refused:
        check(log, receipt, log.head())
    assert "--online" in (refused.value.hint or "")


def test_a_server_that_is_not_there_is_no_cheat() -> None:
    def gone(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("nobody listens")

    log, receipt = taken()
    with client(httpx.MockTransport(gone)) as asked:
        published = PublishedLog(asked, log.vkey)
        with pytest.raises(NetworkError, match="nobody listens"):
            check_log(receipt, log.head(), published)


def test_a_known_head_that_is_damaged_is_never_taken_for_none() -> None:
    log, _ = taken()
    known_heads.remember(log.note(), log.vkey)
    (place,) = (paths.data_dir() / "logs").iterdir()
    document = json.loads(place.read_bytes())
    for damaged in (b"{}", place.read_bytes()[:-9], b"\xff"):
        place.write_bytes(damaged)
        with pytest.raises(IntegrityError, match="cannot be read"):
            known_heads.of(ORIGIN)
    document["checkpoint"] = document["checkpoint"].replace(f"\n{AT + 1}\n", "\n9\n")
    place.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(IntegrityError, match="cannot be read"):
        known_heads.of(ORIGIN)


def test_logs_whose_names_look_alike_are_kept_apart() -> None:
    for origin in ("a.example/b", "a.example:b", "a.example_b"):
        log = PaperLog([origin.encode()], origin=origin)
        known_heads.remember(log.note(), log.vkey)
    for origin in ("a.example/b", "a.example:b", "a.example_b"):
        assert known_heads.of(origin) == PaperLog([origin.encode()], origin=origin).head()
