"""The program that asks the platform's keystore: the right backend, and nobody is asked."""

from __future__ import annotations

import ctypes
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from npumark.record import keyring_child, platform_keystore


class Drawer:
    """A keystore in memory, as ``keyring`` shows one."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], str] = {}

    def set_password(self, service: str, name: str, secret: str) -> None:
        self.kept[service, name] = secret

    def get_password(self, service: str, name: str) -> str | None:
        return self.kept.get((service, name))

    def delete_password(self, service: str, name: str) -> None:
        del self.kept[service, name]


class Bus:
    """A session bus with a Secret Service in some state."""

    def __init__(self, *, runs: bool = True, exists: bool = True, locked: bool = False) -> None:
        self.runs, self.exists, self.locked = runs, exists, locked
        self.closed = False

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Put a Secret Service on the bus, in the state that it is given; return the bus."""

    class Missing(Exception):
        pass

    def collection(bus: Bus) -> SimpleNamespace:
        if not bus.exists:
            raise Missing
        return SimpleNamespace(is_locked=lambda: bus.locked)

    def put(**state: bool) -> Bus:
        bus = Bus(**state)
        module = ModuleType("secretstorage")
        module.__dict__.update(
            dbus_init=lambda: bus,
            check_service_availability=lambda bus: bus.runs,
            Collection=collection,
        )
        faults = ModuleType("secretstorage.exceptions")
        faults.__dict__["ItemNotFoundException"] = Missing
        monkeypatch.setitem(sys.modules, "secretstorage", module)
        monkeypatch.setitem(sys.modules, "secretstorage.exceptions", faults)
        monkeypatch.setattr(sys, "platform", "linux")
        return bus

    return put


def test_it_puts_gets_and_removes() -> None:
    drawer = Drawer()
    asked = {"service": "npumark", "name": "k"}
    get = {"do": "get", **asked}
    assert keyring_child.answer(get, drawer) == {"secret": None}
    put = {"do": "put", **asked, "secret": "s"}
    assert keyring_child.answer(put, drawer) == {"secret": None}
    assert drawer.kept == {("npumark", "k"): "s"}
    assert keyring_child.answer(get, drawer) == {"secret": "s"}
    assert keyring_child.answer({"do": "remove", **asked}, drawer) == {"secret": None}
    assert drawer.kept == {}


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"runs": False}, "no Secret Service runs"),
        ({"exists": False}, "has no default keyring yet"),
        ({"locked": True}, "the keyring is locked"),
    ],
)
def test_a_keyring_that_would_ask_is_refused(
    service: Any, state: dict[str, bool], words: str
) -> None:
    bus = service(**state)
    with pytest.raises(keyring_child.Refused, match=words):
        keyring_child.backend()
    assert bus.closed


@pytest.mark.skipif(sys.platform != "linux", reason="needs keyring's Secret Service backend")
def test_an_open_keyring_is_used(service: Any) -> None:
    bus = service()
    assert type(keyring_child.backend()).__module__ == "keyring.backends.SecretService"
    assert bus.closed


@pytest.mark.parametrize("status", [0, -25293])
def test_a_keychain_that_would_still_show_dialogs_is_refused(
    monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    told: list[int] = []

    def allow(state: ctypes.c_ubyte) -> int:
        told.append(state.value)
        return status

    library = SimpleNamespace(SecKeychainSetUserInteractionAllowed=allow)
    keychain = ModuleType("keyring.backends.macOS")
    keychain.__dict__["Keyring"] = Drawer
    monkeypatch.setattr(ctypes, "CDLL", lambda _: library)
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setitem(sys.modules, "keyring.backends.macOS", keychain)
    if status == 0:
        assert isinstance(keyring_child.backend(), Drawer)
    else:
        with pytest.raises(keyring_child.Refused, match="OSStatus -25293"):
            keyring_child.backend()
    assert told == [0]


def test_what_is_raised_and_printed_becomes_one_answer(tmp_path: Path) -> None:
    """The program as it is started, in an environment without any bus."""
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("DBUS", "XDG", "DISPLAY"))}
    done = subprocess.run(
        platform_keystore.CHILD,
        input=json.dumps({"do": "get", "service": "npumark-test", "name": "none"}).encode(),
        capture_output=True,
        env={**environ, "HOME": str(tmp_path)},
        check=True,
    )
    assert set(json.loads(done.stdout)) <= {"error", "secret"}
    assert done.stdout.count(b"{") == 1


def test_what_a_backend_prints_is_no_answer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def noisy() -> Drawer:
        os.write(1, b"Welcome to the wallet\n")
        raise RuntimeError("no wallet")

    monkeypatch.setattr(keyring_child, "backend", noisy)
    question = io.TextIOWrapper(io.BytesIO(b'{"do": "get", "service": "s", "name": "n"}'))
    monkeypatch.setattr(sys, "stdin", question)
    kept = os.dup(1)
    out = os.open(tmp_path / "out", os.O_RDWR | os.O_CREAT)
    try:
        os.dup2(out, 1)
        keyring_child.main()
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(out)
    assert json.loads((tmp_path / "out").read_bytes()) == {"error": "no wallet"}
