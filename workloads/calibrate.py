"""Scales and biases of a seeded network, from statistics over calibration inputs.

Seeded integers alone make a network whose signals die, explode or say the same for every
picture. One pass over the calibration inputs, in the order of the graph and with every
earlier layer already final, gives each convolution the scale and bias that batch
normalisation would fold into it: unit variance and a small positive mean per channel.
Residual branches get a gain below one, so that noise is not amplified block by block.
Scales lie on a dyadic grid of 11 bits and biases on multiples of 1/1024, which makes every
weight exact in float32 whatever machine multiplies it out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from npumark.pack.network_weights import BIAS_STEP_BITS, boost_centre, seeded_integers
from workloads.constants import TensorConstants
from workloads.gains import Gain, Recipe
from workloads.graph import Graph, Node
from workloads.reference import Interpreter, convolve

INTEGER_STEP_BITS = 11
"""Statistics are taken on integers times 2**-11, so that their float32 sums keep precision."""
VARIANCE_FLOOR = 0.05
"""A channel's variance counts as at least this share of the layer's mean variance."""

Array = npt.NDArray[Any]


def dyadic(x: Array) -> tuple[npt.NDArray[np.uint16], npt.NDArray[np.int8]]:
    """Round positive numbers to 11 bits; return (mantissa 1024..2048, exponent)."""
    fraction, exponent = np.frexp(np.asarray(x, np.float64))
    mantissa = np.rint(np.ldexp(fraction, INTEGER_STEP_BITS))
    return mantissa.astype(np.uint16), (exponent - INTEGER_STEP_BITS).astype(np.int8)


def undyadic(mantissa: Array, exponent: Array) -> npt.NDArray[np.float64]:
    """The numbers that :func:`dyadic` kept, exact."""
    return np.ldexp(mantissa.astype(np.float64), exponent.astype(np.int32))


def bias_units(x: Array) -> npt.NDArray[np.int32]:
    """Round biases to units of 1/1024."""
    return np.rint(np.ldexp(np.asarray(x, np.float64), BIAS_STEP_BITS)).astype(np.int32)


def layer_constants(
    graph: Graph, node: Node, mean: Array, variance: Array, rule: Gain
) -> tuple[TensorConstants, TensorConstants]:
    """Return the constants of a node's weight and bias from channel statistics.

    ``mean`` and ``variance`` (float64 [C]) are those of the layer's output with weights
    integer * 2**-11 and no bias.
    """
    overall = variance.mean()
    spread = np.maximum(variance, VARIANCE_FLOOR * overall)
    if rule.layerwise:
        spread = np.full_like(variance, overall)
    mantissa, exponent = dyadic(rule.gain / np.sqrt(spread) * 2.0**-INTEGER_STEP_BITS)
    scale = undyadic(mantissa, exponent) * 2.0**INTEGER_STEP_BITS
    weight, bias = (graph.weights[name] for name in node.weights)
    return (
        TensorConstants(weight, "seeded", mantissa, exponent, centre=rule.centre),
        TensorConstants(bias, "dyadic", values=bias_units(rule.shift - mean * scale)),
    )


class Calibration:
    """One pass over the calibration inputs that fixes every layer but the head."""

    def __init__(self, graph: Graph, recipe: Recipe) -> None:
        self.graph = graph
        self.recipe = recipe
        self.constants: dict[str, TensorConstants] = {}

    def run(self, pixels: npt.NDArray[np.float32]) -> torch.Tensor:
        """Fix the layers on ``pixels`` [N, 3, H, W]; return the head's input for all N."""
        runner = Interpreter(self.graph, {})
        readers = {x: node.op for node in reversed(self.graph.nodes) for x in node.inputs}
        last = {x: node.name for node in self.graph.nodes for x in node.inputs}
        (name,) = self.graph.inputs
        live = {name: torch.from_numpy(pixels)}
        with torch.inference_mode():
            for node in self.graph.nodes:
                xs = [live[x] for x in node.inputs]
                if node.role == "head":
                    return xs[0]
                if node.weights:
                    self._fix(node, xs[0], active=readers[node.name] in ("relu", "hardswish"))
                    for weight in node.weights:
                        value = self.constants[weight].value(self.graph.workload)
                        runner.values[weight] = torch.from_numpy(value)
                live[node.name] = runner.step(node, xs)
                for x in node.inputs:
                    if last[x] == node.name:
                        live.pop(x, None)
        raise ValueError(f"{self.graph.workload} has no head")

    def _fix(self, node: Node, x: torch.Tensor, *, active: bool) -> None:
        rule = self.recipe[node.role]
        if node.role in ("body", "centred") and not active:
            rule = Gain(rule.gain, 0.0, rule.layerwise, rule.centre)
        weight = self.graph.weights[node.weights[0]]
        integers = seeded_integers(self.graph.workload, weight.name, weight.shape)
        if rule.centre != 1:
            boost_centre(integers, rule.centre)
        w = torch.from_numpy(np.ldexp(integers.astype(np.float32), -INTEGER_STEP_BITS))
        y = convolve(node, x, w) if node.op == "conv" else x @ w
        axes = tuple(axis for axis in range(y.ndim) if axis != 1)
        variance, mean = (part.double().numpy() for part in torch.var_mean(y, axes, correction=0))
        for tensor in layer_constants(self.graph, node, mean, variance, rule):
            self.constants[tensor.weight.name] = tensor
