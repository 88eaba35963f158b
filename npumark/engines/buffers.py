"""Host arrays to bind a session to."""

from __future__ import annotations

import mmap

import numpy as np

from npumark.engines.base import Array


def aligned(shape: tuple[int, ...], dtype: str) -> Array:
    """Return a zeroed array that starts on a page of its own.

    A runtime aligns what it allocates; NumPy promises 16 bytes. Left at that, vector loads
    straddle cache lines, and a small graph reads some percent slower than it is.
    """
    kind = np.dtype(dtype)
    size = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
    raw = np.zeros(size + mmap.PAGESIZE, np.uint8)
    start = -raw.ctypes.data % mmap.PAGESIZE
    return raw[start : start + size].view(kind).reshape(shape)
