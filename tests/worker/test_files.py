from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from npumark.errors import PackError
from npumark.worker.files import check_files, require_checked, stamp_of
from npumark.worker.protocol import FileCheck

FILE = FileCheck("a", 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", None)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "a").write_bytes(b"abc")
    return tmp_path / "pack"


def test_a_file_that_matches_is_hashed_and_stamped(root: Path) -> None:
    assert check_files(root, [FILE]) == {"a": stamp_of(root / "a")}


def test_a_file_whose_stamp_holds_is_not_hashed_again(root: Path) -> None:
    assert check_files(root, [replace(FILE, stamp=stamp_of(root / "a"))]) == {}


def test_a_stale_stamp_hashes_again(root: Path) -> None:
    file = replace(FILE, stamp=stamp_of(root / "a"))
    (root / "a").write_bytes(b"abd")
    with pytest.raises(PackError, match="not what the manifest pins") as caught:
        check_files(root, [file])
    assert caught.value.path == "a"


def test_a_flipped_byte_a_short_file_and_a_missing_one_are_named(root: Path) -> None:
    (root / "a").write_bytes(b"abx")
    with pytest.raises(PackError, match=r"^a is not"):
        check_files(root, [FILE])
    (root / "a").write_bytes(b"ab")
    with pytest.raises(PackError, match=r"^a has 2 bytes, not 3"):
        check_files(root, [FILE])
    (root / "a").unlink()
    with pytest.raises(PackError, match=r"^a cannot be read"):
        check_files(root, [FILE])


def test_a_link_out_of_the_pack_is_refused(root: Path) -> None:
    (root.parent / "elsewhere").write_bytes(b"abc")
    (root / "a").unlink()
    (root / "a").symlink_to(root.parent / "elsewhere")
    with pytest.raises(PackError, match="outside the pack"):
        check_files(root, [FILE])


def test_a_file_that_is_read_must_be_among_those_checked() -> None:
    require_checked(["a"], [FILE])
    with pytest.raises(PackError, match="reads b without"):
        require_checked(["a", "b"], [FILE])
