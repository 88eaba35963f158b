"""An ONNX graph for one input per call, rewritten for several, in memory.

The pack's graphs have a batch of 1 written into them in three places: the shapes of inputs and
outputs, the shape that a Reshape is given, and the sizes that a Resize is given. In each of them
the leading dimension is multiplied, which is right wherever the batch is the outermost axis: then
rows stay whole. Whether it was right is not for this module to say: whoever uses the graph
compares the answers of every row with those of the graph as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from npumark.engines import onnx_bytes
from npumark.engines.onnx_graph import MAX_BYTES, Node, fields, parse_graph, spans
from npumark.errors import EngineError, Unsupported

_SHAPE_OPERAND = {"Reshape": 1, "Resize": 3}
"""Operators that take a shape with the batch in it -> which operand that is."""

_GRAPH = 7
_INITIALIZER, _INPUT, _OUTPUT, _INNER_SHAPE = 5, 11, 12, 13
_SHAPE = (2, 1, 2)
"""The way from a ValueInfoProto to its shape: type, tensor, shape."""
_INT64 = 7

_Change = Callable[[int, memoryview], bytes | None]


def batched(path: Path, n: int) -> bytes:
    """Return the model at ``path`` for ``n`` inputs per call; its weights stay where they are.

    Raises EngineError where it is no ONNX file, Unsupported where a shape cannot be rewritten.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise EngineError(f"{path.name} is too large to be rewritten")
        return rewritten(path.read_bytes(), n)
    except (OSError, ValueError, IndexError, KeyError) as fault:
        text = f"{path.name} cannot be read as an ONNX graph: {fault!r}"
        raise EngineError(text[:300]) from fault


def rewritten(raw: bytes, n: int) -> bytes:
    """Return a ModelProto for ``n`` inputs per call. Raises as parse_graph does."""
    graph = parse_graph(raw)
    shapes = _shape_constants(graph.nodes, graph.inputs) & graph.constants
    ends = {*graph.inputs, *graph.outputs}

    def in_graph(tag: int, value: memoryview) -> bytes | None:
        if tag == _INNER_SHAPE:
            return b""  # the runtime infers them again
        if tag in (_INPUT, _OUTPUT) and _name(value, 1) in ends:
            return onnx_bytes.field(tag, _at(value, _SHAPE, lambda shape: _longer(shape, n)))
        if tag == _INITIALIZER and (name := _name(value, 8)) in shapes:
            return onnx_bytes.field(tag, _times(name, value, n))
        return None

    def in_model(tag: int, value: memoryview) -> bytes | None:
        return onnx_bytes.field(tag, _changed(value, in_graph)) if tag == _GRAPH else None

    return _changed(memoryview(raw), in_model)


def _shape_constants(nodes: tuple[Node, ...], inputs: tuple[str, ...]) -> set[str]:
    """Return the names of the shapes that what comes from the inputs is brought to."""
    live, found = set(inputs), set()
    for node in nodes:
        if live.isdisjoint(node.inputs):
            continue
        live.update(node.outputs)
        operand = _SHAPE_OPERAND.get(node.op)
        if operand is not None and len(node.inputs) > operand and node.inputs[0] in live:
            found.add(node.inputs[operand])
    return found


def _changed(raw: memoryview, change: _Change) -> bytes:
    """Return a message whose parts are what ``change`` makes of them, null: as they were."""
    parts = []
    for span in spans(raw):
        new = change(span.tag, raw[span.body : span.end]) if span.kind == 2 else None
        parts.append(bytes(raw[span.start : span.end]) if new is None else new)
    return b"".join(parts)


def _at(raw: memoryview, path: Sequence[int], change: Callable[[memoryview], bytes]) -> bytes:
    """Return a message in which the one at ``path`` is what ``change`` makes of it."""

    def along(tag: int, value: memoryview) -> bytes | None:
        if tag != path[0]:
            return None
        new = _at(value, path[1:], change) if len(path) > 1 else change(value)
        return onnx_bytes.field(tag, new)

    return _changed(raw, along)


def _longer(shape: memoryview, n: int) -> bytes:
    """Return a TensorShapeProto whose leading dimension is multiplied by ``n``; one that has a
    name in place of a size takes any."""
    first = next(spans(shape), None)
    if first is None:
        raise Unsupported("an input or output of the graph has no dimension to multiply")
    told = fields(shape[first.body : first.end])
    size = next((int.from_bytes(value, "little") for tag, value in told if tag == 1), None)
    if size is None:
        return bytes(shape)
    longer = onnx_bytes.field(first.tag, onnx_bytes.number(1, size * n))
    return longer + bytes(shape[first.end :])


def _times(name: str, value: memoryview, n: int) -> bytes:
    """Return a shape's TensorProto with its leading dimension multiplied; 0 (as it was) and -1
    (what is left) need no change."""
    told = list(fields(value))
    kind = next((int.from_bytes(v, "little") for tag, v in told if tag == 2), 0)
    raw = next((bytes(v) for tag, v in told if tag == 9), b"")
    if kind != _INT64 or not raw:
        raise Unsupported(f"the shape {name} is not written where it can be changed")
    shape = np.frombuffer(raw, "<i8").copy()
    if shape.size and shape[0] > 0:
        shape[0] *= n
    return onnx_bytes.tensor(name, shape)


def _name(value: memoryview, tag: int) -> str:
    return next((bytes(v).decode() for found, v in fields(value) if found == tag), "")
