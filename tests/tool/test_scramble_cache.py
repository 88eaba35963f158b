"""The tool that scrambles compiled models counts each byte, and would name one that is believed."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from npumark.engines.model_cache import ModelCache, Recipe
from npumark.engines.model_sidecar import SIDECAR, read_sidecar

TOOL = Path(__file__).parents[2] / "tool" / "scramble_cache.py"
MODEL = bytes(range(40))


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("scramble_cache", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


class Bench:
    """Compiles by writing a few bytes; what it answers is whether they are whole."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def cache(self, variant: str) -> Path:
        return self.folder / variant

    def load(self, variant: str) -> tuple[bool, str]:
        model = variant.encode() + MODEL

        def load(folder: Path | None) -> bytes:
            return model if folder is None else (folder / "a.blob").read_bytes()

        def compile_into(folder: Path) -> dict[str, Any]:
            (folder / "a.blob").write_bytes(model)
            return {}

        cache = ModelCache(self.cache(variant))
        found = cache.open(Recipe(load, compile=compile_into))
        assert cache.use is not None
        return found == model, cache.use.state


def options(**over: Any) -> argparse.Namespace:
    told = {"engine": "e", "workload": "w", "variant": "int8", "other": "fp32"}
    return argparse.Namespace(**{**told, "every": 1, "load_every": 16, "cuts": 3, **over})


def test_every_byte_is_counted_and_none_is_believed(
    tool: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bench = Bench(tmp_path)
    assert tool.scramble(bench, options()) == 0
    told = capsys.readouterr().out
    size = len(MODEL) + len("int8") + (tmp_path / "int8" / SIDECAR).stat().st_size
    assert f"{size} bytes changed" in told
    loads = next(line.split()[0] for line in told.splitlines() if line.endswith(" loads"))
    assert f"  {loads} right answers" in told
    counted = [line.split()[0] for line in told.splitlines() if line.endswith(" changed in use")]
    assert int(counted[-1]) >= 4
    assert "0 believed or answered wrong" in told
    assert read_sidecar(tmp_path / "int8" / SIDECAR).entry == "int8"


def test_a_changed_model_that_is_believed_is_named(
    tool: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(ModelCache, "intact", lambda _: True)
    assert tool.scramble(Bench(tmp_path), options(load_every=10**6)) == 1
    told = capsys.readouterr().out
    assert "a.blob, byte 0: believed" in told


def test_a_wrong_answer_is_named(
    tool: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    load = Bench.load
    monkeypatch.setattr(Bench, "load", lambda self, v: (False, load(self, v)[1]))
    assert tool.scramble(Bench(tmp_path), options(every=50)) == 1
    assert "first load of int8: wrong, built (due: built)" in capsys.readouterr().out


def test_a_model_that_is_sealed_although_it_changed_in_use_is_named(
    tool: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(ModelCache, "settle", lambda self: self._seal())
    assert tool.scramble(Bench(tmp_path), options()) == 1
    assert "a.blob, byte 0, in use: sealed" in capsys.readouterr().out
