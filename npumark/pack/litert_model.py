"""A LiteRT model file, put together from its shipped structure and the pack's weights.

The structure (``<workload>/<variant>.head.xz``) is an xz-compressed container: an 8-byte
little-endian length, that many bytes of JSON, then the model's FlatBuffer. The JSON is a list of
parts ``[at, offset, dtype, shape, perm]``: the array at byte ``offset`` of the weight file goes
to byte ``at`` of the model, its axes reordered by ``perm`` where that is not empty. Parts that
begin inside the FlatBuffer fill it in (the scales of quantised weights); the others are the
model's buffers, which its format allows to lie behind the FlatBuffer. Making the file needs no
knowledge of that format.
"""

from __future__ import annotations

import json
import lzma
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

ALIGNMENT = 64
"""Where buffers begin: the runtime maps the file and computes on them in place."""

LARGEST_STRUCTURE = 64 << 20
"""Bytes that a structure may unpack to; the shipped ones take less than 1 MB."""


@dataclass(frozen=True, slots=True)
class Part:
    """One array of the weight file and where it goes; ``shape`` is that in the weight file."""

    at: int
    offset: int
    dtype: str
    shape: tuple[int, ...]
    perm: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        """Bytes of the array."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    def read(self, weights: npt.NDArray[np.uint8]) -> npt.NDArray[np.generic]:
        """Return the array from the bytes of a weight file, in the model's layout.

        Raises ValueError where the file ends before it.
        """
        raw = weights[self.offset : self.offset + self.size]
        dtype = np.dtype(self.dtype).newbyteorder("<")
        array = raw.view(dtype).reshape(self.shape)
        return np.ascontiguousarray(array.transpose(self.perm) if self.perm else array)


def pack_structure(flatbuffer: bytes, parts: Iterable[Part]) -> bytes:
    """Return the bytes of a structure file."""
    rows = [[p.at, p.offset, p.dtype, list(p.shape), list(p.perm)] for p in parts]
    plan = json.dumps(rows, separators=(",", ":")).encode()
    raw = len(plan).to_bytes(8, "little") + plan + flatbuffer
    return lzma.compress(raw, check=lzma.CHECK_CRC32, preset=9 | lzma.PRESET_EXTREME)


def parse_structure(data: bytes) -> tuple[bytearray, list[Part]]:
    """Return the FlatBuffer and the parts, in the order of the model file.

    Raises ValueError where the bytes are not a structure.
    """
    try:
        raw = _unpacked(data)
        length = int.from_bytes(raw[:8], "little")
        rows = json.loads(raw[8 : 8 + length])
        parts = [Part(at, offset, dt, tuple(s), tuple(p)) for at, offset, dt, s, p in rows]
        parts.sort(key=lambda part: part.at)
        _check(parts, len(raw) - 8 - length)
    except (lzma.LZMAError, ValueError, TypeError, OverflowError) as fault:
        raise ValueError(f"these bytes are not the structure of a LiteRT model: {fault}") from fault
    return bytearray(raw[8 + length :]), parts


def write_model(structure: Path, weights: Path, out: BinaryIO) -> None:
    """Write the model that ``structure`` makes of ``weights``, one array at a time.

    Raises OSError where one of them cannot be read, ValueError where they do not go together.
    """
    head, parts = parse_structure(structure.read_bytes())
    source: npt.NDArray[np.uint8] = np.memmap(weights, dtype=np.uint8, mode="r")
    inside = [part for part in parts if part.at < len(head)]
    for part in inside:
        head[part.at : part.at + part.size] = part.read(source).tobytes()
    out.write(head)
    end = len(head)
    for part in parts[len(inside) :]:
        out.write(bytes(part.at - end))
        out.write(part.read(source).data)
        end = part.at + part.size


def _unpacked(data: bytes) -> bytes:
    unpacker = lzma.LZMADecompressor()
    raw = unpacker.decompress(data, LARGEST_STRUCTURE)
    if not unpacker.eof:
        raise ValueError("they are cut off or too many")
    return raw


def _check(parts: list[Part], head: int) -> None:
    end = 0
    for part in parts:
        if part.at < end or part.offset < 0:
            raise ValueError("two parts overlap")
        end = part.at + part.size
        if part.at < head < end:
            raise ValueError("a part ends beyond the structure that it begins in")
