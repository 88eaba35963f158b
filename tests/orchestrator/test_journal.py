"""The journal: every line on disk, a torn one tolerated exactly where a kill can tear it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import npumark
from npumark.errors import IntegrityError, SetupError
from npumark.orchestrator import journal as module
from npumark.orchestrator.journal import SCHEMA, Journal, Replay, read_journal, replay

ENTRY = ["e-cpu", "w", "v"]


def write(path: Path, *, finish: bool = True) -> Replay:
    with Journal(path) as journal:
        journal.append("header", {"schema": SCHEMA, "run_id": "r"})
        journal.append("starting", {"entry": ENTRY, "n": 1, "seed": 7, "started_ns": 5})
        journal.append(
            "attempt", {"entry": ENTRY, "attempt": {"n": 1, "started_ns": 5, "wall_ns": 10}}
        )
        journal.append("fact", {"name": "overhead", "value": {"ns": 3}})
        journal.append("starting", {"entry": ENTRY, "n": 2, "seed": 7, "started_ns": 40})
        if finish:
            journal.append(
                "attempt", {"entry": ENTRY, "attempt": {"n": 2, "started_ns": 40, "wall_ns": 2}}
            )
            journal.append("finished", {})
    return replay(read_journal(path))


def test_a_finished_run_is_replayed_whole(tmp_path: Path) -> None:
    state = write(tmp_path / "j")
    assert state.header["run_id"] == "r"
    assert [a["n"] for a in state.attempts[("e-cpu", "w", "v")]] == [1, 2]
    assert state.facts == {"overhead": {"ns": 3}}
    assert state.in_flight is None
    assert (state.finished, state.last_ns) == (True, 42)


def test_an_attempt_in_flight_is_known(tmp_path: Path) -> None:
    state = write(tmp_path / "j", finish=False)
    assert state.in_flight == {"entry": ENTRY, "n": 2, "seed": 7, "started_ns": 40}
    assert (state.finished, state.last_ns) == (False, 40)


@settings(max_examples=40, deadline=None)
@given(cut=st.integers(min_value=0, max_value=500))
def test_a_kill_at_any_byte_leaves_a_readable_journal(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    path = tmp_path_factory.mktemp("kill") / "j"
    write(path)
    raw = path.read_bytes()
    header = raw.index(b"\n")
    cut = min(max(cut, header), len(raw))
    path.write_bytes(raw[:cut])
    before = replay(read_journal(path))
    with Journal(path) as journal:
        journal.append("resumed", {"at_ns": 99, "changed": []})
    after = replay(read_journal(path))
    assert after.attempts == before.attempts
    assert after.facts == before.facts
    assert after.last_ns == 99
    assert len(after.resumed) == 1


def test_two_kills_in_a_row_are_survived(tmp_path: Path) -> None:
    path = tmp_path / "j"
    write(path, finish=False)
    for torn in (b'{"kind":"attempt","entry', b'{"kind":"resumed","at'):
        with path.open("ab") as file:
            file.write(torn)
        with Journal(path):
            pass
    with Journal(path) as journal:
        journal.append("resumed", {"at_ns": 50, "changed": ["boot"]})
    state = replay(read_journal(path))
    assert state.resumed == [{"at_ns": 50, "changed": ["boot"]}]
    assert state.in_flight is not None


@pytest.mark.parametrize(
    "spoil",
    [
        lambda raw: raw[:0],
        lambda raw: raw[10:],
        lambda raw: raw.replace(b'{"kind":"header"', b'{"kind":"fact"'),
        lambda raw: raw.replace(b'{"kind":"fact"', b'{"kind:"fact"'),
        lambda raw: raw.replace(b'{"kind":"starting"', b"[" * 100000, 1),
    ],
)
def test_damage_that_no_kill_explains_is_refused(tmp_path: Path, spoil: object) -> None:
    path = tmp_path / "j"
    write(path)
    path.write_bytes(spoil(path.read_bytes()))  # type: ignore[operator]
    with pytest.raises(IntegrityError, match="damaged"):
        read_journal(path)


def test_a_journal_that_cannot_be_is_said(tmp_path: Path) -> None:
    with pytest.raises(SetupError):
        Journal(tmp_path / "missing" / "j")
    with pytest.raises(IntegrityError, match="cannot be read"):
        read_journal(tmp_path / "missing" / "j")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_said() -> None:
    with Journal(Path("/dev/full")) as journal, pytest.raises(SetupError, match="no space"):
        journal.append("header", {})


def test_lines_are_written_as_they_are_on_every_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags: list[int] = []
    real = os.open

    def look(path: Path, how: int, mode: int) -> int:
        flags.append(how)
        return real(path, how & ~(1 << 30), mode)

    monkeypatch.setattr(module, "_BINARY", 1 << 30)
    monkeypatch.setattr(os, "open", look)
    with Journal(tmp_path / "j") as journal:
        journal.append("header", {"schema": SCHEMA})
    assert flags[0] & 1 << 30


@pytest.mark.parametrize(
    "line",
    [
        {"kind": "attempt", "attempt": {"started_ns": 1, "wall_ns": 1}},
        {"kind": "attempt", "entry": ENTRY},
        {"kind": "attempt", "entry": ENTRY, "attempt": None},
        {"kind": "attempt", "entry": ["e-cpu"], "attempt": {"started_ns": 1, "wall_ns": 1}},
        {"kind": "attempt", "entry": ENTRY, "attempt": {"started_ns": "zz", "wall_ns": 1}},
        {"kind": "starting", "entry": ENTRY, "n": 1, "seed": 1},
        {"kind": "starting", "entry": None, "n": 1, "seed": 1, "started_ns": 1},
        {"kind": "fact", "name": "overhead"},
        {"kind": "resumed", "at_ns": float("inf")},
        {"kind": "parts", "parts": 3},
    ],
)
def test_a_line_that_lacks_what_it_must_have_is_named(tmp_path: Path, line: object) -> None:
    path = tmp_path / "j"
    write(path)
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")
    with pytest.raises(IntegrityError, match=r"j is damaged, or another .* it: line 8 ") as told:
        replay(read_journal(path), path)
    assert "\n" not in told.value.message


def test_a_journal_of_another_version_is_not_called_damaged(tmp_path: Path) -> None:
    path = tmp_path / "j"
    line = {"kind": "fact", "name": "overhead"}
    said = []
    for version in ("0.0.9", npumark.__version__):
        header = {"kind": "header", "schema": SCHEMA, "state": {"npumark": version}}
        path.write_text("".join(json.dumps(part) + "\n" for part in (header, line)))
        with pytest.raises(IntegrityError) as told:
            replay(read_journal(path), path)
        assert "with the npumark that began it" in str(told.value.hint)
        said.append(told.value.message)
    assert "j was written by another version of npumark (0.0.9): line 2 lacks" in said[0]
    # No digest tells another build of this very version from damage.
    assert "j is damaged, or another npumark wrote it: line 2 lacks" in said[1]


def test_a_journal_of_another_schema_names_both(tmp_path: Path) -> None:
    path = tmp_path / "j"
    write(path)
    path.write_bytes(path.read_bytes().replace(SCHEMA.encode(), b"npumark-journal/9"))
    with pytest.raises(IntegrityError, match='line 1 has the schema "npumark-journal/9"'):
        read_journal(path)
