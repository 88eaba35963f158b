from __future__ import annotations

import onnx
from onnx import TensorProto, helper

from npumark.engines.one_node import SHAPE, one_node_model


def test_the_bytes_are_those_of_the_model_described() -> None:
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, SHAPE) for n in "xy")
    node = helper.make_node("Relu", ["x"], ["y"], name="relu")
    graph = helper.make_graph([node], "one_node", [x], [y])
    opsets = [helper.make_opsetid("", 17)]
    expected = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    found = onnx.load_from_string(one_node_model())
    assert found == expected
    onnx.checker.check_model(found)
