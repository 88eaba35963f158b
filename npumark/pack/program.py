"""A workload as runtimes without a graph file read it: ``<workload>/program.json``.

A program lists nodes over named tensors and named weights, the weights' kinds and shapes, the
calibrated 8-bit ranges of activations, and where every array lies in each of the workload's
weight files. It is exported from the workload's one definition, is a hashed file of the pack,
and is turned into an MLX function or a Core ML program at run time. ``npumark.pack.program_file``
reads it.

Layouts are the definition's: images NCHW, convolution weights OIHW (depthwise C1HW), dense
weights [in, out]; all shapes static, batch included. Operations:

- ``conv`` (attrs stride, dilation, groups, padding; weights: matrix, bias), ``dense``
  (x[..., in] @ w[in, out], with or without a bias), ``layernorm`` (eps; gamma, beta; last axis),
  ``gather`` (rows of a table by an int64 tensor), ``rows`` (indices; rows of a table, no input);
- ``relu``, ``hardswish``, ``hardsigmoid`` (x/6 + 1/2 clipped), ``gelu`` (by erf), ``add``,
  ``mul`` (both broadcast), ``scale`` (value), ``matmul``, ``softmax`` (last axis),
  ``l2_normalise`` (last axis);
- ``max_pool`` (kernel, stride, padding), ``global_pool`` (mean over height and width, kept),
  ``resize`` (height, width; bilinear, half-pixel centres, edges clamped);
- ``concat`` (axis), ``reshape`` (shape), ``transpose`` (perm), ``select`` (axis, index; the axis
  is dropped), ``mask_bias`` (low; int64 mask [N, S] -> [N, 1, 1, S], 0 where 1, low where 0),
  ``positions`` (padding; cumulative sum of the mask, times it, plus padding).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from npumark.errors import PackError

SCHEMA = "npumark-program/1"
PROGRAM = "program.json"

Array = npt.NDArray[Any]
Shape = tuple[int, ...]

KINDS = frozenset({"conv", "depthwise", "dense", "table", "bias", "gamma", "beta"})
MATRICES = ("conv", "depthwise", "dense", "table")
"""Kinds that the ``int8`` weight file holds as integers with scales."""


@dataclass(frozen=True, slots=True)
class Op:
    """``inputs``: how many tensors it reads (null: any number from one). ``attrs``: attribute ->
    "whole", "real" or "wholes". ``weights``: the kinds it may take, in order, one set each."""

    inputs: int | None
    attrs: Mapping[str, str]
    weights: tuple[frozenset[str], ...] = ()
    bias_optional: bool = False


_BIAS, _TABLE = frozenset({"bias"}), frozenset({"table"})
_WINDOW = {"kernel": "whole", "stride": "whole", "padding": "whole"}
_CONV = {"stride": "whole", "dilation": "whole", "groups": "whole", "padding": "whole"}

OPS: dict[str, Op] = {
    "conv": Op(1, _CONV, (frozenset({"conv", "depthwise"}), _BIAS)),
    "dense": Op(1, {}, (frozenset({"dense"}), _BIAS), bias_optional=True),
    "layernorm": Op(1, {"eps": "real"}, (frozenset({"gamma"}), frozenset({"beta"}))),
    "gather": Op(1, {}, (_TABLE,)),
    "rows": Op(0, {"indices": "wholes"}, (_TABLE,)),
    "relu": Op(1, {}),
    "hardswish": Op(1, {}),
    "hardsigmoid": Op(1, {}),
    "gelu": Op(1, {}),
    "add": Op(2, {}),
    "mul": Op(2, {}),
    "scale": Op(1, {"value": "real"}),
    "matmul": Op(2, {}),
    "softmax": Op(1, {}),
    "l2_normalise": Op(1, {}),
    "max_pool": Op(1, _WINDOW),
    "global_pool": Op(1, {}),
    "resize": Op(1, {"height": "whole", "width": "whole"}),
    "concat": Op(None, {"axis": "whole"}),
    "reshape": Op(1, {"shape": "wholes"}),
    "transpose": Op(1, {"perm": "wholes"}),
    "select": Op(1, {"axis": "whole", "index": "whole"}),
    "mask_bias": Op(1, {"low": "real"}),
    "positions": Op(1, {"padding": "whole"}),
}
"""Every operation a program may hold."""


@dataclass(frozen=True, slots=True)
class ProgramWeight:
    """One weight tensor of the definition. ``kind`` is one of KINDS."""

    name: str
    kind: str
    shape: Shape


@dataclass(frozen=True, slots=True)
class ProgramNode:
    """One operation. ``name`` is also that of the tensor it makes, of ``shape``."""

    op: str
    name: str
    inputs: tuple[str, ...]
    shape: Shape
    attrs: Mapping[str, Any]
    weights: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ProgramInput:
    """A program's input; ``dtype`` is ``float`` (the program's own float type) or ``int64``."""

    name: str
    dtype: str
    shape: Shape


@dataclass(frozen=True, slots=True)
class Range:
    """An activation in 8 bits without sign: value = scale * (q - zero), q in 0..255."""

    scale: float
    zero: int


@dataclass(frozen=True, slots=True)
class Section:
    """One little-endian C-order array in a weight file, ``offset`` in bytes."""

    name: str
    dtype: str
    shape: Shape
    offset: int

    @property
    def size(self) -> int:
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True, slots=True)
class WeightFile:
    """A weight file of the pack. ``fp32`` and ``fp16`` hold every weight under its own name.

    ``int8`` holds a matrix (MATRICES) as ``<name>.q`` (int8, symmetric, zero point 0) and
    ``<name>.scale`` (float32, one per output channel: axis 0 of conv and depthwise, 1 of dense;
    shape [] for a table), everything else in float32 under its own name, and beside a bias whose
    layer reads its input in 8 bits ``<bias>.q`` (int32, scale = input scale * weight scale).
    """

    path: str
    sections: Mapping[str, Section]


@dataclass(frozen=True, slots=True)
class Program:
    """A workload. ``outputs`` maps an output's name to the tensor that it publishes.

    ``activations`` are the calibrated ranges by tensor, and ``quantised_ops`` the operations
    that read their inputs in 8 bits where those have a range (:meth:`reads_8_bits`). An output
    whose tensor has a range is itself a rounded one.
    """

    workload: str
    inputs: tuple[ProgramInput, ...]
    outputs: Mapping[str, str]
    weights: Mapping[str, ProgramWeight]
    nodes: tuple[ProgramNode, ...]
    activations: Mapping[str, Range]
    quantised_ops: frozenset[str]
    files: Mapping[str, WeightFile]

    def reads_8_bits(self, node: ProgramNode, tensor: str) -> bool:
        """Say whether ``node`` reads ``tensor`` in 8 bits in the fully quantised form."""
        return node.op in self.quantised_ops and tensor in self.activations

    def shapes(self) -> dict[str, Shape]:
        """Return the shape of every tensor by its name."""
        found = {tensor.name: tensor.shape for tensor in self.inputs}
        return found | {node.name: node.shape for node in self.nodes}


def read_weights(root: Path, program: Program, form: str) -> dict[str, Array]:
    """Return the arrays of one weight file (``fp32``, ``fp16``, ``int8``) by section name.

    They are read-only and memory-mapped: nothing is read before it is used. ``root`` is the
    pack's. Raises PackError where the program has no such file, or it is missing or too short.
    """
    if form not in program.files:
        raise PackError(f"{program.workload} has no weights in {form}")
    held = program.files[form]
    try:
        raw: Array = np.memmap(root / held.path, dtype=np.uint8, mode="r")
    except (OSError, ValueError) as fault:
        raise PackError(f"{held.path} cannot be read: {fault}", path=held.path) from fault
    found = {}
    for name, section in held.sections.items():
        end = section.offset + section.size
        if end > raw.size:
            raise PackError(f"{held.path} ends before {name}", path=held.path)
        dtype = np.dtype(section.dtype).newbyteorder("<")
        found[name] = raw[section.offset : end].view(dtype).reshape(section.shape)
    return found


def dequantised(weights: Mapping[str, Array], weight: ProgramWeight) -> npt.NDArray[np.float32]:
    """Return a weight of the ``int8`` file as float32 in its own shape."""
    if weight.kind not in MATRICES:
        return np.asarray(weights[weight.name], np.float32)
    scale = weights[f"{weight.name}.scale"]
    if scale.ndim:
        axis = 1 if weight.kind == "dense" else 0
        scale = scale.reshape([-1 if i == axis else 1 for i in range(len(weight.shape))])
    return weights[f"{weight.name}.q"].astype(np.float32) * scale
