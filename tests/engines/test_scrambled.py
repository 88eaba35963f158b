"""Compiled models of OpenVINO and packed weights of LiteRT, scrambled: right answers every time."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npumark.engines.base import Array, CacheMemo, Engine, LoadRequest
from npumark.engines.model_cache import ModelCache
from npumark.engines.model_sidecar import SIDECAR, read_sidecar
from npumark.engines.registry import BUILT_IN, resolve

FLOATS = {"openvino": "fp32", "litert": "litert-fp16"}
INTEGERS = {"openvino": "int8-u8s8", "litert": "litert-int8"}
MODULES = {"openvino": "openvino", "litert": "ai_edge_litert"}

PLACES = 16
"""Bytes scrambled in each file: a fixed draw, the first and the last among them."""


@dataclass
class Compiled:
    """A variant of the small chain with its compiled model, and the right answers."""

    chain: Any
    engine: Engine
    request: LoadRequest
    right: list[Array]

    @property
    def folder(self) -> Path:
        assert self.request.cache_dir is not None
        return self.request.cache_dir

    def files(self) -> list[Path]:
        return sorted(p for p in self.folder.glob("models-*/**/*") if p.is_file())

    def answer(self) -> tuple[bool, str]:
        """Load as the next run would; say whether all answers are right, and what was done."""
        memo = CacheMemo()
        found = self.chain.answers(self.engine, replace(self.request, cache_memo=memo))
        memo.settle()
        assert memo.use is not None
        same = all(np.array_equal(a, b) for a, b in zip(found, self.right, strict=True))
        return same, memo.use.state


@pytest.fixture(params=MODULES)
def runtime(request: pytest.FixtureRequest) -> str:
    name = str(request.param)
    pytest.importorskip(MODULES[name], reason=f"{MODULES[name]} is not installed")
    return name


@pytest.fixture
def compiled(chain: Any, tmp_path: Path) -> Callable[[str, str], Compiled]:
    """Return a function that compiles a variant with a runtime whose cache is forced on."""

    def make(runtime: str, variant: str) -> Compiled:
        engine: Engine = resolve(BUILT_IN[runtime])
        engine.prepare()
        request = replace(
            chain.request(f"{runtime}-cpu", variant),
            options={"device": "CPU", "cache": True},
            cache_dir=tmp_path / variant,
        )
        right = chain.answers(engine, replace(request, cache_dir=None))
        made = Compiled(chain, engine, request, right)
        assert made.answer() == (True, "built")
        assert made.answer() == (True, "reused")
        assert made.files()
        return made

    return make


def scrambled(raw: bytes, seed: int) -> list[bytes]:
    """Return ``raw`` with one byte changed, at each of the drawn places."""
    draw = np.random.default_rng(seed)
    places = {0, len(raw) - 1, *draw.integers(0, len(raw), PLACES).tolist()}
    changed = []
    for place in sorted(places):
        bad = bytearray(raw)
        bad[place] ^= int(draw.integers(1, 256))
        changed.append(bytes(bad))
    return changed


@pytest.mark.parametrize("variants", [FLOATS, INTEGERS])
def test_any_scrambled_byte_gives_the_right_answer(
    compiled: Callable[[str, str], Compiled], runtime: str, variants: dict[str, str]
) -> None:
    model = compiled(runtime, variants[runtime])
    for seed in range(len(model.files())):
        for bad in scrambled(model.files()[seed].read_bytes(), seed):
            model.files()[seed].write_bytes(bad)
            assert model.answer() == (True, "rebuilt")
            assert model.answer() == (True, "reused")


def test_what_is_scrambled_while_it_is_in_use_gives_the_right_answer_next_time(
    compiled: Callable[[str, str], Compiled], runtime: str
) -> None:
    model = compiled(runtime, INTEGERS[runtime])
    for at in range(len(model.files())):
        request = replace(model.request, cache_memo=CacheMemo())
        session = model.engine.load(request)
        path = model.files()[at]
        raw = bytearray(path.read_bytes())
        raw[len(raw) // 2] ^= 0x40
        damaged = path.with_name("damaged")
        damaged.write_bytes(raw)
        damaged.replace(path)  # the session keeps the file that it has mapped
        session.close()
        request.cache_memo.settle()
        assert model.files() == []
        assert model.answer() == (True, "built")
        assert model.answer() == (True, "reused")


def test_believed_a_scrambled_model_would_be_wrong_or_refused(
    compiled: Callable[[str, str], Compiled], runtime: str
) -> None:
    """Without the sidecar's hash the runtime itself does not always notice: the control."""
    model = compiled(runtime, FLOATS[runtime])
    raw = model.files()[0].read_bytes()
    spoilt = 0
    for place in np.linspace(len(raw) // 2, len(raw) - 1, 8).astype(int).tolist():
        bad = bytearray(raw)
        bad[place] ^= 0x40
        model.files()[0].write_bytes(bytes(bad))
        _seal(model)
        right, state = model.answer()
        spoilt += not right or state == "rebuilt"
        shutil.rmtree(model.folder)
        assert model.answer() == (True, "built")
        raw = model.files()[0].read_bytes()
    assert spoilt > 0


def _seal(model: Compiled) -> None:
    """Make the sidecar say that what lies there now is what was compiled."""
    sidecar = read_sidecar(model.folder / SIDECAR)
    cache = ModelCache(model.folder, settings=sidecar.settings)
    cache._models = model.folder / sidecar.models
    cache._seal()


@pytest.mark.parametrize("share", [0.0, 0.3, 0.999])
def test_a_truncated_model_gives_the_right_answer(
    compiled: Callable[[str, str], Compiled], runtime: str, share: float
) -> None:
    model = compiled(runtime, INTEGERS[runtime])
    for path in model.files():
        raw = path.read_bytes()
        path.write_bytes(raw[: int(len(raw) * share)])
        assert model.answer() == (True, "rebuilt")


def test_a_model_of_another_version_gives_the_right_answer(
    compiled: Callable[[str, str], Compiled],
) -> None:
    pytest.importorskip("openvino")
    model = compiled("openvino", "int8-u8s8")
    sidecar = (model.folder / SIDECAR).read_text()
    (model.folder / SIDECAR).write_text(sidecar.replace('"openvino": "20', '"openvino": "19'))
    assert model.answer() == (True, "rebuilt")
    for blob in model.files():
        raw = blob.read_bytes()
        told = raw.replace(b"2026.", b"2025.").replace(b"2027.", b"2025.")
        assert told != raw, "the blob names its version no longer: choose another mark"
        blob.write_bytes(told)
    # Even where the hash is made to hold, the runtime itself refuses it.
    _seal(model)
    assert model.answer() == (True, "rebuilt")
    assert model.answer() == (True, "reused")


def test_the_model_of_another_graph_gives_the_right_answer(
    compiled: Callable[[str, str], Compiled], runtime: str
) -> None:
    """Floating point and INT8 are two graphs with the same names and shapes of tensors."""
    one, two = (compiled(runtime, variants[runtime]) for variants in (FLOATS, INTEGERS))
    assert not np.array_equal(one.right[0], two.right[0])
    for mine, theirs in zip(one.files(), two.files(), strict=True):
        shutil.copyfile(theirs, mine)
    assert one.answer() == (True, "rebuilt")
    shutil.rmtree(one.folder)
    shutil.copytree(two.folder, one.folder)
    assert one.answer() == (True, "rebuilt")
    assert two.answer() == (True, "reused")
