"""Sentence embeddings: the pooled vector, and the states of some of a sequence's tokens.

The network's outputs are the pooled embedding [width] and the last hidden states
[tokens, width]. The eval set holds references for the embedding, for the states at a few
positions of each sequence, and those positions (int, [n, checked]), which lie inside the
sequence's own length: padding is not judged.

- ``token_cosine``, ``token_cosine_p10``: mean and 10th percentile of the cosines between
  ref - mu and test - mu over all checked token states of the eval set;
- ``recall_at_1``: with parameter ``pairs`` = p, sample p + j is an edited copy of sample j;
  the share of samples j < p whose nearest copy, by cosine about mu, is their own. Too blunt
  for a gate: a network with a layer missing still reaches 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from npumark.gates.accumulate import Array, CosineAccumulator, Measures, percentile_10, required


class Embedding(CosineAccumulator):
    """References: embedding [n, width], states [n, checked, width], positions [n, checked]."""

    names = (*CosineAccumulator.names, "token_cosine", "token_cosine_p10", "recall_at_1")
    outputs_checked = 2

    def __init__(
        self, references: Sequence[Array], mu: Sequence[Array], parameters: Mapping[str, float]
    ) -> None:
        super().__init__(references, mu, parameters)
        if len(references) != 3 or self.references[1].shape[:2] != self.references[2].shape:
            raise ValueError("embedding references are: embedding, token states, positions")
        self.tokens = int(required(parameters, "tokens"))
        self.pairs = int(required(parameters, "pairs"))
        if self.n != 2 * self.pairs:
            raise ValueError(f"{self.n} samples are not {self.pairs} texts and their copies")
        if references[2].min() < 0 or references[2].max() >= self.tokens:
            raise ValueError(f"a checked position lies outside 0..{self.tokens - 1}")
        self._token_cosines: list[float] = []
        self._embeddings = np.zeros(self.references[0].shape)

    def _shape(self, k: int) -> tuple[int, ...]:
        shape = self.references[k].shape[1:]
        return shape if k == 0 else (self.tokens, *shape[1:])

    def _sample(self, i: int, outputs: list[Array]) -> None:
        super()._sample(i, outputs)
        self._embeddings[i] = _about(outputs[0], self._mean(0))
        ref = _about(self.references[1][i], self._mean(1))
        test = _about(outputs[1][self.references[2][i]], self._mean(1))
        self._token_cosines.extend(_row_cosines(ref, test).tolist())

    def _finish(self) -> Measures:
        texts, copies = self._embeddings[: self.pairs], self._embeddings[self.pairs :]
        lengths = np.linalg.norm(copies, axis=1)
        nearest = (texts @ (copies / lengths[:, None]).T).argmax(axis=1)
        return {
            **super()._finish(),
            "token_cosine": float(np.mean(self._token_cosines)),
            "token_cosine_p10": percentile_10(self._token_cosines),
            "recall_at_1": float((nearest == np.arange(self.pairs)).mean()),
        }


def _about(values: Array, mean: Array | None) -> Array:
    exact = values.astype(np.float64)
    return exact if mean is None else exact - mean


def _row_cosines(a: Array, b: Array) -> Array:
    """Return the cosines of matching rows [rows, width]; NaN where a row is zero."""
    product = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    cosines: Array = (a * b).sum(axis=1) / np.where(product > 0, product, np.nan)
    return cosines
