"""Sums over an eval set, taken sample by sample: what every task's measures share.

All sums are float64 over blocks that stay in cache; nothing of a sample's outputs is kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from npumark.gates.measures import SNR_CAP_DB

Array = npt.NDArray[Any]
Measures = dict[str, float | None]

_BLOCK = 1 << 15
"""Elements per block: 256 KiB of float64; a few such blocks stay in a second-level cache."""


class Accumulator:
    """Measures of one eval set. ``references[k]`` holds output k of every sample: [n, ...].

    ``mu[k]``, where given and not empty, broadcasts against one sample of ``references[k]``.
    Subclasses name their measures in ``names`` and take one checked sample in ``_sample``.
    """

    names: tuple[str, ...] = ("snr_db",)
    outputs_checked = 1

    def __init__(
        self,
        references: Sequence[Array],
        mu: Sequence[Array],
        parameters: Mapping[str, float],  # noqa: ARG002 - for subclasses; a chain has none
    ) -> None:
        """Raises ValueError where the eval set itself is unusable: that is the pack's fault."""
        if not references or len(references[0]) == 0:
            raise ValueError("the eval set has no reference outputs")
        if any(len(r) != len(references[0]) for r in references):
            raise ValueError("the references of the eval set differ in their number of samples")
        # A stored batch axis of one says nothing; without it, shapes are those of one sample.
        self.references = [
            r.reshape(len(r), *r.shape[2:]) if r.ndim > 2 and r.shape[1] == 1 else r
            for r in references
        ]
        self.mu = mu
        self.n = len(references[0])
        self._seen: set[int] = set()
        self._why: str | None = None
        self._signal = 0.0
        self._noise = 0.0

    def add(self, i: int, outputs: Sequence[Array]) -> None:
        """Take the outputs of eval input ``i``, in the order of the graph's outputs.

        The arrays may be the engine's own buffers, and change afterwards. After the first
        fault nothing more is computed.
        """
        if self._why is not None:
            return
        if not 0 <= i < self.n or i in self._seen:
            self._why = f"sample {i} was not expected (of {self.n}, {len(self._seen)} seen)"
            return
        self._seen.add(i)
        self._why = self._fault(i, outputs)
        if self._why is None:
            # What overflows shows as a result that is not finite; a warning adds nothing.
            with np.errstate(all="ignore"):
                self._sample(i, [out.reshape(self._shape(k)) for k, out in self._checked(outputs)])

    def result(self) -> tuple[Measures, str | None]:
        """Return the measures by name, and what is wrong (null where nothing is)."""
        why = self._why
        if why is None and len(self._seen) < self.n:
            why = f"outputs of {self.n - len(self._seen)} of {self.n} eval inputs are missing"
        if why is not None:
            return dict.fromkeys(self.names), why
        with np.errstate(all="ignore"):
            measures = self._finish()
        finite = {k: v if v is not None and math.isfinite(v) else None for k, v in measures.items()}
        odd = ", ".join(k for k, v in finite.items() if v is None)
        return finite, f"cannot be computed: {odd}" if odd else None

    def alone(self, i: int, outputs: Sequence[Array]) -> tuple[float | None, str | None]:
        """Return the SNR in dB of the first output of eval input ``i`` by itself, and what is
        wrong (null where nothing is). For an accumulator that has taken no sample."""
        self.add(i, outputs)
        if self._why is not None:
            return None, self._why
        with np.errstate(all="ignore"):
            level = snr_db(self._signal, self._noise)
        if level is None or not math.isfinite(level):
            return None, "cannot be computed: snr_db"
        return level, None

    # -- what a task defines ----------------------------------------------------------------

    def _shape(self, k: int) -> tuple[int, ...]:
        """Return the shape that output ``k`` of one sample must hold, batch axis aside."""
        return self.references[k].shape[1:]

    def _sample(self, i: int, outputs: list[Array]) -> None:
        self._energy(self.references[0][i], outputs[0], self._mean(0))

    def _finish(self) -> Measures:
        return {"snr_db": snr_db(self._signal, self._noise)}

    # -- shared by the tasks ----------------------------------------------------------------

    def _mean(self, k: int) -> Array | None:
        """Return mu of output ``k`` in float64, the shape of one sample, or None."""
        if k >= len(self.mu) or not self.mu[k].size:
            return None
        shape = self.references[k].shape[1:]
        mean = np.asarray(self.mu[k], dtype=np.float64)
        while mean.ndim > len(shape) and mean.shape[0] == 1:
            mean = mean[0]
        return np.broadcast_to(mean, shape)

    def _energy(self, ref: Array, test: Array, mu: Array | None) -> tuple[float, float, float]:
        """Add one sample's signal and noise; return sums of r^2, r*d and d^2.

        r = ref - mu and d = ref - test, float64.
        """
        rr = rd = dd = 0.0
        for r, t, m in _blocks(ref, test, mu):
            d = r - t
            if m is not None:
                r = r - m
            rr += _dot(r, r)
            rd += _dot(r, d)
            dd += _dot(d, d)
        self._signal += rr
        self._noise += dd
        return rr, rd, dd

    def _checked(self, outputs: Sequence[Array]) -> Iterator[tuple[int, Array]]:
        yield from enumerate(outputs[: self.outputs_checked])

    def _fault(self, i: int, outputs: Sequence[Array]) -> str | None:
        if len(outputs) < self.outputs_checked:
            return f"sample {i}: {len(outputs)} outputs instead of {self.outputs_checked}"
        for k, out in self._checked(outputs):
            where = f"output {k} of sample {i}"
            if not np.issubdtype(out.dtype, np.floating):
                return f"{where} has type {out.dtype} instead of a floating-point type"
            want = self._shape(k)
            if out.shape not in (want, (1, *want)):
                return f"{where} has shape {list(out.shape)} instead of {[1, *want]}"
            fault = _bad_values(out)
            if fault:
                return f"{where} {fault}"
            if not out.any() and self.references[k][i].any():
                return f"{where} is zero everywhere"
        return None


def snr_db(signal: float, noise: float) -> float | None:
    """Return 10 log10(signal / noise), at most SNR_CAP_DB; null where there is no signal."""
    if not signal > 0:
        return None
    if noise == 0:
        return SNR_CAP_DB
    ratio = signal / noise
    # A ratio that underflows is noise without end; minus infinity is no number for a record.
    return min(SNR_CAP_DB, 10 * math.log10(ratio)) if ratio > 0 else None


def cosine(rr: float, rd: float, dd: float) -> float:
    """Return the cosine between r and r - d from the sums of r^2, r*d and d^2 (NaN: a zero)."""
    tt = rr - 2 * rd + dd
    if not (rr > 0 and tt > 0):
        return math.nan
    return max(-1.0, min(1.0, (rr - rd) / math.sqrt(rr * tt)))


def percentile_10(values: Sequence[float]) -> float:
    """Return the 10th percentile, by linear interpolation between order statistics."""
    return float(np.percentile(np.asarray(values, dtype=np.float64), 10))


class CosineAccumulator(Accumulator):
    """Adds the per-sample cosines of the first output."""

    names: tuple[str, ...] = ("snr_db", "cosine_mean", "cosine_p10")

    def __init__(
        self, references: Sequence[Array], mu: Sequence[Array], parameters: Mapping[str, float]
    ) -> None:
        super().__init__(references, mu, parameters)
        self._cosines: list[float] = []

    def _sample(self, i: int, outputs: list[Array]) -> None:
        sums = self._energy(self.references[0][i], outputs[0], self._mean(0))
        self._cosines.append(cosine(*sums))

    def _finish(self) -> Measures:
        return {
            **super()._finish(),
            "cosine_mean": float(np.mean(self._cosines)),
            "cosine_p10": percentile_10(self._cosines),
        }


def required(parameters: Mapping[str, float], name: str) -> float:
    if name not in parameters:
        raise ValueError(f"the eval set lacks the parameter {name!r}")
    return parameters[name]


def _dot(a: Array, b: Array) -> float:
    # Not BLAS: its threads would compete with the runtime's, and its order of sums varies.
    return float(np.einsum("i,i->", a, b))


def _blocks(
    ref: Array, test: Array, mu: Array | None
) -> Iterator[tuple[Array, Array, Array | None]]:
    r, t = ref.reshape(-1), test.reshape(-1)
    m = None if mu is None else mu.reshape(-1)
    for start in range(0, r.size, _BLOCK):
        part = slice(start, start + _BLOCK)
        yield (
            r[part].astype(np.float64),
            t[part].astype(np.float64),
            None if m is None else m[part].astype(np.float64),
        )


def _bad_values(out: Array) -> str | None:
    # A sum is finite where every term is, but for an overflow; counting settles it.
    with np.errstate(all="ignore"):
        if math.isfinite(float(out.sum(dtype=np.float64))):
            return None
    nans = int(np.isnan(out).sum())
    infinities = int(np.isinf(out).sum())
    if nans or infinities:
        return f"holds {nans} NaN and {infinities} infinite of {out.size} values"
    return None
