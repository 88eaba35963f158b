"""A stand-in for ``mlx.core`` over NumPy, with devices that a test describes.

What MLX says of its devices (``device_info`` and so on) is recorded from its sources: Metal's
and CUDA's back ends name other keys. Its arrays are NumPy's, so that functions really compute.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

METAL = {
    "device_name": "Apple M3 Max",
    "architecture": "applegpu_g15s",
    "memory_size": 68719476736,
    "max_buffer_length": 38654705664,
    "max_recommended_working_set_size": 51539607552,
    "resource_limit": 499000,
}

CPU = {"device_name": "Apple M3 Max", "architecture": "arm64"}


def cuda(name: str, bus: str, uuid: str) -> dict[str, Any]:
    """Return what the CUDA back end tells of a card."""
    return {
        "device_name": name,
        "architecture": "sm_89",
        "uuid": uuid,
        "pci_bus_id": bus,
        "compute_capability_major": 8,
        "compute_capability_minor": 9,
        "total_memory": 25757220864,
        "free_memory": 25000000000,
    }


_ERF_AT = np.linspace(-4, 4, 8193)
_ERF = np.array([math.erf(x) for x in _ERF_AT])


@dataclass(frozen=True)
class Device:
    type: str
    index: int = 0

    def __repr__(self) -> str:
        return f"Device({self.type}, {self.index})"


def _half(x: Any) -> Array:
    """Products of halves are summed in float32."""
    return np.asarray(x, np.float32) if np.asarray(x).dtype == np.float16 else np.asarray(x)


@dataclass
class FakeMlx:
    """``stays`` is a device that everything runs on whatever is asked for, ``broken`` what
    compiling fails with, ``wrong`` gives wrong answers, and one that is ``gone`` fails when it is
    made to compute. ``multiplies_as`` is the type that products are rounded to."""

    gpus: list[dict[str, Any]] = field(default_factory=list)
    cpu_info: dict[str, Any] = field(default_factory=lambda: dict(CPU))
    stays: Device | None = None
    broken: str | None = None
    wrong: bool = False
    gone: bool = False
    multiplies_as: type[np.floating[Any]] | None = None
    forced: int = 0

    gpu, cpu = "gpu", "cpu"
    float32, float16, bfloat16 = np.float32, np.float16, np.float32
    int32, uint32, uint16 = np.int32, np.uint32, np.uint16
    Device = Device

    def __post_init__(self) -> None:
        self._device = Device("gpu" if self.gpus else "cpu")
        self.fast = SimpleNamespace(
            layer_norm=self._layer_norm, scaled_dot_product_attention=self._attention
        )
        self.linalg = SimpleNamespace(norm=np.linalg.norm)

    # -- devices --------------------------------------------------------------------------

    def is_available(self, kind: str) -> bool:
        return kind == "cpu" or bool(self.gpus)

    def device_count(self, kind: str) -> int:
        return len(self.gpus) if kind == "gpu" else 1

    def device_info(self, device: Device) -> dict[str, Any]:
        return self.gpus[device.index] if device.type == "gpu" else self.cpu_info

    def set_default_device(self, device: Device) -> None:
        if device.type == "gpu" and device.index >= len(self.gpus):
            raise ValueError("[set_default_device] Cannot set gpu device without gpu backend.")
        self._device = self.stays or device

    def default_device(self) -> Device:
        return self._device

    def default_stream(self, device: Device) -> Any:
        return SimpleNamespace(device=device)

    # -- arrays ---------------------------------------------------------------------------

    def array(self, value: Any, dtype: Any = None) -> Array:
        return np.array(value, dtype)

    def compile(self, function: Any) -> Any:
        if self.broken:
            raise RuntimeError(self.broken)
        return function

    def eval(self, *_: Any) -> None:
        if self.gone:
            raise RuntimeError("the device is gone")
        self.forced += 1

    def maximum(self, x: Array, other: Any) -> Array:
        y = np.maximum(x, np.asarray(other, np.asarray(x).dtype))
        return y + 1 if self.wrong else y

    def clip(self, x: Array, low: float, high: float) -> Array:
        return np.clip(x, np.asarray(low, x.dtype), np.asarray(high, x.dtype))

    def erf(self, x: Array) -> Array:
        return np.interp(x, _ERF_AT, _ERF).astype(x.dtype)

    def softmax(self, x: Array, axis: int, precise: bool) -> Array:
        assert precise
        e = np.exp(_half(x) - _half(x).max(axis=axis, keepdims=True))
        return (e / e.sum(axis=axis, keepdims=True)).astype(x.dtype)

    def pad(self, x: Array, around: Any, constant_values: Any) -> Array:
        return np.pad(x, around, constant_values=constant_values)

    take = staticmethod(np.take)
    concatenate = staticmethod(np.concatenate)
    broadcast_to = staticmethod(np.broadcast_to)
    cumsum = staticmethod(np.cumsum)

    # -- products -------------------------------------------------------------------------

    def matmul(self, a: Array, b: Array) -> Array:
        kind = self.multiplies_as or a.dtype
        with np.errstate(all="ignore"):
            a, b = (np.asarray(x, kind).astype(np.float32) for x in (a, b))
            return (a @ b).astype(kind)

    def addmm(self, c: Array, a: Array, b: Array) -> Array:
        return (_half(a) @ _half(b) + _half(c)).astype(a.dtype)

    def conv2d(
        self, x: Array, w: Array, *, stride: int, padding: int, dilation: int, groups: int
    ) -> Array:
        x, w, dtype = _half(x), _half(w), x.dtype
        x = np.pad(x, ((0, 0), (padding, padding), (padding, padding), (0, 0)))
        out, kernel, _, depth = w.shape
        reach = dilation * (kernel - 1) + 1
        high, wide = ((side - reach) // stride + 1 for side in x.shape[1:3])
        y = np.zeros((x.shape[0], high, wide, out), np.float32)
        for i in range(kernel):
            for j in range(kernel):
                rows = slice(i * dilation, i * dilation + (high - 1) * stride + 1, stride)
                columns = slice(j * dilation, j * dilation + (wide - 1) * stride + 1, stride)
                part = x[:, rows, columns]
                if groups == 1:
                    y += part @ w[:, i, j].T
                else:
                    assert groups == out
                    assert depth == 1
                    y += part * w[:, i, j, 0]
        return y.astype(dtype)

    def quantize(self, w: Array, group_size: int, bits: int) -> tuple[Array, Array, Array]:
        top = 2**bits - 1
        groups = _half(w).reshape(*w.shape[:-1], -1, group_size)
        low = groups.min(axis=-1, keepdims=True)
        scale = (groups.max(axis=-1, keepdims=True) - low) / top
        levels = np.rint((groups - low) / scale).astype(np.uint32).reshape(w.shape)
        lanes = levels.reshape(*w.shape[:-1], -1, 32 // bits)
        shifts = (np.arange(32 // bits) * bits).astype(np.uint32)
        packed = np.bitwise_or.reduce(lanes << shifts, axis=-1).astype(np.uint32)
        return packed, scale[..., 0].astype(w.dtype), low[..., 0].astype(w.dtype)

    def dequantize(
        self, packed: Array, scales: Array, biases: Array, *, group_size: int, bits: int
    ) -> Array:
        shifts = (np.arange(32 // bits) * bits).astype(np.uint32)
        levels = (packed[..., None] >> shifts) & np.uint32(2**bits - 1)
        groups = levels.reshape(*scales.shape, group_size).astype(np.float32)
        value = groups * _half(scales)[..., None] + _half(biases)[..., None]
        return value.reshape(*scales.shape[:-1], -1).astype(scales.dtype)

    def quantized_matmul(
        self, x: Array, packed: Array, scales: Array, biases: Array, *, transpose: bool, **how: int
    ) -> Array:
        assert transpose
        w = self.dequantize(packed, scales, biases, **how)
        return (_half(x) @ _half(w).T).astype(x.dtype)

    def _layer_norm(self, x: Array, gamma: Array, beta: Array, eps: float) -> Array:
        wide = _half(x)
        mean, variance = wide.mean(-1, keepdims=True), wide.var(-1, keepdims=True)
        return ((wide - mean) / np.sqrt(variance + eps) * gamma + beta).astype(x.dtype)

    def _attention(self, q: Array, k: Array, v: Array, *, scale: float, mask: Array) -> Array:
        logits = _half(q) @ _half(k).swapaxes(-1, -2) * np.float32(scale) + _half(mask)
        return (self.softmax(logits, -1, True) @ _half(v)).astype(q.dtype)
