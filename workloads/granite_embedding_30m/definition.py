"""Granite Embedding 30M, after its published configuration: RoBERTa, six layers of width 384.

Two inputs, as an application passes them: token ids and the attention mask, padded on the
right to 128 tokens. Two outputs: the pooled embedding (the last state of token 0, before the
scaling to unit length that an application applies: a wrong scale should show) and the last
states of all tokens. Positions count from padding + 1 and are the same for every sequence
that is padded on the right, so they are constants of the graph; states of padding differ from
a RoBERTa that gives padding one position of its own, and nothing reads those.
"""

from __future__ import annotations

import math

from workloads.graph import Graph

WORKLOAD = "granite_embedding_30m"
TITLE = "Granite Embedding 30M"
TOKENS = 128
LAYERS = 6
WIDTH = 384
HEADS = 12
INNER = 1536
VOCABULARY = 50_265
POSITIONS = 514
TOKEN_TYPES = 2
PADDING = 1
EPSILON = 1e-12
MASKED = -10_000.0
"""Added to the attention logits of padding: far below any logit, and finite in float16."""

PRODUCTS = frozenset({"dense", "matmul"})
"""The operations that read 8-bit activations in the fully quantised variant."""

PUBLISHED_PARAMETERS = 30_147_456
"""Without the pooler (147,840 more), which sentence embeddings by token 0 do not use."""
PUBLISHED_WITH_POOLER = 30_295_296


def attention(g: Graph, x: str, bias: str, name: str) -> str:
    """Multi-head self-attention with its output projection; x [1, tokens, width]."""
    size = WIDTH // HEADS
    heads = (1, TOKENS, HEADS, size)

    def split(role: str, perm: tuple[int, ...]) -> str:
        y = g.dense(x, f"{name}.{role}", WIDTH, role=role)
        y = g.reshape(y, f"{name}.{role}_heads", heads)
        return g.transpose(y, f"{name}.{role}_split", perm)

    query = split("query", (0, 2, 1, 3))
    key = split("key", (0, 2, 3, 1))
    value = split("value", (0, 2, 1, 3))
    logits = g.matmul(query, key, f"{name}.scores")
    logits = g.scale(logits, f"{name}.scaled", 1 / math.sqrt(size))
    logits = g.add(logits, bias, f"{name}.masked")
    shares = g.softmax(logits, f"{name}.shares")
    y = g.matmul(shares, value, f"{name}.mixed")
    y = g.transpose(y, f"{name}.joined", (0, 2, 1, 3))
    y = g.reshape(y, f"{name}.flat", (1, TOKENS, WIDTH))
    return g.dense(y, f"{name}.output", WIDTH, role="output")


def layer(g: Graph, x: str, bias: str, name: str) -> str:
    """One encoder layer, normalised after each residual sum."""
    with g.block(name, x):
        y = attention(g, x, bias, f"{name}.attention")
        y = g.add(y, x, f"{name}.attention_sum")
        x = g.layernorm(y, f"{name}.attention_norm", EPSILON)
        y = g.dense(x, f"{name}.inner", INNER, role="inner")
        y = g.activation(y, f"{name}.gelu", "gelu")
        y = g.dense(y, f"{name}.outer", WIDTH, role="outer")
        y = g.add(y, x, f"{name}.sum")
        return g.layernorm(y, f"{name}.norm", EPSILON)


def build(vocabulary: int = VOCABULARY) -> Graph:
    """Return the encoder: ids and mask int64 [1, 128] -> embedding [1, 384], tokens [1, 128, 384].

    The outputs' order is that of the eval set's references. A smaller ``vocabulary`` serves
    trials that need not carry a table of 19 million weights.
    """
    g = Graph(WORKLOAD)
    ids = g.input("input_ids", (1, TOKENS), "int64")
    mask = g.input("attention_mask", (1, TOKENS), "int64")
    bias = g.mask_bias(mask, "mask_bias", MASKED)
    words = g.gather(ids, "words", vocabulary, WIDTH)
    first = PADDING + 1
    places = g.rows("positions", POSITIONS, WIDTH, range(first, first + TOKENS))
    kinds = g.rows("token_types", TOKEN_TYPES, WIDTH, [0])
    x = g.add(words, places, "placed")
    x = g.add(x, kinds, "embedded")
    x = g.layernorm(x, "embedding_norm", EPSILON)
    for index in range(LAYERS):
        x = layer(g, x, bias, f"layer{index}")
    g.output("embedding", g.select(x, "pooled", 1, 0))
    g.output("tokens", x)
    return g
