"""Which library of a package is not what was installed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from npumark.engines.library_files import damage

LIBRARIES = {
    "libA.so": b"\x7fELF" + bytes(60),
    "libB.so.1": b"\x7fELF" + bytes(20),
    "c.dll": b"MZ" + bytes(10),
    "d.dylib": b"\xcf\xfa\xed\xfe" + bytes(10),
    "empty.so": b"",
    "words.txt": b"words",
}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a package of libraries that is installed for this interpreter."""
    folder, info = tmp_path / "thing", tmp_path / "thing-1.0.dist-info"
    for place in (folder, info):
        place.mkdir()
    for name, raw in LIBRARIES.items():
        (folder / name).write_bytes(raw)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: thing\nVersion: 1.0\n")
    rows = [f"thing/{name},sha256=x,{len(raw)}" for name, raw in LIBRARIES.items()]
    (info / "RECORD").write_text("\n".join(rows))
    monkeypatch.syspath_prepend(tmp_path)
    return folder


def shorten(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize("name", ["libA.so", "libB.so.1", "c.dll", "d.dylib"])
@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (Path.unlink, "it is gone"),
        (lambda p: p.write_bytes(b""), "it is empty"),
        (lambda p: p.write_bytes(b"#!/bin/sh" + bytes(99)), "it is no library"),
        (shorten, "bytes"),
        (lambda p: (p.unlink(), p.mkdir()), "it is no file"),
    ],
)
def test_what_is_not_what_was_installed_is_named_with_the_fix(
    package: Path, name: str, spoil: Callable[[Path], object], why: str
) -> None:
    assert damage(["thing"], "qnn") is None
    spoil(package / name)
    told = damage(["absent", "thing"], "qnn") or ""
    assert told.startswith(f"{name} of the package thing is damaged (")
    assert why in told
    assert told.endswith("; reinstall it: pip install --force-reinstall thing")


def test_in_an_environment_of_npumarks_the_fix_makes_that_anew(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (package / "libA.so").write_bytes(b"")
    monkeypatch.setattr(sys, "prefix", "/engines/qnn")
    told = damage(["thing"], "qnn") or ""
    assert told.endswith("`npumark engines install qnn --again` makes its environment anew")


def test_other_files_a_longer_library_and_a_lost_list_tell_nothing(package: Path) -> None:
    (package / "words.txt").unlink()
    (package / "libA.so").write_bytes(LIBRARIES["libA.so"] + b"signed")
    assert damage(["thing"], None) is None
    (package.parent / "thing-1.0.dist-info" / "RECORD").unlink()
    (package / "libA.so").unlink()
    assert damage(["thing"], None) is None
