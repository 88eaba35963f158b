"""Static activation ranges for the fully quantised variant, from calibration inputs.

Ranges are per tensor, unsigned 8 bits, and always contain zero; after a ReLU the zero point is
0. The range leaves out the largest and smallest 0.001 % of the values (percentile 99.999):
a single outlier must not cost the resolution of a whole tensor.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import torch

from workloads.graph import Graph, Node, Values
from workloads.onnx_emit import VISION_OPS, Quantisation
from workloads.reference import Interpreter

OUTSIDE = 1e-5
"""Share of the values that a range leaves out on either side."""
LEVELS = 255
MAX_VALUES = 1 << 22
"""About so many values of a tensor, evenly spaced by an odd step, stand for all of it."""

_SAME_RANGE = ("max_pool", "reshape", "resize")
"""Operations that move values without changing them: their output keeps the input's range."""


def range_of(x: torch.Tensor) -> tuple[float, float]:
    """Return (low, high) of a tensor without its outermost 0.001 % on either side."""
    flat = x.numpy().reshape(-1)
    flat = flat[:: flat.size // MAX_VALUES | 1].copy()
    outside = math.floor(flat.size * OUTSIDE)
    flat.partition((outside, flat.size - 1 - outside))
    low, high = float(flat[outside]), float(flat[flat.size - 1 - outside])
    return min(low, 0.0), max(high, 0.0)


def affine(low: float, high: float) -> tuple[float, int]:
    """Return (scale, zero point) of uint8 over [low, high]; the scale is a float32 value."""
    scale = float(np.float32((high - low) / LEVELS)) or 1.0
    return scale, min(LEVELS, max(0, round(-low / scale)))


def vision(graph: Graph, values: Values, pixels: npt.NDArray[np.float32]) -> Quantisation:
    """Ranges of every activation that a vision network reads in 8 bits.

    ``pixels`` is the whole calibration set, float32 [N, 3, H, W]. The input of a ReLU is not
    quantised: the pair after the ReLU clips for it.
    """
    skipped = {node.inputs[0] for node in graph.nodes if node.op == "relu"}
    skipped |= {node.name for node in graph.nodes if node.role == "head"}
    skipped |= set(graph.outputs.values())
    activations: dict[str, tuple[float, int]] = {}

    def observe(node: Node, x: torch.Tensor) -> None:
        if node.name in skipped:
            return
        if node.op in _SAME_RANGE and node.inputs[0] in activations:
            activations[node.name] = activations[node.inputs[0]]
        else:
            activations[node.name] = affine(*range_of(x))

    (name,) = graph.inputs
    activations[name] = affine(-1.0, 127 / 128)
    Interpreter(graph, values).run({name: pixels}, observe=observe)
    return Quantisation(activations, VISION_OPS)
