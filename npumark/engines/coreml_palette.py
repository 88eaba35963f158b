"""Weights in 4 bits: indices into small tables of values, one table for a few output channels.

The tables are found by Lloyd's algorithm on each group's sorted weights, from their quantiles:
no random start, and sums in one fixed order, so that the same weights give the same bytes.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

BITS = 4
LEVELS = 1 << BITS
GROUP = 16
"""Output channels that share a table. Apple's guide names 8 and 16 as the sizes that keep both
accuracy and speed."""

_ROUNDS = 40

FloatArray = npt.NDArray[np.float32]


def palettise(
    value: FloatArray, *, one_table: bool = False
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.float16]]:
    """Return (indices, tables) of a weight whose output channels lie on axis 0.

    ``indices`` are below LEVELS, in the shape of ``value`` [C, ...]; ``tables`` are
    [G, 1, ..., LEVELS, 1], where G divides C and group g holds channels g*C/G to (g+1)*C/G.
    ``one_table`` asks for a single group (an embedding table, whose rows are no channels).
    """
    channels = value.shape[0]
    groups = 1 if one_table else channels // _group_size(channels)
    rows = np.ascontiguousarray(value, np.float32).reshape(groups, -1)
    indices = np.empty(rows.shape, np.uint8)
    tables = np.empty((groups, LEVELS), np.float16)
    for group, row in enumerate(rows):
        tables[group] = _table(row)
        between = tables[group].astype(np.float32)
        indices[group] = np.searchsorted((between[1:] + between[:-1]) / 2, row)
    shape = (groups, *[1] * (value.ndim - 1), LEVELS, 1)
    return indices.reshape(value.shape), tables.reshape(shape)


def looked_up(indices: npt.NDArray[np.uint8], tables: npt.NDArray[np.float16]) -> FloatArray:
    """Return the weight that indices and tables stand for."""
    groups = tables.shape[0]
    flat = indices.reshape(groups, -1)
    values = np.take_along_axis(tables.reshape(groups, LEVELS), flat, axis=1)
    return values.reshape(indices.shape).astype(np.float32)


def _group_size(channels: int) -> int:
    return next(size for size in range(min(GROUP, channels), 0, -1) if channels % size == 0)


def _table(row: FloatArray) -> npt.NDArray[np.float16]:
    """Return LEVELS ascending values that stand for those of ``row`` with little square error."""
    values = np.sort(row).astype(np.float64)
    sums = np.concatenate(([0.0], np.cumsum(values)))
    centres = values[(2 * np.arange(LEVELS) + 1) * values.size // (2 * LEVELS)]
    for _ in range(_ROUNDS):
        edges = np.searchsorted(values, (centres[1:] + centres[:-1]) / 2)
        ends = np.concatenate(([0], edges, [values.size]))
        counts = np.diff(ends)
        means = np.diff(sums[ends]) / np.maximum(counts, 1)
        moved = np.where(counts > 0, means, centres)
        if np.array_equal(moved, centres):
            break
        centres = moved
    return np.sort(centres.astype(np.float16))
