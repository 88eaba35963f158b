"""The machine ID: the same for one machine, of no use to find it by, and in no record."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from npumark.errors import IntegrityError, SetupError
from npumark.machine.identity import machine
from npumark.machine.machine_id import identify, machine_id

RAW = "3d1219c7c4c5404aaa1f6d2a48adfda4"
UUID = "A1B2C3D4-0000-1111-2222-333344445555"
IOREG = ("ioreg", "-rd1", "-c", "IOPlatformExpertDevice")
GUID = (r"SOFTWARE\Microsoft\Cryptography", "MachineGuid")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NPUMARK_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def digest(text: str) -> str:
    return hashlib.sha256(b"npumark-machine/1\n" + text.encode()).hexdigest()


def test_it_is_a_digest_of_the_systems_own_id(fake: Any, home: Path) -> None:
    fake.write("/etc/machine-id", RAW)
    found = identify(fake.host)
    assert (found.value, found.why) == (digest(RAW), None)
    # A prefix of its own: no other program's digest of the same id is this one.
    assert found.value != hashlib.sha256(RAW.encode()).hexdigest()
    assert not home.exists()


def test_the_bus_keeps_it_where_etc_does_not(fake: Any) -> None:
    fake.write("/var/lib/dbus/machine-id", RAW)
    assert identify(fake.host).value == digest(RAW)
    fake.write("/etc/machine-id", "uninitialized")
    assert identify(fake.host).value == digest(RAW)


def test_a_mac_and_windows_have_one_too(fake: Any) -> None:
    answer = f'    "IOPlatformSerialNumber" = "X"\n    "IOPlatformUUID" = "{UUID}"\n'
    assert identify(fake.other("darwin", {IOREG: answer})).value == digest(UUID.lower())
    assert identify(fake.other("win32", {GUID: UUID})).value == digest(UUID.lower())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "/etc/machine-id does not exist"),
        ("", "/etc/machine-id is empty"),
        ("uninitialized", "/etc/machine-id holds no id"),
        ("0" * 32, "/etc/machine-id holds no id"),
        (RAW[:-1], "/etc/machine-id holds no id"),
        (RAW + "0", "/etc/machine-id holds no id"),
        ("my-laptop", "/etc/machine-id holds no id"),
    ],
)
def test_without_one_a_random_one_is_kept(
    fake: Any, home: Path, text: str | None, why: str
) -> None:
    if text is not None:
        fake.write("/etc/machine-id", text)
    first = identify(fake.host)
    assert first.why == why
    assert identify(fake.host) == first
    kept = home / "config" / "machine-id"
    assert first.value == digest(kept.read_text().strip())
    if os.name == "posix":
        assert kept.stat().st_mode & 0o777 == 0o600
    kept.unlink()
    assert identify(fake.host).value != first.value


@pytest.mark.parametrize(
    ("system", "why"),
    [
        ("darwin", "ioreg ended with status 1"),
        ("win32", "ended with status 1"),
        ("freebsd14", "knows no machine id"),
    ],
)
def test_a_system_that_does_not_tell_gets_a_random_one(fake: Any, system: str, why: str) -> None:
    assert why in str(identify(fake.other(system, {})).why)


def test_a_kept_one_that_is_damaged_is_told_and_not_replaced(fake: Any, home: Path) -> None:
    identify(fake.host)
    kept = home / "config" / "machine-id"
    kept.write_bytes(b"\xff\xfe")
    with pytest.raises(IntegrityError, match="is damaged") as caught:
        identify(fake.host)
    assert "remove the file" in str(caught.value.hint)
    assert kept.read_bytes() == b"\xff\xfe"


def test_a_kept_one_that_cannot_be_read_is_told(fake: Any, home: Path) -> None:
    (home / "config" / "machine-id").mkdir(parents=True)
    with pytest.raises(SetupError, match="cannot be read"):
        identify(fake.host)


@pytest.mark.skipif(os.name != "posix", reason="makes a symbolic link")
def test_a_kept_one_that_is_a_link_to_nothing_is_told(fake: Any, home: Path) -> None:
    (home / "config").mkdir(parents=True)
    (home / "config" / "machine-id").symlink_to(home / "nowhere")
    with pytest.raises(SetupError, match="cannot be read"):
        identify(fake.host)


@pytest.mark.parametrize(("baked_in", "ids"), [(RAW, 1), ("", 2)])
def test_copies_of_one_image_have_one_id_and_those_without_have_their_own(
    fake: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, baked_in: str, ids: int
) -> None:
    fake.write("/etc/machine-id", baked_in)
    found = set()
    for container in ("one", "two"):
        monkeypatch.setenv("NPUMARK_HOME", str(tmp_path / container))
        found.add(identify(fake.host).value)
    assert len(found) == ids


def test_this_machine_has_one() -> None:
    found = machine_id()
    assert len(bytes.fromhex(found)) == 32
    assert machine_id() == found


def test_the_facts_of_a_machine_hold_neither_id(fake: Any) -> None:
    fake.write("/etc/machine-id", RAW)
    told = repr(machine(fake.host))
    assert RAW not in told
    assert digest(RAW) not in told
    assert "os" in told
