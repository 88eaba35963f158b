"""Shipped pictures come back bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npumark.pack.pixels import decode_u8, encode_u8


@settings(max_examples=20, deadline=None)
@given(
    st.tuples(*[st.integers(1, n) for n in (3, 3, 9, 7)]),
    st.integers(0, 2**32 - 1),
)
def test_pictures_survive(shape: tuple[int, int, int, int], seed: int) -> None:
    pixels = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
    assert decode_u8(encode_u8(pixels), shape) == pixels.tobytes()


def test_damage_is_refused() -> None:
    packed = encode_u8(np.zeros((1, 3, 8, 8), np.uint8))
    with pytest.raises(ValueError, match="do not fill"):
        decode_u8(packed, (1, 3, 8, 9))
    with pytest.raises(ValueError, match="damaged"):
        decode_u8(packed[:-9], (1, 3, 8, 8))
