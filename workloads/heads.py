"""The last layer of a seeded network: fitted, so that answers differ and are decisive.

A seeded head has a thousand nearly equal logits, whose order any rounding changes. Here a few
rows are fitted on features of the calibration photographs, and the others keep their seeded
integers at a size where they never win and still carry most of the output's energy, which
makes the output's signal-to-noise ratio a proxy of the features'.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from npumark.pack.network_weights import seeded_integers
from workloads.calibrate import bias_units, dyadic, undyadic
from workloads.constants import TensorConstants
from workloads.graph import Graph, Node

Matrix = npt.NDArray[np.float64]

ROW_LIMIT = 510
"""Fitted rows are rounded to integers of the seeded range."""
RIDGE = 0.1
"""Ridge strength as a share of the mean eigenvalue of the Gram matrix."""
CLASS_GAIN = 12.0
"""Logit of a sample that matches its class exactly, over the mean of the others."""
FILLER_SPREAD = 0.5
FIRST_ROW, ROW_STRIDE = 37, 97
"""Fitted rows are spread over the classes, so that a shifted row order is seen."""

SEGMENT_AXES = 4
SEGMENT_ITERATIONS = 25
SEGMENT_FILLER_SPREAD = 0.5
SEGMENT_QUANTILE = 0.25
"""This share of the calibration pixels may have a margin below one."""


def _head_constants(
    graph: Graph,
    node: Node,
    index: npt.NDArray[np.int64],
    rows: Matrix,
    row_bias: Matrix,
    filler_scale: Matrix,
    filler_bias: Matrix,
) -> tuple[TensorConstants, TensorConstants]:
    """Join fitted rows [n, D] with bias [n] and fillers given by scale and bias [C]."""
    weight, bias = (graph.weights[name] for name in node.weights)
    top = np.abs(rows).max(axis=1)
    scale, offset = filler_scale.copy(), filler_bias.copy()
    scale[index] = top / ROW_LIMIT
    offset[index] = row_bias
    mantissa, exponent = dyadic(scale)
    return (
        TensorConstants(
            weight,
            "seeded",
            mantissa,
            exponent,
            rows=np.rint(rows / top[:, None] * ROW_LIMIT).astype(np.int16),
            row_index=index.astype(np.int32),
        ),
        TensorConstants(bias, "dyadic", values=bias_units(offset)),
    )


def _filler_statistics(graph: Graph, node: Node, features: Matrix) -> tuple[Matrix, Matrix]:
    """Mean and standard deviation [C] of the seeded rows' integer responses to features [N, D]."""
    weight = graph.weights[node.weights[0]]
    integers = seeded_integers(graph.workload, weight.name, weight.shape).astype(np.float64)
    by_row = integers.T if weight.kind == "dense" else integers.reshape(weight.shape[0], -1)
    response = features @ by_row.T
    return response.mean(axis=0), response.std(axis=0)


def classifier(
    graph: Graph, node: Node, features: Matrix, labels: npt.NDArray[np.int64]
) -> tuple[TensorConstants, TensorConstants]:
    """Ridge regression, in its dual form, of one-hot labels on features [N, D]."""
    mean = features.mean(axis=0)
    centred = features - mean
    classes = int(labels.max()) + 1
    target = np.eye(classes)[labels] - 1 / classes
    gram = centred @ centred.T
    ridge = RIDGE * np.trace(gram) / len(gram)
    dual = np.linalg.solve(gram + ridge * np.eye(len(gram)), target)
    rows = CLASS_GAIN * (centred.T @ dual).T
    filler_mean, filler_std = _filler_statistics(graph, node, features)
    scale = FILLER_SPREAD / filler_std
    index = FIRST_ROW + ROW_STRIDE * np.arange(classes)
    grid = undyadic(*dyadic(scale))
    return _head_constants(graph, node, index, rows, -rows @ mean, scale, -filler_mean * grid)


def segmenter(
    graph: Graph, node: Node, features: Matrix, active: int, seed: int
) -> tuple[TensorConstants, TensorConstants]:
    """Nearest of ``active`` centroids of pixel features [N, D] in their leading principal axes."""
    mean = features.mean(axis=0)
    centred = features - mean
    _, axes = np.linalg.eigh(centred.T @ centred)
    basis: Matrix = axes[:, ::-1][:, :SEGMENT_AXES]
    centres = _k_means(centred @ basis, active, seed)
    rows = centres @ basis.T
    row_bias = -(centres**2).sum(axis=1) / 2 - rows @ mean
    logits = features @ rows.T + row_bias
    ordered = np.sort(logits, axis=1)
    margin = np.quantile(ordered[:, -1] - ordered[:, -2], SEGMENT_QUANTILE)
    gain = 2.0 ** np.ceil(np.log2(1 / margin))
    classes = graph.weights[node.weights[1]].size
    index = np.arange(active) * 2 + 1
    filler_mean, filler_std = _filler_statistics(graph, node, features)
    scale = SEGMENT_FILLER_SPREAD / filler_std
    floor = gain * np.quantile(ordered[:, -1], 0.02) - 3
    bias = floor - filler_mean * undyadic(*dyadic(scale))
    if int(index.max()) >= classes:
        raise ValueError(f"{active} active classes do not fit {classes}")
    return _head_constants(graph, node, index, gain * rows, gain * row_bias, scale, bias)


def _k_means(points: Matrix, count: int, seed: int) -> Matrix:
    """Seeded k-means++ and Lloyd's iterations; returns centroids [count, d]."""
    rng: Any = np.random.Generator(np.random.Philox(key=seed))
    centres: Matrix = points[rng.integers(len(points))][None]
    for _ in range(count - 1):
        distance = ((points[:, None] - centres) ** 2).sum(axis=2).min(axis=1)
        chosen = np.searchsorted(np.cumsum(distance), rng.random() * distance.sum())
        centres = np.concatenate([centres, points[int(chosen)][None]])
    for _ in range(SEGMENT_ITERATIONS):
        nearest = ((points[:, None] - centres) ** 2).sum(axis=2).argmin(axis=1)
        centres = np.stack(
            [
                points[nearest == k].mean(axis=0) if (nearest == k).any() else centres[k]
                for k in range(count)
            ]
        )
    return centres
