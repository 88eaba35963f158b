from __future__ import annotations

import mmap

import numpy as np
import pytest

from npumark.engines.buffers import aligned


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "uint8"])
@pytest.mark.parametrize("shape", [(), (1,), (3, 5, 7), (1, 3, 224, 224)])
def test_a_buffer_is_zeroed_contiguous_and_starts_on_a_page(
    shape: tuple[int, ...], dtype: str
) -> None:
    buffer = aligned(shape, dtype)
    assert buffer.shape == shape
    assert buffer.dtype == np.dtype(dtype)
    assert buffer.flags.c_contiguous
    assert buffer.flags.writeable
    assert buffer.ctypes.data % mmap.PAGESIZE == 0
    assert not buffer.any()
