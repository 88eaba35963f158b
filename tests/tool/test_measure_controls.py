"""The exit status of the negative controls, with the measuring left out."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    path = ROOT / "tool" / "measure_controls.py"
    spec = importlib.util.spec_from_file_location("measure_controls", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "open_network", lambda _: None)
    monkeypatch.setattr(module, "WEIGHT_FORMAT", ("fp32",))
    monkeypatch.setattr(module, "planted", lambda _: {"skip": None})
    monkeypatch.setattr(module, "NETWORKS", {"net": SimpleNamespace(build=lambda: None)})
    return module


@pytest.mark.parametrize(
    ("whole", "broken", "status"), [(True, False, 0), (True, True, 1), (False, False, 1)]
)
def test_a_whole_network_must_pass_and_a_broken_one_must_not(
    tool: ModuleType, monkeypatch: pytest.MonkeyPatch, whole: bool, broken: bool, status: int
) -> None:
    def verdict(_: object, defect: str, *__: object) -> SimpleNamespace:
        return SimpleNamespace(passed=whole if defect == tool.CORRECT else broken, measures={})

    monkeypatch.setattr(tool, "verdict_on", verdict)
    assert tool.main([]) == status
