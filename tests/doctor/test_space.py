"""Disks and folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from npumark.doctor.scene import Outside
from npumark.doctor.space import missing_bytes, resident_bytes
from npumark.machine.card import Card
from npumark.machine.inventory import Inventory
from npumark.pack import store
from tests import synthetic

NO_CARDS = Inventory(())
MIB = 1 << 20


def test_a_full_disk_is_found_with_what_is_missing(clinic: Any) -> None:
    needed = missing_bytes(clinic.manifest, NO_CARDS, "linux")
    assert needed == 13 * MIB
    free = store.SPACE_MARGIN + needed - 5_000_000
    found = clinic.seen(free=lambda _: free)
    assert found["pack_disk"].state == "problem"
    assert "Free 0.01 GB" in found["pack_disk"].fix
    # Records need no more than the margin.
    assert found["runs_disk"].state == "ok"


def test_files_that_are_there_are_not_missing(clinic: Any, tmp_path: Path) -> None:
    place = store.pack_root(clinic.manifest) / "x.bin"
    place.parent.mkdir(parents=True)
    with place.open("wb") as file:
        file.truncate(MIB)
    assert missing_bytes(clinic.manifest, NO_CARDS, "linux") == 12 * MIB


def test_the_large_chain_counts_where_a_discrete_gpu_is() -> None:
    cards = Inventory((Card("dGPU", {}),))
    more = missing_bytes(synthetic.manifest(), cards, "linux")
    assert more == missing_bytes(synthetic.manifest(), NO_CARDS, "linux") + 3 * MIB
    assert resident_bytes(synthetic.manifest(), NO_CARDS, "linux") == 2 * MIB


def test_a_disk_that_takes_no_files_is_found(clinic: Any) -> None:
    found = clinic.seen(writable=lambda _: False)
    assert {found["pack_disk"].state, found["runs_disk"].state} == {"problem"}


def test_a_temporary_folder_that_is_full_or_none_is_found(clinic: Any) -> None:
    def nowhere() -> Path:
        raise FileNotFoundError

    assert "TMPDIR" in clinic.seen(temporary=nowhere)["temporary_folder"].fix
    assert clinic.seen(free=lambda _: 0)["temporary_folder"].state == "problem"


def test_the_temporary_folder_is_found_without_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert Outside().temporary() == tmp_path
    monkeypatch.setenv("TMPDIR", str(tmp_path / "none"))
    monkeypatch.delenv("TEMP", raising=False)
    monkeypatch.delenv("TMP", raising=False)
    assert Outside().temporary() != tmp_path
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr("npumark.doctor.scene._writable", lambda _: False)
    with pytest.raises(FileNotFoundError):
        Outside().temporary()


def test_examining_writes_nothing(clinic: Any, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    clinic.seen()
    assert sorted(tmp_path.rglob("*")) == before


def test_a_home_that_cannot_be_is_a_problem_and_no_crash(
    clinic: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NPUMARK_HOME", "~nobody-of-that-name/x")
    assert {"pack_disk", "runs_disk"} <= clinic.problems()
