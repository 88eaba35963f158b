"""Negative controls that only an encoder can have; the common ones are in workloads.defects."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from workloads import defects
from workloads.defects import Broken, Defect
from workloads.granite_embedding_30m.definition import HEADS, LAYERS, WIDTH
from workloads.graph import Graph, Node, Values
from workloads.onnx_emit import Quantisation

MIDDLE = f"layer{LAYERS // 2}"


def swap_heads(graph: Graph, values: Values, quantisation: Quantisation | None) -> Broken:
    """Shift the query heads of the middle layer by one against its keys and values."""
    shift = WIDTH // HEADS
    names = graph.node(f"{MIDDLE}.attention.query").weights
    rolled = {name: np.roll(values[name], shift, axis=-1) for name in names}
    return Broken(graph, {**values, **rolled}, quantisation)


def zero_attention(graph: Graph, values: Values, quantisation: Quantisation | None) -> Broken:
    """Let the middle layer's attention add nothing."""
    names = graph.node(f"{MIDDLE}.attention.output").weights
    zeros = {name: np.zeros_like(values[name]) for name in names}
    return Broken(graph, {**values, **zeros}, quantisation)


def _changed(op: str, **attrs: object) -> Defect:
    """Give every node of one operation other attributes."""

    def plant(graph: Graph, values: Values, quantisation: Quantisation | None) -> Broken:
        def change(node: Node) -> Node:
            return replace(node, attrs={**node.attrs, **attrs}) if node.op == op else node

        nodes = [change(node) for node in graph.nodes]
        return Broken(graph.with_nodes(nodes), values, quantisation)

    return plant


def shift_positions(graph: Graph, values: Values, quantisation: Quantisation | None) -> Broken:
    """Count positions from 0 instead of from padding + 1."""
    name = graph.node("positions").weights[0]
    moved = {name: np.roll(values[name], 2, axis=0)}
    return Broken(graph, {**values, **moved}, quantisation)


DEFECTS: dict[str, Defect] = {
    **defects.DEFECTS,
    "swapped-heads": swap_heads,
    "zeroed-attention": zero_attention,
    "ignored-mask": _changed("mask_bias", low=0.0),
    "unscaled-logits": _changed("scale", value=1.0),
    "shifted-positions": shift_positions,
}
"""Every defect of the encoder, by name."""
