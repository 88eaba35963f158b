"""4-bit palettes: the same bytes every time, a table per group of channels, little error."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npumark.engines.coreml_palette import GROUP, LEVELS, looked_up, palettise


def weights(*shape: int, seed: int = 1) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    raw = np.random.Philox(key=seed).random_raw(int(np.prod(shape)))
    halves = raw.view(np.uint16).reshape(-1, 4).astype(np.float64).sum(1)
    return ((halves - halves.mean()) / halves.std()).astype(np.float32).reshape(shape)


@pytest.mark.parametrize(
    ("shape", "groups"),
    [((64, 32), 4), ((64, 8, 3, 3), 4), ((10, 16), 1), ((21, 16, 1, 1), 3), ((17, 5), 17)],
)
def test_each_group_of_channels_has_a_table(shape: tuple[int, ...], groups: int) -> None:
    indices, tables = palettise(weights(*shape))
    assert indices.shape == shape
    assert indices.max() < LEVELS
    assert tables.shape == (groups, *[1] * (len(shape) - 1), LEVELS, 1)
    assert shape[0] % groups == 0
    assert shape[0] // groups <= GROUP


def test_an_embedding_has_one_table() -> None:
    _, tables = palettise(weights(64, 8), one_table=True)
    assert tables.shape == (1, 1, LEVELS, 1)


def test_the_same_weights_give_the_same_bytes() -> None:
    first, second = palettise(weights(32, 64)), palettise(weights(32, 64))
    assert [a.tobytes() for a in first] == [a.tobytes() for a in second]
    other, _ = palettise(weights(32, 64, seed=2))
    assert other.tobytes() != first[0].tobytes()


def test_normal_weights_keep_what_16_levels_can() -> None:
    value = weights(64, 512)
    error = looked_up(*palettise(value)) - value
    snr = 10 * np.log10(np.square(value).sum() / np.square(error).sum())
    # The best 16 levels for a normal distribution reach 20.2 dB; evenly spaced ones 19.4.
    assert snr > 20.0


@given(st.lists(st.floats(-4, 4, width=16), min_size=1, max_size=40))
def test_every_weight_takes_its_nearest_level(row: list[float]) -> None:
    value = np.array([row], np.float32)
    indices, tables = palettise(value)
    levels = tables.reshape(-1).astype(np.float32)
    nearest = np.abs(value.reshape(-1, 1) - levels).min(1)
    assert np.allclose(np.abs(looked_up(indices, tables) - value).reshape(-1), nearest, atol=1e-6)
