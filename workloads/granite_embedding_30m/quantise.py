"""Static activation ranges of the encoder's 8-bit variant.

Only matrix products read 8-bit activations. Normalisations, softmax and sums stay in floating
point, above all the sum with the attention mask: its -10,000 would take the whole 8-bit range.
"""

from __future__ import annotations

from collections import defaultdict

import torch

from workloads.granite_embedding_30m.definition import PRODUCTS
from workloads.granite_embedding_30m.tokens import Sequences
from workloads.graph import Graph, Node, Values
from workloads.onnx_emit import Quantisation
from workloads.quantise import affine, range_of
from workloads.reference import Interpreter


def ranges(graph: Graph, values: Values, texts: Sequences) -> Quantisation:
    """Return the ranges of every tensor that a product reads, over the calibration texts."""
    read = {x for node in graph.nodes if node.op in PRODUCTS for x in node.inputs}
    seen: dict[str, list[torch.Tensor]] = defaultdict(list)

    def observe(node: Node, x: torch.Tensor) -> None:
        if node.name in read:
            seen[node.name].append(x)

    runner = Interpreter(graph, values)
    for ids, mask in zip(texts.ids, texts.mask, strict=True):
        runner.run({"input_ids": ids[None], "attention_mask": mask[None]}, observe=observe)
    activations = {name: affine(*range_of(torch.cat(xs))) for name, xs in seen.items()}
    return Quantisation(activations, PRODUCTS)
