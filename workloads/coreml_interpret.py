"""Runs a Core ML package in NumPy: its program as saved, operation by operation.

Core ML predicts on a Mac only. This reads the package that was written, its program and its
weights, and computes what Core ML's documentation says of each operation: every tensor is
rounded to float16, sums are carried in float32. It needs coremltools, which reads packages
anywhere, and judges what the pack's variants are worth before a Mac has seen them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def load_mil(package: Path) -> Any:
    """Return the program of a saved package (a coremltools ``mil.Program``)."""
    import coremltools
    from coremltools.converters.mil.frontend.milproto.load import load

    spec = coremltools.utils.load_spec(str(package))
    weights = next(package.rglob("weight.bin"), package / "weight.bin").parent
    return load(spec, spec.specificationVersion, file_weights_dir=str(weights))


def operations(mil: Any) -> list[Any]:
    """Return the operations that compute something: all but constants and what unpacks them."""
    found = mil.functions["main"].operations
    return [op for op in found if op.op_type != "const" and not op.op_type.startswith("constexpr")]


def macs(mil: Any) -> int:
    """Return the multiply-accumulates of one inference, counted from the program's own shapes."""
    total = 0
    for op in operations(mil):
        made = math.prod(op.outputs[0].shape)
        if op.op_type == "conv":
            total += made * math.prod(op.weight.shape[1:])
        elif op.op_type in ("linear", "matmul"):
            total += made * op.x.shape[-1]
    return total


class Interpreter:
    """A loaded package. Raises ValueError for an operation it does not know."""

    def __init__(self, package: Path) -> None:
        self.main = load_mil(package).functions["main"]
        self.constants: dict[str, Array] = {}
        for op in self.main.operations:
            if op.op_type.startswith("constexpr"):
                value = np.asarray(op.materialized_val_inference())
            elif op.op_type == "const":
                value = np.asarray(op.outputs[0].val)
            else:
                continue
            self.constants[op.outputs[0].name] = _wide(value)

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Return every output by its name, float16."""
        live = {name: _wide(value) for name, value in inputs.items()}
        last = {var.name: op for op in self.main.operations for var in _read(op)}
        kept = {var.name for var in self.main.outputs}
        for op in self.main.operations:
            if op.outputs[0].name in self.constants:
                continue
            step = _STEPS.get(op.op_type)
            if step is None:
                raise ValueError(f"no interpretation of {op.op_type}")
            with np.errstate(over="ignore", invalid="ignore"):  # infinities are answers
                live[op.outputs[0].name] = _rounded(step(op, self._value(live, op)))
            for var in _read(op):
                if last[var.name] is op and var.name not in kept:
                    live.pop(var.name, None)
        return {name: live[name].astype(np.float16) for name in kept}

    def _value(self, live: Mapping[str, Array], op: Any) -> Callable[[str], Any]:
        def value(name: str) -> Any:
            var = op.inputs.get(name)
            if var is None:
                return None
            if isinstance(var, (list, tuple)):
                return [live[v.name] if v.name in live else self.constants[v.name] for v in var]
            return live[var.name] if var.name in live else self.constants[var.name]

        return value


def _read(op: Any) -> list[Any]:
    found = []
    for var in op.inputs.values():
        found += list(var) if isinstance(var, (list, tuple)) else [var]
    return found


def _wide(value: Array) -> Array:
    return value.astype(np.float32) if value.dtype == np.float16 else value


def _rounded(value: Array) -> Array:
    """Return ``value`` as float16 would hold it: casting there and back takes five times longer."""
    if value.dtype.kind != "f":
        return value
    value = np.ascontiguousarray(value, np.float32)
    bits = value.view(np.uint32)
    rounded = bits >> np.uint32(13)
    rounded &= np.uint32(1)
    rounded += np.uint32(0xFFF)
    rounded += bits
    rounded &= np.uint32(0xFFFFE000)
    found = rounded.view(np.float32)
    size = np.abs(value)
    small = size < np.float32(2**-14)
    if small.any():
        found[small] = np.rint(value[small] * np.float32(2**24)) * np.float32(2**-24)
    if not float(size.max(initial=0)) < 65504:
        found = value.astype(np.float16).astype(np.float32)
    return found


Value = Callable[[str], Any]


def _conv(_: Any, v: Value) -> Array:
    x, w, bias = v("x"), v("weight"), v("bias")
    pad, stride, dilation = v("pad"), v("strides"), v("dilations")
    x = np.pad(x, ((0, 0), (0, 0), (pad[0], pad[1]), (pad[2], pad[3])))
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, w.shape[2:], strict=True)]
    height, width = ((n - r) // s + 1 for n, r, s in zip(x.shape[2:], reach, stride, strict=True))
    depthwise = int(v("groups")) > 1
    if depthwise and not int(v("groups")) == x.shape[1] == w.shape[0]:
        raise ValueError("no interpretation of grouped convolutions")
    y = np.zeros((x.shape[0], w.shape[0], height * width), np.float32)
    for i in range(w.shape[2]):
        for j in range(w.shape[3]):
            top, left = i * dilation[0], j * dilation[1]
            rows = slice(top, top + stride[0] * (height - 1) + 1, stride[0])
            columns = slice(left, left + stride[1] * (width - 1) + 1, stride[1])
            seen = x[:, :, rows, columns].reshape(x.shape[0], x.shape[1], -1)
            # NumPy hands a product to BLAS only where rows lie one after the other.
            tap = np.ascontiguousarray(w[:, :, i, j])
            y += tap * seen if depthwise else tap @ seen
    y = y.reshape(*y.shape[:2], height, width)
    return y if bias is None else y + bias.reshape(1, -1, 1, 1)


def _linear(_: Any, v: Value) -> Array:
    y: Array = v("x") @ v("weight").T
    return y if v("bias") is None else y + v("bias")


def _max_pool(_: Any, v: Value) -> Array:
    x, pad, kernel, stride = v("x"), v("pad"), v("kernel_sizes"), v("strides")
    wide = ((0, 0), (0, 0), (pad[0], pad[1]), (pad[2], pad[3]))
    x = np.pad(x, wide, constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(x, tuple(kernel), axis=(2, 3))
    return np.asarray(windows[:, :, :: stride[0], :: stride[1]].max(axis=(4, 5)))


def _resize(op: Any, v: Value) -> Array:
    if str(op.sampling_mode.val) != "UNALIGN_CORNERS":
        raise ValueError(f"no interpretation of {op.sampling_mode.val}")
    y = v("x")
    sizes = (int(v("target_size_height")), int(v("target_size_width")))
    for axis, size in zip((2, 3), sizes, strict=True):
        length = y.shape[axis]
        spacing = length / size
        at = np.clip((np.arange(size) + 0.5) * spacing - 0.5, 0, length - 1)
        low = np.floor(at).astype(np.int64)
        high = np.minimum(low + 1, length - 1)
        share = (at - low).astype(np.float32).reshape([-1 if i == axis else 1 for i in range(4)])
        y = y.take(low, axis) * (1 - share) + y.take(high, axis) * share
    return np.asarray(y)


def _layer_norm(_: Any, v: Value) -> Array:
    x = v("x").astype(np.float64)
    centred = x - x.mean(-1, keepdims=True)
    spread = np.sqrt(np.square(centred).mean(-1, keepdims=True) + v("epsilon"))
    return np.asarray((centred / spread * v("gamma") + v("beta")).astype(np.float32))


def _softmax(_: Any, v: Value) -> Array:
    x, axis = v("x"), int(v("axis"))
    powers = np.exp(x - x.max(axis, keepdims=True))
    return np.asarray(powers / powers.sum(axis, keepdims=True))


def _erf(x: Array) -> Array:
    """Return erf(x) within 1.5e-7 (Abramowitz and Stegun 7.1.26): far below float16's step."""
    t = 1 / (1 + np.float32(0.3275911) * np.abs(x))
    series: Array = np.zeros((), np.float32)
    for factor in (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592):
        series = (series + np.float32(factor)) * t
    return np.asarray(np.copysign(1 - series * np.exp(-x * x), x))


def _gelu(op: Any, v: Value) -> Array:
    if str(op.mode.val) != "EXACT":
        raise ValueError(f"no interpretation of {op.mode.val}")
    return np.asarray(v("x") * 0.5 * (1 + _erf(v("x") * np.float32(0.5**0.5))))


def _quantise(_: Any, v: Value) -> Array:
    levels = np.rint(v("input") / v("scale")) + v("zero_point").astype(np.float32)
    return np.asarray(np.clip(levels, 0, 255).astype(np.uint8))


def _dequantise(_: Any, v: Value) -> Array:
    return np.asarray((v("input").astype(np.float32) - v("zero_point")) * v("scale"))


def _slice(op: Any, v: Value) -> Array:
    at = [slice(int(b), int(e)) for b, e in zip(v("begin"), v("end"), strict=True)]
    squeezed = tuple(i for i, one in enumerate(op.squeeze_mask.val) if one)
    return np.asarray(v("x")[tuple(at)].squeeze(squeezed))


def _cast(op: Any, v: Value) -> Array:
    kinds = {"fp16": np.float32, "fp32": np.float32, "int32": np.int32}
    return np.asarray(v("x").astype(kinds[str(op.dtype.val)]))


_STEPS: dict[str, Callable[[Any, Value], Array]] = {
    "conv": _conv,
    "linear": _linear,
    "max_pool": _max_pool,
    "resize_bilinear": _resize,
    "layer_norm": _layer_norm,
    "softmax": _softmax,
    "gelu": _gelu,
    "quantize": _quantise,
    "dequantize": _dequantise,
    "slice_by_index": _slice,
    "cast": _cast,
    "relu": lambda _, v: np.maximum(v("x"), 0),
    "sigmoid_hard": lambda _, v: np.clip(v("alpha") * v("x") + v("beta"), 0, 1),
    "add": lambda _, v: v("x") + v("y"),
    "sub": lambda _, v: v("x") - v("y"),
    "mul": lambda _, v: v("x") * v("y"),
    "real_div": lambda _, v: v("x") / v("y"),
    "matmul": lambda _, v: v("x") @ v("y"),
    "identity": lambda _, v: v("x"),
    "reduce_mean": lambda _, v: v("x").mean(tuple(v("axes")), keepdims=bool(v("keep_dims"))),
    "reduce_l2_norm": lambda _, v: np.sqrt(
        np.square(v("x")).sum(tuple(v("axes")), keepdims=bool(v("keep_dims")))
    ),
    "concat": lambda _, v: np.concatenate(v("values"), int(v("axis"))),
    "reshape": lambda _, v: v("x").reshape(tuple(v("shape"))),
    "transpose": lambda _, v: v("x").transpose(tuple(v("perm"))),
    "gather": lambda _, v: v("x").take(v("indices"), int(v("axis"))),
    "cumsum": lambda _, v: np.cumsum(v("x"), int(v("axis")), dtype=v("x").dtype),
}
