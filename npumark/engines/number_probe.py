"""Which floating-point format a runtime multiplies in, told by a small product of its own.

A runtime that compiles a graph into one opaque kernel does not say in which format it computes;
its answers do. ``y = x·w`` and ``z = (x·u)·v`` are made so that each element read here is one
question with an exact answer: does a significand of n bits survive in an activation, in a
weight, in a result that feeds another product; does a value beyond 65504, the largest of FP16,
survive there; is a long sum exact; do a large and a small neighbour keep scales of their own.
Every question is asked so that nothing but the format in question can change its answer: what
is rounded is made visible by taking the large part away again, and the results themselves fit
into 8 bits.

Only products are asked, so the answer speaks of products: a runtime that convolves in another
format than it multiplies matrices in would not be noticed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from npumark.engines import onnx_bytes
from npumark.engines.base import Array

ROWS, DEPTH, WIDTH = 96, 64, 64
"""``x`` is [ROWS, DEPTH]; ``w``, ``u`` and ``v`` are [DEPTH, WIDTH]; ``y``, ``z`` [ROWS, WIDTH]."""

LADDER = range(2, 25)
"""Significand lengths that are asked for, the leading one included: FP32 keeps 24."""

_SUMS = 8

_CLOSE = 2.0**-16
"""An answer counts as right within this share of itself. What does not survive is off by a share
of 2⁻⁸ at the least; Qualcomm's HTP gives every FP16 result back as 1 + 2⁻²³ times itself."""
_BITS = {"float32": 24, "float16": 11, "bfloat16": 8}

_FORMATS = {(24, True): "FP32", (11, True): "TF32", (11, False): "FP16", (8, True): "BF16"}
"""(significand bits, range beyond 65504) -> family."""


@dataclass(frozen=True, slots=True)
class Product:
    """The operands, all of the element type that was asked for."""

    x: Array
    w: Array
    u: Array
    v: Array


@dataclass(frozen=True, slots=True)
class Facts:
    """What the answers show. Bits count the leading one; 0 where not even the shortest survived.

    ``wide`` facts are of the range beyond FP16's; they are null where the type of inputs and
    outputs cannot carry the question. ``inner`` is a product's result that feeds the next one.
    ``own_scale`` says that a small value next to a large one was kept: integer and block formats
    lose it. ``exact_sums`` holds where sums were carried in FP32 or wider.
    """

    activation_bits: int
    weight_bits: int
    inner_bits: int
    activation_wide: bool | None
    weight_wide: bool | None
    inner_wide: bool
    activation_own_scale: bool
    weight_own_scale: bool
    exact_sums: bool
    wide_sums: bool


@dataclass(frozen=True, slots=True)
class Verdict:
    """``family`` is FP32, TF32, FP16 or BF16, or null with ``why``. ``accumulator`` is FP32 where
    sums were exact, ``narrower`` where not, null where that could not be asked."""

    family: str | None
    why: str | None
    accumulator: str | None = None
    facts: Facts | None = None


@dataclass(frozen=True, slots=True)
class _Question:
    """Terms (position, activation, weight) of one dot product, and its exact value."""

    terms: tuple[tuple[int, float, float], ...]
    answer: float


@dataclass(frozen=True, slots=True)
class _Sheet:
    """The questions by subject: each has a row and a column of its own."""

    activation: tuple[_Question, ...]
    weight: tuple[_Question, ...]
    sums: tuple[_Question, ...]
    activation_wide: _Question
    weight_wide: _Question
    activation_scale: _Question
    weight_scale: _Question
    wide_sum: _Question

    def all(self) -> tuple[_Question, ...]:
        ranges = (self.activation_wide, self.weight_wide)
        scales = (self.activation_scale, self.weight_scale)
        return (*self.activation, *self.weight, *self.sums, *ranges, *scales, self.wide_sum)


def product(io: str = "float32") -> Product:
    """Return the operands as ``io`` (``float32`` or ``float16``), C-contiguous.

    A runtime with a type that NumPy has not (``bfloat16``) casts the float32 ones itself.
    """
    x = np.zeros((ROWS, DEPTH), np.float32)
    w, u, v = (np.zeros((DEPTH, WIDTH), np.float32) for _ in range(3))
    for at, question in enumerate(_questions().all()):
        for k, activation, weight in question.terms:
            x[at, k], w[k, at] = activation, weight
    # Columns 0 and 1 of x·u are the two terms whose sum z takes in its column 0.
    u[0, 0] = u[1, 0] = u[2, 1] = 1
    v[0, 0] = v[1, 0] = 1
    for row, (terms, _) in _inner():
        x[row, : len(terms)] = terms
    kind = np.dtype(io)
    if kind != np.float32:
        limit = float(np.finfo(kind).max)
        x, w = (np.where(np.abs(a) > limit, 0, a).astype(kind) for a in (x, w))
    return Product(x, w, u.astype(kind), v.astype(kind))


def probe_model(io: str = "float32") -> bytes:
    """Return the probe as an ONNX model: input ``x``, outputs ``y`` and ``z``, weights inside."""
    operands = product(io)
    return onnx_bytes.model(
        onnx_bytes.graph(
            "number_probe",
            [
                onnx_bytes.node("MatMul", ["x", "w"], ["y"], "outer"),
                onnx_bytes.node("MatMul", ["x", "u"], ["t"], "first"),
                onnx_bytes.node("MatMul", ["t", "v"], ["z"], "second"),
            ],
            [onnx_bytes.value("x", io, (ROWS, DEPTH))],
            [onnx_bytes.value(name, io, (ROWS, WIDTH)) for name in "yz"],
            [onnx_bytes.tensor(name, getattr(operands, name)) for name in "wuv"],
        )
    )


def classify(outputs: Sequence[Array], io: str = "float32") -> Verdict:
    """Return the format in which ``outputs`` (y, z) were computed from :func:`product`.

    ``io`` is the type of the graph's inputs, outputs and weights. Where that has 16 bits, a
    runtime that computes in a wider format is told by a result which feeds the next product:
    hardware of the 16-bit format rounds it, and overflows beyond 65504.
    """
    if len(outputs) != 2 or any(np.shape(out) != (ROWS, WIDTH) for out in outputs):
        return Verdict(None, "the outputs have another shape than the probe's")
    y, z = (np.asarray(out).astype(np.float64) for out in outputs)
    try:
        facts = _facts(y, z, io)
    except _Contradiction as fault:
        return Verdict(None, str(fault))
    family, why = _family(facts, io)
    sums = "FP32" if facts.exact_sums and facts.wide_sums else "narrower"
    return Verdict(family, why, sums if family else None, facts)


class _Contradiction(Exception):
    """Answers that no format gives."""


def _facts(y: Array, z: Array, io: str) -> Facts:
    sheet = _questions()
    right = iter([_right(y[i, i], q.answer) for i, q in enumerate(sheet.all())])
    activation = [next(right) for _ in sheet.activation]
    weight = [next(right) for _ in sheet.weight]
    sums = [next(right) for _ in sheet.sums]
    activation_wide, weight_wide, activation_scale, weight_scale, wide_sum = right
    *inner, inner_wide = (_right(z[row, 0], answer) for row, (_, answer) in _inner())
    askable = io != "float16"
    return Facts(
        activation_bits=_bits(activation, "an activation"),
        weight_bits=_bits(weight, "a weight"),
        inner_bits=_bits(inner, "a result that feeds another product"),
        activation_wide=activation_wide if askable else None,
        weight_wide=weight_wide if askable else None,
        inner_wide=inner_wide,
        activation_own_scale=activation_scale,
        weight_own_scale=weight_scale,
        exact_sums=all(sums),
        wide_sums=wide_sum,
    )


def _right(found: float, answer: float) -> bool:
    return bool(abs(found - answer) <= _CLOSE * answer)


def _bits(survived: Iterable[bool], where: str) -> int:
    """Return the longest significand that survived; all shorter ones must have, too."""
    steps = list(survived)
    kept = steps.index(False) if False in steps else len(steps)
    if any(steps[kept:]):
        raise _Contradiction(f"{where} keeps a long significand and loses a shorter one")
    return LADDER[kept - 1] if kept else 0


def _family(facts: Facts, io: str) -> tuple[str | None, str | None]:
    if not (facts.activation_own_scale and facts.weight_own_scale):
        what = "weights" if facts.activation_own_scale else "activations"
        return None, f"neighbouring {what} share a scale: an integer or block format"
    carried = _BITS[io]
    if carried < 24 and facts.inner_bits > carried:
        # Inputs and weights cannot show more bits than their type has; an inner result can.
        activation = weight = (facts.inner_bits, facts.inner_wide)
    else:
        wide = facts.inner_wide if facts.activation_wide is None else facts.activation_wide
        activation = (facts.activation_bits, wide)
        wide = wide if facts.weight_wide is None else facts.weight_wide
        weight = (facts.weight_bits, wide)
    family = _FORMATS.get(activation)
    if activation == weight and family is not None:
        return family, None
    told = [_FORMATS.get(operand) or _unnamed(*operand) for operand in (activation, weight)]
    return None, f"activations are multiplied as {told[0]}, weights as {told[1]}"


def _unnamed(bits: int, wide: bool) -> str:
    return f"{bits} significand bits{'' if wide else ' below 65504'}"


@cache
def _questions() -> _Sheet:
    big = 2.0**9
    return _Sheet(
        activation=tuple(
            _Question(
                ((0, _significand(bits), 1024.0), (1, -1.0, 1024.0)),
                math.ldexp(1024.0, 1 - bits),
            )
            for bits in LADDER
        ),
        weight=tuple(
            _Question(
                ((0, 1024.0, _significand(bits)), (1, 1024.0, -1.0)),
                math.ldexp(1024.0, 1 - bits),
            )
            for bits in LADDER
        ),
        sums=tuple(_sum(seed) for seed in range(_SUMS)),
        activation_wide=_Question(((0, 2.0**17, 2.0**-10),), 128.0),
        weight_wide=_Question(((0, 2.0**-10, 2.0**17),), 128.0),
        activation_scale=_Question(((0, 2.0**7, 0.0), (1, 2.0**-7, 2.0**7)), 1.0),
        weight_scale=_Question(((0, 0.0, 2.0**7), (1, 2.0**7, 2.0**-7)), 1.0),
        # Two products beyond FP16's range, as far from each other as the sum is long.
        wide_sum=_Question(((0, big, big), (DEPTH // 2, 1.0, 1.0), (DEPTH - 1, big, -big)), 1.0),
    )


@cache
def _inner() -> tuple[tuple[int, tuple[tuple[float, ...], float]], ...]:
    """Return (row, ((first and second part of one term, other term), answer)) for ``z``."""
    first = len(_questions().all())
    asked: list[tuple[tuple[float, ...], float]] = [
        ((1024.0, math.ldexp(1024.0, 1 - bits), -1024.0), math.ldexp(1024.0, 1 - bits))
        for bits in LADDER
    ]
    asked.append(((2.0**15, 2.0**15, -(2.0**15)), 2.0**15))
    return tuple((first + i, question) for i, question in enumerate(asked))


def _significand(bits: int) -> float:
    """Return the value between 1 and 2 whose significand ends in its ``bits``-th bit."""
    return 1 + math.ldexp(1.0, 1 - bits)


def _sum(seed: int) -> _Question:
    """Return a dot product of 8-bit factors whose partial sums need up to 22 bits, its result few.

    Counted in units of 2⁻⁸ every partial sum, in any order, stays below 2²⁴: FP32 is exact.
    The last three terms take away what is too much, digit by digit to the base of 128.
    """
    raw = np.random.Philox(key=seed).random_raw(DEPTH - 3)
    draws = [int(word) for word in raw]
    terms, total = [], 0
    for k, word in enumerate(draws):
        activation = (128 + (word & 127)) * (1 if word >> 14 & 1 else -1)
        weight = 128 + (word >> 7 & 127)
        total += activation * weight
        terms.append((k, float(activation), weight / 256))
    answer = 65 + seed
    left = total - answer * 256
    sign = -1 if left > 0 else 1
    for i in range(3):
        digit = abs(left) >> 7 * i & 127 if i < 2 else abs(left) >> 14
        terms.append((DEPTH - 3 + i, float(sign * digit), 2.0 ** (7 * i - 8)))
    return _Question(tuple(terms), float(answer))
