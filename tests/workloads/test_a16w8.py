from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from npumark.pack import peak_files, seeded
from npumark.pack.seeded import Chain
from tests.workloads.plain_session import unoptimised
from workloads.a16w8_build import finer
from workloads.int8_parts import bias_sections
from workloads.peak import build, graphs

CHAIN = Chain(16, 256, 3)


def test_a_chain_computes_what_its_ranges_and_weights_say(tmp_path: Path) -> None:
    model = graphs.graph(CHAIN, graphs.A16W8)
    path = tmp_path / "int8-a16w8.onnx"
    path.write_bytes(model.SerializeToString())
    with (tmp_path / "int8.weights").open("wb") as out:
        peak_files.write_weights(CHAIN, "int8", out)
    onnx.checker.check_model(str(path), full_check=True)
    x = seeded.inputs(CHAIN, "eval0")
    (found,) = unoptimised(path).run(None, {"x": x})

    scales = [float(s) for s in graphs.activation_scales(CHAIN, 65535)]
    _, shift = seeded.he_grid(CHAIN.width)
    value = np.rint(x.astype(np.float64) / scales[0]).clip(-32768, 32767) * scales[0]
    for layer in range(CHAIN.layers):
        weights, scale = peak_files.int8_layer(seeded.weight_integers(CHAIN, layer), shift)
        value = np.maximum(value @ (weights * scale.astype(np.float64)), 0)
        value = np.rint(value / scales[layer + 1]).clip(0, 65535) * scales[layer + 1]
    assert build.snr_db(found, value) > 80
    (reference,) = seeded.references(CHAIN, ("eval0",))
    assert build.snr_db(found, reference.astype(np.float64)) > 35


def test_16_bit_ranges_are_those_of_8_bits_in_finer_steps() -> None:
    narrow, wide = (graphs.activation_scales(CHAIN, levels) for levels in (255, 65535))
    assert narrow == graphs.activation_scales(CHAIN)
    for coarse, fine in zip(narrow, wide, strict=True):
        assert fine == pytest.approx(coarse / 257, rel=1e-6)


def small_model(bias: int) -> onnx.ModelProto:
    tensors = {
        "x.step": np.float32(0.5),
        "x.zero": np.uint8(128),
        "w.q": np.ones((2, 2), np.int8),
        "w.scale": np.array([0.25, 0.5], np.float32),
        "b.q": np.array([bias, -2], np.int32),
        "b.scale": np.array([0.125, 0.25], np.float32),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "x.step", "x.zero"], ["x.q"]),
        helper.make_node("DequantizeLinear", ["x.q", "x.step", "x.zero"], ["x.dq"]),
        helper.make_node("DequantizeLinear", ["w.q", "w.scale"], ["w.dq"], axis=1),
        helper.make_node("DequantizeLinear", ["b.q", "b.scale"], ["b.dq"], axis=0),
        helper.make_node("Gemm", ["x.dq", "w.dq", "b.dq"], ["g"]),
        helper.make_node("ReduceL2", ["g"], ["y"], axes=[-1], keepdims=1),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 2))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 1))],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in tensors.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_a_graph_in_finer_steps_means_the_same(tmp_path: Path) -> None:
    narrow = small_model(bias=3)
    wide = finer(narrow, bias_sections(narrow, tmp_path))
    onnx.checker.check_model(wide, full_check=True)
    held = {t.name: numpy_helper.to_array(t) for t in wide.graph.initializer}
    assert held["x.zero"] == 128 * 257
    assert held["x.zero"].dtype == np.uint16
    assert held["x.step"] == np.float32(0.5 / 257)
    assert held["b.q"].tolist() == [3 * 257, -2 * 257]
    assert held["w.q"].tolist() == [[1, 1], [1, 1]]
    answers = []
    for name, model in (("narrow", narrow), ("wide", wide)):
        path = tmp_path / f"{name}.onnx"
        path.write_bytes(model.SerializeToString())
        # A value on the 8-bit grid is on the finer one too.
        answers += unoptimised(path).run(None, {"x": np.array([[1.5, -2.0]], np.float32)})
    assert answers[1] == pytest.approx(answers[0], rel=1e-5)


def test_a_bias_without_room_is_refused(tmp_path: Path) -> None:
    narrow = small_model(bias=2**31 // 257 + 1)
    with pytest.raises(ValueError, match="does not fit"):
        finer(narrow, bias_sections(narrow, tmp_path))
