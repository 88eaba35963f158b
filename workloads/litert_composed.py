"""Operations that have no operator of the format's own, or none that the CPU's delegate takes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from npumark.pack.program import ProgramNode, Range
from workloads.litert_file import FLOAT, INT8, INT32
from workloads.litert_tensors import ProgramTensors

_LEVELS = 255
"""Steps of an 8-bit range."""


@dataclass
class Composed(ProgramTensors):
    """Each method emits one node: from the tensor ``x`` into the tensor ``y``."""

    def pad(self, node: ProgramNode, x: int, by: int) -> int:
        """Surround an image with zeros."""
        source = self.tensors[x]
        batch, height, width, channels = source.shape
        shape = (batch, height + 2 * by, width + 2 * by, channels)
        wide = self.tensor(f"{node.name}.padded", shape, source.type)
        self.tensors[wide].quantization = source.quantization
        margins = np.array([[0, 0], [by, by], [by, by], [0, 0]], np.int32)
        return self.put("PAD", [x, self.constant(f"margins{by}", margins)], wide, "PadOptions")

    def max_pool(self, node: ProgramNode, x: int, y: int) -> None:
        """Emit a maximum over a window; margins of zeros never win over a ReLU's output."""
        a = node.attrs
        if a["padding"]:
            source = next(n for n in self.program.nodes if n.name == node.inputs[0])
            if source.op != "relu":
                raise ValueError(f"{node.name}: padding with zeros may win here")
            x = self.pad(node, x, a["padding"])
        self.put(
            "MAX_POOL_2D",
            [x],
            y,
            "Pool2DOptions",
            padding=int(schema.Padding.VALID),
            strideH=a["stride"],
            strideW=a["stride"],
            filterHeight=a["kernel"],
            filterWidth=a["kernel"],
        )

    def hard_sigmoid(self, node: ProgramNode, x: int, y: int, *, quantised: bool) -> None:
        """Emit relu6(x + 3) / 6."""
        if quantised:
            self.int8_gate(node, self.int8_sixth(node, x), y, self.ranges[node.name])
            return
        inner = self.step(f"{node.name}.relu6", self.shapes[node.name])
        relu6 = int(schema.ActivationFunctionType.RELU6)
        three = self.number("three", 3.0)
        self.put("ADD", [x, three], inner, "AddOptions", fusedActivationFunction=relu6)
        self.put("MUL", [inner, self.number("sixth", 1 / 6)], y, "MulOptions")

    def hard_swish(self, node: ProgramNode, x: int, y: int, *, quantised: bool) -> None:
        """Emit x times its hard sigmoid: in int8 step by step, for the delegate of the CPU has no
        int8 form of the operator, and what it leaves runs on one thread."""
        if not quantised:
            self.put("HARD_SWISH", [x], y, "HardSwishOptions")
            return
        given = Range(1 / _LEVELS, 0)
        gate = self.tensor(f"{node.name}.gate.q", self.shapes[node.name], INT8, given=given)
        self.int8_gate(node, self.int8_sixth(node, x), gate, given)
        self.put("MUL", [x, gate], y, "MulOptions")

    def int8_sixth(self, node: ProgramNode, x: int) -> int:
        """Return x / 6: the same integers, a sixth of their scale."""
        given = self.ranges[node.inputs[0]]
        sixth = self.constant("sixth.q", np.array(127, np.int8), scale=1 / 6 / 127)
        shape, own = self.shapes[node.name], replace(given, scale=given.scale / 6)
        made = self.tensor(f"{node.name}.sixth.q", shape, INT8, given=own)
        return self.put("MUL", [x, sixth], made, "MulOptions")

    def int8_gate(self, node: ProgramNode, sixth: int, y: int, given: Range) -> None:
        """Emit x / 6 + 1 / 2, which the ends of the 8-bit range clip to [0, 1]."""
        if given.zero != 0 or given.scale * _LEVELS > 1.0001:
            raise ValueError(f"{node.name}: its range does not clip for it")
        half = self.constant("half.q", np.array(127, np.int8), scale=1 / 2 / 127)
        self.put("ADD", [sixth, half], y, "AddOptions")

    def layernorm(self, node: ProgramNode, x: int, y: int) -> None:
        name, shape = node.name, self.shapes[node.name]
        row = (*shape[:-1], 1)
        last = self.whole("last", [-1])
        mean = self.step(f"{name}.mean", row)
        self.put("MEAN", [x, last], mean, "ReducerOptions", keepDims=True)
        centred = self.step(f"{name}.centred", shape)
        self.put("SUB", [x, mean], centred, "SubOptions")
        squares = self.step(f"{name}.squares", shape)
        self.put("MUL", [centred, centred], squares, "MulOptions")
        variance = self.step(f"{name}.variance", row)
        self.put("MEAN", [squares, last], variance, "ReducerOptions", keepDims=True)
        shifted = self.step(f"{name}.shifted", row)
        epsilon = self.number(f"epsilon{node.attrs['eps']}", node.attrs["eps"])
        self.put("ADD", [variance, epsilon], shifted, "AddOptions")
        inverse = self.step(f"{name}.inverse", row)
        self.put("RSQRT", [shifted], inverse)
        normal = self.step(f"{name}.normal", shape)
        self.put("MUL", [centred, inverse], normal, "MulOptions")
        wide = self.step(f"{name}.scaled", shape)
        self.put("MUL", [normal, self.weight(node.weights[0])], wide, "MulOptions")
        self.put("ADD", [wide, self.weight(node.weights[1])], y, "AddOptions")

    def rows(self, node: ProgramNode, xs: list[int], y: int) -> None:
        """Take rows of a table: a run of them that is a constant, or those a tensor chooses."""
        if node.op == "rows":
            self.put("DEQUANTIZE", [self.rows_of(node)], y)
            return
        table = self.stored(self.sections[self.table(node)], node.weights[0])
        shape, dtype = self.tensors[y].shape, self.tensors[table].type
        chosen = self.tensor(f"{node.name}.rows", shape, dtype)
        for tensor in (table, chosen):
            self.table_scaled(node, tensor)
        self.put("GATHER", [table, xs[0]], chosen, "GatherOptions", axis=0)
        self.put("DEQUANTIZE", [chosen], y)

    def select(self, node: ProgramNode, x: int, y: int) -> None:
        shape = list(self.tensors[x].shape)
        begin = [0] * len(shape)
        begin[node.attrs["axis"]], shape[node.attrs["axis"]] = node.attrs["index"], 1
        one = self.step(f"{node.name}.one", shape)
        operands = [
            x,
            self.whole(f"{node.name}.begin", begin),
            self.whole(f"{node.name}.size", shape),
        ]
        self.put("SLICE", operands, one, "SliceOptions")
        self.reshape(node, one, y)

    def mask_bias(self, node: ProgramNode, mask: int, y: int) -> None:
        name, shape = node.name, self.tensors[mask].shape
        real = self.step(f"{name}.real", shape)
        self.put("CAST", [mask], real, "CastOptions", inDataType=INT32, outDataType=FLOAT)
        off = self.step(f"{name}.off", shape)
        self.put("SUB", [self.number("one", 1.0), real], off, "SubOptions")
        low = self.step(f"{name}.low", shape)
        factor = self.number(f"{name}.factor", node.attrs["low"])
        self.put("MUL", [off, factor], low, "MulOptions")
        self.reshape(node, low, y)

    def reshape(self, node: ProgramNode, x: int, y: int) -> None:
        shape = list(self.tensors[y].shape)
        self.put(
            "RESHAPE",
            [x, self.whole(f"{node.name}.shape", shape)],
            y,
            "ReshapeOptions",
            newShape=shape,
        )
