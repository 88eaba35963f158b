"""Builds the encoder: seeded weights, eval texts, references and ranges, ready to ship."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from workloads.granite_embedding_30m import definition, quantise, tokens, weights
from workloads.graph import Graph, Values
from workloads.package import EvalInput, Network
from workloads.reference import Interpreter

CHECKED = 8
"""Token states that are judged per text, evenly spread over its own length."""

Array = npt.NDArray[Any]


def encoder() -> Network:
    """Build the encoder. Needs nothing but this package: its texts lie beside it."""
    graph = definition.build()
    made = weights.constants(graph)
    values = {name: tensor.value(graph.workload) for name, tensor in made.items()}
    calibration, evaluation = tokens.calibration(), tokens.evaluation()
    made = weights.centred(graph, made, values, calibration)
    last = f"{weights.LAST_NORM}.beta"
    values[last] = made[last].value(graph.workload)
    pooled, states = outputs(graph, values, calibration)
    inside = calibration.mask.astype(bool)
    means = {"embedding": pooled.mean(axis=0), "tokens": states[inside].mean(axis=0)}
    pooled, states = outputs(graph, values, evaluation)
    positions = checked_positions(evaluation.lengths)
    return Network(
        graph=graph,
        title=definition.TITLE,
        task="embedding",
        published={
            "params": definition.PUBLISHED_PARAMETERS,
            "params_with_pooler": definition.PUBLISHED_WITH_POOLER,
            "source": "Hugging Face configuration of granite-embedding-30m-english",
        },
        params=graph.parameters(),
        constants=made,
        quantisation=quantise.ranges(graph, values, calibration),
        inputs=[
            EvalInput("input_ids", f"{graph.workload}/input_ids.i64", evaluation.ids),
            EvalInput("attention_mask", f"{graph.workload}/attention_mask.i64", evaluation.mask),
        ],
        references={
            "embedding": pooled,
            "tokens": np.take_along_axis(states, positions[..., None], axis=1),
            "positions": positions,
        },
        means=means,
        parameters={"tokens": definition.TOKENS, "pairs": len(evaluation.ids) // 2},
        emulated=_emulation(graph, values, evaluation),
    )


def checked_positions(lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    """Return the judged positions of each text, int32 [n, 8]: the middles of equal stretches."""
    middles = (np.arange(CHECKED) + 0.5) / CHECKED
    return np.floor(lengths[:, None] * middles).astype(np.int32)


def outputs(graph: Graph, values: Values, texts: tokens.Sequences) -> tuple[Array, Array]:
    """Return embeddings [n, 384] and token states [n, 128, 384], computed in float64."""
    runner = Interpreter(graph, values, "float64")
    made = [
        runner.outputs({"input_ids": ids[None], "attention_mask": mask[None]})
        for ids, mask in zip(texts.ids, texts.mask, strict=True)
    ]
    pooled, states = (np.concatenate([m[k] for m in made]) for k in ("embedding", "tokens"))
    return pooled, states


def _emulation(graph: Graph, values: Values, texts: tokens.Sequences) -> Any:
    runner = Interpreter(graph, values, "float16")

    def run(index: int) -> Sequence[Array]:
        ids, mask = texts.ids[index : index + 1], texts.mask[index : index + 1]
        return list(runner.outputs({"input_ids": ids, "attention_mask": mask}).values())

    return run
