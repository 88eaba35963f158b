"""A LiteRT model under construction: its FlatBuffer, and what its buffers hold.

Knows the format's tables and nothing of programs. Arrays of the weight file stay where they
are: the FlatBuffer refers to places behind itself, which are settled when its length is known.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import flatbuffers
import numpy as np
import numpy.typing as npt
from ai_edge_litert import schema_py_generated as schema

from npumark.pack.litert_model import ALIGNMENT, Part
from npumark.pack.program import Range, Section

SIGNATURE = "serving_default"

FLOAT = schema.TensorType.FLOAT32
HALF = schema.TensorType.FLOAT16
INT32 = schema.TensorType.INT32
INT8 = schema.TensorType.INT8

_STORED = {"float32": FLOAT, "float16": HALF, "int8": INT8, "int32": INT32}

_SCALE_SLOT = 8
"""Where the table QuantizationParameters has its vector of scales."""

_UNPLACED = 1 << 40
"""Stands for an offset that is known only when the FlatBuffer's length is."""

_VERSIONS = {
    "ADD": 2,
    "CONCATENATION": 2,
    "CONV_2D": 5,
    "DEPTHWISE_CONV_2D": 6,
    "DEQUANTIZE": 3,
    "FULLY_CONNECTED": 9,
    "GATHER": 2,
    "MAX_POOL_2D": 2,
    "MEAN": 2,
    "MUL": 2,
    "PAD": 2,
    "RESIZE_BILINEAR": 3,
    "SLICE": 2,
    "SUB": 2,
}
"""Operator -> version of its semantics, where that is not the first."""


@dataclass(frozen=True)
class Model:
    """``flatbuffer`` with ``parts`` to fill in and to append; see npumark.pack.litert_model."""

    flatbuffer: bytes
    parts: tuple[Part, ...]


@dataclass
class ModelFile:
    """Tensors are known by their index; ``made`` finds those that have a name of ours."""

    tensors: list[Any] = field(default_factory=list, init=False)
    operators: list[Any] = field(default_factory=list, init=False)
    codes: dict[tuple[int, int], int] = field(default_factory=dict, init=False)
    buffers: list[Any] = field(default_factory=lambda: [schema.BufferT()], init=False)
    outside: dict[int, Part] = field(default_factory=dict, init=False)
    scales: dict[int, Section] = field(default_factory=dict, init=False)
    made: dict[str, int] = field(default_factory=dict, init=False)

    # -- tensors --------------------------------------------------------------------------

    def tensor(
        self,
        name: str,
        shape: Sequence[int],
        dtype: int,
        *,
        given: Range | None = None,
        buffer: int = 0,
    ) -> int:
        made = schema.TensorT()
        made.name, made.shape, made.type, made.buffer = name, list(shape), dtype, buffer
        if given is not None:
            made.quantization = _quantization([given.scale], [given.zero - 128], 0)
        self.tensors.append(made)
        return len(self.tensors) - 1

    def constant(self, name: str, array: npt.NDArray[Any], *, scale: float | None = None) -> int:
        """Put a small array into the FlatBuffer itself; its name tells equal ones apart."""
        key = f"const:{name}"
        if key not in self.made:
            buffer = schema.BufferT()
            buffer.data = np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)
            self.buffers.append(buffer)
            dtype = {"f": FLOAT, "i": INT32 if array.itemsize == 4 else INT8}[array.dtype.kind]
            given = Range(scale, 128) if scale is not None else None
            self.made[key] = self.tensor(
                name, array.shape, dtype, given=given, buffer=len(self.buffers) - 1
            )
        return self.made[key]

    def whole(self, name: str, values: Sequence[int]) -> int:
        return self.constant(name, np.array(values, np.int32))

    def number(self, name: str, value: float) -> int:
        return self.constant(name, np.array(value, np.float32))

    def stored(self, section: Section, name: str, perm: tuple[int, ...] = ()) -> int:
        """Refer to an array of the weight file, in the model's layout."""
        buffer = schema.BufferT()
        buffer.offset = buffer.size = _UNPLACED
        self.buffers.append(buffer)
        index = len(self.buffers) - 1
        self.outside[index] = Part(0, section.offset, section.dtype, section.shape, perm)
        shape = permuted(section.shape, perm)
        return self.tensor(name, shape, _STORED[section.dtype], buffer=index)

    def scaled(self, tensor: int, scale: Section, axis: int) -> int:
        """Give a stored tensor the scales of its channels, which the weight file holds."""
        count = math.prod(scale.shape)
        self.tensors[tensor].quantization = _quantization([1.0] * count, [0] * count, axis)
        self.scales[tensor] = scale
        return tensor

    def step(self, name: str, shape: Sequence[int]) -> int:
        """Make a float tensor between the operators of one node."""
        return self.tensor(name, shape, FLOAT)

    # -- operators ------------------------------------------------------------------------

    def put(
        self, op: str, inputs: Sequence[int], output: int, options: str = "", **values: Any
    ) -> int:
        """Add an operator; ``options`` names its table, ``values`` are that table's fields."""
        made = schema.OperatorT()
        code = (getattr(schema.BuiltinOperator, op), _VERSIONS.get(op, 1))
        made.opcodeIndex = self.codes.setdefault(code, len(self.codes))
        made.inputs, made.outputs = list(inputs), [output]
        if options:
            made.builtinOptionsType = getattr(schema.BuiltinOptions, options)
            made.builtinOptions = getattr(schema, f"{options}T")()
            for key, value in values.items():
                setattr(made.builtinOptions, key, value)
        self.operators.append(made)
        return output

    # -- the model ------------------------------------------------------------------------

    def finished(self, inputs: dict[str, int], outputs: dict[str, int]) -> Model:
        """Return the model whose signature has these tensors by name."""
        graph = schema.SubGraphT()
        graph.name, graph.tensors, graph.operators = "main", self.tensors, self.operators
        graph.inputs, graph.outputs = list(inputs.values()), list(outputs.values())
        signature = schema.SignatureDefT()
        signature.signatureKey, signature.subgraphIndex = SIGNATURE, 0
        signature.inputs, signature.outputs = _tensor_map(inputs), _tensor_map(outputs)
        model = schema.ModelT()
        model.version, model.description = 3, "npumark"
        model.operatorCodes = [_operator_code(*code) for code in self.codes]
        model.subgraphs, model.buffers, model.signatureDefs = [graph], self.buffers, [signature]
        return self._placed(model)

    def _placed(self, model: Any) -> Model:
        """Give every outside buffer its place, and find where the scales lie."""
        end = -(-len(_packed(model)) // ALIGNMENT) * ALIGNMENT
        parts = []
        for index, part in self.outside.items():
            model.buffers[index].offset, model.buffers[index].size = end, part.size
            parts.append(replace(part, at=end))
            end = -(-(end + part.size) // ALIGNMENT) * ALIGNMENT
        raw = _packed(model)
        graph = schema.Model.GetRootAs(raw).Subgraphs(0)
        for tensor, section in self.scales.items():
            at = _scale_position(graph.Tensors(tensor).Quantization())
            parts.append(Part(at, section.offset, "float32", section.shape))
        return Model(raw, tuple(sorted(parts, key=lambda part: part.at)))


def permuted(shape: Sequence[int], perm: Sequence[int]) -> tuple[int, ...]:
    """Return a shape with its axes reordered; the same where ``perm`` is empty."""
    return tuple(shape[axis] for axis in perm) if perm else tuple(shape)


def _quantization(scales: list[float], zeros: list[int], axis: int) -> Any:
    made = schema.QuantizationParametersT()
    made.scale, made.zeroPoint, made.quantizedDimension = scales, zeros, axis
    return made


def _operator_code(code: int, version: int) -> Any:
    made = schema.OperatorCodeT()
    made.builtinCode, made.version = code, version
    # The field that readers of the first format know holds 127 for everything later.
    made.deprecatedBuiltinCode = min(code, 127)
    return made


def _tensor_map(tensors: dict[str, int]) -> list[Any]:
    maps = []
    for name, index in tensors.items():
        made = schema.TensorMapT()
        made.name, made.tensorIndex = name, index
        maps.append(made)
    return maps


def _packed(model: Any) -> bytes:
    builder = flatbuffers.Builder(1 << 16)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def _scale_position(quantization: Any) -> int:
    """Return where the vector of scales begins, in bytes from the FlatBuffer's start."""
    table = quantization._tab  # noqa: SLF001 - the generated readers offer values, not places
    return int(table.Vector(table.Offset(_SCALE_SLOT)))
