"""Whether a runtime multiplies 8-bit operands as integers, told by a product of its own.

A graph with 8-bit pairs around a product may be computed in integers, or be unpacked and computed
in floating point; a runtime that compiles it into one opaque kernel does not say which. Its
answers do: sums of 4096 products of up to 14 bits come to a few units. As integers they are exact.
In floating point each operand is rounded when it is scaled, and each partial sum when it is
carried, and hundreds of millions that ought to vanish leave many units behind, in FP32 too.

The terms of each sum change sign in blocks, of 1 to 2048 of them, so that whatever a kernel's
order of summing and its number of lanes, most of the sums grow large on the way.

A runtime that multiplied unscaled integers in floating point, and in lanes short enough for their
sums to stay exact, would be taken for one that multiplies integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from npumark.engines import onnx_bytes
from npumark.engines.base import Array

ROWS, DEPTH, WIDTH = 16, 4608, 64
"""``x`` is [ROWS, DEPTH], each of the two weights [DEPTH, WIDTH], ``y`` and ``z`` [ROWS, WIDTH]."""

ACTIVATIONS = ("uint8", "int8")

_COARSE, _FINE = 0.5, 64
"""Steps of a result per unit of the sum. Coarse ones tell 16-bit floating point, and any hardware
can make them; fine ones tell FP32 too."""

_SIGNED = 4096
"""Terms of each sum whose signs follow its pattern; those after them bring it to its answer."""

_X_SCALE, _W_SCALE = np.float32(0.0123457), np.float32(0.0076543)
"""Scales without a pattern: an operand that is unpacked with one is rounded."""

_TOLERANCE = 1.01
"""Steps that a right answer may be off by: roundings of a half differ."""


@dataclass(frozen=True, slots=True)
class _Sums:
    """Factors of ROWS sums in integers, [ROWS, DEPTH], and each one's answer in units."""

    activations: Array
    weights: Array
    answers: Array


def integer_input() -> Array:
    """Return ``x``, float32 [ROWS, DEPTH]: every value on a step of its 8-bit range."""
    return np.asarray(_sums(_COARSE).activations * _X_SCALE, np.float32)


def integer_model(activation: str) -> bytes:
    """Return the probe as an ONNX model: input ``x``, outputs ``y`` and ``z``, all float32.

    ``activation`` is ``uint8`` (with zero points in the middle) or ``int8`` (at zero).
    """
    zero = np.asarray(128 if activation == "uint8" else 0, activation)
    tensors: dict[str, Array] = {
        "x.step": np.asarray(_X_SCALE),
        "w.step": np.full(WIDTH, _W_SCALE),
        "w.zero": np.zeros(WIDTH, np.int8),
        "zero": zero,
    }
    node = onnx_bytes.node
    nodes = [
        node("QuantizeLinear", ["x", "x.step", "zero"], ["x.q"], "x.q"),
        node("DequantizeLinear", ["x.q", "x.step", "zero"], ["x.dq"], "x.dq"),
    ]
    for y, steps in (("y", _COARSE), ("z", _FINE)):
        weights = np.zeros((DEPTH, WIDTH), np.int8)
        weights[:, :ROWS] = _sums(steps).weights.T
        tensors |= {f"{y}.w": weights, f"{y}.step": np.asarray(_step(steps))}
        nodes += [
            node("DequantizeLinear", [f"{y}.w", "w.step", "w.zero"], [f"{y}.w.dq"], f"{y}.w.dq"),
            node("MatMul", ["x.dq", f"{y}.w.dq"], [f"{y}.product"], f"{y}.product"),
            node("QuantizeLinear", [f"{y}.product", f"{y}.step", "zero"], [f"{y}.q"], f"{y}.q"),
            node("DequantizeLinear", [f"{y}.q", f"{y}.step", "zero"], [y], y),
        ]
    return onnx_bytes.model(
        onnx_bytes.graph(
            "integer_probe",
            nodes,
            [onnx_bytes.value("x", "float32", (ROWS, DEPTH))],
            [onnx_bytes.value(name, "float32", (ROWS, WIDTH)) for name in "yz"],
            [onnx_bytes.tensor(name, array) for name, array in tensors.items()],
        )
    )


def multiplied_integers(outputs: Sequence[Array]) -> bool | None:
    """Say whether ``outputs`` (y, z) are those of integer arithmetic; null where that stays open.

    False: the coarse sums are wrong, as in 16-bit floating point. Open: only the fine ones are
    wrong, as in FP32, or where a runtime cannot make such fine steps.
    """
    if len(outputs) != 2 or any(np.shape(out) != (ROWS, WIDTH) for out in outputs):
        return None
    coarse, fine = (
        bool((np.abs(_found(out, steps) - _sums(steps).answers * steps) <= _TOLERANCE).all())
        for out, steps in zip(outputs, (_COARSE, _FINE), strict=True)
    )
    return (True if fine else None) if coarse else False


def _found(output: Array, steps: float) -> Array:
    return np.asarray(output.astype(np.float64).diagonal() / float(_step(steps)))


def _step(steps: float) -> np.float32:
    return np.float32(float(_X_SCALE) * float(_W_SCALE) / steps)


@cache
def _sums(steps: float) -> _Sums:
    """Return the sums that are shown in so many ``steps`` per unit; both share activations."""
    rows = [_sum(row, 12 * row - 90 if steps < 1 else row % 3 - 1) for row in range(ROWS)]
    activations, weights, answers = (np.array(part) for part in zip(*rows, strict=True))
    return _Sums(activations, weights, answers)


def _sum(row: int, answer: int) -> tuple[Array, Array, int]:
    """Return the factors of one sum that comes to ``answer``, and that."""
    raw = np.random.Philox(key=1000 + row).random_raw(DEPTH)
    activations = 64 + (raw & np.uint64(63)).astype(np.int64)
    weights = 64 + (raw >> np.uint64(6) & np.uint64(63)).astype(np.int64)
    if row < 12:
        signs = 1 - 2 * (np.arange(DEPTH) >> row & 1)
    else:
        signs = 1 - 2 * (raw >> np.uint64(12) & np.uint64(1)).astype(np.int64)
    weights *= signs
    # What is too much is taken away in steps of 127, and at the end one by one.
    middle = (_SIGNED + DEPTH) // 2
    activations[_SIGNED:middle], activations[middle:] = 127, 1
    weights[_SIGNED:] = 0
    left = answer - int((activations * weights).sum())
    for k in range(_SIGNED, DEPTH):
        factor = int(activations[k])
        weights[k] = max(-127, min(127, int(left / factor)))
        left -= factor * int(weights[k])
    return activations, weights, answer
