"""Exact seeded tensors and exact references: every bit of a peak chain is a function of its name.

Random bits come from the raw Philox stream, which NumPy keeps stable across versions
(NEP 19). Everything after it is integer arithmetic, exact powers of two, or a product and a
sum that stay below 2**53 and are therefore exact in float64 in any order, on any BLAS, with
any number of threads. Nothing here may call a function whose last bit a platform may choose.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

SUITE_KEY = "3.2.1"
"""Frozen: part of every tensor's key. A renamed suite must not change a bit."""

_MANTISSA_LIMIT = 1 << 24
"""Activations of the reference are integers below this, so float32 could hold them exactly."""

_CHUNK = 1 << 22

FloatArray = npt.NDArray[np.float32]


def tensor_key(workload: str, tensor: str) -> int:
    """Return the 128-bit Philox key of one tensor: sha256 of its full name, first 16 bytes."""
    digest = hashlib.sha256(f"npumark/{SUITE_KEY}/{workload}/{tensor}".encode()).digest()
    return int.from_bytes(digest[:16], "little")


def raw_stream(workload: str, tensor: str, words: int) -> npt.NDArray[np.uint64]:
    """Return the first ``words`` uint64 of the tensor's Philox stream, little-endian."""
    raw = np.random.Philox(key=tensor_key(workload, tensor)).random_raw(words)
    return np.asarray(raw, dtype="<u8")


def uint16_stream(workload: str, tensor: str, count: int) -> npt.NDArray[np.uint16]:
    """Return ``count`` uint16 of the tensor's stream; each uint64 gives four, low half first."""
    words = raw_stream(workload, tensor, -(-count // 4))
    return words.view("<u2")[:count]


@dataclass(frozen=True)
class Chain:
    """One peak chain: x[S, D] through L layers of (linear D->D, ReLU)."""

    rows: int
    width: int
    layers: int

    @property
    def workload(self) -> str:
        return f"peak-{self.rows}x{self.width}x{self.layers}"

    @property
    def macs(self) -> int:
        """Multiply-accumulates of one inference: S * D**2 * L."""
        return self.rows * self.width * self.width * self.layers

    @classmethod
    def parse(cls, workload: str) -> Chain:
        """Return the chain that a workload id such as ``peak-512x2048x8`` names.

        Raises ValueError where the id is not of that form.
        """
        prefix, _, shape = workload.partition("-")
        parts = shape.split("x")
        if prefix != "peak" or len(parts) != 3 or not all(p.isdecimal() for p in parts):
            raise ValueError(f"not a peak chain: {workload!r}")
        rows, width, layers = (int(p) for p in parts)
        return cls(rows, width, layers)


def he_grid(width: int) -> tuple[int, int]:
    """Return (M, shift): weights are ``k * 2**-shift`` with k uniform over M odd-many integers.

    M is the odd floor of sqrt(2/D) * 2**shift * sqrt(12), which makes the standard deviation
    He's sqrt(2/D) (He et al. 2015); shift is the largest for which M still fits 16 bits.
    """
    shift = 0
    best = (1, 0)
    while True:
        span = math.floor(math.sqrt(2 / width) * 2.0**shift * math.sqrt(12))
        odd = span if span % 2 else span - 1
        if odd >= 1 << 16:
            return best
        if odd >= 1:
            best = (odd, shift)
        shift += 1


def weight_integers(chain: Chain, layer: int) -> npt.NDArray[np.int32]:
    """Return the integers k of one layer's weights, shape [D, D] (input, output)."""
    modulus, _ = he_grid(chain.width)
    bits = uint16_stream(chain.workload, f"w{layer}", chain.width * chain.width)
    k = ((bits.astype(np.uint32) * np.uint32(modulus)) >> np.uint32(16)).astype(np.int32)
    k -= (modulus - 1) // 2
    return k.reshape(chain.width, chain.width)


def weights(chain: Chain, layer: int) -> FloatArray:
    """Return one layer's weights, float32 [D, D] (input, output); exact, never rounded."""
    _, shift = he_grid(chain.width)
    return np.ldexp(weight_integers(chain, layer).astype(np.float32), -shift)


def input_integers(chain: Chain, name: str) -> npt.NDArray[np.int32]:
    """Return the integers of one input, shape [S, D], in [-2048, 2047]."""
    bits = uint16_stream(chain.workload, name, chain.rows * chain.width)
    k = (bits >> np.uint16(4)).astype(np.int32) - 2048
    return k.reshape(chain.rows, chain.width)


def inputs(chain: Chain, name: str) -> FloatArray:
    """Return one input, float32 [S, D] in [-2, 2): exact in float16 as well."""
    return np.ldexp(input_integers(chain, name).astype(np.float32), -10)


def reference(chain: Chain, name: str) -> FloatArray:
    """Return the exact float32 reference output of one input, float32 [S, D].

    Activations are integers below 2**24 with one power-of-two exponent per layer. A product
    is below 2**39 and a sum over D <= 2**14 terms below 2**53, so float64 holds every partial
    sum exactly. After ReLU a layer is scaled by the smallest power of two that brings its
    maximum below 2**24 and rounded half to even.
    """
    _, shift = he_grid(chain.width)
    act = input_integers(chain, name).astype(np.float64)
    exponent = -10
    for layer in range(chain.layers):
        k = weight_integers(chain, layer).astype(np.float64)
        act, exponent = _layer(act, k, exponent - shift)
    return np.ldexp(act, exponent).astype(np.float32)


def references(chain: Chain, names: tuple[str, ...]) -> Iterator[FloatArray]:
    """Yield the references of several inputs, generating each layer's weights only once."""
    _, shift = he_grid(chain.width)
    acts = [(input_integers(chain, name).astype(np.float64), -10) for name in names]
    for layer in range(chain.layers):
        k = weight_integers(chain, layer).astype(np.float64)
        for i, (act, exponent) in enumerate(acts):
            acts[i] = _layer(act, k, exponent - shift)
    for act, exponent in acts:
        yield np.ldexp(act, exponent).astype(np.float32)


def _layer(
    act: npt.NDArray[np.float64], k: npt.NDArray[np.float64], exponent: int
) -> tuple[npt.NDArray[np.float64], int]:
    # In place: a large chain's layer takes hundreds of megabytes.
    out = act @ k
    np.maximum(out, 0.0, out=out)
    top = int(out.max())
    excess = max(0, top.bit_length() - _MANTISSA_LIMIT.bit_length() + 1)
    np.ldexp(out, -excess, out=out)
    return np.rint(out, out=out), exponent + excess


def activation_peaks(chain: Chain, names: tuple[str, ...]) -> list[float]:
    """Return the largest activation of the input and of every layer over ``names``.

    These are the calibration statistics of the chain's INT8 encodings: exact, so the scales
    derived from them are the same everywhere.
    """
    _, shift = he_grid(chain.width)
    acts = [(input_integers(chain, name).astype(np.float64), -10) for name in names]
    peaks = [max(math.ldexp(float(np.abs(a).max()), e) for a, e in acts)]
    for layer in range(chain.layers):
        k = weight_integers(chain, layer).astype(np.float64)
        for i, (act, exponent) in enumerate(acts):
            acts[i] = _layer(act, k, exponent - shift)
        peaks.append(max(math.ldexp(float(a.max()), e) for a, e in acts))
    return peaks
