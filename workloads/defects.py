"""Negative controls: broken copies of a network that every gate must refuse.

A defect changes the structure or the weights of a definition, never the tools that emit and
judge it, so it can be planted in every variant alike. In the fully quantised variant a doubled
weight tensor is a doubled dequantisation scale: the integers stay, their step doubles.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from workloads.graph import Block, Graph, Node, Values
from workloads.onnx_emit import Quantisation

FloatArray = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Broken:
    """A defective network; ready for ``onnx_emit.save``."""

    graph: Graph
    values: Values
    quantisation: Quantisation | None


Defect = Callable[[Graph, Values, Quantisation | None], Broken]


def skippable(graph: Graph) -> list[Block]:
    """Blocks whose output has the shape of their input, in order."""
    return [b for b in graph.blocks if graph.shapes[b.input] == graph.shapes[b.output]]


def pick(items: list[Block], where: str) -> Block:
    """``first``, ``middle`` or ``last`` of a list. Raises ValueError on another word."""
    places = {"first": 0, "middle": len(items) // 2, "last": len(items) - 1}
    if where not in places:
        raise ValueError(f"no place {where!r}; there are {', '.join(places)}")
    return items[places[where]]


def skip_block(where: str) -> Defect:
    """Feed a block's input straight to its readers."""

    def plant(graph: Graph, values: Values, quantisation: Quantisation | None) -> Broken:
        block = pick(skippable(graph), where)
        nodes = [_reading(n, block.output, block.input) for n in graph.nodes]
        kept = [n for n in nodes if n.name not in block.nodes]
        broken = graph.with_nodes(kept)
        for name, tensor in graph.outputs.items():
            broken.outputs[name] = block.input if tensor == block.output else tensor
        return Broken(broken, values, quantisation)

    return plant


def roll_channels(graph: Graph, values: Values, quantisation: Quantisation | None) -> Broken:
    """Roll the output channels of the middle block's last weights by one, biases not."""
    name = _middle_weights(graph)
    axis = 1 if graph.weights[name].kind == "dense" else 0
    return _with_value(graph, values, quantisation, name, np.roll(values[name], 1, axis))


def zero_block(graph: Graph, values: Values, quantisation: Quantisation | None) -> Broken:
    """Set every weight and bias of the middle block's last layer to zero."""
    node = _middle_layer(graph)
    zeros = {name: np.zeros_like(values[name]) for name in node.weights}
    return Broken(graph, {**values, **zeros}, quantisation)


def double_weights(graph: Graph, values: Values, quantisation: Quantisation | None) -> Broken:
    """Double the middle block's last weights: a wrong scale."""
    name = _middle_weights(graph)
    return _with_value(graph, values, quantisation, name, values[name] * np.float32(2))


def zero_layer(layer: str) -> Defect:
    """Set every weight and bias of a named layer to zero: a branch that says nothing."""

    def plant(graph: Graph, values: Values, quantisation: Quantisation | None) -> Broken:
        zeros = {name: np.zeros_like(values[name]) for name in graph.node(layer).weights}
        return Broken(graph, {**values, **zeros}, quantisation)

    return plant


def double_layer(layer: str) -> Defect:
    """Double a named layer's weights, its bias not: a wrong scale."""

    def plant(graph: Graph, values: Values, quantisation: Quantisation | None) -> Broken:
        name = graph.node(layer).weights[0]
        return _with_value(graph, values, quantisation, name, values[name] * np.float32(2))

    return plant


DEFECTS: dict[str, Defect] = {
    "skip-first": skip_block("first"),
    "skip-middle": skip_block("middle"),
    "skip-last": skip_block("last"),
    "rolled-channels": roll_channels,
    "zeroed-block": zero_block,
    "doubled-weights": double_weights,
}
"""Defects that can be planted in every variant, by name."""

OWN_DEFECTS: dict[str, dict[str, Defect]] = {
    "deeplabv3_mobilenet_v3_large": {
        "zeroed-image-pooling": zero_layer("aspp.pooled"),
        "doubled-last-gate": double_layer("block14.gate.excite"),
    },
}
"""Workload -> further defects of layers that it alone has: those that its gate sees least."""


def planted(workload: str) -> dict[str, Defect]:
    """Every defect that a network's gates must refuse, by name."""
    return DEFECTS | OWN_DEFECTS.get(workload, {})


def _middle_layer(graph: Graph) -> Node:
    block = pick(skippable(graph), "middle")
    return next(
        node for name in reversed(block.nodes) if (node := graph.node(name)).op in ("conv", "dense")
    )


def _middle_weights(graph: Graph) -> str:
    return _middle_layer(graph).weights[0]


def _reading(node: Node, old: str, new: str) -> Node:
    return replace(node, inputs=tuple(new if x == old else x for x in node.inputs))


def _with_value(
    graph: Graph,
    values: Values,
    quantisation: Quantisation | None,
    name: str,
    value: FloatArray,
) -> Broken:
    return Broken(graph, {**values, name: value.astype(np.float32)}, quantisation)
