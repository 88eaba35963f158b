"""The set-up script, with every child process faked."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, TextIO

import pytest

ROOT = Path(__file__).parents[2]


class Children:
    """Stands for ``subprocess``: notes each command; ``status`` gives its exit status.

    ``environments`` are those that npumark lists, ``brings`` what a download leaves in the folder
    it runs in.
    """

    DEVNULL = subprocess.DEVNULL

    def __init__(self) -> None:
        self.ran: list[list[str]] = []
        self.status: Callable[[list[str]], int] = lambda _: 0
        self.said = "3 12"
        self.environments: list[dict[str, Any]] = []
        self.env: dict[str, str] = {}
        self.brings: dict[str, str] = {}

    def call(
        self,
        command: list[str],
        cwd: Path | None = None,
        stdout: TextIO | int | None = None,
        env: dict[str, str] | None = None,
        stderr: int | None = None,
    ) -> int:
        self.ran.append(command)
        self.env = env or self.env
        if stdout is None and "pip" in command:
            print("pip's own words")
        if ("download" in command or "install" in command) and cwd is not None:
            for name, text in self.brings.items():
                (cwd / name).parent.mkdir(parents=True, exist_ok=True)
                (cwd / name).write_text(text)
        return self.status(command)

    def run(self, command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        self.ran.append(command)
        said = self.said
        if "--json" in command:
            said = json.dumps({"environments": self.environments})
        return subprocess.CompletedProcess(command, self.status(command), said, "")

    def words(self) -> str:
        return "\n".join(" ".join(command) for command in self.ran)


def the_tests_ran_last(children: Children) -> bool:
    return children.ran[-1][1:3] == ["-m", "pytest"]


@pytest.fixture
def children() -> Children:
    return Children()


@pytest.fixture
def dev(tmp_path: Path, children: Children, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the script as a module whose repository is an empty folder."""
    spec = importlib.util.spec_from_file_location("dev_under_test", ROOT / "tool" / "dev.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(module, "STAMP", tmp_path / ".venv" / "npumark-setup.json")
    monkeypatch.setattr(module, "subprocess", children)
    monkeypatch.setattr(module.shutil, "which", lambda _: None)
    monkeypatch.setattr(module, "DEBIAN", tmp_path)
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    module.python().parent.mkdir(parents=True)
    module.python().write_text("")
    return module


def installs(children: Children) -> list[list[str]]:
    return [c for c in children.ran if "pip" in c]


def test_run_installs_once_and_passes_its_arguments_on(dev: ModuleType, children: Children) -> None:
    assert dev.main(["run", "--engine", "ort-cpu"]) == 0
    assert children.ran[-1][1:] == ["-m", "npumark", "run", "--quick", "--engine", "ort-cpu"]
    assert len(installs(children)) == 1
    assert dev.main(["run"]) == 0
    assert len(installs(children)) == 1


def test_the_output_of_a_run_is_npumarks_alone(
    dev: ModuleType, children: Children, capsys: pytest.CaptureFixture[str]
) -> None:
    children.said = "3 10"  # the environment is made anew and everything installed
    assert dev.main(["run", "--json"]) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert "dev.py: creating .venv" in said.err
    assert "dev.py: installing npumark" in said.err


def test_a_changed_project_file_installs_again(
    dev: ModuleType, children: Children, tmp_path: Path
) -> None:
    dev.main(["run"])
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'other'\n")
    dev.main(["run"])
    assert len(installs(children)) == 2


def test_the_tests_need_their_extra_and_the_extra_serves_the_run(
    dev: ModuleType, children: Children
) -> None:
    dev.main(["run"])
    dev.main(["test"])
    dev.main(["run"])
    assert [c[-1] for c in installs(children)] == [".", ".[test]"]


def test_a_failed_installation_is_one_sentence_and_is_tried_again(
    dev: ModuleType, children: Children, capsys: pytest.CaptureFixture[str]
) -> None:
    children.status = lambda command: int("pip" in command)
    assert dev.main(["run"]) == 1
    err = capsys.readouterr().err
    assert "\nerror: the packages could not be installed" in err
    assert "connect to the network" in err
    assert "npumark run" not in children.words()
    children.status = lambda _: 0
    assert dev.main(["run"]) == 0
    assert len(installs(children)) == 2


def test_a_broken_environment_is_made_anew(dev: ModuleType, children: Children) -> None:
    children.said = "3 10"
    dev.main(["run"])
    assert "-m venv --clear" in children.words()


def test_a_missing_venv_package_is_named(
    dev: ModuleType, children: Children, capsys: pytest.CaptureFixture[str]
) -> None:
    dev.python().unlink()
    children.said = "ensurepip is not available"
    children.status = lambda command: int("venv" in command)
    assert dev.main(["run"]) == 1
    assert "python3-venv" in capsys.readouterr().err


def test_every_check_runs_and_those_that_fail_are_named(
    dev: ModuleType, children: Children, capsys: pytest.CaptureFixture[str]
) -> None:
    children.status = lambda command: int("mypy" in command)
    assert dev.main(["test"]) == 1
    assert the_tests_ran_last(children)
    assert capsys.readouterr().out.splitlines()[-1] == "dev.py: FAILED: types"


def test_a_test_that_fails_fails_all(
    dev: ModuleType, children: Children, capsys: pytest.CaptureFixture[str]
) -> None:
    children.status = lambda command: int("pytest" in command)
    assert dev.main(["test"]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "dev.py: FAILED: tests"


@pytest.mark.parametrize(("cpus", "processes"), [(1, 2), (3, 3), (64, 4), (None, 2)])
def test_all_tests_are_shared_out_to_a_few_processes(
    dev: ModuleType,
    children: Children,
    monkeypatch: pytest.MonkeyPatch,
    cpus: int | None,
    processes: int,
) -> None:
    monkeypatch.setattr(dev.os, "cpu_count", lambda: cpus)
    assert dev.run_tests()
    assert children.ran[-1][3:] == ["-n", str(processes), "--dist", "worksteal"]


def test_a_clean_pass_ends_with_what_the_tests_say(
    dev: ModuleType, children: Children, capsys: pytest.CaptureFixture[str]
) -> None:
    assert dev.main(["test"]) == 0
    assert the_tests_ran_last(children)
    assert "now the tests" in capsys.readouterr().out.splitlines()[-1]


def test_generated_files_are_checked_where_their_tools_are(dev: ModuleType, tmp_path: Path) -> None:
    names = [name for name, _ in dev.checks()]
    assert names == ["format", "lint", "types", "layering"]
    (tmp_path / "tool").mkdir()
    (tmp_path / "tool" / "gen_docs.py").write_text("")
    assert dev.checks()[-1][1][1:] == [str(tmp_path / "tool" / "gen_docs.py"), "--check"]


@pytest.mark.parametrize("words", [[], ["fly"], ["test", "-x"]])
def test_wrong_usage_shows_how(
    dev: ModuleType, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert dev.main(words) == 2
    assert "tool/dev.py run" in capsys.readouterr().err


def test_an_old_interpreter_is_told_in_a_sentence(
    dev: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(dev.sys, "version_info", (3, 9, 1))
    assert dev.main(["run"]) == 2
    assert "Python 3.9; npumark needs Python 3.11" in capsys.readouterr().err


def test_a_damaged_stamp_means_installing_again(dev: ModuleType, children: Children) -> None:
    dev.STAMP.write_text("[1")
    dev.main(["run"])
    assert len(installs(children)) == 1
    assert json.loads(dev.STAMP.read_text())["tests"] is False


def environment(name: str, state: str = "absent", here: bool = True) -> dict[str, Any]:
    return {"name": name, "state": state, "for_this_computer": here}


def test_environments_of_the_tests_are_installed_by_npumark_itself(
    dev: ModuleType, children: Children, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    children.environments = [
        environment("cuda"),
        environment("ggml", "installed"),
        environment("qnn", "outdated"),
        environment("mlx", here=False),
        environment("webgpu"),
    ]
    assert dev.main(["test"]) == 0
    asked = [c[1:] for c in children.ran if "engines" in c and "--json" not in c]
    assert asked == [
        ["-m", "npumark", "engines", "install", "qnn"],
        ["-m", "npumark", "engines", "install", "webgpu"],
    ]
    assert children.env["NPUMARK_ENGINES"] == str(tmp_path / ".venv-engines")
    assert children.env["NPUMARK_HOME"] == str(tmp_path / ".venv-engines" / ".home")
    said = capsys.readouterr().out
    assert "not for this platform, their tests skip: ort-openvino, mlx" in said


@pytest.mark.parametrize(
    ("status", "asked", "words"),
    [
        (2, ["qnn", "mlx"], "qnn could not be installed (see above); its tests skip"),
        (6, ["qnn"], "no network: qnn and what follows is left out, its tests skip"),
    ],
)
def test_an_environment_that_cannot_be_had_fails_nothing(
    dev: ModuleType,
    children: Children,
    capsys: pytest.CaptureFixture[str],
    status: int,
    asked: list[str],
    words: str,
) -> None:
    children.environments = [environment("qnn"), environment("mlx")]
    children.status = lambda c: status if "engines" in c and "--json" not in c else 0
    assert dev.main(["test"]) == 0
    assert [c[-1] for c in children.ran if "engines" in c and "--json" not in c] == asked
    assert words in capsys.readouterr().out
    assert the_tests_ran_last(children)


def test_a_stopped_installation_stops_all(dev: ModuleType, children: Children) -> None:
    children.environments = [environment("qnn")]
    children.status = lambda c: 130 if "qnn" in c else 0
    assert dev.main(["test"]) == 130
    assert not any("pytest" in c for c in children.ran)


def test_what_the_server_is_tried_with_is_installed_once_where_root_is_on_debian(
    dev: ModuleType,
    children: Children,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(dev.os, "geteuid", lambda: 0, raising=False)
    monkeypatch.setattr(dev.shutil, "which", lambda name: f"/usr/bin/{name}")
    children.status = lambda command: int("postgresql" in command)
    children.brings = {"usr/bin/chromium": ""}
    dev.install_debian()
    asked = [c[-1] for c in children.ran if c[0] == "apt-get"]
    # A fresh machine has no lists of packages: they are fetched, and the same asked again.
    assert asked == ["postgresql", "update", "postgresql", "chromium"]
    assert children.env["DEBIAN_FRONTEND"] == "noninteractive"
    said = capsys.readouterr().out
    assert "no postgresql: Debian's package was not to be had; its tests skip" in said
    assert "no chromium" not in said
    children.brings = {"usr/lib/postgresql/15/bin/initdb": ""}
    children.status = lambda _: 0
    dev.install_debian()
    children.ran.clear()
    dev.install_debian()
    assert children.ran == []


@pytest.mark.parametrize(
    ("user", "tools"),
    [pytest.param(1000, "/usr/bin/", id="a user"), pytest.param(0, None, id="no Debian")],
)
def test_only_root_on_debian_installs_and_else_that_is_said(
    dev: ModuleType,
    children: Children,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    user: int,
    tools: str | None,
) -> None:
    monkeypatch.setattr(dev.os, "geteuid", lambda: user, raising=False)
    monkeypatch.setattr(dev.shutil, "which", lambda name: tools and tools + name)
    dev.install_debian()
    assert children.ran == []
    said = "only root on Debian can install postgresql, chromium; their tests skip"
    assert said in capsys.readouterr().out


def test_swiftshader_is_fetched_once_where_debians_tools_are(
    dev: ModuleType,
    children: Children,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    dev.fetch_swiftshader()
    assert "no SwiftShader: it is taken from Debian's packages" in capsys.readouterr().out
    monkeypatch.setattr(dev.shutil, "which", lambda name: f"/usr/bin/{name}")
    dev.fetch_swiftshader()
    assert "no SwiftShader: chromium-common was not to be had" in capsys.readouterr().out
    assert not (tmp_path / ".venv-swiftshader").exists()
    files = {f"x/usr/lib/chromium/{name}": name for name in dev.VULKAN_FILES}
    children.brings = {"a.deb": "", **files, "x/usr/lib/chromium/chrome": "large"}
    dev.fetch_swiftshader()
    kept = sorted(p.name for p in (tmp_path / ".venv-swiftshader").iterdir())
    assert kept == sorted(dev.VULKAN_FILES)
    children.ran.clear()
    dev.fetch_swiftshader()
    assert children.ran == []
