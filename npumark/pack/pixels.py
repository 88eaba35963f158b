"""Shipped pictures: uint8 NCHW, delta-coded along rows and columns, then xz.

Photographs are smooth, so differences of neighbours compress about twice as well as the
pixels. The coding is exact: differences are taken modulo 256 and undone by running sums.
"""

from __future__ import annotations

import lzma
import math

import numpy as np
import numpy.typing as npt


def encode_u8(pixels: npt.NDArray[np.uint8]) -> bytes:
    """Compress uint8 [..., H, W] exactly (a build-time companion of :func:`decode_u8`)."""
    delta = pixels.copy()
    delta[..., 1:] -= pixels[..., :-1]
    rows = delta.copy()
    rows[..., 1:, :] -= delta[..., :-1, :]
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 4, "lp": 0}]
    return lzma.compress(rows.tobytes(), check=lzma.CHECK_CRC32, filters=filters)


def decode_u8(shipped: bytes, shape: tuple[int, ...]) -> bytes:
    """Return the raw row-major bytes of a shipped picture set of ``shape`` (uint8).

    Raises ValueError where the data is damaged or does not fill the shape.
    """
    try:
        raw = lzma.decompress(shipped)
    except lzma.LZMAError as error:
        raise ValueError("the shipped pictures are damaged") from error
    if len(raw) != math.prod(shape):
        raise ValueError(f"{len(raw)} bytes do not fill pictures of shape {shape}")
    delta = np.frombuffer(raw, np.uint8).reshape(shape)
    rows = np.add.accumulate(delta, axis=-2, dtype=np.uint8)
    return np.add.accumulate(rows, axis=-1, dtype=np.uint8).tobytes()
