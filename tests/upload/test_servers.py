"""Which server is meant, and whether it is the one that it was."""

from __future__ import annotations

from dataclasses import replace

import pytest

from npumark import paths
from npumark.errors import IntegrityError, SetupError, UsageError
from npumark.upload.address import parse_address
from npumark.upload.servers import (
    CONSENT,
    FormerKey,
    KnownServer,
    ServerInfo,
    known,
    last_used,
    of_origin,
    pinned,
    remember,
)
from tests.transparency.paper_log import OTHER_SERVER, PaperLog
from tests.upload.paper_server import URL, PaperServer

ADDRESS = parse_address(URL)


def told(**over: object) -> ServerInfo:
    return ServerInfo.model_validate({**PaperServer().about(), **over})


@pytest.mark.parametrize(
    ("text", "url", "origin"),
    [
        ("https://Results.Example/", "https://results.example", "results.example"),
        ("https://results.example:443", "https://results.example", "results.example"),
        ("https://results.example:8443/npu/", "https://results.example:8443/npu", None),
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000", "127.0.0.1:8000"),
        ("http://[::1]:8000", "http://[::1]:8000", "::1:8000"),
        (" http://localhost ", "http://localhost", "localhost"),
    ],
)
def test_an_address_has_one_url_and_one_name(text: str, url: str, origin: str | None) -> None:
    address = parse_address(text)
    assert (address.url, address.origin) == (url, origin or "results.example:8443/npu")


@pytest.mark.parametrize(
    "text",
    [
        "results.example",
        "ftp://results.example",
        "https://",
        "https://u:p@results.example",
        "https://results.example?x=1",
        "https://results.example#x",
        "https://results.example:99999",
        "https://[::1",
        "https://bücher.example",
        "",
    ],
)
def test_what_is_no_servers_address_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_address(text)
    assert refused.value.hint


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("localhost:8000", "http://localhost:8000"),
        ("results.example", "https://results.example"),
    ],
)
def test_an_address_without_its_scheme_is_completed(text: str, whole: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_address(text)
    assert f"{whole}." in (refused.value.hint or "")


def test_plain_http_to_another_computer_needs_insisting() -> None:
    with pytest.raises(UsageError, match="plain text"):
        parse_address("http://results.example")
    assert parse_address("http://results.example", insecure_http=True).scheme == "http"


def test_different_servers_have_different_folders_that_stay_where_they_belong() -> None:
    names = ["a.example", "a.example/b", "a.example/_b", "a.example:1", "../..", "..", "x" * 200]
    slugs = [replace(ADDRESS, origin=name).slug for name in names]
    assert len(set(slugs)) == len(names)
    assert all("/" not in s and not s.startswith(".") and len(s) < 80 for s in slugs)


def test_a_server_is_remembered_and_the_one_used_last_is_found() -> None:
    assert last_used() is None
    assert known(ADDRESS) == KnownServer(URL, "results.example")
    for at, url in ((1, "https://a.example"), (3, "https://b.example"), (2, "https://c.example")):
        address = parse_address(url)
        remember(address, replace(known(address), used_at=float(at)))
    assert last_used() == KnownServer("https://b.example", "b.example", used_at=3.0)


def test_consent_is_remembered_for_the_list_that_was_shown() -> None:
    assert not known(ADDRESS).agreed
    remember(ADDRESS, replace(known(ADDRESS), consent=CONSENT))
    assert known(ADDRESS).agreed
    assert not replace(known(ADDRESS), consent=CONSENT - 1).agreed


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b'{"schema": "npumark-server/1"}'])
def test_a_damaged_memory_of_a_servers_key_is_not_taken_for_none(raw: bytes) -> None:
    remember(ADDRESS, KnownServer(URL, "results.example"))
    (paths.data_dir() / "servers" / f"{ADDRESS.slug}.json").write_bytes(raw)
    with pytest.raises(IntegrityError, match="is damaged"):
        known(ADDRESS)
    assert last_used() is None


def test_the_first_key_is_taken_and_another_is_not() -> None:
    server = pinned(known(ADDRESS), told(), ADDRESS)
    assert server.public_key == PaperLog([]).key.public.hex()
    assert pinned(server, told(), ADDRESS) == server
    log = PaperLog([], key=OTHER_SERVER)
    other = told(public_key=log.key.public.hex(), log_key=log.vkey)
    with pytest.raises(IntegrityError, match="it is another server"):
        pinned(server, other, ADDRESS)
    assert pinned(server, other, ADDRESS, trust_new_key=True).log_key == log.vkey


def test_a_key_that_was_exchanged_is_remembered_with_when() -> None:
    first = pinned(known(ADDRESS), told(), ADDRESS)
    log = PaperLog([], key=OTHER_SERVER)
    other = told(public_key=log.key.public.hex(), log_key=log.vkey, time="2027-01-01T00:00:00Z")
    assert first.public_key is not None
    assert (first.former, first.had(first.public_key)) == ((), None)
    remember(ADDRESS, pinned(first, other, ADDRESS, trust_new_key=True))
    second = known(ADDRESS)
    assert second.former == (FormerKey(first.public_key, "2027-01-01T00:00:00Z"),)
    assert second.had(first.public_key) == second.former[0]
    assert pinned(second, other, ADDRESS, trust_new_key=True) == second
    again = pinned(second, told(), ADDRESS, trust_new_key=True)
    assert again.had(first.public_key) is None
    assert again.had(OTHER_SERVER.public.hex()) is not None


def test_a_server_of_another_name_has_none_of_the_keys_of_the_one_before() -> None:
    here = parse_address("http://127.0.0.1:8000")
    first = pinned(
        known(here), told(log_key=PaperLog([], origin="a.example").vkey, origin="a.example"), here
    )
    log = PaperLog([], key=OTHER_SERVER, origin="b.example")
    other = told(origin="b.example", public_key=log.key.public.hex(), log_key=log.vkey)
    assert pinned(first, other, here, trust_new_key=True).former == ()


def test_a_memory_that_cannot_be_read_is_told() -> None:
    place = paths.make(paths.data_dir() / "servers") / f"{ADDRESS.slug}.json"
    place.mkdir()
    with pytest.raises(SetupError, match="cannot be read") as refused:
        known(ADDRESS)
    assert refused.value.hint
    with pytest.raises(SetupError, match="cannot be read"):
        of_origin(ADDRESS.origin)


def test_a_log_key_that_is_not_the_servers_is_refused() -> None:
    with pytest.raises(IntegrityError, match="key of its log"):
        pinned(known(ADDRESS), told(log_key=PaperLog([], key=OTHER_SERVER).vkey), ADDRESS)


def test_only_this_very_computer_may_call_itself_what_it_likes() -> None:
    log = PaperLog([], origin="results.example")
    info = told(log_key=log.vkey)
    here = parse_address("http://127.0.0.1:8000")
    first = pinned(known(here), info, here)
    assert first.origin == "results.example"
    other = PaperLog([], origin="other.example")
    with pytest.raises(IntegrityError, match=r"was results\.example before"):
        pinned(first, told(origin="other.example", log_key=other.vkey), here)
    elsewhere = parse_address("https://mirror.example")
    with pytest.raises(IntegrityError, match="calls itself"):
        pinned(known(elsewhere), info, elsewhere)
