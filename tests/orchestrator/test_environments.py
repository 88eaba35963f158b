"""How it stands with an environment: read from its own files, nothing in it is run."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from npumark.engines import catalogue, platforms
from npumark.engines.catalogue import ENVIRONMENTS, Environment
from npumark.orchestrator import environments
from npumark.orchestrator.discover import Found, Runtime, merge
from npumark.orchestrator.environments import (
    FILE,
    MARK,
    Seal,
    Standing,
    here,
    lacking,
    pins,
    standing,
    standings,
)
from npumark.orchestrator.supervisor import Outcome
from npumark.orchestrator.survey import environment_runtimes, with_environments
from npumark.worker.protocol import EngineInfo, Result

ROW = next(row for row in ENVIRONMENTS if row.name == "qnn")


def make(root: Path, name: str = "qnn", requirements: tuple[str, ...] | None = None) -> Path:
    """Make what an installed environment looks like from outside."""
    folder = root / name
    site = folder / "site"
    for package, version in {"onnxruntime": "1.31.1", "onnxruntime_qnn": "2.7.0"}.items():
        info = site / f"{package}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Name: {package}\nVersion: {version}\n")
    (folder / "python").write_text("")
    seal = Seal(
        name,
        ROW.requirements if requirements is None else requirements,
        "3.11.7",
        "python",
        "site",
        {"onnxruntime": "1.31.1", "onnxruntime-qnn": "2.7.0"},
    )
    (folder / MARK).touch()
    (folder / FILE).write_bytes(seal.encode())
    return folder


def test_a_whole_environment_tells_what_it_holds(tmp_path: Path) -> None:
    folder = make(tmp_path)
    found = standing("qnn", tmp_path)
    assert (found.state, found.why) == ("installed", None)
    assert found.installed is not None
    assert found.installed.python == str(folder / "python")
    assert found.installed.packages == {"onnxruntime": "1.31.1", "onnxruntime-qnn": "2.7.0"}
    assert found.installed.changed == ()
    assert len(found.installed.sha256) == 64
    assert standing("ggml", tmp_path) == Standing("ggml", "absent")


def test_other_pins_and_changed_packages_are_told_and_still_run(tmp_path: Path) -> None:
    make(tmp_path, requirements=("onnxruntime==1.0",))
    old = standing("qnn", tmp_path)
    assert old.state == "outdated"
    assert old.installed is not None
    other = tmp_path / "other"
    site = make(other) / "site"
    (site / "onnxruntime_qnn-2.7.0.dist-info" / "METADATA").write_text(
        "Name: onnxruntime_qnn\nVersion: 2.8.0\n"
    )
    changed = standing("qnn", other)
    assert changed.why == "packages in it were changed: onnxruntime-qnn"
    assert changed.installed is not None
    assert changed.installed.packages["onnxruntime-qnn"] == "2.8.0"


def edit(folder: Path, **changes: Any) -> None:
    doc = json.loads((folder / FILE).read_text())
    (folder / FILE).write_text(json.dumps({**doc, **changes}))


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda f: (f / FILE).unlink(), "never finished"),
        (lambda f: (f / FILE).write_text("{"), "is damaged"),
        (lambda f: (f / FILE).write_text("[" * 100_000), "is damaged"),
        (lambda f: (f / FILE).write_bytes(b"\xff"), "is damaged"),
        (lambda f: edit(f, python="3.13.0"), "is damaged"),
        (lambda f: edit(f, sha256=None), "is damaged"),
        (lambda f: (f / "python").unlink(), "interpreter .*python is gone"),
        (lambda f: (f / "site" / "onnxruntime-1.31.1.dist-info" / "METADATA").unlink(), "gone"),
    ],
)
def test_damage_is_named(tmp_path: Path, damage: Any, why: str) -> None:
    damage(make(tmp_path))
    found = standing("qnn", tmp_path)
    assert (found.state, found.installed) == ("broken", None)
    assert re.search(why, found.why or ""), found.why


def test_one_that_was_renamed_or_is_unknown_is_broken(tmp_path: Path) -> None:
    make(tmp_path).rename(tmp_path / "ggml")
    assert "of another environment" in (standing("ggml", tmp_path).why or "")
    make(tmp_path, "mine")
    assert [s.name for s in standings(tmp_path) if s.state == "broken"] == ["ggml", "mine"]


def test_a_half_made_one_is_told_from_an_absent_one(tmp_path: Path) -> None:
    (tmp_path / f"{environments.MAKING}qnn.17").mkdir()
    assert standing("qnn", tmp_path).state == "half-made"
    assert standing("ggml", tmp_path).state == "absent"


@pytest.mark.parametrize(
    ("system", "machine", "expected"),
    [
        ("linux", "x86_64", "linux-x86_64"),
        ("linux", "aarch64", "linux-aarch64"),
        ("darwin", "arm64", "macos-arm64"),
        ("darwin", "x86_64", "macos-x86_64"),
    ],
)
def test_platforms_are_named_as_in_the_catalogue(
    monkeypatch: pytest.MonkeyPatch, system: str, machine: str, expected: str
) -> None:
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(platforms.platform, "machine", lambda: machine)
    assert here() == expected


def test_windows_is_named_by_its_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(platforms.sysconfig, "get_platform", lambda: "win-arm64")
    assert here() == "windows-arm64"


# What the survey makes of them


@pytest.fixture
def linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environments, "here", lambda: "linux-x86_64")
    monkeypatch.setattr("npumark.orchestrator.survey.here", lambda: "linux-x86_64")


def test_an_installed_environment_is_asked_for_its_own_providers(tmp_path: Path) -> None:
    folder = make(tmp_path)
    digest = hashlib.sha256((folder / FILE).read_bytes()).hexdigest()
    (runtime,) = environment_runtimes(standings(tmp_path))
    assert runtime == Runtime(
        "ort",
        "npumark.engines.ort:OnnxRuntime",
        {"only": ["ort-qnn"]},
        str(folder / "python"),
        "qnn",
        {"onnxruntime": "1.31.1", "onnxruntime-qnn": "2.7.0"},
        "3.11.7",
        digest,
    )
    assert runtime.held() == {
        "name": "qnn",
        "python": "3.11.7",
        "packages": {"onnxruntime": "1.31.1", "onnxruntime-qnn": "2.7.0"},
        "sha256": digest,
    }


def found(name: str, reason: str | None, environment: str | None = None) -> Found:
    info = EngineInfo(
        name, reason is None, reason, name.partition("-")[0], "X", None, environment=environment
    )
    return Found(info, Runtime(info.runtime, "x:E", environment=environment))


@pytest.mark.usefixtures("linux")
def test_what_is_not_installed_is_told_with_the_command_that_installs_it(tmp_path: Path) -> None:
    why = "ModuleNotFoundError: No module named 'mlx'"
    missing = (found("mlx-gpu", why), found("mlx-cpu", why))
    told = {f.info.id: f for f in with_environments(missing, standings(tmp_path))}
    reason = told["ort-qnn-npu"].info.reason
    assert reason == "not installed; run `npumark engines install qnn`"
    assert not told["ort-qnn-npu"].failed
    # Under Linux one environment has MLX for the CPU, another for cards.
    for name, environment in (("mlx-cpu", "mlx"), ("mlx-gpu", "mlx-cuda")):
        told_of = told[name].info.reason
        assert told_of == f"not installed; run `npumark engines install {environment}`"
    assert "mlx" not in told
    assert "ort-dml" not in told  # Windows has it


@pytest.mark.usefixtures("linux")
def test_a_broken_environment_is_told_with_the_command_that_makes_it_anew(tmp_path: Path) -> None:
    (make(tmp_path) / FILE).unlink()
    (line,) = [f for f in with_environments((), standings(tmp_path)) if f.info.id == "ort-qnn-npu"]
    assert line.failed
    assert line.info.environment == "qnn"
    assert line.info.reason == (
        "its environment is broken: it has no environment.json, so it was never finished; "
        "`npumark engines install qnn --again` makes its environment anew"
    )


@pytest.mark.usefixtures("linux")
def test_what_npumark_itself_has_needs_no_environment(tmp_path: Path) -> None:
    own = found("ort-qnn-npu", None)
    told = with_environments((own,), standings(tmp_path))
    assert [f for f in told if f.info.id == "ort-qnn-npu"] == [own]


def outcome(*engines: EngineInfo, why: str | None = None, log: str = "") -> Outcome:
    if why:
        return Outcome("crashed", why, None, -6, 0, 0, log)
    return Outcome("ok", None, Result("ok", engines=engines), 0, 0, 0, "")


OWN, QNN = Runtime("ort", "x:E"), Runtime("ort", "x:E", {}, "/p", "qnn", {})


def info(available: bool, reason: str | None = None) -> EngineInfo:
    return EngineInfo("ort-qnn-npu", available, reason, "ort", "ONNX Runtime", "1")


def test_an_engine_that_both_have_belongs_to_npumarks_own_interpreter() -> None:
    kept, spare = merge(((OWN, outcome(info(True))), (QNN, outcome(info(True)))))
    assert kept.runtime is OWN
    assert not spare.info.available
    assert spare.info.reason == "ort already provides an engine ort-qnn-npu"
    assert spare.info.environment == "qnn"


def test_an_environments_word_counts_where_npumarks_own_interpreter_lacks_it() -> None:
    (kept,) = merge(((OWN, outcome(info(False, "not installed"))), (QNN, outcome(info(True)))))
    assert kept.runtime is QNN
    assert kept.info.available


def test_an_environment_that_cannot_do_it_takes_nothing_from_one_that_can() -> None:
    (kept,) = merge(((OWN, outcome(info(True))), (QNN, outcome(info(False, "no device")))))
    assert kept.runtime is OWN


def test_the_second_of_two_environments_names_the_first() -> None:
    other = replace(QNN, environment="qnn-2")
    _, spare = merge(((QNN, outcome(info(True))), (other, outcome(info(True)))))
    assert spare.info.reason == "the environment qnn already provides an engine ort-qnn-npu"


def test_an_environment_whose_runtime_aborts_is_one_line_with_the_fix() -> None:
    log = "loading\nFatal Python error: Aborted\n\nCurrent thread\n  File x\n"
    (line,) = merge(((QNN, outcome(why="the worker died: SIGABRT", log=log)),))
    assert line.failed
    assert line.info.id == "ort-qnn-npu"
    assert line.info.reason == (
        "the worker died: SIGABRT (it last wrote: loading); "
        "`npumark engines install qnn --again` makes its environment anew"
    )


def test_a_missing_module_is_a_fault_in_an_environment_that_was_made_for_it() -> None:
    why = "ModuleNotFoundError: No module named 'onnxruntime_qnn'"
    (line,) = merge(((QNN, outcome(why=why)),))
    assert line.failed
    own = merge(((OWN, outcome(why="ModuleNotFoundError: No module named 'onnxruntime'")),))
    assert [f.info.id for f in own if f.info.id == "ort-cpu"]
    assert not any(f.failed for f in own)


def test_every_environment_serves_providers_that_name_it_or_are_served_elsewhere_too() -> None:
    names = {row.name for row in ENVIRONMENTS}
    assert len(names) == len(ENVIRONMENTS)
    for row in ENVIRONMENTS:
        check_row(row)
    for provider in catalogue.PROVIDERS:
        assert provider.environment is None or provider.environment in names


def check_row(row: Environment) -> None:
    assert row.platforms
    assert row.name == row.name.lower()
    assert os.sep not in row.name
    for name in row.providers:
        provider = catalogue.provider(name)
        assert provider is not None, name
        assert provider.runtime in row.runtimes
    assert pins(row.requirements)
    for requirement in row.requirements:
        assert pins((requirement,), "linux") or pins((requirement,), "darwin"), requirement


def test_pins_are_read_as_they_apply_here() -> None:
    asked = ("A_b.c[x,y]==1.0", "only==2.0; sys_platform == 'darwin'")
    assert pins(asked, "linux") == {"a-b-c": "1.0"}
    assert pins(asked, "darwin") == {"a-b-c": "1.0", "only": "2.0"}
    assert lacking(asked[:1], {"a-b-c": "1.0+cpu"}) == ()
    assert lacking(asked[:1], {"a-b-c": "1.0.1"}) == ("a-b-c 1.0",)
    assert lacking(asked[:1], {}) == ("a-b-c 1.0",)
    for odd in ("a>=1", "a", "a==1; python_version > '3'"):
        with pytest.raises(ValueError, match="not a pinned requirement"):
            pins((odd,))


@pytest.mark.skipif(os.name != "posix", reason="makes links")
def test_an_interpreter_that_became_another_one_is_broken(tmp_path: Path) -> None:
    """What an upgrade of the system's Python does: the packages are in another one's folder."""
    folder = make(tmp_path)
    (folder / "python").unlink()
    for name in ("python3.11", "python3.12"):
        (tmp_path / name).write_text("")
    (folder / "python").symlink_to(tmp_path / "python3.11")
    assert standing("qnn", tmp_path).state == "installed"
    (folder / "python").unlink()
    (folder / "python").symlink_to(tmp_path / "python3.12")
    told = standing("qnn", tmp_path)
    assert told.state == "broken"
    assert told.why == (
        "its interpreter is now Python 3.12, and its packages are for Python 3.11.7"
    )
    assert told.remedy == "`npumark engines install qnn --again` makes its environment anew"


def test_a_folder_that_may_not_be_looked_into_holds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", refuse)
        patch.setattr(os, "scandir", refuse)
        patch.setattr(os, "listdir", refuse)
        states = {s.state for s in standings(tmp_path)}
    assert states == {"absent"}


# A seal that somebody wrote by hand, and digested right


def resealed(folder: Path, **changes: Any) -> None:
    """Change a seal and put its digest right, as whoever knows how it is made can."""
    doc = {**json.loads((folder / FILE).read_bytes()), **changes}
    doc.pop("sha256")
    doc["sha256"] = hashlib.sha256(environments._dump(doc)).hexdigest()
    (folder / FILE).write_bytes(environments._dump(doc))


def lead_out(folder: Path) -> None:
    outside = folder.parent / "outside"
    outside.mkdir()
    (outside / "python").write_text("")
    (folder / "bin").symlink_to(outside)
    resealed(folder, interpreter="bin/python")


@pytest.mark.skipif(os.name != "posix", reason="makes links")
@pytest.mark.parametrize(
    ("forge", "what"),
    [
        (lambda f: resealed(f, interpreter="../../evil.sh"), "interpreter"),
        (lambda f: resealed(f, interpreter="/bin/sh"), "interpreter"),
        (lambda f: resealed(f, interpreter="site/../../evil.sh"), "interpreter"),
        (lead_out, "interpreter"),
        (lambda f: resealed(f, site=".."), "packages"),
        (lambda f: resealed(f, site="/usr/lib"), "packages"),
    ],
)
def test_a_seal_that_leads_out_of_its_environment_is_not_believed(
    tmp_path: Path, forge: Any, what: str
) -> None:
    folder = make(tmp_path)
    forge(folder)
    (tmp_path.parent / "evil.sh").write_text("")
    found = standing("qnn", tmp_path)
    assert (found.state, found.installed) == ("broken", None)
    assert found.why == f"its environment.json names a place outside of it for its {what}"
    assert environment_runtimes((found,)) == ()


@pytest.mark.skipif(os.name != "posix", reason="makes links")
def test_an_interpreter_that_is_a_link_is_where_the_link_is(tmp_path: Path) -> None:
    folder = make(tmp_path)
    (tmp_path / "system-python").write_text("")
    (folder / "python").unlink()
    (folder / "python").symlink_to(tmp_path / "system-python")
    assert standing("qnn", tmp_path).state == "installed"


@pytest.mark.parametrize(
    "changes",
    [
        {"interpreter": 5},
        {"interpreter": ""},
        {"site": None},
        {"packages": 5},
        {"packages": {"onnxruntime": 5}},
        {"packages": ["onnxruntime"]},
        {"python": 3.11},
        {"name": ["qnn"]},
        {"requirements": [5]},
        {"requirements": None},
        {"more": 1},
    ],
    ids=str,
)
def test_a_seal_of_other_types_is_damaged(tmp_path: Path, changes: dict[str, Any]) -> None:
    folder = make(tmp_path)
    assert standing("qnn", tmp_path).state == "installed"
    resealed(folder, **changes)
    found = standing("qnn", tmp_path)
    assert (found.state, found.why) == ("broken", "its environment.json is damaged")


@pytest.mark.skipif(os.name != "posix", reason="makes a pipe")
@pytest.mark.parametrize("name", [FILE, "site/onnxruntime-1.31.1.dist-info/METADATA"])
@pytest.mark.parametrize("kind", ["pipe", "endless", "folder"])
def test_what_is_no_plain_file_is_never_read(tmp_path: Path, name: str, kind: str) -> None:
    folder = make(tmp_path)
    path = folder / name
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "endless":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()
    found = standing("qnn", tmp_path)
    assert found.state == "broken"
    if name == FILE:
        assert found.why == "its environment.json cannot be read: it is no plain file"
    else:
        assert found.why == "packages are gone from it: onnxruntime"
    # One without npumark's mark that cannot be read is nobody's.
    (folder / MARK).unlink()
    assert environments.is_ours(folder) is (name != FILE)


def test_a_seal_of_another_python_than_its_interpreters_is_told(tmp_path: Path) -> None:
    folder = make(tmp_path)
    (folder / "python").rename(folder / "python3.11")
    resealed(folder, interpreter="python3.11", python="3.13.1")
    why = "its interpreter is now Python 3.11, and its packages are for Python 3.13.1"
    assert standing("qnn", tmp_path).why == why
