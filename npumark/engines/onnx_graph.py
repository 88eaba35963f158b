"""What an ONNX file says of the work in it, read without the package that is made for that.

Only the main graph is looked at, and of it only what tells how its products are to be computed:
operators, and whether their operands come out of dequantisers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from npumark.errors import EngineError

MAX_BYTES = 256 << 20

PRODUCTS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
"""Operators whose work is multiply-accumulates in the type of their operands."""

INTEGER_PRODUCTS = frozenset({"ConvInteger", "MatMulInteger", "QLinearConv", "QLinearMatMul"})

Operands = Literal["integer", "weights", "float"]
"""What a product multiplies: dequantised 8-bit activations and weights, dequantised weights by
floating-point activations, or floating point by floating point."""

_FLOATS = {1: "float32", 10: "float16", 16: "bfloat16"}


@dataclass(frozen=True, slots=True)
class Node:
    """One node: operator, name, and the names of what it reads and writes."""

    op: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Product:
    """A node whose work is multiply-accumulates; ``dequantisers`` are the names of the nodes
    that its two operands come out of, where they come out of such."""

    name: str
    op: str
    operands: Operands
    dequantisers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OnnxGraph:
    """The main graph. ``float_type`` is the floating-point type of its outputs, else of its
    inputs, null where neither has one."""

    nodes: tuple[Node, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: frozenset[str]
    float_type: str | None

    @property
    def products(self) -> tuple[Product, ...]:
        """Return the nodes that multiply, in the graph's order."""
        unpacked = {n.outputs[0]: n.name for n in self.nodes if n.op == "DequantizeLinear"}
        found = []
        for node in self.nodes:
            if node.op in INTEGER_PRODUCTS:
                found.append(Product(node.name, node.op, "integer", ()))
            elif node.op in PRODUCTS:
                named = [unpacked[name] for name in node.inputs[:2] if name in unpacked]
                operands: Operands = ("float", "weights", "integer")[len(named)]
                found.append(Product(node.name, node.op, operands, tuple(named)))
        return tuple(found)


def read_graph(path: Path) -> OnnxGraph:
    """Return the graph in the file. Raises EngineError where it is no ONNX file, or too large."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise EngineError(f"{path.name} is too large to be looked into")
        return parse_graph(path.read_bytes())
    except (OSError, ValueError, IndexError, KeyError) as fault:
        text = f"{path.name} cannot be read as an ONNX graph: {fault!r}"
        raise EngineError(text[:300]) from fault


def parse_graph(raw: bytes) -> OnnxGraph:
    """Return the graph of a ModelProto. Raises ValueError, IndexError or KeyError where it holds
    none."""
    parts = [bytes(value) for tag, value in fields(memoryview(raw)) if tag == 7]
    if len(parts) != 1:
        raise ValueError("no graph in it")
    nodes, constants = [], set()
    ends: dict[int, dict[str, int]] = {11: {}, 12: {}}
    for tag, value in fields(memoryview(parts[0])):
        if tag == 1:
            nodes.append(_node(value))
        elif tag == 5:
            constants.add(_text_of(value, 8))
        elif tag in ends:
            ends[tag][_text_of(value, 1)] = _element_type(value)
    if not nodes:
        raise ValueError("no node in it")
    inputs = tuple(name for name in ends[11] if name not in constants)
    types = [*ends[12].values(), *(ends[11][name] for name in inputs)]
    floats = [_FLOATS[kind] for kind in types if kind in _FLOATS]
    return OnnxGraph(
        tuple(nodes), inputs, tuple(ends[12]), frozenset(constants), floats[0] if floats else None
    )


def _node(raw: memoryview) -> Node:
    texts: dict[int, list[str]] = {1: [], 2: [], 3: [], 4: []}
    for tag, value in fields(raw):
        if tag in texts:
            texts[tag].append(bytes(value).decode())
    return Node(texts[4][0], (texts[3] or [""])[0], tuple(texts[1]), tuple(texts[2]))


def _element_type(value: memoryview) -> int:
    """Return the element type of a ValueInfoProto's tensor, 0 where it is none."""
    for type_tag in (2, 1):
        value = next((part for tag, part in fields(value) if tag == type_tag), memoryview(b""))
    for tag, part in fields(value):
        if tag == 1:
            return int.from_bytes(part, "little")
    return 0


def _text_of(raw: memoryview, wanted: int) -> str:
    return next((bytes(value).decode() for tag, value in fields(raw) if tag == wanted), "")


def fields(raw: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Yield (tag, payload) of a message's fields; a number's payload is little-endian."""
    for span in spans(raw):
        if span.kind == 0:
            number, _ = _varint(raw, span.body)
            yield span.tag, memoryview(number.to_bytes(10, "little"))
        else:
            yield span.tag, raw[span.body : span.end]


@dataclass(frozen=True, slots=True)
class Span:
    """Where one field lies in a message: ``start`` to ``end`` with its key and size, ``body`` to
    ``end`` without. ``kind`` is protobuf's wire type: 0 a number, 2 bytes or a message."""

    tag: int
    kind: int
    start: int
    body: int
    end: int


def spans(raw: memoryview) -> Iterator[Span]:
    """Yield the fields of a message in order. Raises ValueError or IndexError where it is none."""
    at = 0
    while at < len(raw):
        start = at
        key, at = _varint(raw, at)
        kind, size = key & 7, 0
        if kind == 0:
            _, end = _varint(raw, at)
            yield Span(key >> 3, kind, start, at, end)
            at = end
            continue
        if kind == 2:
            size, at = _varint(raw, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise ValueError(f"a field of unknown kind {kind}")
        if at + size > len(raw):
            raise ValueError("the file ends inside a field")
        yield Span(key >> 3, kind, start, at, at + size)
        at += size


def _varint(raw: memoryview, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = raw[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
        if shift > 63:
            raise ValueError("a number without an end")
