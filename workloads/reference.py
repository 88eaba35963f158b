"""Interpreter of the intermediate form in PyTorch: calibration statistics and references.

Needs PyTorch, which only the build environment has. Three precisions:

- ``float64``/``float32``: every tensor in that type, for references and calibration;
- ``float16``: emulation of a half-precision machine: every weight and every tensor is rounded
  to float16, sums accumulate in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional as fn

from workloads.graph import Graph, Node, Values

Observer = Callable[[Node, torch.Tensor], None]
Array = npt.NDArray[Any]


class Interpreter:
    """Runs a graph with given weight values, one sample (batch 1) at a time."""

    def __init__(self, graph: Graph, values: Values, precision: str = "float32") -> None:
        """Hold ``values`` (by weight name). Raises ValueError on an unknown precision."""
        if precision not in ("float64", "float32", "float16"):
            raise ValueError(f"unknown precision {precision!r}")
        self.graph = graph
        self.half = precision == "float16"
        self.dtype = torch.float64 if precision == "float64" else torch.float32
        self.values = {name: self._round(torch.from_numpy(v)) for name, v in values.items()}

    def _round(self, x: torch.Tensor) -> torch.Tensor:
        if not x.is_floating_point():
            return x
        return x.half().to(self.dtype) if self.half else x.to(self.dtype)

    def run(
        self,
        inputs: Mapping[str, Array],
        *,
        observe: Observer | None = None,
        upto: str | None = None,
    ) -> dict[str, torch.Tensor]:
        """Return the tensors that survive: the graph outputs, and ``upto`` where given.

        ``observe(node, tensor)`` sees every tensor as it is made. A tensor is dropped after
        its last reader, so that the memory in use stays near the network's own need.
        """
        keep = set(self.graph.outputs.values()) | ({upto} if upto else set())
        last = {name: node.name for node in self.graph.nodes for name in node.inputs}
        live = {name: self._round(torch.from_numpy(array)) for name, array in inputs.items()}
        with torch.inference_mode():
            for node in self.graph.nodes:
                y = self._round(self.step(node, [live[name] for name in node.inputs]))
                if observe is not None:
                    observe(node, y)
                live[node.name] = y
                if node.name == upto:
                    break
                for name in node.inputs:
                    if last[name] == node.name and name not in keep:
                        live.pop(name, None)
        return {name: live[name] for name in keep if name in live}

    def outputs(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Return the graph outputs by their public names, as NumPy arrays."""
        live = self.run(inputs)
        return {name: live[tensor].numpy() for name, tensor in self.graph.outputs.items()}

    def step(self, node: Node, xs: Sequence[torch.Tensor]) -> torch.Tensor:
        """Compute one node. Raises ValueError on an operation that does not exist."""
        if node.weights:
            return weighted(node, xs, [self.values[name] for name in node.weights])
        return plain(node, xs)


def convolve(node: Node, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """A convolution node without its bias; also what the calibration measures."""
    a = node.attrs
    return fn.conv2d(x, w, None, a["stride"], a["padding"], a["dilation"], a["groups"])


def weighted(node: Node, xs: Sequence[torch.Tensor], w: Sequence[torch.Tensor]) -> torch.Tensor:
    """Compute a node that has weights."""
    match node.op:
        case "conv":
            return convolve(node, xs[0], w[0]) + w[1].reshape(1, -1, 1, 1)
        case "dense":
            y = xs[0] @ w[0]
            return y + w[1] if len(w) > 1 else y
        case "layernorm":
            return fn.layer_norm(xs[0], xs[0].shape[-1:], w[0], w[1], node.attrs["eps"])
        case "gather":
            return w[0][xs[0]]
        case "rows":
            return w[0][list(node.attrs["indices"])]
    raise ValueError(f"no interpretation of operation {node.op!r} with weights")


def plain(node: Node, xs: Sequence[torch.Tensor]) -> torch.Tensor:
    """Compute a node without weights."""
    x, a = xs[0], node.attrs
    match node.op:
        case "relu" | "hardswish" | "hardsigmoid" | "gelu":
            return getattr(fn, node.op)(x)
        case "add":
            return x + xs[1]
        case "mul":
            return x * xs[1]
        case "scale":
            return x * a["value"]
        case "matmul":
            return x @ xs[1]
        case "max_pool":
            return fn.max_pool2d(x, a["kernel"], a["stride"], a["padding"])
        case "global_pool":
            return x.mean(dim=(2, 3), keepdim=True)
        case "resize":
            return resize(x, a["height"], a["width"])
        case "concat":
            return torch.cat(list(xs), dim=a["axis"])
        case "softmax":
            return torch.softmax(x, dim=-1)
        case "reshape":
            return x.reshape(-1, *a["shape"][1:])
        case "transpose":
            return x.permute(a["perm"])
        case "select":
            return x.select(a["axis"], a["index"])
        case "mask_bias":
            return ((1 - x).float() * a["low"])[:, None, None, :]
        case "positions":
            return torch.cumsum(x, dim=1) * x + a["padding"]
        case "l2_normalise":
            return fn.normalize(x, dim=-1, eps=0.0)
    raise ValueError(f"no interpretation of operation {node.op!r}")


def resize(x: torch.Tensor, height: int, width: int) -> torch.Tensor:
    """Bilinear, half-pixel centres."""
    return fn.interpolate(x, size=(height, width), mode="bilinear", align_corners=False)


def centred_pixels(pixels: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """u8 / 128 - 1: exact in float16 and float32 (the ``u8-centred`` transform)."""
    return pixels.astype(np.float32) / np.float32(128) - np.float32(1)
