"""A model of one node, as ONNX bytes: what a probe runs to see that a device really works.

``y = Relu(x)`` on float32 [1, 4], opset 17. It is encoded here, byte by byte, because the
package that writes ONNX files is not needed to measure.
"""

from __future__ import annotations

SHAPE = (1, 4)

_FLOAT = 1


def one_node_model() -> bytes:
    """Return the model's bytes (onnx.proto ModelProto)."""
    node = _text(1, "x") + _text(2, "y") + _text(3, "relu") + _text(4, "Relu")
    graph = _field(1, node) + _text(2, "one_node") + _value(11, "x") + _value(12, "y")
    opset = _text(1, "") + _number(2, 17)
    return _number(1, 8) + _field(7, graph) + _field(8, opset)


def _value(tag: int, name: str) -> bytes:
    shape = b"".join(_field(1, _number(1, size)) for size in SHAPE)
    tensor = _number(1, _FLOAT) + _field(2, shape)
    return _field(tag, _text(1, name) + _field(2, _field(1, tensor)))


def _text(tag: int, text: str) -> bytes:
    return _field(tag, text.encode())


def _field(tag: int, payload: bytes) -> bytes:
    return _varint(tag << 3 | 2) + _varint(len(payload)) + payload


def _number(tag: int, value: int) -> bytes:
    return _varint(tag << 3) + _varint(value)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
