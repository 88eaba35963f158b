"""The operations of a program on MLX arrays that have no weights.

Images are NHWC. What is not linear is computed in float32 between two roundings: a compiled
function keeps it in registers, and half precision would lose digits at every step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from npumark.errors import EngineError
from npumark.pack.program import Program, ProgramNode

Tensor = Any
"""An ``mlx.core.array``."""


@dataclass(frozen=True, slots=True)
class Steps:
    """A resize along one axis: per output index its two sources and the share of the second."""

    low: Tensor
    high: Tensor
    share: Tensor


def plain(mx: Any, node: ProgramNode, xs: Sequence[Tensor], dtype: Any) -> Tensor:
    """Compute a node whose axes are the program's. ``dtype`` is the program's float type.

    Raises EngineError on an operation that has no form here.
    """
    a, x = node.attrs, xs[0]
    match node.op:
        case "relu":
            return mx.maximum(x, 0)
        case "hardsigmoid" | "hardswish" | "gelu":
            return _curve(mx, node.op, x)
        case "add":
            return x + xs[1]
        case "mul":
            return x * xs[1]
        case "scale":
            return x * a["value"]
        case "matmul":
            return x @ xs[1]
        case "softmax":
            return mx.softmax(x, axis=-1, precise=True)
        case "transpose":
            return x.transpose(a["perm"])
        case "select":
            return mx.take(x, a["index"], axis=a["axis"])
        case "mask_bias":
            return ((1 - x).astype(dtype) * a["low"])[:, None, None, :]
        case "positions":
            return mx.cumsum(x, axis=1) * x + a["padding"]
        case "l2_normalise":
            wide = x.astype(mx.float32)
            return (wide / mx.linalg.norm(wide, axis=-1, keepdims=True)).astype(x.dtype)
    raise EngineError(f"MLX has no form of the operation {node.op!r}")


def _curve(mx: Any, op: str, x: Tensor) -> Tensor:
    wide = x.astype(mx.float32)
    if op == "gelu":
        return (wide * (1 + mx.erf(wide * 2**-0.5)) * 0.5).astype(x.dtype)
    hard = mx.clip(wide * (1 / 6) + 0.5, 0, 1)
    return (wide * hard if op == "hardswish" else hard).astype(x.dtype)


def global_pool(mx: Any, x: Tensor) -> Tensor:
    """Return the mean of an image over height and width, both kept as 1."""
    return x.astype(mx.float32).mean(axis=(1, 2), keepdims=True).astype(x.dtype)


def max_pool(mx: Any, x: Tensor, kernel: int, stride: int, padding: int) -> Tensor:
    """Return the maxima of square windows of an image, first of columns, then of rows."""
    if padding:
        around = ((0, 0), (padding, padding), (padding, padding), (0, 0))
        x = mx.pad(x, around, constant_values=mx.array(-float("inf"), x.dtype))
    for axis in (1, 2):
        reach = (x.shape[axis] - kernel) // stride * stride + 1
        taken = [
            x[:, i : i + reach : stride] if axis == 1 else x[:, :, i : i + reach : stride]
            for i in range(kernel)
        ]
        x = taken[0]
        for other in taken[1:]:
            x = mx.maximum(x, other)
    return x


def resize_steps(mx: Any, size: int, wanted: int) -> Steps:
    """Return a bilinear resize of ``size`` to ``wanted``: half-pixel centres, edges clamped."""
    at = np.clip((np.arange(wanted) + 0.5) * (size / wanted) - 0.5, 0, size - 1)
    low = np.floor(at).astype(np.int32)
    high = np.minimum(low + 1, size - 1)
    share = (at - low).astype(np.float32)
    return Steps(mx.array(low), mx.array(high), mx.array(share))


def resize(mx: Any, x: Tensor, rows: Steps, columns: Steps) -> Tensor:
    """Return an image resized along its height and its width."""
    dtype = x.dtype
    for axis, steps in ((1, rows), (2, columns)):
        if x.shape[axis] == 1:
            target = [*x.shape]
            target[axis] = steps.low.shape[0]
            x = mx.broadcast_to(x, target)
            continue
        first = mx.take(x, steps.low, axis=axis).astype(mx.float32)
        second = mx.take(x, steps.high, axis=axis).astype(mx.float32)
        share = steps.share[:, None, None] if axis == 1 else steps.share[:, None]
        x = (first + (second - first) * share).astype(dtype)
    return x


@dataclass(frozen=True, slots=True)
class Attention:
    """softmax(scale * q @ k^T + bias) @ v: tensors of a program, in MLX's one operation for it.

    ``q`` and ``v`` are [N, heads, tokens, size]; ``keys`` is [N, tokens, heads, size].
    """

    q: str
    keys: str
    v: str
    bias: str
    scale: float


_KEYS_TURNED = (0, 2, 3, 1)


def find_attention(program: Program) -> dict[str, Attention]:
    """Return the attentions of a program by the node that makes their result.

    A stretch counts only where nothing else reads what lies inside it.
    """
    nodes = {node.name: node for node in program.nodes}
    readers: dict[str, int] = dict.fromkeys(program.outputs.values(), 1)
    for node in program.nodes:
        for name in node.inputs:
            readers[name] = readers.get(name, 0) + 1

    def inside(name: str, op: str) -> ProgramNode | None:
        node = nodes.get(name)
        return node if node is not None and node.op == op and readers[name] == 1 else None

    found = {}
    for node in program.nodes:
        if node.op != "matmul" or not (shares := inside(node.inputs[0], "softmax")):
            continue
        masked = inside(shares.inputs[0], "add")
        scaled = inside(masked.inputs[0], "scale") if masked else None
        logits = inside(scaled.inputs[0], "matmul") if scaled else None
        keys = inside(logits.inputs[1], "transpose") if logits else None
        if masked and scaled and logits and keys and keys.attrs["perm"] == _KEYS_TURNED:
            found[node.name] = Attention(
                q=logits.inputs[0],
                keys=keys.inputs[0],
                v=node.inputs[1],
                bias=masked.inputs[1],
                scale=scaled.attrs["value"],
            )
    return found


def attend(mx: Any, attention: Attention, live: dict[str, Tensor]) -> Tensor:
    """Return the result of an attention over the tensors computed so far."""
    return mx.fast.scaled_dot_product_attention(
        live[attention.q],
        live[attention.keys].transpose(0, 2, 1, 3),
        live[attention.v],
        scale=attention.scale,
        mask=live[attention.bias],
    )
