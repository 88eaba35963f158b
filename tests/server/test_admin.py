"""``npumark serve admin``: the whole command line on a real database."""

from __future__ import annotations

import json
import shutil
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from sqlalchemy import text

from npumark.cli.faults import end
from npumark.cli.serve_admin import app
from npumark.errors import SetupError
from npumark.record.signing import InstallKey
from npumark.server.config import ServerConfig
from npumark.server.database import reading, sqlite_url, writing
from npumark.server.plausibility import load_rules
from npumark.server.static_log import export_log
from npumark.server.store import Store
from npumark.transparency.tiles import parse_tile_path
from tests import forge
from tests.server import stored
from tests.server.conftest import SERVER_KEY, config_of

Open = Callable[[ServerConfig], Store]
Run = Callable[..., tuple[int, Any]]


@pytest.fixture
def folder(tmp_path: Path, sqlite_template: Path) -> Path:
    """The data folder of a server: its database and its key."""
    made = tmp_path / "server"
    made.mkdir()
    shutil.copy(sqlite_template, made / "server.sqlite")
    put_key(made, SERVER_KEY)
    return made


def put_key(folder: Path, key: InstallKey) -> None:
    file = folder / "server.key"
    file.write_text(key.seed.hex() + "\n")
    file.chmod(0o600)


@pytest.fixture
def served(folder: Path, opened: Open) -> Store:
    """The server's own store on that folder."""
    return opened(config_of(sqlite_url(folder / "server.sqlite")))


@pytest.fixture
def admin(folder: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command on that folder; returns its exit status and the JSON it wrote, or None."""

    def run(*arguments: str, data: Path = folder, as_json: bool = True) -> tuple[int, Any]:
        given = [*arguments, "--data", str(data), *["--json"] * as_json]
        try:
            typer.main.get_command(app).main(args=given, prog_name="admin")
        except SystemExit as finish:
            status = int(finish.code or 0)
        except Exception as fault:  # noqa: BLE001 - as the program itself ends
            status = end(fault)
        out = capsys.readouterr().out
        if not as_json:
            return status, out
        return status, json.loads(out) if out else None

    return run


def test_hiding_and_showing_a_result(served: Store, admin: Run) -> None:
    (one,) = stored.submit(served, 1)
    why = "it copies another\x1b[31m run"
    assert admin("hide", one, "--why", why) == (0, {"result": one, "hidden": True})
    row = served.result(one)
    assert row is not None
    assert (row.hidden_at is not None, row.hidden_why) == (True, "it copies another run")
    assert admin("stats")[1]["shown"] == 0
    assert admin("unhide", one) == (0, {"result": one, "hidden": False})
    assert admin("stats")[1]["shown"] == 1


@pytest.mark.parametrize(
    "command",
    [
        ("hide", "a" * 16, "--why", "x"),
        ("unhide", "a" * 16),
        ("ban-key", "a" * 32, "--why", "x"),
        ("unban-key", "a" * 32),
        ("ban-machine-of", "a" * 16, "--why", "x"),
        ("unban-machine-of", "a" * 16),
        ("hide", "a" * 16, "--why", " "),
    ],
    ids=" ".join,
)
def test_what_is_not_there_is_a_usage_error(
    served: Store, admin: Run, command: tuple[str, ...]
) -> None:
    assert admin(*command) == (2, None)


def test_banning_a_key_and_what_it_sent(served: Store, admin: Run) -> None:
    *_, withdrawn = stored.submit(served, 1, 2, 3)
    served.withdraw(stored.withdrawal(withdrawn))
    key = forge.INSTALL.key_id
    assert admin("ban-key", key, "--why", "stolen")[1]["results_hidden"] == 0
    assert admin("stats")[1]["keys_banned"] == 1
    assert admin("ban-key", key, "--why", "stolen", "--hide")[1]["results_hidden"] == 2
    assert admin("stats")[1]["hidden"] == 2
    assert admin("unban-key", key) == (0, {"key": key, "banned": False})
    assert admin("stats")[1]["keys_banned"] == 0


def test_banning_the_machine_of_a_result(
    served: Store, admin: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("npumark.server.moderation._BATCH", 1)
    one, _ = stored.submit(served, 1, 2)
    status, told = admin("ban-machine-of", one, "--why", "it forges", "--hide")
    assert (status, told["results_hidden"]) == (0, 2)
    assert admin("stats")[1]["machines_banned"] == 1
    assert admin("unban-machine-of", one)[0] == 0
    assert admin("stats")[1]["machines_banned"] == 0


def test_stats_count_everything(served: Store, admin: Run) -> None:
    one, two, _ = stored.submit(served, 1, 2, 3)
    served.withdraw(stored.withdrawal(one))
    served.moderation.hide(two, "a doubt")
    assert admin("stats")[1] == {
        "results": 3,
        "shown": 1,
        "ranked": 1,
        "withdrawn": 1,
        "hidden": 1,
        "machines": 1,
        "machines_banned": 0,
        "keys": 1,
        "keys_banned": 0,
        "log_size": 3,
    }
    assert "log size" in admin("stats", as_json=False)[1]


def test_reverifying_by_the_present_rules(served: Store, admin: Run) -> None:
    served.register_key(stored.registration())
    served.accept(stored.new_result(payload=forge.forge_payload(small=True)))
    assert admin("reverify") == (0, {"checked": 1, "changed": 1, "failed": {}})
    assert admin("reverify") == (0, {"checked": 0, "changed": 0, "failed": {}})
    assert admin("reverify", "--all")[1]["checked"] == 1
    with reading(served.engine) as connection:
        rules = connection.scalar(text("SELECT rules_sha256 FROM results"))
    assert rules == load_rules().sha256


def test_a_record_that_cannot_be_judged_ends_with_5(served: Store, admin: Run) -> None:
    (one,) = stored.submit(served, 1)
    with writing(served.engine) as connection:
        connection.execute(text("UPDATE bodies SET record = X'00'"))
    status, told = admin("reverify")
    assert (status, list(told["failed"])) == (5, [one])


def test_a_backup_is_whole_while_the_server_writes(
    served: Store, admin: Run, tmp_path: Path, folder: Path, opened: Open
) -> None:
    copy = tmp_path / "copy" / "server.sqlite"
    copy.parent.mkdir()
    stored.submit(served, 1, 2)
    with writing(served.engine) as connection:
        connection.execute(text("UPDATE results SET hidden_why = 'not committed yet'"))
        status, told = admin("backup", str(copy))
    assert (status, told["bytes"]) == (0, copy.stat().st_size)
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert [file.name for file in copy.parent.iterdir()] == ["server.sqlite"]
    restored = opened(config_of(sqlite_url(copy)))
    assert {row.hidden_why for row in (restored.result(n) for n in _names(restored)) if row} == {
        None
    }
    shutil.copy(folder / "server.key", copy.parent)
    assert admin("check", data=copy.parent)[0] == 0
    assert admin("backup", str(copy)) == (2, None)
    assert admin("backup", str(copy), "--force")[0] == 0


def _names(store: Store) -> list[str]:
    with reading(store.engine) as connection:
        return list(connection.scalars(text("SELECT id FROM results")))


def test_postgresql_is_backed_up_by_its_own_program(
    postgres_store: Store, admin: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = postgres_store.config.database_url.replace("@", ":secret@")
    given = ["backup", str(tmp_path / "copy"), "--database", url]
    with pytest.raises(Exception, match="its own backups") as caught:
        typer.main.get_command(app).main(args=given, standalone_mode=False)
    hint = str(getattr(caught.value, "hint", ""))
    assert hint.startswith("pg_dump --format=custom --file=")
    assert "'postgresql://" in hint
    assert "secret" not in hint


def test_the_log_is_exported_as_it_is_served(served: Store, admin: Run, tmp_path: Path) -> None:
    out = tmp_path / "cdn" / "log"
    served.register_key(stored.registration())
    served.accept_many([stored.new_result(n) for n in range(255)])
    assert admin("export-log", str(out))[1] == {
        "folder": str(out),
        "size": 255,
        "written": 2,
        "kept": 0,
    }
    served.accept_many([stored.new_result(n) for n in range(255, 258)])
    told = admin("export-log", str(out))[1]
    # Level 0: a full tile and one of width 2, each with its bundle; level 1: one of width 1.
    assert (told["size"], told["written"], told["kept"]) == (258, 5, 0)
    assert admin("export-log", str(out))[1]["kept"] == 5
    names = {str(file.relative_to(out)) for file in out.rglob("*") if file.is_file()}
    assert {str(parse_tile_path(name).path) for name in names - {"checkpoint"}} == {
        "tile/0/000.p/255",
        "tile/entries/000.p/255",
        "tile/0/000",
        "tile/entries/000",
        "tile/0/001.p/2",
        "tile/entries/001.p/2",
        "tile/1/000.p/1",
    }
    assert (out / "checkpoint").read_text().splitlines()[1] == "258"


def test_a_whole_database_passes_the_check(served: Store, admin: Run) -> None:
    one, *_ = stored.submit(served, *range(5))
    served.withdraw(stored.withdrawal(one))
    status, told = admin("check")
    assert (status, told["faults"]) == (0, [])
    assert (told["leaves"], told["results"], told["withdrawn"]) == (5, 5, 1)


def test_a_check_says_that_all_is_well(served: Store, admin: Run) -> None:
    stored.submit(served, 1)
    status, told = admin("check", as_json=False)
    assert status == 0
    assert told.startswith("1 leaf, root ")
    assert "All is well" in told


def test_a_place_that_cannot_be_written_to_is_named_otherwise(
    served: Store, tmp_path: Path
) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(SetupError) as caught:
        export_log(served.engine, tmp_path / "taken" / "log")
    assert caught.value.hint == "Name another folder as DIR."


def test_the_check_computes_tiles_again(served: Store, admin: Run) -> None:
    served.register_key(stored.registration())
    served.accept_many([stored.new_result(n) for n in range(257)])
    assert admin("check")[0] == 0
    with writing(served.engine) as connection:
        connection.execute(text("UPDATE log_tiles SET hash = zeroblob(32)"))
    status, told = admin("check")
    assert (status, told["faults"]) == (
        5,
        ["tile 0 of level 0 has another hash than its content"],
    )


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ('UPDATE log_leaves SET hash = zeroblob(32) WHERE "index" = 1', "another hash"),
        ("UPDATE log_leaves SET entry = X'7b7d' WHERE \"index\" = 1", "is not its"),
        ("UPDATE log_head SET size = 1, frontier = zeroblob(32)", "its head states 1"),
        ('DELETE FROM log_leaves WHERE "index" = 0', "no leaf 0, but a leaf 1"),
        ("DELETE FROM bodies WHERE rowid = 1", "its record is missing"),
        ("UPDATE bodies SET record = X'00' WHERE rowid = 1", "not what was accepted"),
        ("UPDATE results SET withdrawn_at = 1 WHERE leaf_index = 1", "is still there"),
        ("UPDATE results SET received_at = 1 WHERE leaf_index = 1", "is not its"),
        ("UPDATE results SET receipt = X'7b7d' WHERE leaf_index = 1", "cannot be read"),
        ("UPDATE facets SET figures = figures + 1", "counts"),
        ("UPDATE processors SET runs = runs + 1", "runs and has"),
        ("UPDATE results SET hidden_at = 1 WHERE leaf_index = 1", "figures are on the board"),
        ("UPDATE results SET ranked = 0 WHERE leaf_index = 1", "and not by both"),
    ],
)
def test_the_check_finds_what_was_damaged(
    served: Store, admin: Run, damage: str, said: str
) -> None:
    stored.submit(served, 1, 2, 3)
    connection = sqlite3.connect(str(served.engine.url.database))
    connection.execute("PRAGMA foreign_keys = OFF")
    assert connection.execute(damage).rowcount > 0
    connection.commit()
    connection.close()
    status, told = admin("check")
    assert status == 5
    assert any(said in fault for fault in told["faults"]), told["faults"]


def test_a_receipt_of_another_history_is_found(served: Store, admin: Run) -> None:
    stored.submit(served, 1, 2)
    with writing(served.engine) as connection:
        receipt = connection.scalar(text("SELECT receipt FROM results WHERE leaf_index = 0"))
        connection.execute(
            text("UPDATE results SET receipt = :r WHERE leaf_index = 1"), {"r": receipt}
        )
    (fault,) = admin("check")[1]["faults"]
    assert "speaks of another leaf" in fault


def test_a_new_key_is_adopted_on_purpose_only(served: Store, admin: Run, folder: Path) -> None:
    stored.submit(served, 1)
    put_key(folder, other := InstallKey(b"\x05" * 32))
    assert "not signed with the server's key" in admin("check")[1]["faults"][0]
    assert admin("adopt-key") == (0, {"key_id": other.key_id, "new": True})
    assert admin("adopt-key") == (0, {"key_id": other.key_id, "new": False})
    assert admin("check")[1]["faults"] == []


def test_no_command_makes_a_database_or_a_key(admin: Run, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    for command in ("stats", "check", "reverify", "adopt-key"):
        assert admin(command, data=empty) == (2, None)
    assert admin("check", "--key", str(empty / "none.key"), data=empty) == (2, None)
    assert list(empty.iterdir()) == []


def test_a_database_that_stays_locked_is_said(
    served: Store, admin: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    (one,) = stored.submit(served, 1)
    monkeypatch.setattr("npumark.server.database.BUSY_MS", 1)
    with writing(served.engine):
        assert admin("hide", one, "--why", "x") == (2, None)
    assert admin("hide", one, "--why", "x")[0] == 0
