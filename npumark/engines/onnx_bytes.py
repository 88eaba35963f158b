"""ONNX files, encoded byte by byte (onnx.proto): enough for the tiny graphs that engines ask
runtimes to run. The package that writes ONNX files is not needed to measure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from npumark.engines.base import Array

_TYPES = {"float32": 1, "uint8": 2, "int8": 3, "uint16": 4, "int32": 6, "int64": 7, "float16": 10}


def model(graph: bytes, *, opset: int = 17, ir_version: int = 8) -> bytes:
    """Return a ModelProto of the default domain."""
    return number(1, ir_version) + field(7, graph) + field(8, _text(1, "") + number(2, opset))


def graph(
    name: str,
    nodes: Iterable[bytes],
    inputs: Iterable[bytes],
    outputs: Iterable[bytes],
    tensors: Iterable[bytes] = (),
) -> bytes:
    """Return a GraphProto of what :func:`node`, :func:`value` and :func:`tensor` made."""
    parts = [field(1, part) for part in nodes]
    parts.append(_text(2, name))
    for tag, members in ((5, tensors), (11, inputs), (12, outputs)):
        parts += [field(tag, part) for part in members]
    return b"".join(parts)


def node(op: str, inputs: Sequence[str], outputs: Sequence[str], name: str) -> bytes:
    """Return a NodeProto without attributes."""
    parts = [_text(1, operand) for operand in inputs] + [_text(2, result) for result in outputs]
    return b"".join(parts) + _text(3, name) + _text(4, op)


def value(name: str, dtype: str, shape: Iterable[int]) -> bytes:
    """Return a ValueInfoProto. Raises KeyError on a type that no graph here uses."""
    sides = b"".join(field(1, number(1, side)) for side in shape)
    kind = number(1, _TYPES[dtype]) + field(2, sides)
    return _text(1, name) + field(2, field(1, kind))


def tensor(name: str, array: Array) -> bytes:
    """Return a TensorProto that holds ``array``. Raises KeyError as :func:`value` does."""
    sides = b"".join(number(1, side) for side in array.shape)
    kind = number(2, _TYPES[array.dtype.name])
    little = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False)
    return sides + kind + _text(8, name) + field(9, little.tobytes())


def _text(tag: int, text: str) -> bytes:
    return field(tag, text.encode())


def field(tag: int, payload: bytes) -> bytes:
    """Return a field that holds a message, a text or bytes."""
    return _varint(tag << 3 | 2) + _varint(len(payload)) + payload


def number(tag: int, value: int) -> bytes:
    """Return a field that holds a number that is not negative."""
    return _varint(tag << 3) + _varint(value)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
