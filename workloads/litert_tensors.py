"""The tensors of a program in a LiteRT model: activations in both forms, weights, ranges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from npumark.pack.program import Program, ProgramNode, Range, Section
from workloads.litert_file import FLOAT, INT8, INT32, ModelFile, permuted

NHWC = (0, 2, 3, 1)

_LAYOUT = {"conv": NHWC, "depthwise": (1, 2, 3, 0), "dense": (1, 0)}
"""Kind of weight -> permutation from the definition's layout to the model's."""
_CHANNEL = {"conv": 0, "depthwise": 3, "dense": 0}
"""Kind of weight -> axis of its scales in the model's layout."""

_KEEPS_RANGE = ("max_pool", "reshape", "resize", "transpose")
_FUSES = ("conv", "dense", "add")


def image_perm(program: Program, shape: Sequence[int]) -> tuple[int, ...]:
    """Return how the model's tensor of ``shape`` (the program's) comes from the program's."""
    images = any(node.op == "conv" for node in program.nodes)
    return NHWC if images and len(shape) == 4 else ()


def int8_ranges(program: Program) -> dict[str, Range]:
    """Return the activations' ranges as this format can have them.

    Joined tensors share one range, that of the join, and so do a tensor and its moved copy.
    """
    ranges = dict(program.activations)
    made = {node.name: node for node in program.nodes}
    for node in reversed(program.nodes):
        if node.op == "concat" and node.name in ranges:
            for name in node.inputs:
                _give(ranges, made, name, ranges[node.name])
    for node in program.nodes:
        if node.op in _KEEPS_RANGE and {node.name, node.inputs[0]} <= ranges.keys():
            ranges[node.name] = ranges[node.inputs[0]]
    return ranges


def _give(
    ranges: dict[str, Range], made: Mapping[str, ProgramNode], name: str, given: Range
) -> None:
    ranges[name] = given
    if name in made and made[name].op in _KEEPS_RANGE:
        _give(ranges, made, made[name].inputs[0], given)


@dataclass
class ProgramTensors(ModelFile):
    """``form`` is that of the weight file, ``fp16`` or ``int8``."""

    program: Program
    form: str

    def __post_init__(self) -> None:
        program = self.program
        self.sections = program.files[self.form].sections
        self.ranges = int8_ranges(program) if self.form == "int8" else {}
        self.shapes = {
            name: permuted(shape, image_perm(program, shape))
            for name, shape in program.shapes().items()
        }
        self.images = any(node.op == "conv" for node in program.nodes)
        readers = Counter(name for node in program.nodes for name in node.inputs)
        published = set(program.outputs.values())
        by_name = {node.name: node for node in program.nodes}
        self.fused = {
            node.inputs[0]: node.name
            for node in program.nodes
            if node.op == "relu"
            and by_name.get(node.inputs[0], node).op in _FUSES
            and readers[node.inputs[0]] == 1
            and node.inputs[0] not in published
        }
        """Tensor that only a ReLU reads -> that ReLU."""

    def put_input(self, name: str, kind: str) -> int:
        dtype = FLOAT if kind == "float" else INT32
        self.made[name] = self.tensor(name, self.shapes[name], dtype)
        return self.made[name]

    def as_float(self, name: str) -> int:
        """Return the float form of an activation, dequantised where it has only the other."""
        if name not in self.made:
            self.made[name] = self.tensor(name, self.shapes[name], FLOAT)
            self.put("DEQUANTIZE", [self.made[f"{name}.q"]], self.made[name])
        return self.made[name]

    def as_int8(self, name: str) -> int:
        if f"{name}.q" not in self.made:
            result = self.result(name, quantised=True)
            self.put("QUANTIZE", [self.made[name]], result)
        return self.made[f"{name}.q"]

    def result(self, name: str, *, quantised: bool) -> int:
        """Make the tensor of a node's result."""
        key = f"{name}.q" if quantised else name
        given = self.ranges[name] if quantised else None
        dtype = INT8 if quantised else FLOAT
        self.made[key] = self.tensor(key, self.shapes[name], dtype, given=given)
        return self.made[key]

    def weight(self, name: str) -> int:
        """Return a weight as float32 operators read it, dequantised from float16."""
        kind = self.program.weights[name].kind
        perm = _LAYOUT.get(kind, ())
        key = f"weight:{name}"
        if key not in self.made:
            if self.form == "fp16":
                half = self.stored(self.sections[name], f"{name}.half", perm)
                self.made[key] = self.step(name, self.tensors[half].shape)
                self.put("DEQUANTIZE", [half], self.made[key])
            else:
                self.made[key] = self.stored(self.sections[name], name, perm)
        return self.made[key]

    def int8_weight(self, name: str) -> int:
        kind = self.program.weights[name].kind
        stored = self.stored(self.sections[f"{name}.q"], name, _LAYOUT[kind])
        return self.scaled(stored, self.sections[f"{name}.scale"], _CHANNEL[kind])

    def int8_bias(self, node: ProgramNode) -> int:
        """Return the int32 bias of a layer, -1 where it has none."""
        if len(node.weights) < 2:
            return -1
        name = node.weights[1]
        stored = self.stored(self.sections[f"{name}.q"], name)
        return self.scaled(stored, self.sections[f"{name}.scale"], 0)

    def rows_of(self, node: ProgramNode) -> int:
        """Return the rows of a table that a node takes, stored as a constant of their own."""
        name = self.table(node)
        rows = self.stored(_run_of(self.sections[name], node), f"{node.name}.rows")
        return self.table_scaled(node, rows)

    def table(self, node: ProgramNode) -> str:
        """Return the section that holds a node's table."""
        name = node.weights[0]
        return f"{name}.q" if self.form == "int8" else name

    def table_scaled(self, node: ProgramNode, tensor: int) -> int:
        """Give rows of an 8-bit table the table's one scale."""
        if self.form == "int8":
            self.scaled(tensor, self.sections[f"{node.weights[0]}.scale"], 0)
        return tensor


def _run_of(table: Section, node: ProgramNode) -> Section:
    """Return the consecutive rows of a table that a node takes."""
    first, *_ = indices = node.attrs["indices"]
    if list(indices) != list(range(first, first + len(indices))):
        raise ValueError(f"{node.name}: its rows are not consecutive")
    _, width = table.shape
    offset = table.offset + first * width * np.dtype(table.dtype).itemsize
    return replace(table, shape=(len(indices), width), offset=offset)
