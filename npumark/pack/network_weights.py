"""The weight files of a network, made from shipped constants and seeds.

A network's constants (``<workload>/constants.xz``) are an xz-compressed container: an 8-byte
little-endian length, that many bytes of JSON, then raw little-endian arrays which the JSON
names by offset. Every tensor has one of three rules:

- ``seeded``: integers from the tensor's Philox stream times a dyadic scale, one per output
  channel or one per tensor. An integer has 10 bits (12 where the centre tap of a kernel is
  boosted by four), a scale 11: the product is exact in float32. Rows of a fitted classifier
  replace the seeded integers of their channels.
- ``dyadic``: int32 values in units of 1/1024.
- ``literal``: float32 values as they are.
"""

from __future__ import annotations

import json
import lzma
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from npumark.pack import seeded
from npumark.pack.weight_encoding import Stored, channel_axis, write_sections

CONSTANTS = "constants.xz"
BIAS_STEP_BITS = 10

FloatArray = npt.NDArray[np.float32]

_PAIRS = np.uint32(0x00FF00FF)
_BLOCK = 1 << 15
"""Elements worked on at a time: temporaries that stay in cache, not in fresh memory."""


def byte_sums(words: npt.NDArray[np.uint64], count: int) -> npt.NDArray[np.int32]:
    """Return ``count`` sums of four consecutive bytes of the stream, minus 510.

    The sums are nearly normal integers in [-510, 510], mean 0, standard deviation 147.8.
    """
    quads = words.view("<u4")[:count]
    sums = np.empty(count, np.uint32)
    high = np.empty(min(count, _BLOCK), np.uint32)
    for start in range(0, count, _BLOCK):
        block = quads[start : start + _BLOCK]
        even, odd = sums[start : start + _BLOCK], high[: block.size]
        np.bitwise_and(block, _PAIRS, out=even)
        np.right_shift(block, np.uint32(8), out=odd)
        odd &= _PAIRS
        even += odd
        np.right_shift(even, np.uint32(16), out=odd)
        even &= np.uint32(0xFFFF)
        even += odd
        even -= np.uint32(510)
    return sums.view(np.int32)


def seeded_integers(workload: str, tensor: str, shape: tuple[int, ...]) -> npt.NDArray[np.int32]:
    """Return the seeded integers of a network tensor, row-major in ``shape``."""
    count = math.prod(shape)
    words = seeded.raw_stream(workload, tensor, -(-count // 2))
    return byte_sums(words, count).reshape(shape)


def boost_centre(integers: npt.NDArray[np.int32], factor: int) -> None:
    """Multiply the centre tap of every kernel (OIHW) by ``factor``, in place."""
    _, _, height, width = integers.shape
    integers[:, :, height // 2, width // 2] *= factor


@dataclass(frozen=True)
class Constants:
    """The opened constants of one network."""

    header: dict[str, Any]
    blob: memoryview

    @property
    def workload(self) -> str:
        return str(self.header["workload"])

    def array(self, ref: dict[str, Any]) -> npt.NDArray[Any]:
        """Return the raw array that a header entry points to."""
        shape = tuple(ref["shape"])
        flat = np.frombuffer(self.blob, ref["dtype"], math.prod(shape), ref["offset"])
        return flat.reshape(shape)

    def tensors(self) -> Iterator[tuple[Stored, FloatArray]]:
        """Yield every weight tensor in definition order with its float32 values."""
        for entry in self.header["tensors"]:
            yield self.stored(entry), self.value(entry)

    @staticmethod
    def stored(entry: dict[str, Any]) -> Stored:
        """Return what the encoder must know of a tensor."""
        scale = entry.get("input_scale")
        return Stored(
            entry["name"],
            tuple(entry["shape"]),
            entry["kind"],
            entry.get("of", ""),
            None if scale is None else float.fromhex(scale),
        )

    def value(self, entry: dict[str, Any]) -> FloatArray:
        """Return one tensor's float32 values. Raises ValueError on an unknown rule."""
        rule = entry["rule"]
        if rule == "literal":
            return self.array(entry["values"]).astype(np.float32)
        if rule == "dyadic":
            return np.ldexp(self.array(entry["values"]).astype(np.float32), -BIAS_STEP_BITS)
        if rule == "seeded":
            return self._seeded(entry)
        raise ValueError(f"unknown rule {rule!r} for tensor {entry['name']}")

    def _seeded(self, entry: dict[str, Any]) -> FloatArray:
        shape = tuple(entry["shape"])
        integers = seeded_integers(self.workload, entry["name"], shape)
        axis = channel_axis(entry["kind"])
        if "centre" in entry:
            boost_centre(integers, entry["centre"])
        if "rows" in entry:
            index = self.array(entry["row_index"])
            fitted = self.array(entry["rows"]).astype(np.int32)
            if axis == 1:
                integers[:, index] = fitted.T
            else:
                integers[index] = fitted.reshape(len(index), *shape[1:])
        mantissa = self.array(entry["mantissa"]).astype(np.float32)
        scale = np.ldexp(mantissa, self.array(entry["exponent"]).astype(np.int32))
        if scale.size > 1 and axis is not None:
            scale = scale.reshape([-1 if i == axis else 1 for i in range(len(shape))])
        value = integers.astype(np.float32)
        value *= scale
        return value


def parse_constants(data: bytes) -> Constants:
    """Open the bytes of a constants file. Raises ValueError where they are not one."""
    try:
        raw = lzma.decompress(data)
        length = int.from_bytes(raw[:8], "little")
        header = json.loads(raw[8 : 8 + length])
    except (lzma.LZMAError, ValueError) as error:
        raise ValueError("these bytes are not a network's constants") from error
    return Constants(header, memoryview(raw)[8 + length :])


def read_constants(pack_root: Path, workload: str) -> Constants:
    """Open ``<pack_root>/<workload>/constants.xz``. Raises OSError, ValueError."""
    return parse_constants((pack_root / workload / CONSTANTS).read_bytes())


def write_weights(pack_root: Path, workload: str, form: str, out: BinaryIO) -> None:
    """Write the weight file of one network in one format (``fp32``, ``fp16``, ``int8``).

    Streams tensor by tensor; the bytes depend on nothing but the constants and the seeds.
    Raises ValueError on an unknown format, OSError where the constants cannot be read.
    """
    write_sections(form, read_constants(pack_root, workload).tensors(), out)
