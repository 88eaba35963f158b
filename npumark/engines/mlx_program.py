"""Turns a program of the pack into a function over MLX arrays, ready for ``mx.compile``.

Images are held as MLX's convolutions take them, NHWC; every other tensor as the program says.
What is a function of weights alone (rows of a table at fixed indices, indices of a resize) is
made once, at load. The encodings:

- ``mlx-fp16``: weights, activations, inputs and outputs in float16;
- ``mlx-bf16``: everything in bfloat16, rounded once from the float32 weights; inputs and outputs
  are float32, because NumPy has no bfloat16, and are converted inside the compiled function;
- ``mlx-w8``, ``mlx-w4``: weights of dense layers and of embedding tables in 8 or 4 bits, by
  MLX's own affine quantisation of groups of 64, multiplied by ``quantized_matmul`` with float16
  activations. A convolution has no such kernel: a program with one is refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from npumark.engines import mlx_ops as ops
from npumark.engines.mlx_ops import Tensor
from npumark.engines.one_node import SHAPE
from npumark.errors import EngineError, Unsupported
from npumark.pack.manifest import TensorSpec
from npumark.pack.program import SCHEMA, Program, ProgramNode, read_weights
from npumark.pack.weight_encoding import MATRICES

NHWC = (0, 2, 3, 1)
GROUP = 64
"""Weights that share a scale and an offset: MLX's own default."""

Function = Callable[..., tuple[Tensor, ...]]

_IMAGES = frozenset({"conv", "max_pool", "global_pool", "resize"})
_ELEMENTWISE = frozenset(
    {"relu", "hardswish", "hardsigmoid", "gelu", "scale", "add", "mul", "concat"}
)
_NCHW_AXIS = (0, 3, 1, 2)
"""Axis of an image in the program's layout -> its axis as it is held."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How an encoding is computed: from which weight file, in which type, in how many bits."""

    form: str
    compute: str
    bits: int | None = None


RECIPES: dict[str, Recipe] = {
    "mlx-fp16": Recipe("fp16", "float16"),
    "mlx-bf16": Recipe("fp32", "bfloat16"),
    "mlx-w8": Recipe("fp16", "float16", 8),
    "mlx-w4": Recipe("fp16", "float16", 4),
    "fp32": Recipe("fp32", "float32"),
}
"""``fp32`` is what the harness is measured with, on a graph of one node."""


@dataclass(frozen=True, slots=True)
class Quantised:
    """A matrix of ``quantized_matmul``: packed integers, scales, offsets."""

    packed: Tensor
    scales: Tensor
    biases: Tensor


def images(program: Program) -> frozenset[str]:
    """Return the tensors that are images, and so held NHWC.

    Raises EngineError where an operation mixes an image with what is none.
    """
    shapes = program.shapes()
    found = {
        x.name
        for x in program.inputs
        if x.dtype == "float"
        and any(x.name in node.inputs for node in program.nodes if node.op in _IMAGES)
    }
    for node in program.nodes:
        inside = {name in found for name in node.inputs}
        if node.op in _IMAGES:
            if inside != {True}:
                raise EngineError(f"{node.name} reads a tensor that is no image")
            found.add(node.name)
        elif node.op in _ELEMENTWISE and True in inside:
            if False in inside or len(shapes[node.name]) != 4:
                raise EngineError(f"{node.name} mixes an image with another tensor")
            found.add(node.name)
    return frozenset(found)


class Builder:
    """Holds a program's weights as MLX arrays, and computes it node by node.

    With a ``batch`` every tensor has the program's leading dimension times that, which matters
    only where a shape is written into the program. Weights are read and converted by the
    constructor. Raises PackError where the pack lacks them, Unsupported where the encoding has no
    form for the program.
    """

    def __init__(self, program: Program, root: Path, encoding: str, batch: int = 1) -> None:
        import mlx.core as mx

        if encoding not in RECIPES:
            raise Unsupported(f"MLX has no form of {encoding}; it has {', '.join(RECIPES)}")
        self._mx = mx
        self._batch = batch
        self.program = program
        self.recipe = RECIPES[encoding]
        self.dtype = getattr(mx, self.recipe.compute)
        self.images = images(program)
        self._shapes = program.shapes()
        raw = read_weights(root, program, self.recipe.form) if program.weights else {}
        if self.recipe.bits and any(
            w.kind in ("conv", "depthwise") for w in program.weights.values()
        ):
            raise Unsupported(f"{program.workload}: MLX has no convolution by packed weights")
        # Each weight is computed before the next is made, and its source let go of: evaluated
        # together, all of them and what they are cast from would be held at once.
        self.weights: dict[str, Tensor | Quantised] = {}
        for name, weight in program.weights.items():
            self.weights[name] = self._weight(weight.kind, raw.pop(name))
            mx.eval(_held(self.weights[name]))
        self._attention = ops.find_attention(program)
        self._constants = {node.name: c for node in program.nodes if (c := self._constant(node))}
        mx.eval([part for parts in self._constants.values() for part in _held(*parts)])

    def function(self, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> Function:
        """Return the program as a function of arrays in the order of ``inputs``.

        Outputs come in the order, layout and type of ``outputs``. Raises EngineError where a
        layout is not that of the function.
        """
        for spec in inputs:
            self._require_layout(spec, spec.name)
        for spec in outputs:
            self._require_layout(spec, self.program.outputs[spec.name])
        floats = {x.name for x in self.program.inputs if x.dtype == "float"}
        mx = self._mx

        def compute(*arrays: Tensor) -> tuple[Tensor, ...]:
            live = {
                spec.name: array.astype(self.dtype) if spec.name in floats else array
                for spec, array in zip(inputs, arrays, strict=True)
            }
            for node in self.program.nodes:
                attention = self._attention.get(node.name)
                # What an attention covers is made too, and never computed: nothing reads it.
                live[node.name] = (
                    ops.attend(mx, attention, live)
                    if attention
                    else self.node(node, [live[name] for name in node.inputs])
                )
            return tuple(
                live[self.program.outputs[spec.name]].astype(getattr(mx, spec.dtype))
                for spec in outputs
            )

        return compute

    def macs_by_type(self) -> dict[str, int]:
        """Return the multiply-accumulates by the type of the arrays that are multiplied.

        Read from the arrays as they are held: ``float16``, or ``uint32 x 4 bits`` for weights
        that are packed.
        """
        told: dict[str, int] = {}
        for node in self.program.nodes:
            if node.op not in ("conv", "dense", "matmul"):
                continue
            held = self.weights[node.weights[0]] if node.weights else None
            if isinstance(held, Quantised):
                # Bits as the arrays themselves tell: packed width over the width of the input.
                width = self._shapes[node.inputs[0]][-1]
                bits = held.packed.shape[-1] * held.packed.itemsize * 8 // width
                name = f"{_type_name(held.packed)} x {bits} bits"
            else:
                name = _type_name(held) if held is not None else self.recipe.compute
            told[name] = told.get(name, 0) + self._macs(node)
        return told

    # -- one node -------------------------------------------------------------------------

    def node(self, node: ProgramNode, xs: list[Tensor]) -> Tensor:
        """Compute one node. Raises EngineError on an operation that has no form here."""
        if node.weights:
            return self._weighted(node, xs)
        if node.op in _IMAGES:
            return self._image(node, xs[0])
        if node.op == "concat":
            axis = node.attrs["axis"]
            held = node.name in self.images
            return self._mx.concatenate(xs, axis=_NCHW_AXIS[axis] if held else axis)
        if node.op not in _ELEMENTWISE:
            # Whatever orders axes by itself reads an image in the program's own layout.
            xs = [
                x.transpose(_NCHW_AXIS) if name in self.images else x
                for name, x in zip(node.inputs, xs, strict=True)
            ]
        if node.op == "reshape":
            first, *rest = node.attrs["shape"]
            return xs[0].reshape([first * self._batch, *rest])
        return ops.plain(self._mx, node, xs, self.dtype)

    def _weighted(self, node: ProgramNode, xs: list[Tensor]) -> Tensor:
        mx, a = self._mx, node.attrs
        w = [self.weights[name] for name in node.weights]
        match node.op:
            case "conv":
                y = mx.conv2d(
                    xs[0],
                    w[0],
                    stride=a["stride"],
                    padding=a["padding"],
                    dilation=a["dilation"],
                    groups=a["groups"],
                )
                return y + w[1]
            case "dense" if isinstance(w[0], Quantised):
                y = mx.quantized_matmul(
                    xs[0],
                    w[0].packed,
                    w[0].scales,
                    w[0].biases,
                    transpose=True,
                    group_size=GROUP,
                    bits=self.recipe.bits,
                )
                return y + w[1] if len(w) > 1 else y
            case "dense":
                return mx.addmm(w[1], xs[0], w[0]) if len(w) > 1 else xs[0] @ w[0]
            case "layernorm":
                return mx.fast.layer_norm(xs[0], w[0], w[1], a["eps"])
            case "gather":
                return self._rows(w[0], xs[0])
            case "rows":
                return self._constants[node.name][0]
        raise EngineError(f"MLX has no form of the operation {node.op!r} with weights")

    def _image(self, node: ProgramNode, x: Tensor) -> Tensor:
        mx, a = self._mx, node.attrs
        if node.op == "global_pool":
            return ops.global_pool(mx, x)
        if node.op == "max_pool":
            return ops.max_pool(mx, x, a["kernel"], a["stride"], a["padding"])
        rows, columns = self._constants[node.name]
        return ops.resize(mx, x, rows, columns)

    def _rows(self, table: Tensor | Quantised, ids: Tensor) -> Tensor:
        if not isinstance(table, Quantised):
            return table[ids]
        parts = (table.packed[ids], table.scales[ids], table.biases[ids])
        return self._mx.dequantize(*parts, group_size=GROUP, bits=self.recipe.bits)

    # -- weights and constants ------------------------------------------------------------

    def _weight(self, kind: str, raw: np.ndarray[Any, Any]) -> Tensor | Quantised:
        mx = self._mx
        value = np.ascontiguousarray(raw.transpose(NHWC) if kind in ("conv", "depthwise") else raw)
        array = mx.array(value).astype(self.dtype)
        if self.recipe.bits is None or kind not in MATRICES:
            return array
        rows = array.T if kind == "dense" else array
        if rows.shape[-1] % GROUP:
            raise Unsupported(f"MLX packs weights in groups of {GROUP}; {rows.shape[-1]} is none")
        return Quantised(*mx.quantize(rows, group_size=GROUP, bits=self.recipe.bits))

    def _constant(self, node: ProgramNode) -> tuple[Any, ...]:
        """Return what a node needs beside its weights, made once."""
        mx = self._mx
        if node.op == "rows":
            table = self.weights[node.weights[0]]
            return (self._rows(table, mx.array(node.attrs["indices"])),)
        if node.op != "resize":
            return ()
        _, _, height, width = self._shapes[node.inputs[0]]
        sizes = ((height, node.attrs["height"]), (width, node.attrs["width"]))
        return tuple(ops.resize_steps(mx, *size) for size in sizes)

    def _macs(self, node: ProgramNode) -> int:
        size = int(np.prod(self._shapes[node.name], dtype=np.int64))
        if node.op == "conv":
            shape = self.program.weights[node.weights[0]].shape
            return size * int(np.prod(shape[1:], dtype=np.int64))
        return size * self._shapes[node.inputs[0]][-1]

    def _require_layout(self, spec: TensorSpec, tensor: str) -> None:
        wanted = NHWC if tensor in self.images else ()
        if spec.perm != wanted:
            raise EngineError(f"MLX holds {spec.name} in the layout {wanted}, not {spec.perm}")


def _held(*parts: Any) -> list[Tensor]:
    """Return the arrays that weights and constants are made of."""
    held: list[Tensor] = []
    for part in parts:
        if isinstance(part, Quantised):
            held += [part.packed, part.scales, part.biases]
        elif isinstance(part, ops.Steps):
            held += [part.low, part.high, part.share]
        else:
            held.append(part)
    return held


def one_node_program() -> bytes:
    """Return the program y = Relu(x), float32 [1, 4]: what the harness is measured with."""
    shape = list(SHAPE)
    tensor = {"name": "x", "dtype": "float", "shape": shape}
    node = {"op": "relu", "name": "relu", "inputs": ["x"], "shape": shape}
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "workload": "one-node",
        "inputs": [tensor],
        "outputs": [{"name": "y", "tensor": "relu"}],
        "weights": [],
        "nodes": [node | {"attrs": {}, "weights": []}],
        "activations": {},
        "quantised_ops": [],
        "files": {},
    }
    return json.dumps(document).encode()


def _type_name(array: Tensor) -> str:
    return str(array.dtype).rpartition(".")[2]
