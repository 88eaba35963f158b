"""The encoder's seeded weights: one scale per tensor, from gains alone.

Layer normalisation after every sum keeps signals in range whatever the weights are, so no
statistics are needed: standard deviations follow from the widths. Attention logits get a
spread of about one, so that heads neither average everything nor pick one token. The one
constant that depends on data is the bias of the last normalisation: minus the mean state of
token 0 over the calibration texts, without which all embeddings point much the same way.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from npumark.pack.network_weights import seeded_integers
from workloads.calibrate import bias_units, dyadic
from workloads.constants import TensorConstants
from workloads.granite_embedding_30m.definition import INNER, LAYERS, WIDTH, WORKLOAD
from workloads.granite_embedding_30m.tokens import Sequences
from workloads.graph import Graph, Values, Weight
from workloads.reference import Interpreter

INTEGER_SPREAD = math.sqrt(4 * (256**2 - 1) / 12)
"""Standard deviation of the seeded integers: four uniform bytes."""
GELU_POWER = 0.425
"""Mean square of gelu(x) for x standard normal."""
LAST_NORM = f"layer{LAYERS - 1}.norm"

SPREAD = {
    "query": 1.2 / math.sqrt(WIDTH),
    "key": 1.2 / math.sqrt(WIDTH),
    "value": 1 / math.sqrt(WIDTH),
    "output": 1 / math.sqrt(WIDTH),
    "inner": 1 / math.sqrt(WIDTH),
    "outer": 0.7 / math.sqrt(GELU_POWER * INNER),
}
"""Role of a dense layer -> standard deviation of its weights."""
TABLE_SPREAD = {"words": 1.0, "positions": 0.25, "token_types": 0.25}
BIAS_SPREAD = 0.05
GAMMA_OCTAVES = 0.25
"""Scales of a normalisation lie between 2**-0.25 and 2**0.25."""
GAMMA_UNITS = 128

Array = npt.NDArray[np.float64]


def constants(graph: Graph) -> dict[str, TensorConstants]:
    """Return the constants of every weight; the last normalisation's bias is still zero."""
    made: dict[str, TensorConstants] = {}
    for node in graph.nodes:
        for name in node.weights:
            weight = graph.weights[name]
            match weight.kind:
                case "gamma":
                    made[name] = TensorConstants(weight, "dyadic", values=bias_units(gamma(weight)))
                case "beta":
                    zeros = np.zeros(weight.shape)
                    made[name] = TensorConstants(weight, "dyadic", values=bias_units(zeros))
                case "bias":
                    made[name] = _seeded(weight, BIAS_SPREAD)
                case "table":
                    made[name] = _seeded(weight, TABLE_SPREAD[node.name])
                case _:
                    made[name] = _seeded(weight, SPREAD[node.role])
    return made


def centred(
    graph: Graph, made: dict[str, TensorConstants], values: Values, texts: Sequences
) -> dict[str, TensorConstants]:
    """Return the constants with the last bias set from the calibration texts."""
    runner = Interpreter(graph, values, "float64")
    pooled = [
        runner.outputs({"input_ids": ids[None], "attention_mask": mask[None]})["embedding"]
        for ids, mask in zip(texts.ids, texts.mask, strict=True)
    ]
    weight = graph.weights[f"{LAST_NORM}.beta"]
    shift = -np.mean(np.concatenate(pooled), axis=0)
    return {**made, weight.name: TensorConstants(weight, "dyadic", values=bias_units(shift))}


def gamma(weight: Weight) -> Array:
    """Return seeded scales around one, in steps of 1/128."""
    spread = seeded_integers(WORKLOAD, weight.name, weight.shape) / INTEGER_SPREAD
    octaves = GAMMA_OCTAVES * np.clip(spread, -1, 1)
    return np.asarray(np.rint(np.exp2(octaves) * GAMMA_UNITS) / GAMMA_UNITS)


def _seeded(weight: Weight, spread: float) -> TensorConstants:
    mantissa, exponent = dyadic(np.array([spread / INTEGER_SPREAD]))
    return TensorConstants(weight, "seeded", mantissa, exponent)
