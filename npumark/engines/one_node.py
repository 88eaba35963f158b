"""A model of one node, as ONNX bytes: what a probe runs to see that a device really works.

``y = Relu(x)`` on float32 [1, 4], opset 17.
"""

from __future__ import annotations

from npumark.engines import onnx_bytes

SHAPE = (1, 4)


def one_node_model() -> bytes:
    """Return the model's bytes (onnx.proto ModelProto)."""
    x, y = (onnx_bytes.value(name, "float32", SHAPE) for name in "xy")
    return onnx_bytes.model(
        onnx_bytes.graph("one_node", [onnx_bytes.node("Relu", ["x"], ["y"], "relu")], [x], [y])
    )
