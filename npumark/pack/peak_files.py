"""The files of a peak chain, written from its name alone.

One weight file per number format lies beside the graphs: every layer's matrix [D, D] (input,
output) in order, and for ``int8`` the layers' float32 scales [D], one per output channel, at
the end. :func:`layout` says where each tensor lies; graph builder and writer share it. All
arithmetic is exact or correctly rounded, so the bytes are the same on every platform.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Literal

import numpy as np
import numpy.typing as npt

from npumark.pack import seeded
from npumark.pack.seeded import Chain

WeightForm = Literal["fp32", "fp16", "int8"]

EVAL = ("eval0", "eval1")
"""The inputs a chain is judged on, in stored order."""

CANONICAL = "canonical"

CALIBRATION = ("calib0", CANONICAL)
"""What the INT8 activation scales are derived from: never an eval input."""

INT8_LIMIT = 127

_DTYPES: dict[WeightForm, tuple[str, int]] = {
    "fp32": ("float32", 4),
    "fp16": ("float16", 2),
    "int8": ("int8", 1),
}


@dataclass(frozen=True, slots=True)
class Placed:
    """One tensor in a weight file: ``offset`` in bytes, ``dtype`` by its NumPy name."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int


def layout(chain: Chain, form: WeightForm) -> tuple[Placed, ...]:
    """Return where every tensor of one weight file lies, in file order.

    Names are ``w<layer>``, and ``w<layer>.scale`` for the scales of ``int8``.
    """
    dtype, size = _DTYPES[form]
    side, layers = chain.width, range(chain.layers)
    step = side * side * size
    placed = [Placed(f"w{i}", dtype, (side, side), i * step) for i in layers]
    if form == "int8":
        end = chain.layers * step
        placed += [Placed(f"w{i}.scale", "float32", (side,), end + i * side * 4) for i in layers]
    return tuple(placed)


def int8_layer(
    integers: npt.NDArray[np.int32], shift: int
) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float32]]:
    """Return a layer's int8 values [D, D] and float32 scales [D] from its integer weights.

    A scale is max|w_c| / 127 of its output channel, one correctly rounded division; a value is
    127 k / max|k_c| rounded half to even. The float32 quotient decides that exactly: 127 k is
    below 2**23, and a quotient that is no half-integer is at least 1 / (2 * 2**15) = 2**-16
    away from one, four times the rounding error of 2**-18 at magnitude 127.
    """
    top = np.maximum(integers.max(axis=0), -integers.min(axis=0)).astype(np.float32)
    scale = np.ldexp(top / np.float32(INT8_LIMIT), -shift)
    levels = integers.astype(np.float32)
    levels *= np.float32(INT8_LIMIT)
    levels /= top
    np.rint(levels, out=levels)
    return levels.astype(np.int8), scale


def working_bytes(chain: Chain, inputs: int | None) -> int:
    """Return the memory that making a file of a chain takes at the most: ``inputs`` is how many
    inputs it holds the references of, null for a file of weights or inputs.

    References hold every activation as float64 [S, D], one layer's result and what it replaces,
    and its weights before and as float64 [D, D]; the others three float32 arrays of their shape.
    """
    activations, matrix = chain.rows * chain.width, chain.width**2
    if inputs is None:
        return 12 * max(activations, matrix)
    return 8 * (inputs + 2) * activations + 16 * matrix


def write_weights(chain: Chain, form: WeightForm, out: BinaryIO) -> None:
    """Write one weight file of a chain, layer by layer."""
    _, shift = seeded.he_grid(chain.width)
    scales: list[npt.NDArray[np.float32]] = []
    for layer in range(chain.layers):
        if form == "int8":
            values, scale = int8_layer(seeded.weight_integers(chain, layer), shift)
            scales.append(scale)
            _write(values, "|i1", out)
        else:
            _write(seeded.weights(chain, layer), "<f4" if form == "fp32" else "<f2", out)
    for scale in scales:
        _write(scale, "<f4", out)


def write_inputs(chain: Chain, names: Iterable[str], out: BinaryIO) -> None:
    """Write inputs one after the other, float32 [n, S, D]."""
    for name in names:
        _write(seeded.inputs(chain, name), "<f4", out)


def write_references(chain: Chain, names: Sequence[str], out: BinaryIO) -> None:
    """Write the exact reference outputs of some inputs, float16 [n, S, D]."""
    for output in seeded.references(chain, tuple(names)):
        _write(output, "<f2", out)


def weight_form(value: object) -> WeightForm:
    """Return ``value`` as a weight format. Raises ValueError where it is none."""
    for form in _DTYPES:
        if form == value:
            return form
    raise ValueError(f"unknown weight format {value!r}; there are {', '.join(_DTYPES)}")


def _write(array: npt.NDArray[np.generic], dtype: str, out: BinaryIO) -> None:
    out.write(np.ascontiguousarray(array, dtype=dtype).data)
