"""LiteRT models for several inputs per call, against the package's own reader of such files."""

from __future__ import annotations

import lzma
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ai_edge_litert", reason="LiteRT is missing: pip install ai-edge-litert")
pytest.importorskip("flatbuffers", reason="reads the models that are compared")

from npumark.engines.litert import LiteRt
from npumark.engines.litert_batch import batched
from npumark.engines.litert_library import NativeError
from npumark.engines.litert_native import Model
from npumark.errors import EngineError, Unsupported
from npumark.pack.litert_model import parse_structure
from npumark.policy import DATA

HEADS = sorted((DATA / "pack").glob("*/*.head.xz"))
RESHAPE, SLICE = 22, 65


def read(raw: bytes) -> Any:
    from ai_edge_litert import schema_py_generated as schema

    return schema.ModelT.InitFromPackedBuf(raw, 0)


def numbers(buffer: Any) -> list[int]:
    return np.asarray(buffer.data, np.uint8).view("<i4").tolist()


@pytest.mark.parametrize("path", HEADS, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_the_shapes_that_inputs_reach_are_longer_and_all_else_is_as_it_was(path: Path) -> None:
    raw = bytes(parse_structure(path.read_bytes())[0])
    before, after = read(raw), read(batched(raw, 3))
    (old,), (new,) = before.subgraphs, after.subgraphs
    live, sizes = set(old.inputs), {}
    for op in old.operators:
        if live.isdisjoint(op.inputs):
            continue
        live.update(op.outputs)
        code = before.operatorCodes[op.opcodeIndex].builtinCode
        if code in (RESHAPE, SLICE):
            tensor = old.tensors[op.inputs[1 if code == RESHAPE else 2]]
            sizes[tensor.buffer] = numbers(before.buffers[tensor.buffer])
    for i, (was, now) in enumerate(zip(old.tensors, new.tensors, strict=True)):
        shape = [] if was.shape is None else list(was.shape)
        wanted = [3 * shape[0], *shape[1:]] if i in live and shape else shape
        assert ([] if now.shape is None else list(now.shape)) == wanted
    for at, (was, now) in enumerate(zip(before.buffers, after.buffers, strict=True)):
        if at in sizes:
            first, *rest = sizes[at]
            assert numbers(now) == [3 * first if first > 0 else first, *rest]
        else:
            assert np.array_equal(was.data, now.data)
    for was, now in zip(old.operators, new.operators, strict=True):
        assert np.array_equal(was.inputs, now.inputs)
        assert np.array_equal(was.outputs, now.outputs)


@pytest.mark.parametrize("path", HEADS[:1], ids=lambda p: p.name)
def test_a_batch_of_one_is_the_same_file(path: Path) -> None:
    raw = bytes(parse_structure(path.read_bytes())[0])
    assert batched(raw, 1) == raw
    assert batched(raw, 2) != raw


@pytest.mark.parametrize("raw", [b"", b"no such thing", lzma.compress(b"x"), b"\xff" * 64])
def test_what_is_no_model_is_refused(raw: bytes) -> None:
    with pytest.raises(EngineError, match="cannot be read as one of LiteRT's"):
        batched(raw, 2)


@pytest.mark.parametrize("variant", ["litert-fp16", "litert-int8"])
def test_the_rows_of_a_chain_are_its_answers(chain: Any, variant: str) -> None:
    engine = LiteRt()
    engine.prepare()
    request = chain.request("litert-cpu", variant)
    alone = chain.answers(engine, request)[:2]
    session = engine.load(request.of_batch(2))
    session.inputs()[0][...] = np.concatenate([feed[0] for feed in chain.feeds(request)[:2]])
    session.step()()
    assert np.array_equal(session.outputs()[0], np.concatenate(alone))
    session.close()


def test_a_model_that_does_not_compile_for_a_batch_does_not_allow_it(
    chain: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any) -> None:
        raise NativeError("LiteRT's CreateCompiledModel failed: compilation failed")

    monkeypatch.setattr(Model, "_build", refused)
    engine = LiteRt()
    engine.prepare()
    request = chain.request("litert-cpu", "litert-fp16")
    with pytest.raises(Unsupported, match="does not allow 2 inputs per call: LiteRT's Create"):
        engine.load(request.of_batch(2))
    with pytest.raises(NativeError):
        engine.load(request)
