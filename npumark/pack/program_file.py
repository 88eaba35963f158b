"""Reads ``program.json``: a program whole, or a refusal in a sentence, whatever the file holds."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from npumark.errors import PackError
from npumark.pack.program import (
    KINDS,
    OPS,
    PROGRAM,
    SCHEMA,
    Program,
    ProgramInput,
    ProgramNode,
    ProgramWeight,
    Range,
    Section,
    Shape,
    WeightFile,
)

MAX_PROGRAM_BYTES = 8_000_000
"""Far more than any network's structure needs."""

_DTYPES = frozenset({"float32", "float16", "int8", "int32"})
_LONGEST = 1 << 39
"""No size, offset or number of elements reaches it: half a tebibyte, beyond any network's."""

MAX_RANK = 8
"""More axes than any tensor of a program has. What has more is refused before its sizes are even
read, let alone multiplied: the product of many large numbers takes quadratic time."""


_Named = TypeVar("_Named", ProgramWeight, Section)


def load_program(path: Path) -> Program:
    """Return the program at ``path``. Raises PackError where it cannot be read or is none."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_PROGRAM_BYTES + 1)
    except OSError as fault:
        raise PackError(f"{path.name} cannot be read: {fault.strerror}", path=str(path)) from fault
    return parse_program(raw)


def parse_program(raw: bytes) -> Program:
    """Return the program in ``raw`` (JSON).

    Raises PackError where it is not one: too large, bad JSON, a missing key, an unknown
    operation, a tensor read before it is made, attributes or weights that an operation lacks or
    does not have, a number that is none, a name that stands twice.
    """
    if len(raw) > MAX_PROGRAM_BYTES:
        raise _refused(f"it is larger than {MAX_PROGRAM_BYTES / 1e6:.0f} MB")
    try:
        program = _program(json.loads(raw, parse_constant=_no_number))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as fault:
        lacks = f"it lacks {fault}" if isinstance(fault, KeyError) else " ".join(str(fault).split())
        raise _refused(lacks[:200]) from fault
    return program


def _refused(why: str) -> PackError:
    return PackError(
        f"a {PROGRAM} of the pack cannot be read: {why}", "Restore it, or reinstall npumark."
    )


def _program(doc: dict[str, Any]) -> Program:
    if doc["schema"] != SCHEMA:
        raise ValueError(f"its schema is {str(doc['schema'])[:40]!r}, not {SCHEMA}")
    inputs = tuple(_input(entry) for entry in doc["inputs"])
    weights = _by_name(_weight(entry) for entry in doc["weights"])
    shapes: dict[str, Shape] = {}
    for made in inputs:
        _claim(shapes, made.name, made.shape)
    nodes = []
    for entry in doc["nodes"]:
        node = _node(entry, shapes, weights)
        _claim(shapes, node.name, node.shape)
        nodes.append(node)
    outputs = {_text(o["name"]): _known(_text(o["tensor"]), shapes) for o in doc["outputs"]}
    if not outputs or len(outputs) != len(doc["outputs"]):
        raise ValueError("it has no output, or one twice")
    ranges = {_known(t, shapes): _range(t, r) for t, r in doc["activations"].items()}
    ops = frozenset(_text(op) for op in doc["quantised_ops"])
    if ops - OPS.keys():
        raise ValueError(f"unknown operation {min(ops - OPS.keys())!r}")
    files = {form: _weight_file(entry) for form, entry in doc["files"].items()}
    return Program(
        _text(doc["workload"]), inputs, outputs, weights, tuple(nodes), ranges, ops, files
    )


def _input(doc: dict[str, Any]) -> ProgramInput:
    if doc["dtype"] not in ("float", "int64"):
        raise ValueError(f"the input {doc['name']} has type {str(doc['dtype'])[:40]!r}")
    return ProgramInput(_text(doc["name"]), doc["dtype"], _shape("an input", doc["shape"]))


def _weight(doc: dict[str, Any]) -> ProgramWeight:
    if doc["kind"] not in KINDS:
        raise ValueError(f"the weight {doc['name']} is of kind {str(doc['kind'])[:40]!r}")
    return ProgramWeight(_text(doc["name"]), doc["kind"], _shape("a weight", doc["shape"]))


def _node(
    doc: dict[str, Any], shapes: Mapping[str, Shape], weights: Mapping[str, ProgramWeight]
) -> ProgramNode:
    name = _text(doc["name"])
    op = OPS.get(doc["op"])
    if op is None:
        raise ValueError(f"{name} is an unknown operation, {str(doc['op'])[:40]!r}")
    inputs = tuple(_known(_text(x), shapes) for x in doc["inputs"])
    if len(inputs) != (op.inputs if op.inputs is not None else max(1, len(inputs))):
        raise ValueError(f"{name} reads {len(inputs)} tensors")
    attrs = doc["attrs"]
    if attrs.keys() != op.attrs.keys():
        raise ValueError(f"{name} has the attributes {', '.join(sorted(attrs)) or 'of none'}")
    read = {key: _READERS[kind](f"{name}'s {key}", attrs[key]) for key, kind in op.attrs.items()}
    used = tuple(_text(w) for w in doc["weights"])
    wanted = op.weights[: len(used)] if op.bias_optional and used else op.weights
    kinds = [weights[w].kind for w in used]
    if len(kinds) != len(wanted) or any(k not in w for k, w in zip(kinds, wanted, strict=True)):
        raise ValueError(f"{name} has weights of kinds {kinds}")
    return ProgramNode(doc["op"], name, inputs, _shape(name, doc["shape"]), read, used)


def _range(tensor: str, doc: dict[str, Any]) -> Range:
    scale = _real(f"the scale of {tensor}", doc["scale"])
    zero = _whole(f"the zero point of {tensor}", doc["zero"])
    if not scale > 0 or zero > 255:
        raise ValueError(f"the range of {tensor} is none")
    return Range(scale, zero)


def _weight_file(doc: dict[str, Any]) -> WeightFile:
    path = _text(doc["path"])
    if path.startswith("/") or ".." in path.split("/") or "\\" in path or ":" in path:
        raise ValueError(f"unsafe path {path[:80]!r}")
    return WeightFile(path, _by_name(_section(entry) for entry in doc["sections"]))


def _section(doc: dict[str, Any]) -> Section:
    if doc["dtype"] not in _DTYPES:
        raise ValueError(f"the section {doc['name']} has type {str(doc['dtype'])[:40]!r}")
    name = _text(doc["name"])
    return Section(name, doc["dtype"], _shape(name, doc["shape"]), _whole(name, doc["offset"]))


def _by_name(items: Iterable[_Named]) -> dict[str, _Named]:
    found: dict[str, _Named] = {}
    for item in items:
        if item.name in found:
            raise ValueError(f"{item.name} stands twice")
        found[item.name] = item
    return found


def _claim(shapes: dict[str, Shape], name: str, shape: Shape) -> None:
    if name in shapes:
        raise ValueError(f"the tensor {name} is made twice")
    shapes[name] = shape


def _known(tensor: str, shapes: Mapping[str, Shape]) -> str:
    if tensor not in shapes:
        raise ValueError(f"the tensor {tensor[:80]!r} is read before it is made")
    return tensor


def _text(value: object) -> str:
    if not isinstance(value, str) or not value or not value.isprintable() or len(value) > 200:
        raise ValueError(f"{str(value)[:40]!r} is not a name")
    return value


def _whole(what: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _LONGEST:
        raise ValueError(f"{what} is {str(value)[:40]!r}, which is not a whole number from 0")
    return value


def _real(what: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < 1e30:
        raise ValueError(f"{what} is {str(value)[:40]!r}, which is not a number")
    return float(value)


def _wholes(what: str, value: object) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise TypeError(f"{what} is {str(value)[:40]!r}, which is not a list")
    return tuple(_whole(what, item) for item in value)


def _shape(what: str, value: object) -> Shape:
    if isinstance(value, list) and len(value) > MAX_RANK:
        raise ValueError(f"the shape of {what} has {len(value)} axes, and may have {MAX_RANK}")
    shape = _wholes(f"the shape of {what}", value)
    if 0 in shape or math.prod(shape) >= _LONGEST:
        raise ValueError(f"the shape of {what} is {list(shape)[:8]}")
    return shape


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is not a number")


_READERS: dict[str, Callable[[str, object], Any]] = {
    "whole": _whole,
    "real": _real,
    "wholes": _wholes,
}
