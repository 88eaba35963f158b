"""Classification: logits of one picture, judged as a distribution and by its top class.

- ``kl``: mean over the eval set of KL(softmax(ref) || softmax(test)), in nats;
- ``flips``: samples whose top class changes, among the decisive ones, those whose reference
  leads its second class by at least ``decisive_margin``;
- ``decisive``: how many samples are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from npumark.gates.accumulate import Array, CosineAccumulator, Measures, required


class Classification(CosineAccumulator):
    """Logits [classes]. Parameter ``decisive_margin``: top-1 minus top-2 of the reference."""

    names = (*CosineAccumulator.names, "kl", "flips", "decisive")

    def __init__(
        self, references: Sequence[Array], mu: Sequence[Array], parameters: Mapping[str, float]
    ) -> None:
        super().__init__(references, mu, parameters)
        self.margin = required(parameters, "decisive_margin")
        self._kl = 0.0
        self._flips = 0
        self._decisive = 0

    def _sample(self, i: int, outputs: list[Array]) -> None:
        super()._sample(i, outputs)
        ref = np.asarray(self.references[0][i], dtype=np.float64)
        test = np.asarray(outputs[0], dtype=np.float64)
        self._kl += kl_divergence(ref, test)
        second, first = np.partition(ref, -2)[-2:]
        if first - second >= self.margin:
            self._decisive += 1
            self._flips += int(ref.argmax() != test.argmax())

    def _finish(self) -> Measures:
        return {
            **super()._finish(),
            "kl": self._kl / self.n,
            "flips": float(self._flips),
            "decisive": float(self._decisive),
        }


def kl_divergence(ref: Array, test: Array) -> float:
    """Return KL(softmax(ref) || softmax(test)) in nats; float64 logits [classes]."""
    p, q = _log_softmax(ref), _log_softmax(test)
    # Rounding can leave a divergence of zero a hair below it.
    return max(0.0, float(np.exp(p) @ (p - q)))


def _log_softmax(logits: Array) -> Array:
    shifted: Array = logits - logits.max()
    shifted -= math.log(float(np.exp(shifted).sum()))
    return shifted
