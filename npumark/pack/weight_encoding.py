"""How weight values become the bytes of a weight file, in each number format.

One weight file per format sits beside the graphs of a network and holds every tensor that
the graphs name, in the order of the network's definition, each at a 64-byte boundary. The
pack builder and the run-time writer both go through :func:`sections`, so a graph's offsets
and the materialised bytes cannot disagree. Only elementwise operations and maxima are used:
the bytes are the same on every platform.

Formats: ``fp32``, ``fp16`` (round to nearest even) and ``int8``. ``int8`` serves the
weight-only and the fully quantised graphs: matrices as symmetric int8 with one float32 scale
and one zero point per output channel (embedding tables: one per table), biases in float32 and,
where the layer's input is quantised too, as int32 with scale (input scale x weight scale).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

ALIGNMENT = 64
FORMATS = ("fp32", "fp16", "int8")
MATRICES = ("conv", "depthwise", "dense", "table")

Array = npt.NDArray[Any]
FloatArray = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Stored:
    """One weight tensor as the encoder needs to know it.

    ``kind`` as in the network's definition. For a bias, ``of`` names the weight tensor of the
    same layer, and ``input_scale`` is the layer's activation scale, or None where the input
    stays in floating point.
    """

    name: str
    shape: tuple[int, ...]
    kind: str
    of: str = ""
    input_scale: float | None = None


@dataclass(frozen=True)
class Section:
    """One array in a weight file."""

    name: str
    array: Array


def channel_axis(kind: str) -> int | None:
    """The axis that has a scale of its own per index, or None for one scale per tensor."""
    return {"conv": 0, "depthwise": 0, "dense": 1}.get(kind)


def int8_scale(value: FloatArray, kind: str) -> FloatArray:
    """Return max|w|/127 per output channel, float32 [C] (tables: shape []); 1 where all zero."""
    axis = channel_axis(kind)
    others = None if axis is None else tuple(i for i in range(value.ndim) if i != axis)
    top = np.maximum(value.max(axis=others), -value.min(axis=others)).astype(np.float32)
    scale = np.asarray(top / np.float32(127), dtype=np.float32)
    return np.where(scale > 0, scale, np.float32(1)).astype(np.float32)


def int8_values(value: FloatArray, scale: FloatArray, kind: str) -> npt.NDArray[np.int8]:
    """Return rint(w / scale) in [-127, 127], the shape of ``value``."""
    axis = channel_axis(kind)
    if axis is not None:
        scale = scale.reshape([-1 if i == axis else 1 for i in range(value.ndim)])
    levels = value / scale
    np.rint(levels, out=levels)
    np.clip(levels, -127, 127, out=levels)
    return levels.astype(np.int8)


class Encoder:
    """Encodes a network's tensors one after the other, weight before bias."""

    def __init__(self, form: str) -> None:
        """Raises ValueError where ``form`` is not one of FORMATS."""
        if form not in FORMATS:
            raise ValueError(f"unknown weight format {form!r}; there are {', '.join(FORMATS)}")
        self.form = form
        self._scales: dict[str, FloatArray] = {}

    def encode(self, tensor: Stored, value: FloatArray) -> Iterator[Section]:
        """Yield the sections of one tensor."""
        if self.form == "fp16":
            yield Section(tensor.name, value.astype("<f2"))
        elif self.form == "int8" and tensor.kind in MATRICES:
            scale = int8_scale(value, tensor.kind)
            self._scales[tensor.name] = scale
            yield Section(f"{tensor.name}.q", int8_values(value, scale, tensor.kind))
            yield Section(f"{tensor.name}.scale", scale.astype("<f4"))
            # Zeros, and yet not redundant: ONNX Runtime runs a product in 8 bits only where
            # the zero point is spelt out.
            yield Section(f"{tensor.name}.zero", np.zeros(scale.shape, np.int8))
        else:
            yield Section(tensor.name, value.astype("<f4", copy=False))
            if self.form == "int8" and tensor.input_scale is not None:
                step = np.float32(tensor.input_scale) * self._scales[tensor.of]
                levels = np.rint(value.astype(np.float64) / step.astype(np.float64))
                levels = np.clip(levels, -(2**31) + 1, 2**31 - 1)
                yield Section(f"{tensor.name}.q", levels.astype("<i4"))
                yield Section(f"{tensor.name}.scale", step.astype("<f4"))


def sections(
    form: str, tensors: Iterable[tuple[Stored, FloatArray]]
) -> Iterator[tuple[Section, int]]:
    """Yield every section of a weight file with its byte offset, in file order."""
    encoder = Encoder(form)
    offset = 0
    for tensor, value in tensors:
        for section in encoder.encode(tensor, value):
            offset = -(-offset // ALIGNMENT) * ALIGNMENT
            yield section, offset
            offset += section.array.nbytes


def write_sections(form: str, tensors: Iterable[tuple[Stored, FloatArray]], out: BinaryIO) -> None:
    """Write a weight file: each section at its offset, zeros between."""
    end = 0
    for section, offset in sections(form, tensors):
        out.write(bytes(offset - end))
        out.write(np.ascontiguousarray(section.array).data)
        end = offset + section.array.nbytes
