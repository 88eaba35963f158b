from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from npumark.engines.number_probe import probe_model
from npumark.engines.onnx_graph import parse_graph, read_graph
from npumark.errors import EngineError
from npumark.policy import DATA

SHIPPED = sorted((DATA / "pack").glob("*/*.onnx"))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_a_shipped_graph_is_read_as_the_onnx_package_reads_it(path: Path) -> None:
    known = onnx.load(path, load_external_data=False).graph
    found = read_graph(path)
    assert [(n.op, n.name, n.inputs, n.outputs) for n in found.nodes] == [
        (n.op_type, n.name, tuple(n.input), tuple(n.output)) for n in known.node
    ]
    assert found.inputs == tuple(x.name for x in known.input)
    assert found.outputs == tuple(y.name for y in known.output)
    assert found.constants == {t.name for t in known.initializer}
    half = known.output[0].type.tensor_type.elem_type == TensorProto.FLOAT16
    assert found.float_type == ("float16" if half else "float32")


@pytest.mark.parametrize(
    ("variant", "operands"),
    [
        ("fp32", {"float"}),
        ("fp16", {"float"}),
        ("w8", {"weights"}),
        ("int8-u8s8", {"integer"}),
        ("int8-a16w8", {"integer"}),
    ],
)
def test_what_the_products_of_a_network_multiply(variant: str, operands: set[str]) -> None:
    products = read_graph(DATA / "pack" / "resnet50" / f"{variant}.onnx").products
    assert len(products) == 54
    assert {p.operands for p in products} == operands
    dequantisers = {len(p.dequantisers) for p in products}
    assert dequantisers == {("float", "weights", "integer").index(next(iter(operands)))}


def test_a_product_of_integers_and_inputs_that_are_constants() -> None:
    node = helper.make_node("MatMulInteger", ["x", "w"], ["y"], name="mm")
    weights = numpy_helper.from_array(np.ones((2, 2), np.uint8), "w")
    told = [
        helper.make_tensor_value_info("x", TensorProto.UINT8, (2, 2)),
        helper.make_tensor_value_info("w", TensorProto.UINT8, (2, 2)),
    ]
    y = helper.make_tensor_value_info("y", TensorProto.INT32, (2, 2))
    model = helper.make_model(helper.make_graph([node], "g", told, [y], [weights]))
    found = parse_graph(model.SerializeToString())
    assert found.inputs == ("x",)
    assert found.float_type is None
    assert [(p.name, p.operands) for p in found.products] == [("mm", "integer")]


@given(st.integers(0, len(probe_model()) - 1))
def test_a_file_that_ends_early_is_an_error_and_not_a_crash(size: int) -> None:
    with pytest.raises((ValueError, IndexError)):
        parse_graph(probe_model()[:size])


@given(st.binary(max_size=200))
@example(b"")
@example(b"\x3a\x00")
def test_random_bytes_are_an_error_and_not_a_crash(
    tmp_path_factory: pytest.TempPathFactory, raw: bytes
) -> None:
    path = tmp_path_factory.mktemp("graphs") / "x.onnx"
    path.write_bytes(raw)
    try:
        found = read_graph(path)
    except EngineError:
        return
    assert found.nodes


def test_a_missing_file_is_said() -> None:
    with pytest.raises(EngineError, match=r"missing\.onnx cannot be read"):
        read_graph(Path("missing.onnx"))
