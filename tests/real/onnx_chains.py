"""Small quantised chains that no pack holds: what providers cannot take, or take otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

ROWS, WIDTH, LAYERS = 64, 256, 3


def quantised_chain(*, activation: str = "uint8", inserted: str | None = None) -> onnx.ModelProto:
    """Return a chain of quantised products with weights scaled per channel.

    With ``activation`` int8 its zero point is 0, which leaves the range's lower half unused.
    ``inserted`` is an operator that stands between the first product and its ReLU.
    """
    draw, kind = np.random.default_rng(1), np.dtype(activation)
    nodes: list[onnx.NodeProto] = []
    tensors: list[onnx.TensorProto] = []

    def node(op: str, inputs: list[str], output: str, **attributes: int) -> str:
        nodes.append(helper.make_node(op, inputs, [output], name=output, **attributes))
        return output

    def constant(name: str, value: npt.ArrayLike) -> str:
        tensors.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def pair(value: str, zero: int, end: str = "") -> str:
        step = constant(f"{value}.step", np.float32(8 / 255))
        point = constant(f"{value}.zero", kind.type(zero))
        q = node("QuantizeLinear", [value, step, point], f"{value}.q")
        return node("DequantizeLinear", [q, step, point], end or f"{value}.dq")

    value = pair("x", 128 if activation == "uint8" else 0)
    for i in range(LAYERS):
        weights = draw.standard_normal((WIDTH, WIDTH)).astype(np.float32) / 16
        scale = (np.abs(weights).max(axis=0) / 127).astype(np.float32)
        w = constant(f"w{i}", np.rint(weights / scale).astype(np.int8))
        s = constant(f"w{i}.scale", scale)
        z = constant(f"w{i}.zero", np.zeros(WIDTH, np.int8))
        w = node("DequantizeLinear", [w, s, z], f"w{i}.dq", axis=1)
        value = node("MatMul", [value, w], f"mm{i}")
        if inserted is not None and i == 0:
            value = node(inserted, [value], "inserted")
        value = pair(node("Relu", [value], f"relu{i}"), 0, "y" if i == LAYERS - 1 else "")
    told = [helper.make_tensor_value_info(n, TensorProto.FLOAT, (ROWS, WIDTH)) for n in "xy"]
    graph = helper.make_graph(nodes, "chain", told[:1], told[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def write_pack(root: Path, model: onnx.ModelProto) -> dict[str, Any]:
    """Write the model with two inputs and ONNX Runtime's answers; return its workload."""
    root.mkdir(parents=True, exist_ok=True)
    (root / "graph.onnx").write_bytes(model.SerializeToString())
    x = np.random.default_rng(5).standard_normal((2, ROWS, WIDTH)).astype(np.float32)
    session = onnxruntime.InferenceSession(root / "graph.onnx", providers=["CPUExecutionProvider"])
    y = np.stack([session.run(None, {"x": one})[0] for one in x])
    (root / "x.bin").write_bytes(x.tobytes())
    (root / "y.bin").write_bytes(y.tobytes())
    spec = {"dtype": "float32", "shape": [ROWS, WIDTH]}
    stored = {"dtype": "float32", "shape": [2, ROWS, WIDTH]}
    return {
        "id": "chain",
        "kind": "peak",
        "tier": "extra",
        "task": "chain",
        "title": "chain",
        "macs": ROWS * WIDTH * WIDTH * LAYERS,
        "params": WIDTH * WIDTH * LAYERS,
        "eval": {
            "n": 2,
            "canonical": 0,
            "inputs": [{"name": "x", "file": "x.bin", **stored}],
            "references": [{"name": "y", "file": "y.bin", **stored}],
        },
        "gates": {},
        "variants": [
            {
                "id": "int8-u8s8",
                "format": "INT8",
                "encoding": "int8-u8s8",
                "graph": "graph.onnx",
                "files": ["graph.onnx"],
                "inputs": [{"name": "x", **spec}],
                "outputs": [{"name": "y", **spec}],
                "validated": True,
                "division": "standard",
            }
        ],
    }
