from __future__ import annotations

import errno
from pathlib import Path

import pytest

from npumark import paths
from npumark.errors import SetupError


def test_home_alone_where_it_is_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NPUMARK_HOME", str(tmp_path))
    for place in (paths.cache_dir(), paths.data_dir(), paths.config_dir()):
        assert place.parent == tmp_path
        assert not place.exists()


def test_platform_folders_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NPUMARK_HOME", "  ")
    assert paths.home() is None
    assert paths.cache_dir().is_absolute()
    assert "npumark" in paths.data_dir().parts
    assert paths.config_dir().is_absolute()


def test_make_creates_and_leaves_nothing_behind(tmp_path: Path) -> None:
    folder = paths.make(tmp_path / "a" / "b")
    assert folder.is_dir()
    assert list(folder.iterdir()) == []


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    with pytest.raises(SetupError, match="a file is in the way"):
        paths.make(tmp_path / "a" / "b")


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (errno.ENOSPC, "no space"),
        (errno.EROFS, "read-only"),
        (errno.EACCES, "no permission"),
        (errno.EIO, "cannot be written to"),
    ],
)
def test_each_reason_has_its_sentence(code: int, words: str) -> None:
    error = paths.unwritable(Path("/somewhere"), OSError(code, "reason"))
    assert words in error.message
    assert "/somewhere" in error.message
    assert error.hint
    assert error.exit_code == 2


def test_a_home_that_cannot_be_found_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NPUMARK_HOME", "~nosuchuser/x")
    for ask in (paths.cache_dir, paths.data_dir, paths.config_dir):
        with pytest.raises(SetupError, match="no such folder") as told:
            ask()
        assert "NPUMARK_HOME" in (told.value.hint or "")


@pytest.mark.parametrize("answer", [RuntimeError("no home"), Path("~/.cache/npumark")])
def test_a_user_without_a_home_is_told_what_to_set(
    monkeypatch: pytest.MonkeyPatch, answer: object
) -> None:
    def ask(*_: object, **__: object) -> object:
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.delenv("NPUMARK_HOME", raising=False)
    for name in ("user_cache_path", "user_data_path", "user_config_path"):
        monkeypatch.setattr(f"platformdirs.{name}", ask)
    for place in (paths.cache_dir, paths.data_dir, paths.config_dir):
        with pytest.raises(SetupError, match="no home folder") as told:
            place()
        assert "NPUMARK_HOME" in (told.value.hint or "")


def test_engines_lie_in_the_data_unless_a_variable_names_their_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NPUMARK_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("NPUMARK_ENGINES", raising=False)
    assert paths.engines_dir() == tmp_path / "home" / "data" / "engines"
    full = OSError(errno.ENOSPC, "full")
    assert "NPUMARK_HOME" in (paths.unwritable(tmp_path / "engines", full).hint or "")
    monkeypatch.setenv("NPUMARK_ENGINES", str(tmp_path / "engines"))
    assert paths.engines_dir() == tmp_path / "engines"
    assert "NPUMARK_ENGINES" in (paths.unwritable(tmp_path / "engines" / "x", full).hint or "")
    assert "NPUMARK_HOME" in (paths.unwritable(tmp_path / "home", full).hint or "")
