from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace

import pytest

from npumark.engines.registry import BUILT_IN, GROUP, collect, registered, resolve
from npumark.errors import EngineError

ROOT = Path(__file__).parents[2]


def point(name: str, value: str) -> EntryPoint:
    return EntryPoint(name, value, GROUP)


def test_the_built_in_table_is_the_one_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"][GROUP] == BUILT_IN


def test_built_ins_are_there_without_installation_and_only_once() -> None:
    assert {r.name: r.ref for r in collect(())} == BUILT_IN
    installed = tuple(point(name, ref) for name, ref in BUILT_IN.items())
    assert collect(installed) == collect(())
    assert {r.name for r in registered()} >= set(BUILT_IN)


def test_a_third_party_is_listed_beside_them() -> None:
    (found,) = [r for r in collect((point("iree", "iree_npumark:Iree"),)) if r.name == "iree"]
    assert found.ref == "iree_npumark:Iree"
    assert found.fault is None


@pytest.mark.parametrize(
    ("points", "fault"),
    [
        ((point("ort", "evil:Engine"),), "name of a built-in"),
        ((point("x", "not a reference"),), "not module:Class"),
        ((point("x", "module"),), "not module:Class"),
        ((point("X y\x1b[31m", "a:A"),), "not a name of a-z"),
    ],
)
def test_a_broken_registration_is_reported(points: tuple[EntryPoint, ...], fault: str) -> None:
    faults = [r.fault for r in collect(points) if r.fault]
    assert len(faults) == 1
    assert fault in faults[0]


def test_the_second_of_two_packages_with_one_name_is_reported() -> None:
    first, second = point("x", "a:A"), point("x", "b:B")
    for entry, package in ((first, "one"), (second, "two")):
        vars(entry)["dist"] = SimpleNamespace(name=package, version="2.1")
    found = [r for r in collect((second, first)) if r.name == "x"]
    assert [r.fault for r in found] == [None, "two and one both register x"]
    assert [r.package for r in found] == ["one 2.1", "two 2.1"]
    assert all(r.package is None for r in collect((first,)) if r.name in BUILT_IN)


def test_listing_imports_no_engine() -> None:
    code = (
        "import sys; from npumark.engines.registry import registered; registered(); "
        "bad = {'onnxruntime', 'openvino', 'npumark.engines.ort', 'npumark.engines.virtual'}; "
        "sys.exit(len(bad & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_resolving() -> None:
    assert resolve(BUILT_IN["virtual"]).name == "virtual"
    with pytest.raises(EngineError, match="cannot be imported"):
        resolve("npumark.engines.nowhere:Engine")
    with pytest.raises(EngineError, match="cannot be imported"):
        resolve("npumark.engines.virtual:Nobody")
    with pytest.raises(EngineError, match="is not an engine"):
        resolve("npumark.engines.virtual:VirtualSession")
