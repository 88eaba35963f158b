"""An environment is installed whole or not at all, and never while something is measured."""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from npumark.cli.app import main
from npumark.engines import catalogue
from npumark.engines.catalogue import Environment, Provider
from npumark.engines.registry import Registered
from npumark.errors import Interrupted, NetworkError, SetupError, UsageError
from npumark.machine.card import Card
from npumark.machine.inventory import Inventory
from npumark.orchestrator import install as installing
from npumark.orchestrator import pip, survey
from npumark.orchestrator.environments import FILE, MAKING, MARK, here, standing, standings
from npumark.orchestrator.install import Removed, install, remove
from npumark.orchestrator.lock import measuring

ROW = Environment("stub", "A stub", ("stub-runtime==1.0",), (), ("stub",), (here(),))
ENGINE = """
from npumark.engines.base import Engine
from npumark.worker.protocol import EngineInfo


class Stub(Engine):
    name = "stub"

    def _probe(self, options):
        import stub_runtime

        told = {"key": "cpu", "role": "CPU"}
        version = stub_runtime.VERSION
        return (EngineInfo("stub-cpu", True, None, "stub", "Stub", version, processor=told),)

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


def lay(folder: Path, version: str) -> None:
    """Put the metadata of ``stub-runtime`` where the packages of an environment lie."""
    scheme = {"base": str(folder), "platbase": str(folder)}
    site = Path(sysconfig.get_path("purelib", "venv", scheme))
    info = site / f"stub_runtime-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Name: stub-runtime\nVersion: {version}\n")


def nothing(folder: Path) -> None:
    """Stand for a pip that installs what is asked for, and of it the metadata alone."""
    (row,) = catalogue.ENVIRONMENTS
    lay(folder, row.requirements[0].partition("==")[2])


def engines(home: Path) -> list[str]:
    root = home / "data" / "engines"
    return sorted(p.name for p in root.iterdir() if p.is_dir()) if root.exists() else []


@pytest.mark.skipif(os.name != "posix", reason="links packages into the environment")
def test_an_environment_is_made_from_a_mirror_without_a_network(
    home: Path, tmp_path: Path, basics: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole way with the real venv and pip: the index is nowhere, and pip is set up to
    install elsewhere."""
    mirror = tmp_path / "mirror"
    files = {"stub_engine.py": ENGINE, "stub_runtime.py": "VERSION = '1.0'\n"}
    wheel(mirror, {**files, "basics.pth": f"{basics}\n"})
    monkeypatch.setenv("NPUMARK_MIRROR", str(mirror))
    settings = tmp_path / "pip.conf"
    settings.write_text(f"[install]\ntarget = {tmp_path / 'astray'}\ndry-run = true\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(settings))
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

    # What is told of an environment that does not work is followed to the letter.
    runtime = whole.folder / whole.seal.site / "stub_runtime.py"
    runtime.write_text("raise ImportError('damaged')\n")
    row = Provider(
        "stub-cpu", "stub", None, "Stub", "native", None, (), "stub", (here(),), ("CPU",),
        {"CPU": ""}, {"CPU": ("fp32",)},
    )  # fmt: skip
    monkeypatch.setattr(catalogue, "PROVIDERS", (row,))
    monkeypatch.setattr(catalogue, "ENVIRONMENTS", (replace(ROW, providers=("stub-cpu",)),))
    (line,) = install("stub", told.append).engines
    assert not line.info.available
    remedy = re.search("`npumark ([^`]+)` makes its environment anew", line.info.reason or "")
    assert remedy is not None
    assert main(remedy[1].split()) == 0
    assert [f.info.id for f in install("stub", told.append).engines] == ["stub-cpu"]
    assert runtime.read_text() == "VERSION = '1.0'\n"
    assert not (tmp_path / "astray").exists()

    assert remove("stub") == Removed(there=True)
    assert engines(home) == []
    assert remove("stub") == Removed(there=False)


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
    (left / MARK).touch()
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
        nothing(folder)

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


def test_what_npumark_did_not_make_is_neither_removed_nor_replaced(
    home: Path, tmp_path: Path, quick: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user's folder that happens to hold environments, with other things of the user's in it."""
    quick(nothing)
    shared = tmp_path / "shared"
    monkeypatch.setenv("NPUMARK_ENGINES", str(shared))
    for name in ("Documents", "stub"):
        (shared / name).mkdir(parents=True)
        (shared / name / "thesis.tex").write_text("years of work")
    (shared / ".old-stub.12").mkdir()
    (shared / ".old-stub.12" / "mine").write_text("")
    with pytest.raises(UsageError, match="no environment called 'Documents'"):
        remove("Documents")
    for change in (lambda: remove("stub"), lambda: install("stub", lambda _: None)):
        with pytest.raises(SetupError, match="npumark did not make it: it stays as it is") as told:
            change()
        assert "Move it away" in (told.value.hint or "")
    assert standing("stub").state == "foreign"
    assert "Documents" not in {s.name for s in standings()}
    (shared / "stub").rename(shared / "thesis")
    install("stub", lambda _: None)
    assert remove("stub") == Removed(there=True)
    kept = sorted(str(p.relative_to(shared)) for p in shared.rglob("*") if p.is_file())
    assert kept[:3] == [".old-stub.12/mine", "Documents/thesis.tex", "measuring.lock"]
    assert kept[3:] == ["thesis/thesis.tex"]


def test_a_file_of_that_name_stays(home: Path, quick: Callable[..., None]) -> None:
    quick(nothing)
    place = home / "data" / "engines" / "stub"
    place.parent.mkdir(parents=True)
    place.write_text("mine")
    for change in (lambda: remove("stub"), lambda: install("stub", lambda _: None)):
        with pytest.raises(SetupError, match="did not make it"):
            change()
    assert place.read_text() == "mine"


def test_one_that_another_npumark_made_can_be_removed(
    home: Path, quick: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    quick(nothing)
    install("stub", lambda _: None)
    monkeypatch.setattr(catalogue, "ENVIRONMENTS", (replace(ROW, name="newer"),))
    (other,) = [s for s in standings() if s.name == "stub"]
    assert other.remedy == "`npumark engines remove stub` frees its space"
    assert remove("stub") == Removed(there=True)
    assert engines(home) == []


@pytest.mark.skipif(os.name != "posix", reason="makes links")
@pytest.mark.parametrize("change", ["remove", "again"])
def test_a_link_is_taken_away_and_what_it_leads_to_stays(
    home: Path, tmp_path: Path, quick: Callable[..., None], change: str
) -> None:
    quick(nothing)
    install("stub", lambda _: None)
    root = home / "data" / "engines"
    elsewhere = tmp_path / "elsewhere"
    (root / "stub").rename(elsewhere)
    (root / "stub").symlink_to(elsewhere)
    if change == "remove":
        stays = f"it was a link to {elsewhere}, whose files stay"
        assert remove("stub") == Removed(there=True, stays=stays)
        assert not os.path.lexists(root / "stub")
    else:
        install("stub", lambda _: None, again=True)
        assert not (root / "stub").is_symlink()
    assert (elsewhere / FILE).is_file()
    assert [p.name for p in root.iterdir() if p.name.startswith(".")] == []


def test_a_link_that_leads_nowhere_is_taken_away(home: Path, quick: Callable[..., None]) -> None:
    quick(nothing)
    root = home / "data" / "engines"
    root.mkdir(parents=True)
    (root / "stub").symlink_to(root / "gone")
    assert remove("stub").there
    assert not os.path.lexists(root / "stub")


def refuse(*_: Any) -> None:
    raise PermissionError(errno.EACCES, "Permission denied")


def test_one_that_cannot_be_moved_is_one_sentence(
    home: Path, quick: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    quick(nothing)
    install("stub", lambda _: None)
    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(SetupError, match=r"no permission to write to .*stub"):
        remove("stub")


def test_files_that_stay_are_told_of(
    home: Path, quick: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    quick(nothing)
    install("stub", lambda _: None)
    with monkeypatch.context() as patch:
        patch.setattr(installing.shutil, "rmtree", refuse)
        told = remove("stub")
    assert told.there
    assert "files of it stay in " in (told.stays or "")
    assert "cannot be deleted: Permission denied" in (told.stays or "")
    assert remove("stub") == Removed(there=False)  # and takes away what stayed
    assert list((home / "data" / "engines").glob(".*")) == []


def test_a_pip_that_put_nothing_there_is_not_believed(
    home: Path, quick: Callable[..., None]
) -> None:
    quick(lambda _: None)
    with pytest.raises(SetupError, match=r"pip ended well, and stub-runtime 1.0 is not in the"):
        install("stub", lambda _: None)
    quick(lambda folder: lay(folder, "1.1"))
    with pytest.raises(SetupError, match=r"stub-runtime 1.0 is not in the environment") as told:
        install("stub", lambda _: None)
    assert "pip config list" in (told.value.hint or "")
    assert engines(home) == []


def test_a_python_that_is_gone_is_told_as_that(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installing.sys, "executable", "/no/such/python")
    with pytest.raises(SetupError, match="the interpreter /no/such/python cannot be started"):
        install("stub", lambda _: None)


WINDOWS_ML = """
from pathlib import Path


class Offer:
    def __init__(self, name):
        self.name = name

    def ensure_ready(self):
        if self.name == "BrokenProvider":
            raise OSError("0x80073CF9")
        (Path(__file__).parent / self.name).touch()


class EpCatalog:
    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def find_all_providers(self):
        return [Offer(name) for name in NAMES]
"""


@pytest.mark.skipif(os.name != "posix", reason="links packages into the environment")
@pytest.mark.parametrize("broken", [False, True])
def test_windows_is_asked_for_the_providers_that_it_delivers(
    home: Path,
    quick: Callable[..., None],
    make_environment: Callable[[Path], Any],
    monkeypatch: pytest.MonkeyPatch,
    broken: bool,
) -> None:
    """With Windows ML's package recorded as a fake, in the environment's own interpreter."""
    monkeypatch.setattr(catalogue, "ENVIRONMENTS", (replace(ROW, name="windowsml"),))
    names = ["GoodProvider", "BrokenProvider"] if broken else ["GoodProvider"]

    def fill(folder: Path) -> None:
        (site,) = folder.glob("lib/python*/site-packages")
        (site / "windowsml.py").write_text(f"NAMES = {names}\n{WINDOWS_ML}")
        lay(folder, "1.0")

    quick(fill)
    monkeypatch.setattr(installing, "_venv", lambda folder, _: make_environment(folder))
    told: list[str] = []
    made = install("windowsml", told.append)
    assert "having Windows install its providers" in told
    assert "asking for GoodProvider" in told
    whole = made.standing.installed
    assert whole is not None
    assert (whole.folder / whole.seal.site / "GoodProvider").exists()
    if broken:
        assert made.note == (
            "Windows did not install all of its providers: not BrokenProvider (0x80073CF9); "
            "run Windows Update, then `npumark engines install windowsml`"
        )
    else:
        assert made.note is None
    # What Windows offers may have grown since.
    told.clear()
    assert install("windowsml", told.append).already
    assert "asking for GoodProvider" in told


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


def test_an_environment_that_needs_a_card_is_not_made_without_one(
    home: Path, quick: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogue, "ENVIRONMENTS", (replace(ROW, maker="NVIDIA"),))
    cards: list[Card] = [Card("CPU", {}), Card("dGPU", {}, vendor_id=0x8086)]
    monkeypatch.setattr(installing, "inventory", lambda: Inventory(tuple(cards)))
    made = []

    def act(folder: Path) -> None:
        made.append(folder)
        nothing(folder)

    quick(act)
    with pytest.raises(UsageError, match="no NVIDIA card is listed on this computer") as caught:
        install("stub", lambda _: None)
    assert caught.value.hint == "`npumark engines install stub --anyway` makes it all the same."
    assert (made, standing("stub").state) == ([], "absent")

    install("stub", lambda _: None, anyway=True)
    assert standing("stub").state == "installed"
    # What is there already is asked all the same.
    assert install("stub", lambda _: None).already

    cards.append(Card("dGPU", {}, vendor_id=0x10DE))
    assert not install("stub", lambda _: None, again=True).already
    assert len(made) == 2


def test_a_name_that_is_not_for_this_system_is_not_suggested(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = replace(ROW, name="stubb", platforms=("plan9",))
    monkeypatch.setattr(catalogue, "ENVIRONMENTS", (elsewhere, ROW))
    with pytest.raises(UsageError) as caught:
        install("STUBB", lambda _: None)
    assert (caught.value.hint or "").startswith("Did you mean stub? ")
