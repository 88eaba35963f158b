"""The build's key: absent in a development build, hidden in a release, refused where damaged."""

from __future__ import annotations

import hashlib
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

from npumark.errors import IntegrityError
from npumark.record.build_key import MODULE, build_key
from npumark.record.signing import BuildKey
from tool import inject_build_key as tool

ROOT = Path(__file__).resolve().parents[2]
KEY = hashlib.sha256(b"a release").hexdigest()


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the pipeline's tool writes, instead of into the package."""
    monkeypatch.setattr(tool, "MODULE", tmp_path / "_build_key.py")
    monkeypatch.delenv(tool.VARIABLE, raising=False)
    return tmp_path / "_build_key.py"


def imported(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = ModuleType(MODULE)
    exec(path.read_text(), made.__dict__)
    monkeypatch.setitem(sys.modules, MODULE, made)


def test_a_development_build_has_none() -> None:
    assert build_key() is None


def test_what_the_pipeline_injects_is_the_builds_key(
    module: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(tool.VARIABLE, f"{KEY}\n")
    assert tool.main([]) == 0
    printed = capsys.readouterr()
    imported(module, monkeypatch)
    key = build_key()
    assert key == BuildKey(bytes.fromhex(KEY))
    assert printed.out == f"{key.key_id}\n"
    assert KEY not in printed.out + printed.err + module.read_text()


def test_two_injections_hide_it_differently(module: Path, tmp_path: Path) -> None:
    (tmp_path / "key").write_text(KEY.upper())
    assert tool.main(["--key-file", str(tmp_path / "key")]) == 0
    first = module.read_text()
    assert tool.main(["--key-file", str(tmp_path / "key")]) == 0
    assert module.read_text() != first


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "there is none"),
        (" \n", "there is none"),
        (KEY[:-1], "not 64 hexadecimal digits"),
        (KEY + "00", "not 64 hexadecimal digits"),
        ("0x" + KEY[2:], "not 64 hexadecimal digits"),
        (f"{KEY[:32]} {KEY[32:]}", "not 64 hexadecimal digits"),
        ("00" * 32, "repeats itself"),
        ("deadbeef" * 8, "repeats itself"),
        (bytes(range(32)).hex(), "counts"),
        (bytes(range(0, 96, 3)).hex(), "counts"),
        (b"correct horse battery staple zw!".hex(), "text in hexadecimal"),
    ],
)
def test_a_key_that_is_none_or_weak_is_refused(
    module: Path,
    text: str,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(tool.VARIABLE, text)
    assert tool.main([]) == 1
    assert words in capsys.readouterr().err
    assert not module.exists()


def test_a_key_file_that_is_missing_is_told(
    module: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tool.main(["--key-file", str(tmp_path / "none")]) == 1
    assert "none" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text",
    [
        "",
        "PAD = bytes(32)",
        "PAD, MASKED = bytes(32), bytes(31)",
        "PAD, MASKED = 'a' * 32, 'b' * 32",
    ],
)
def test_a_damaged_module_is_refused(
    tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "module.py").write_text(text)
    imported(tmp_path / "module.py", monkeypatch)
    with pytest.raises(IntegrityError, match="build key of this npumark is damaged"):
        build_key()


@pytest.mark.parametrize("named", [True, False])
def test_a_wheel_holds_the_injected_module_although_git_ignores_it(
    tmp_path: Path, *, named: bool
) -> None:
    (tmp_path / "npumark").mkdir()
    for name in ("pyproject.toml", ".gitignore", "README.md", "npumark/__init__.py"):
        shutil.copyfile(ROOT / name, tmp_path / name)
    (tmp_path / "npumark" / "_build_key.py").write_text(
        tool.module_text(BuildKey(bytes.fromhex(KEY)), bytes(32))
    )
    project = tmp_path / "pyproject.toml"
    line = 'artifacts = ["npumark/_build_key.py"]\n'
    assert line in project.read_text()
    if not named:
        project.write_text(project.read_text().replace(line, ""))
    wheel = {f.distribution_path for f in WheelBuilder(str(tmp_path)).recurse_included_files()}
    source = {f.relative_path for f in SdistBuilder(str(tmp_path)).recurse_included_files()}
    assert ("npumark/_build_key.py" in wheel) is named
    assert "npumark/_build_key.py" not in source
    assert "npumark/__init__.py" in wheel & source
