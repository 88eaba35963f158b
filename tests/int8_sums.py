"""Whether this CPU sums 8-bit products whole: a property of the machine that the tests run on."""

from __future__ import annotations

from functools import cache

import numpy as np
import onnx
import onnxruntime
import pytest


@cache
def saturates() -> bool:
    """Whether this CPU's INT8 kernels lose what exceeds 16 bits of a sum of two products, as
    ONNX Runtime's do on x86-64 without VNNI: there no INT8 chain passes, and none should."""
    made = {
        "w": np.full((256, 16), 127, np.int8),
        "xs": np.float32(1 / 255 / 256),
        "xz": np.uint8(0),
        "ws": np.float32(1 / 127),
        "wz": np.int8(0),
        "ys": np.float32(1 / 255),
        "yz": np.uint8(0),
    }
    node = onnx.helper.make_node(
        "QLinearMatMul", ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz"], ["y"]
    )
    uint8 = onnx.TensorProto.UINT8
    graph = onnx.helper.make_graph(
        [node],
        "products",
        [onnx.helper.make_tensor_value_info("x", uint8, [16, 256])],
        [onnx.helper.make_tensor_value_info("y", uint8, [16, 16])],
        [onnx.numpy_helper.from_array(np.asarray(value), name) for name, value in made.items()],
    )
    model = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9
    )
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (sums,) = session.run(None, {"x": np.full((16, 256), 255, np.uint8)})
    return bool(sums.min() != 255)


def needs_whole_sums(variant_id: str) -> None:
    """Skip the calling test where it is about right INT8 answers, which this CPU has none of."""
    if variant_id.startswith("int8") and saturates():
        pytest.skip("this CPU's INT8 sums saturate at 16 bits (no VNNI): no INT8 chain passes here")
