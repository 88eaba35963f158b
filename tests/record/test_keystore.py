"""The installation's key: made once, kept where it was put, never replaced in silence."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from npumark.errors import IntegrityError, SetupError, UsageError
from npumark.record import keystore, platform_keystore
from npumark.record.key_info import info_path
from npumark.record.platform_keystore import KeystoreFault

STAND_IN = Path(__file__).with_name("keystore_stand_in.py")
posix = pytest.mark.skipif(os.name != "posix", reason="needs modes to matter")

Platform = Callable[[str], Path]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NPUMARK_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def platform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Platform:
    """Give this computer a keystore of its own, which behaves as it is told; return its folder."""
    folder = tmp_path / "keystore"
    folder.mkdir()
    monkeypatch.delenv(keystore.VARIABLE)
    monkeypatch.setattr(platform_keystore, "lacking", lambda: None)

    def behave(how: str = "") -> Path:
        child = (sys.executable, "-S", str(STAND_IN), str(folder), how)
        monkeypatch.setattr(platform_keystore, "CHILD", child)
        slow = how in ("hangs", "leaves a hanging child")
        monkeypatch.setattr(platform_keystore, "DEADLINE_S", 0.5 if slow else 60.0)
        return folder

    behave()
    return behave


def asked(folder: Path) -> list[str]:
    return [json.loads(line)["do"] for line in (folder / "asked.log").read_text().splitlines()]


def key_files(home: Path) -> list[Path]:
    return sorted((home / "config" / "keys").glob("*.key"))


def test_a_key_is_made_once_and_kept_in_a_file_of_this_user(home: Path) -> None:
    assert keystore.describe() is None
    key = keystore.install_key()
    info = keystore.describe()
    assert info is not None
    (file,) = key_files(home)
    assert (info.where, info.key_id, info.public_key) == ("file", key.key_id, key.public.hex())
    assert info.place == str(file)
    assert "NPUMARK_KEYSTORE says so" in str(info.notice)
    assert file.read_text() == key.seed.hex() + "\n"
    assert key.seed.hex() not in info_path().read_text()
    assert keystore.install_key() == key


@posix
def test_nobody_else_can_read_it_whatever_the_umask(home: Path) -> None:
    before = os.umask(0)
    try:
        keystore.install_key()
    finally:
        os.umask(before)
    (file,) = key_files(home)
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700


@posix
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o777])
def test_a_file_that_others_may_open_is_refused_with_the_remedy(home: Path, mode: int) -> None:
    key = keystore.install_key()
    (file,) = key_files(home)
    file.chmod(mode)
    with pytest.raises(SetupError, match="may be read or written by others") as caught:
        keystore.install_key()
    assert f"chmod 600 '{file}'" in str(caught.value.hint)
    file.chmod(0o600)
    assert keystore.install_key() == key


@posix
def test_a_pipe_in_the_place_of_the_file_is_not_waited_for(home: Path) -> None:
    keystore.install_key()
    (file,) = key_files(home)
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(SetupError, match="is no file"):
        keystore.install_key()


@pytest.mark.parametrize("text", ["", "00", "zz" * 32, "00" * 32 + "\n\n", "00" * 33, "A" * 64])
def test_a_damaged_file_is_told_and_makes_no_other_key(home: Path, text: str) -> None:
    key = keystore.install_key()
    (file,) = key_files(home)
    file.write_text(text)
    with pytest.raises(IntegrityError, match="is damaged") as caught:
        keystore.install_key()
    assert "npumark keys rotate" in str(caught.value.hint)
    info = keystore.describe()
    assert info is not None
    assert info.key_id == key.key_id


def test_another_key_in_the_file_is_not_taken_for_it(home: Path) -> None:
    keystore.install_key()
    (file,) = key_files(home)
    file.write_text("11" * 32)
    with pytest.raises(IntegrityError, match="holds another key than this installation's"):
        keystore.install_key()


def test_a_file_that_is_gone_makes_no_other_key(home: Path) -> None:
    keystore.install_key()
    (file,) = key_files(home)
    file.unlink()
    with pytest.raises(IntegrityError, match="is gone") as caught:
        keystore.install_key()
    assert "npumark keys rotate" in str(caught.value.hint)
    assert key_files(home) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: text[:40], "is damaged"),
        (lambda text: text.replace('"file"', '"drawer"'), "where: Input should be"),
        (lambda text: text.replace("npumark-install/1", "npumark-install/2"), "schema: Input"),
        (lambda text: text.replace('"key_id": "', '"key_id": "0'), "key_id: String should match"),
        (lambda _: "\xff", "is damaged"),
        (lambda text: text.replace('"former": []', '"former": [], "more": 1'), "more: Extra"),
    ],
)
def test_a_damaged_note_is_told_and_rotation_keeps_it_aside(
    home: Path, change: Callable[[str], str], words: str
) -> None:
    key = keystore.install_key()
    damaged = change(info_path().read_text())
    info_path().write_text(damaged, "latin-1")
    with pytest.raises(IntegrityError, match=words) as caught:
        keystore.install_key()
    assert "npumark keys rotate" in str(caught.value.hint)
    assert keystore.rotate() != key
    (aside,) = info_path().parent.glob("install.damaged-*.json")
    assert aside.read_text("latin-1") == damaged


def test_a_note_whose_key_id_is_anothers_is_damaged() -> None:
    key = keystore.install_key()
    other = key.key_id[:-1] + ("0" if key.key_id[-1] != "0" else "1")
    info_path().write_text(info_path().read_text().replace(key.key_id, other))
    with pytest.raises(IntegrityError, match="its key id is not that of its public key"):
        keystore.describe()


def test_rotation_removes_the_private_half_and_remembers_the_public_one(home: Path) -> None:
    keys = [keystore.install_key(), keystore.rotate(), keystore.rotate()]
    assert len({key.key_id for key in keys}) == 3
    info = keystore.describe()
    assert info is not None
    assert [former.key_id for former in info.former] == [key.key_id for key in keys[:2]]
    assert [former.public_key for former in info.former] == [key.public.hex() for key in keys[:2]]
    assert all(former.removed for former in info.former)
    assert [file.stem for file in key_files(home)] == [keys[2].key_id]
    assert keystore.install_key() == keys[2]
    whose = [info.whose(key.key_id) for key in keys]
    assert whose == ["former", "former", "own"]
    assert info.whose("0" * 32) == "foreign"


def test_rotation_serves_where_the_old_key_cannot_be_read(home: Path) -> None:
    old = keystore.install_key()
    key_files(home)[0].write_text("damaged")
    new = keystore.rotate()
    assert keystore.install_key() == new
    info = keystore.describe()
    assert info is not None
    assert [former.key_id for former in info.former] == [old.key_id]
    assert [file.stem for file in key_files(home)] == [new.key_id]


def test_rotation_of_nothing_makes_the_first_key() -> None:
    key = keystore.rotate()
    info = keystore.describe()
    assert info is not None
    assert (info.key_id, info.former) == (key.key_id, ())


def test_a_key_whose_maker_was_ended_before_it_was_remembered_is_taken() -> None:
    key = keystore.install_key()
    info_path().unlink()
    assert keystore.install_key() == key
    info = keystore.describe()
    assert info is not None
    assert "found there" in str(info.notice)


def test_a_left_file_that_holds_another_key_is_not_taken(home: Path) -> None:
    keystore.install_key()
    info_path().unlink()
    key_files(home)[0].write_text("22" * 32)
    with pytest.raises(IntegrityError, match="holds another key than its name says"):
        keystore.install_key()


def test_processes_that_make_it_at_once_get_one_key(home: Path) -> None:
    code = "from npumark.record import keystore; print(keystore.install_key().key_id)"
    started = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = {process.communicate()[0].strip() for process in started}
    assert said == {file.stem for file in key_files(home)}
    assert len(said) == 1


@posix
@pytest.mark.skipif(os.name == "posix" and os.getuid() == 0, reason="root may write anywhere")
def test_a_folder_that_takes_nothing_is_told(home: Path) -> None:
    (home / "config").mkdir(parents=True)
    (home / "config").chmod(0o500)
    try:
        with pytest.raises(SetupError, match="permission"):
            keystore.install_key()
    finally:
        (home / "config").chmod(0o700)


def test_a_wish_that_is_no_place_is_refused(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    monkeypatch.setenv(keystore.VARIABLE, "cloud")
    with pytest.raises(UsageError, match="NPUMARK_KEYSTORE is 'cloud'"):
        keystore.install_key()
    assert keystore.describe() is None


# --- a keystore of the platform -----------------------------------------------------------------


def test_a_platform_keystore_keeps_it_and_no_file_does(platform: Platform, home: Path) -> None:
    folder = platform("")
    key = keystore.install_key()
    info = keystore.describe()
    assert info is not None
    assert (info.where, info.notice, info.place) == ("keyring", None, platform_keystore.title())
    assert asked(folder) == ["put", "get"]
    assert (folder / key.key_id).read_text() == key.seed.hex()
    assert key_files(home) == []
    assert keystore.install_key() == key


@posix
def test_a_secret_passes_over_pipes_only_and_out_of_a_terminals_reach(platform: Platform) -> None:
    folder = platform("")
    secret = keystore.install_key().seed.hex()
    log = folder / "asked.log"
    assert secret not in log.read_text()
    # A session of its own has no terminal to ask on.
    assert all(json.loads(line)["alone"] for line in log.read_text().splitlines())
    log.unlink()
    question = json.dumps({"do": "get", "name": secret})
    subprocess.run(platform_keystore.CHILD, input=question, text=True, check=True)
    assert secret in log.read_text()
    assert not json.loads(log.read_text())["alone"]


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("hangs", "did not answer within 0.5 s"),
        ("leaves a hanging child", "did not answer within 0.5 s"),
        ("dies", "ended without an answer"),
        ("says nothing", "ended without an answer"),
        ("chatters", "ended without an answer"),
        ("is locked", "the keyring is locked)"),
        ("forgets", "does not give back what was put into it"),
        ("garbles", "does not give back what was put into it"),
    ],
)
def test_a_keystore_that_fails_leaves_the_key_in_a_file(
    platform: Platform, home: Path, how: str, words: str
) -> None:
    platform(how)
    key = keystore.install_key()
    info = keystore.describe()
    assert info is not None
    assert info.where == "file"
    assert words in str(info.notice)
    assert [file.stem for file in key_files(home)] == [key.key_id]
    # The same place is read again, whatever the keystore could do by now.
    platform("")
    assert keystore.install_key() == key


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("hangs", "does not give it: it did not answer"),
        ("dies", "does not give it: asking it ended"),
        ("is locked", "does not give it: the keyring is locked"),
    ],
)
def test_a_keystore_that_refuses_later_is_told_and_makes_no_other_key(
    platform: Platform, home: Path, how: str, words: str
) -> None:
    platform("")
    key = keystore.install_key()
    platform(how)
    with pytest.raises(SetupError, match=words) as caught:
        keystore.install_key()
    assert "npumark keys rotate" in str(caught.value.hint)
    assert key_files(home) == []
    platform("")
    assert keystore.install_key() == key


def test_a_keystore_that_lost_it_makes_no_other_key(platform: Platform) -> None:
    folder = platform("")
    key = keystore.install_key()
    (folder / key.key_id).unlink()
    with pytest.raises(
        IntegrityError, match=f"no longer holds this installation's key {key.key_id}"
    ):
        keystore.install_key()
    (folder / key.key_id).write_text("33" * 32)
    with pytest.raises(IntegrityError, match="holds another key than this installation's"):
        keystore.install_key()
    (folder / key.key_id).write_text("a password")
    with pytest.raises(SetupError, match="it holds something else than a key"):
        keystore.install_key()


def test_rotation_removes_the_old_entry(platform: Platform) -> None:
    folder = platform("")
    old = keystore.install_key()
    new = keystore.rotate()
    assert {path.name for path in folder.iterdir()} == {"asked.log", new.key_id}
    info = keystore.describe()
    assert info is not None
    assert [(k.key_id, k.removed) for k in info.former] == [(old.key_id, True)]


def test_an_old_entry_that_cannot_be_removed_is_remembered_as_such(platform: Platform) -> None:
    folder = platform("")
    old = keystore.install_key()
    platform("refuses remove")
    keystore.rotate()
    info = keystore.describe()
    assert info is not None
    assert [(k.key_id, k.removed) for k in info.former] == [(old.key_id, False)]
    assert (folder / old.key_id).exists()


def test_rotation_leaves_a_keystore_that_refuses_for_a_file(platform: Platform, home: Path) -> None:
    platform("")
    keystore.install_key()
    platform("is locked")
    new = keystore.rotate()
    assert [file.stem for file in key_files(home)] == [new.key_id]
    assert keystore.install_key() == new


def test_whoever_insists_on_a_keystore_gets_no_file(
    platform: Platform, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform("is locked")
    monkeypatch.setenv(keystore.VARIABLE, "keyring")
    with pytest.raises(SetupError, match="cannot be used") as caught:
        keystore.install_key()
    assert keystore.VARIABLE in str(caught.value.hint)
    assert key_files(home) == []
    assert keystore.describe() is None


def test_whoever_wants_a_file_has_no_keystore_asked(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = platform("")
    monkeypatch.setenv(keystore.VARIABLE, "file")
    keystore.install_key()
    assert list(folder.iterdir()) == []


def test_a_process_that_cannot_be_started_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform_keystore, "CHILD", ("/nowhere/python",))
    with pytest.raises(KeystoreFault, match="it cannot be asked"):
        platform_keystore.fetch("x")


@pytest.mark.parametrize(
    ("system", "environ", "words"),
    [
        ("linux", {}, "no session bus"),
        ("linux", {"DISPLAY": ":0"}, "no session bus"),
        ("linux", {"XDG_RUNTIME_DIR": "/nowhere", "DISPLAY": ":0"}, "no session bus"),
        ("linux", {"DBUS_SESSION_BUS_ADDRESS": "unix:path=/x"}, "no display"),
        ("linux", {"DBUS_SESSION_BUS_ADDRESS": "", "DISPLAY": ":0"}, "no session bus"),
        ("freebsd14", {"DBUS_SESSION_BUS_ADDRESS": "x", "DISPLAY": ":0"}, "knows no keystore"),
    ],
)
def test_where_no_keystore_is_worth_asking(
    system: str, environ: dict[str, str], words: str
) -> None:
    assert words in str(platform_keystore.lacking(environ, system))


def test_where_one_is(tmp_path: Path) -> None:
    (tmp_path / "bus").touch()
    for system, environ in (
        ("darwin", {}),
        ("win32", {}),
        ("linux", {"DBUS_SESSION_BUS_ADDRESS": "unix:path=/x", "DISPLAY": ":0"}),
        ("linux", {"XDG_RUNTIME_DIR": str(tmp_path), "WAYLAND_DISPLAY": "wayland-0"}),
    ):
        assert platform_keystore.lacking(environ, system) is None
