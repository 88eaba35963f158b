from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from npumark.engines.catalogue import PROVIDERS
from npumark.engines.onnx_graph import read_graph
from npumark.pack import peak_files, seeded
from npumark.pack.manifest import load_manifest
from npumark.pack.seeded import Chain
from tests.workloads.plain_session import unoptimised
from workloads.int8_parts import bias_sections
from workloads.peak import build, graphs
from workloads.shipped import SHIPPED, activation_ranges
from workloads.sym_build import symmetric

CHAIN = Chain(16, 256, 3)
VARIANT = graphs.SYMMETRIC.id
WORKLOADS = sorted(w.id for w in load_manifest().workloads.values())


def test_a_chain_computes_what_its_ranges_and_weights_say(tmp_path: Path) -> None:
    path = tmp_path / f"{VARIANT}.onnx"
    path.write_bytes(graphs.graph(CHAIN, graphs.SYMMETRIC).SerializeToString())
    with (tmp_path / "int8.weights").open("wb") as out:
        peak_files.write_weights(CHAIN, "int8", out)
    onnx.checker.check_model(str(path), full_check=True)
    x = seeded.inputs(CHAIN, "eval0")
    (found,) = unoptimised(path).run(None, {"x": x})

    scales = [float(s) for s in graphs.symmetric_scales(CHAIN)]
    _, shift = seeded.he_grid(CHAIN.width)
    value = np.rint(x.astype(np.float64) / scales[0]).clip(-128, 127) * scales[0]
    for layer in range(CHAIN.layers):
        weights, scale = peak_files.int8_layer(seeded.weight_integers(CHAIN, layer), shift)
        value = np.maximum(value @ (weights * scale.astype(np.float64)), 0)
        value = np.rint(value / scales[layer + 1]).clip(-128, 127) * scales[layer + 1]
    assert build.snr_db(found, value) > 50  # a rare half rounds the other way


@pytest.mark.parametrize("workload", WORKLOADS)
def test_every_shipped_graph_is_what_its_engines_multiply(workload: str) -> None:
    model = onnx.load(SHIPPED / workload / f"{VARIANT}.onnx", load_external_data=False)
    held = {tensor.name: tensor for tensor in model.graph.initializer}
    pairs = [n for n in model.graph.node if n.op_type in ("QuantizeLinear", "DequantizeLinear")]
    activations = [n for n in pairs if n.op_type == "QuantizeLinear"]
    assert activations
    for node in pairs:
        if node.input[0] in held:  # a weight: 8 bits, never a bias of 32
            assert held[node.input[0]].data_type == TensorProto.INT8
        for zero in node.input[2:]:
            assert held[zero].data_type == TensorProto.INT8
            if held[zero].data_location != TensorProto.EXTERNAL:
                assert not numpy_helper.to_array(held[zero]).any()
    for node in activations:
        assert held[node.input[2]].data_location != TensorProto.EXTERNAL


@pytest.mark.parametrize(
    "workload", [w for w in WORKLOADS if load_manifest().workloads[w].kind == "network"]
)
def test_a_networks_ranges_hold_those_of_unsigned_activations(workload: str) -> None:
    narrow = activation_ranges(SHIPPED / workload / "int8-u8s8.onnx")
    wide = activation_ranges(SHIPPED / workload / f"{VARIANT}.onnx")
    assert set(wide) <= set(narrow)
    for name in wide:
        step, zero = narrow[name]
        largest = max(zero, 255 - zero) * step
        assert wide[name][0] * 127 == pytest.approx(largest, rel=1e-6)
        assert wide[name][1] == 0


@pytest.mark.parametrize(
    "workload", [w for w in WORKLOADS if load_manifest().workloads[w].kind == "network"]
)
def test_every_product_with_weights_reads_quantised_activations(workload: str) -> None:
    graph = read_graph(SHIPPED / workload / f"{VARIANT}.onnx")
    reads = {part.operands for part in graph.products}
    # Attention multiplies activations by activations, in floating point.
    assert reads == ({"integer", "float"} if "granite" in workload else {"integer"})


def test_every_engine_that_measures_it_finds_it_in_every_workload() -> None:
    assert any(VARIANT in usual for row in PROVIDERS for usual in row.variants_by_role.values())
    for workload in load_manifest().workloads.values():
        variant = workload.variant(VARIANT)
        assert (variant.format, variant.encoding) == ("INT8", VARIANT)
        weights = [file for file in variant.files if file != variant.graph]
        assert weights == [f"{workload.id}/int8.weights"]


def small_model() -> onnx.ModelProto:
    tensors = {
        "x.step": np.float32(0.5),
        "x.zero": np.uint8(55),
        "y.step": np.float32(0.25),
        "y.zero": np.uint8(0),
        "w.q": np.ones((2, 2), np.int8),
        "w.scale": np.array([0.25, 0.5], np.float32),
        "b.q": np.array([3, -2], np.int32),
        "b.scale": np.array([0.125, 0.25], np.float32),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "x.step", "x.zero"], ["x.q"]),
        helper.make_node("DequantizeLinear", ["x.q", "x.step", "x.zero"], ["x.dq"]),
        helper.make_node("DequantizeLinear", ["w.q", "w.scale"], ["w.dq"], axis=1),
        helper.make_node("DequantizeLinear", ["b.q", "b.scale"], ["b.dq"], axis=0),
        helper.make_node("Gemm", ["x.dq", "w.dq", "b.dq"], ["g"]),
        helper.make_node("Relu", ["g"], ["r"]),
        helper.make_node("QuantizeLinear", ["r", "y.step", "y.zero"], ["y.q"]),
        helper.make_node("DequantizeLinear", ["y.q", "y.step", "y.zero"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 2))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 2))],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in tensors.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_a_graph_about_zero_means_the_same(tmp_path: Path) -> None:
    narrow = small_model()
    signed = symmetric(narrow, bias_sections(narrow, tmp_path))
    onnx.checker.check_model(signed, full_check=True)
    held = {t.name: numpy_helper.to_array(t) for t in signed.graph.initializer}
    assert {"b.q", "b.scale"}.isdisjoint(held)
    assert held["b.dq"].tolist() == [0.375, -0.5]
    assert held["x.step"] == np.float32(0.5 * 200 / 127)
    assert held["y.step"] == np.float32(0.25 * 255 / 127)
    assert all((held[f"{name}.zero"], held[f"{name}.zero"].dtype) == (0, np.int8) for name in "xy")
    answers = []
    for name, model in (("narrow", narrow), ("signed", signed)):
        path = tmp_path / f"{name}.onnx"
        path.write_bytes(model.SerializeToString())
        answers += unoptimised(path).run(None, {"x": np.array([[30.0, -20.0]], np.float32)})
    # A step of the wider range is the difference that rounding may make.
    assert np.abs(answers[1] - answers[0]).max() <= 0.25 * 255 / 127
