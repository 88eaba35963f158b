"""An environment is installed whole or not at all, and never while something is measured."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from npumark.engines import catalogue
from npumark.engines.catalogue import Environment
from npumark.engines.registry import Registered
from npumark.errors import Interrupted, NetworkError, SetupError, UsageError
from npumark.orchestrator import install as installing
from npumark.orchestrator import pip, survey
from npumark.orchestrator.environments import FILE, MAKING, here, standing
from npumark.orchestrator.install import install, remove
from npumark.orchestrator.lock import measuring

ROW = Environment("stub", "A stub", ("stub-runtime==1.0",), (), ("stub",), (here(),))
ENGINE = """
from npumark.engines.base import Engine
from npumark.worker.protocol import EngineInfo


class Stub(Engine):
    name = "stub"

    def _probe(self, options):
        import stub_runtime

        return (EngineInfo("stub-cpu", True, None, "stub", "Stub", stub_runtime.VERSION),)

    def _load(self, request):
        raise NotImplementedError

    def _placement(self, request, feed, runs):
        raise NotImplementedError
"""


def wheel(folder: Path, contents: dict[str, str], version: str = "1.0") -> None:
    """Write a wheel of ``stub-runtime`` that holds these files."""
    info = f"stub_runtime-{version}.dist-info"
    files = dict(contents)
    files[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: stub-runtime\nVersion: {version}\n"
    files[f"{info}/WHEEL"] = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in (*files, f"{info}/RECORD"))
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / f"stub_runtime-{version}-py3-none-any.whl", "w") as archive:
        for name, source in files.items():
            archive.writestr(name, source)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own, in whose catalogue there is one environment, the stub's."""
    monkeypatch.setenv("NPUMARK_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("NPUMARK_ENGINES", raising=False)
    monkeypatch.delenv("NPUMARK_MIRROR", raising=False)
    monkeypatch.setattr(catalogue, "ENVIRONMENTS", (ROW,))
    stub = Registered("stub", "stub_engine:Stub", None)
    monkeypatch.setattr(survey, "registered", lambda: (stub,))
    return tmp_path / "home"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Make environments without an interpreter in them, and pip what the test says it does."""

    def does(act: Callable[[Path], None]) -> None:
        def venv(folder: Path, marker: str) -> None:
            for name in ("python", "python.exe"):
                for place in ("bin", "Scripts"):
                    (folder / place).mkdir(parents=True, exist_ok=True)
                    (folder / place / name).write_text("")

        def fake(python: str, *_: Any) -> None:
            act(Path(python).parents[1])

        monkeypatch.setattr(installing, "_venv", venv)
        monkeypatch.setattr(pip, "install", fake)
        monkeypatch.setattr(installing, "discover", lambda *_, **__: ())

    return does


def nothing(folder: Path) -> None:
    """Stand for a pip that installs nothing and succeeds."""


def engines(home: Path) -> list[str]:
    root = home / "data" / "engines"
    return sorted(p.name for p in root.iterdir() if p.is_dir()) if root.exists() else []


@pytest.mark.skipif(os.name != "posix", reason="links packages into the environment")
def test_an_environment_is_made_from_a_mirror_without_a_network(
    home: Path, tmp_path: Path, basics: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole way with the real venv and pip: the index is nowhere."""
    mirror = tmp_path / "mirror"
    files = {"stub_engine.py": ENGINE, "stub_runtime.py": "VERSION = '1.0'\n"}
    wheel(mirror, {**files, "basics.pth": f"{basics}\n"})
    monkeypatch.setenv("NPUMARK_MIRROR", str(mirror))
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    told: list[str] = []
    made = install("stub", told.append)
    assert not made.already
    assert told[0] == "making an environment"
    assert "unpacking stub-runtime" in told
    whole = made.standing.installed
    assert whole is not None
    assert whole.packages["stub-runtime"] == "1.0"
    assert whole.seal.requirements == ROW.requirements
    assert Path(whole.python).parents[1] == home / "data" / "engines" / "stub"
    assert engines(home) == ["stub"]
    assert [(f.info.id, f.info.version, f.info.environment) for f in made.engines] == [
        ("stub-cpu", "1.0", "stub")
    ]

    again = install("stub", told.append)
    assert again.already
    assert told.count("making an environment") == 1
    assert again.standing.installed == whole

    assert remove("stub")
    assert engines(home) == []
    assert not remove("stub")


def test_other_pins_make_it_anew(
    home: Path, quick: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    quick(nothing)
    assert not install("stub", lambda _: None).already
    assert install("stub", lambda _: None).already
    newer = replace(ROW, requirements=("stub-runtime==2.0",))
    monkeypatch.setattr(catalogue, "ENVIRONMENTS", (newer,))
    assert standing("stub").state == "outdated"
    made = install("stub", lambda _: None)
    assert not made.already
    assert made.standing.state == "installed"
    assert engines(home) == ["stub"]


@pytest.mark.parametrize(
    ("fault", "kind", "words"),
    [
        (NetworkError("no connection", "connect"), NetworkError, "no connection"),
        (KeyboardInterrupt(), Interrupted, "as it was before"),
        (OSError(errno.ENOSPC, "No space left on device"), SetupError, "no space left"),
    ],
)
@pytest.mark.parametrize("before", [False, True])
def test_a_failure_leaves_what_was_there(
    home: Path,
    quick: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    fault: BaseException,
    kind: type[Exception],
    words: str,
    before: bool,
) -> None:
    quick(nothing)
    if before:
        install("stub", lambda _: None)
        newer = replace(ROW, requirements=("stub-runtime==2.0",))
        monkeypatch.setattr(catalogue, "ENVIRONMENTS", (newer,))

    def fail(folder: Path) -> None:
        (folder / "half").write_text("")
        raise fault

    quick(fail)
    with pytest.raises(kind, match=words):
        install("stub", lambda _: None)
    assert engines(home) == (["stub"] if before else [])
    assert standing("stub").state == ("outdated" if before else "absent")


def test_what_a_killed_installation_left_is_told_and_cleared(
    home: Path, quick: Callable[..., None]
) -> None:
    quick(nothing)
    left = home / "data" / "engines" / f"{MAKING}stub.999"
    (left / "lib").mkdir(parents=True)
    assert standing("stub").state == "half-made"
    install("stub", lambda _: None)
    assert engines(home) == ["stub"]


def test_one_broken_environment_is_made_anew(home: Path, quick: Callable[..., None]) -> None:
    quick(nothing)
    install("stub", lambda _: None)
    (home / "data" / "engines" / "stub" / FILE).write_text("{}")
    assert standing("stub").state == "broken"
    assert install("stub", lambda _: None).standing.state == "installed"


def test_it_is_refused_while_something_is_measured(home: Path, quick: Callable[..., None]) -> None:
    quick(nothing)
    with (
        measuring("npumark run --quick"),
        pytest.raises(SetupError, match=r"at work .*`npumark run --quick`"),
    ):
        install("stub", lambda _: None)
    install("stub", lambda _: None)
    with measuring("npumark run"), pytest.raises(SetupError, match="at work"):
        remove("stub")
    assert engines(home) == ["stub"]


def test_nothing_is_measured_while_it_installs(home: Path, quick: Callable[..., None]) -> None:
    refused: list[str] = []

    def measure(folder: Path) -> None:
        with pytest.raises(SetupError) as told, measuring("npumark run"):
            pass
        refused.append(told.value.message)

    quick(measure)
    install("stub", lambda _: None)
    assert "`npumark engines install stub`" in refused[0]


def test_two_homes_do_not_install_into_one_folder_at_once(
    home: Path, tmp_path: Path, quick: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "shared"
    monkeypatch.setenv("NPUMARK_ENGINES", str(shared))
    quick(nothing)
    with (
        measuring("npumark engines install stub", shared),
        pytest.raises(SetupError, match="at work"),
    ):
        install("stub", lambda _: None)
    install("stub", lambda _: None)
    assert (shared / "stub" / FILE).is_file()


def test_one_for_another_platform_is_refused_with_where_it_works(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    windows = replace(ROW, platforms=("windows-amd64", "windows-arm64"))
    monkeypatch.setattr(catalogue, "ENVIRONMENTS", (windows,))
    monkeypatch.setattr(installing, "runs_here", lambda _: False)
    with pytest.raises(UsageError, match="works on Windows on x86-64, Windows on ARM64") as told:
        install("stub", lambda _: None)
    assert told.value.exit_code == 2
    assert engines(home) == []


@pytest.mark.parametrize("change", [install, remove])
def test_an_unknown_name_is_refused_with_a_guess(home: Path, change: Callable[..., object]) -> None:
    with pytest.raises(UsageError) as told:
        change("stup", *([print] if change is install else []))
    assert told.value.message == "there is no environment called 'stup'"
    assert "Did you mean stub?" in (told.value.hint or "")


@pytest.mark.parametrize("name", ["../other", "..", ".", ""])
def test_only_environments_are_removed(home: Path, name: str) -> None:
    other = home / "data" / "other"
    other.mkdir(parents=True)
    with pytest.raises(UsageError):
        remove(name)
    assert other.is_dir()


@pytest.mark.parametrize(
    "body",
    [
        "raise SystemExit('not created successfully because ensurepip is not available.')",
        "raise SystemExit(\"No module named 'venv'\")",
    ],
)
def test_a_python_without_venv_is_one_sentence(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str
) -> None:
    stub = tmp_path / "python"
    stub.write_text(f"#!{sys.executable}\n{body}\n")
    stub.chmod(0o755)
    monkeypatch.setattr(installing.sys, "executable", str(stub))
    with pytest.raises(SetupError, match="venv or ensurepip module is missing") as told:
        install("stub", lambda _: None)
    assert "python3-venv" in (told.value.hint or "")
    assert engines(home) == []


@pytest.mark.parametrize(
    ("free", "words"),
    [
        (1 << 20, "no space left while writing to"),
        (1 << 40, "this Python's venv failed: Error: Com"),
    ],
)
def test_a_venv_that_fails_for_lack_of_space_is_told_so(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, words: str
) -> None:
    """venv keeps to itself what ensurepip says."""
    stub = tmp_path / "python"
    stub.write_text(f"#!{sys.executable}\nraise SystemExit('Error: Command ensurepip failed')\n")
    stub.chmod(0o755)
    monkeypatch.setattr(installing.sys, "executable", str(stub))
    usage = type(shutil.disk_usage(tmp_path))(1 << 41, (1 << 41) - free, free)
    monkeypatch.setattr(installing.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(SetupError, match=words):
        install("stub", lambda _: None)


def test_a_run_has_no_way_to_install() -> None:
    """What measures does not even import what installs."""
    code = (
        "import sys, npumark.cli.run, npumark.orchestrator.run, npumark.report.terminal\n"
        "print(*sorted(m for m in sys.modules if m.startswith('npumark.orchestrator')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found = done.stdout.split()
    assert "npumark.orchestrator.run" in found
    assert not {"npumark.orchestrator.pip", "npumark.orchestrator.install"} & set(found)
