"""Graphs for several inputs per call, and devices that the runtime chooses by itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from npumark.engines.base import Array, Engine, LoadRequest, batch_fault
from npumark.engines.onnx_batch import batched, rewritten
from npumark.engines.openvino import OpenVino
from npumark.engines.ort import OnnxRuntime
from npumark.engines.ort_automatic import picked
from npumark.errors import EngineError, Unsupported
from npumark.pack.manifest import TensorSpec
from npumark.policy import DATA

SHIPPED = sorted((DATA / "pack").glob("*/*.onnx"))
RUNTIMES: list[tuple[Callable[[], Engine], str]] = [
    (OnnxRuntime, "ort-cpu"),
    (OpenVino, "openvino-cpu"),
]
SIDE = 4


def small_network(
    folder: Path, *, joined: bool = False, shape: list[int] | None = None
) -> LoadRequest:
    """Return a request for a graph with each place that a batch of 1 is written into: a Conv,
    a Resize to sizes, a Reshape to a shape, a Gemm, its weights in a file of their own.

    ``joined`` adds a Concat with a constant, which no other batch fits; ``shape`` is another
    shape for the Reshape.
    """
    draw = np.random.default_rng(5)
    channels, up = 2, 2 * SIDE
    flat = channels * up * up
    tensors = [
        numpy_helper.from_array(draw.standard_normal((channels, 1, 3, 3), np.float32), "k"),
        numpy_helper.from_array(np.array([1, channels, up, up], np.int64), "sizes"),
        numpy_helper.from_array(np.array(shape or [1, flat], np.int64), "shape"),
        numpy_helper.from_array(draw.standard_normal((flat, 8), np.float32), "w"),
        numpy_helper.from_array(np.ones((1, 8), np.float32), "more"),
    ]
    nodes = [
        helper.make_node("Conv", ["x", "k"], ["c"], name="c", pads=[1, 1, 1, 1]),
        helper.make_node("Resize", ["c", "", "", "sizes"], ["r"], name="r", mode="linear"),
        helper.make_node("Reshape", ["r", "shape"], ["f"], name="f"),
        helper.make_node("Gemm", ["f", "w"], ["g"], name="g"),
        helper.make_node("Concat", ["g", "more"], ["y"], name="y", axis=1)
        if joined
        else helper.make_node("Relu", ["g"], ["y"], name="y"),
    ]
    wide = 16 if joined else 8
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 1, SIDE, SIDE))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, wide))
    inner = helper.make_tensor_value_info("c", TensorProto.FLOAT, (1, channels, SIDE, SIDE))
    graph = helper.make_graph(nodes, "small", [x], [y], tensors, value_info=[inner])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = folder / "small.onnx"
    onnx.save_model(
        model, path, save_as_external_data=True, location="small.weights", size_threshold=128
    )
    return LoadRequest(
        engine_id="",
        workload_id="small",
        graph=path,
        encoding="fp32",
        format="FP32",
        inputs=(TensorSpec("x", "float32", (1, 1, SIDE, SIDE)),),
        outputs=(TensorSpec("y", "float32", (1, wide)),),
        threads=1,
        options={},
        cache_dir=None,
    )


def answers(engine: Engine, request: LoadRequest, x: Array) -> Array:
    session = engine.load(request)
    session.inputs()[0][...] = x
    session.step()()
    found = session.outputs()[0].copy()
    session.close()
    return found


# -- the graph --------------------------------------------------------------------------------


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_a_shipped_graph_is_changed_where_a_batch_is_written_and_nowhere_else(path: Path) -> None:
    """As the onnx package would change it."""
    wanted = onnx.load(path, load_external_data=False)
    shapes = {
        node.input[{"Reshape": 1, "Resize": 3}[node.op_type]]
        for node in wanted.graph.node
        if node.op_type in ("Reshape", "Resize")
    }
    for end in (*wanted.graph.input, *wanted.graph.output):
        end.type.tensor_type.shape.dim[0].dim_value *= 3
    for tensor in wanted.graph.initializer:
        if tensor.name in shapes:
            values = numpy_helper.to_array(tensor).copy()
            values[0] *= 3 if values[0] > 0 else 1  # -1 is what is left
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    found = onnx.load_model_from_string(batched(path, 3))
    assert found == wanted


def test_a_batch_of_one_is_the_same_graph(tmp_path: Path) -> None:
    path = small_network(tmp_path).graph
    same = onnx.load_model_from_string(batched(path, 1))
    del same.graph.value_info[:]
    before = onnx.load(path, load_external_data=False)
    assert len(before.graph.value_info) == 1
    del before.graph.value_info[:]
    assert same == before


@pytest.mark.parametrize("leading", [0, -1])
def test_a_shape_that_follows_its_input_stays(tmp_path: Path, leading: int) -> None:
    path = small_network(tmp_path, shape=[leading, 128]).graph
    found = onnx.load_model_from_string(batched(path, 5)).graph
    shapes = {t.name: numpy_helper.to_array(t).tolist() for t in found.initializer if t.raw_data}
    assert shapes["shape"] == [leading, 128]
    assert shapes["sizes"] == [5, 2, 8, 8]


def test_a_shape_of_what_no_input_reaches_stays() -> None:
    shape = numpy_helper.from_array(np.array([1, 4], np.int64), "shape")
    weights = numpy_helper.from_array(np.ones((2, 2), np.float32), "w")
    nodes = [
        helper.make_node("Reshape", ["w", "shape"], ["row"]),
        helper.make_node("Add", ["x", "row"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, (1, 4)) for n in "xy")
    model = helper.make_model(helper.make_graph(nodes, "g", [x], [y], [shape, weights]))
    found = onnx.load_model_from_string(rewritten(model.SerializeToString(), 2)).graph
    told = {t.name: numpy_helper.to_array(t).tolist() for t in found.initializer}
    assert told["shape"] == [1, 4]
    assert [d.dim_value for d in found.input[0].type.tensor_type.shape.dim] == [2, 4]


def test_a_file_that_is_no_graph_is_an_engines_fault(tmp_path: Path) -> None:
    path = tmp_path / "graph.onnx"
    path.write_bytes(b"nothing of that kind")
    with pytest.raises(EngineError, match=r"graph\.onnx cannot be read"):
        batched(path, 2)


# -- the runtimes -----------------------------------------------------------------------------


@pytest.mark.parametrize(("engine", "name"), RUNTIMES)
def test_every_row_is_answered_as_its_input_is_alone(
    tmp_path: Path, engine: Callable[[], Engine], name: str
) -> None:
    request = replace(small_network(tmp_path), engine_id=name)
    x = np.random.default_rng(1).standard_normal((3, 1, SIDE, SIDE)).astype(np.float32)
    alone = [answers(engine(), request, x[i : i + 1]) for i in range(3)]
    rows = answers(engine(), request.of_batch(3), x)
    assert rows.shape == (3, 8)
    np.testing.assert_allclose(rows, np.concatenate(alone), rtol=1e-4, atol=1e-4)
    assert not np.allclose(alone[0], alone[1])


@pytest.mark.parametrize(("engine", "name"), RUNTIMES)
@pytest.mark.parametrize("variant", ["fp32", "int8-u8s8"])
def test_the_rows_of_a_chain_are_its_answers(
    chain: Any, engine: Callable[[], Engine], name: str, variant: str
) -> None:
    request = chain.request(name, variant)
    first, second = (feed[0] for feed in chain.feeds(request)[:2])
    alone = chain.answers(engine(), request)[:2]
    rows = answers(engine(), request.of_batch(2), np.concatenate([first, second]))
    np.testing.assert_allclose(rows, np.concatenate(alone), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("engine", "name"), RUNTIMES)
def test_a_graph_that_does_not_allow_it_says_so(
    tmp_path: Path, engine: Callable[[], Engine], name: str
) -> None:
    request = replace(small_network(tmp_path, joined=True), engine_id=name)
    assert answers(engine(), request, np.zeros((1, 1, SIDE, SIDE), np.float32)).shape == (1, 16)
    with pytest.raises(Unsupported, match="the graph does not allow 2 inputs per call"):
        engine().load(request.of_batch(2))


def test_a_batch_neither_reads_nor_keeps_a_compiled_model(tmp_path: Path) -> None:
    request = replace(small_network(tmp_path), cache_dir=tmp_path / "entry", engine_id="ort-cpu")
    request.cache_memo.stamps["models/x"] = (1, 2, 3)
    asked = request.of_batch(4)
    assert (asked.batch, asked.cache_dir, asked.cache_memo.stamps) == (4, None, {})
    assert asked.inputs[0].shape == (4, 1, SIDE, SIDE)
    assert request.inputs[0].shape == (1, 1, SIDE, SIDE)


# -- devices that the runtime chooses -----------------------------------------------------------


def chosen(engine: Engine, request: LoadRequest) -> tuple[tuple[str, ...], Array]:
    session = engine.load(replace(request, device_choice="automatic"))
    session.inputs()[0][...] = 1
    session.step()()
    found = session.picked(), session.outputs()[0].copy()
    session.close()
    return found


@pytest.mark.parametrize(
    ("engine", "name", "picks"),
    [(OnnxRuntime, "ort-cpu", "CPUExecutionProvider"), (OpenVino, "openvino-cpu", "CPU")],
)
def test_a_runtime_tells_what_it_picked(
    chain: Any, engine: Callable[[], Engine], name: str, picks: str
) -> None:
    import openvino

    if set(openvino.Core().available_devices) != {"CPU"}:
        pytest.skip("there is more to choose from than the CPU")
    found, answer = chosen(engine(), chain.request(name, "fp32"))
    assert found == (picks,)
    assert np.abs(answer).sum() > 0


@pytest.mark.parametrize(("engine", "name"), RUNTIMES)
def test_what_is_measured_has_no_choice(
    chain: Any, engine: Callable[[], Engine], name: str
) -> None:
    request = chain.request(name, "fp32")
    assert request.device_choice == "own"
    session = engine().load(request)
    assert session.picked() == ()
    session.close()


@pytest.mark.parametrize("device", ["AUTO", "MULTI:CPU", "HETERO:GPU,CPU"])
def test_the_switch_brings_no_other_choosing_device_in(chain: Any, device: str) -> None:
    request = replace(chain.request("openvino-cpu", "fp32"), options={"device": device})
    for choice in ("own", "automatic"):
        with pytest.raises(Unsupported, match="chooses among devices"):
            OpenVino().load(replace(request, device_choice=choice))  # type: ignore[arg-type]


def test_an_older_onnx_runtime_has_no_choice(chain: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import onnxruntime

    monkeypatch.delattr(onnxruntime, "OrtExecutionProviderDevicePolicy")
    request = replace(chain.request("ort-cpu", "fp32"), device_choice="automatic")
    with pytest.raises(Unsupported, match="does not choose providers by itself"):
        OnnxRuntime().load(request)


class Silent:
    """A session of an ONNX Runtime that does not tell what went where."""

    def get_provider_graph_assignment_info(self) -> list[object]:
        raise RuntimeError("not recorded")

    def get_providers(self) -> list[str]:
        return ["CPUExecutionProvider"]


def test_providers_that_a_session_lists_are_not_what_it_picked() -> None:
    with pytest.raises(EngineError, match="does not tell which providers"):
        picked(Silent())


@pytest.mark.parametrize(
    ("told", "kind"),
    [
        ("ShapeInferenceError: mismatch", Unsupported),
        ("Got invalid dimensions for input: x", Unsupported),
        ("cannot broadcast 4 with 1", Unsupported),
        ("Failed to allocate memory for requested buffer of shape {32,224}", EngineError),
        ("CUDA failure 700: an illegal memory access", EngineError),
        ("device removed", EngineError),
    ],
)
def test_only_what_speaks_of_shapes_refuses_a_batch(told: str, kind: type[EngineError]) -> None:
    fault = batch_fault(4, RuntimeError(told))
    assert type(fault) is kind
    assert told in str(fault)
    assert "4 inputs per call" in str(fault)
