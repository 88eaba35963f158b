"""The intermediate form: a network as a list of nodes over named tensors and named weights.

A definition is written once against :class:`Graph`'s builder methods and read by three
consumers: the interpreter (``workloads.reference``), the ONNX emitter
(``workloads.onnx_emit``) and the weight layout (``workloads.constants``). Weight *values* are
kept apart from the graph, in a mapping from weight name to float32 array, so that one graph
serves any edition of its weights.

Layouts: images NCHW, convolution weights OIHW (depthwise C1HW), dense weights [in, out].
Batch normalisation exists only as a count: a convolution with ``norm=True`` runs with one
folded bias per channel and is published with two parameters (gamma, beta) instead.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Shape = tuple[int, ...]
Values = Mapping[str, npt.NDArray[np.float32]]
"""Weight name -> float32 array of that weight's shape."""


@dataclass(frozen=True)
class Weight:
    """One weight tensor: its name, its shape, what it is, and how it is counted.

    ``kind`` is ``conv`` (OIHW), ``depthwise`` (C1HW), ``dense`` ([in, out]), ``table`` (rows to
    gather), ``bias``, ``gamma`` or ``beta``. ``published`` is the number of parameters that the
    unfolded definition has in its place.
    """

    name: str
    shape: Shape
    kind: str
    published: int

    @property
    def size(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class Node:
    """One operation. Its name is also the name of the tensor it produces.

    ``role`` tells the calibration how to scale the node's weights (``workloads.calibrate``);
    it never changes what the node computes.
    """

    op: str
    name: str
    inputs: tuple[str, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    weights: tuple[str, ...] = ()
    role: str = ""


@dataclass(frozen=True)
class Block:
    """A named stretch of nodes with one input and one output tensor: what a defect removes."""

    name: str
    input: str
    output: str
    nodes: tuple[str, ...]


class Graph:
    """A network under construction, and afterwards its definition.

    Builder methods add one node, return the name of the tensor it makes, and raise ValueError
    where shapes do not fit or a name is taken. All shapes are static, batch included.
    """

    def __init__(self, workload: str) -> None:
        self.workload = workload
        self.nodes: list[Node] = []
        self.shapes: dict[str, Shape] = {}
        self.weights: dict[str, Weight] = {}
        self.inputs: dict[str, str] = {}
        self.outputs: dict[str, str] = {}
        self.blocks: list[Block] = []

    # -- structure ------------------------------------------------------------------------

    def input(self, name: str, shape: Shape, dtype: str = "float") -> str:
        """Declare a graph input; dtype is ``float`` or ``int64``."""
        if dtype not in ("float", "int64"):
            raise ValueError(f"input {name}: dtype {dtype!r} is neither 'float' nor 'int64'")
        self._claim(name, shape)
        self.inputs[name] = dtype
        return name

    def output(self, name: str, tensor: str) -> None:
        """Publish a tensor under the graph output ``name``."""
        self.outputs[name] = tensor if tensor in self.shapes else self._missing(tensor)

    @contextmanager
    def block(self, name: str, x: str) -> Iterator[None]:
        """Group the nodes added inside; the last of them makes the block's output."""
        first = len(self.nodes)
        yield
        inside = tuple(node.name for node in self.nodes[first:])
        if not inside:
            raise ValueError(f"block {name} is empty")
        self.blocks.append(Block(name, x, inside[-1], inside))

    def node(self, name: str) -> Node:
        """Return the node of that name. Raises KeyError where there is none."""
        for node in self.nodes:
            if node.name == name:
                return node
        raise KeyError(name)

    def with_nodes(self, nodes: Iterable[Node]) -> Graph:
        """Return a graph with other nodes and everything else shared: what defects build."""
        other = Graph(self.workload)
        other.nodes = list(nodes)
        other.shapes = dict(self.shapes)
        other.weights = dict(self.weights)
        other.inputs = dict(self.inputs)
        other.outputs = dict(self.outputs)
        other.blocks = list(self.blocks)
        return other

    # -- counts ---------------------------------------------------------------------------

    def parameters(self) -> int:
        """Parameters of the unfolded definition."""
        return sum(weight.published for weight in self.weights.values())

    def macs(self) -> int:
        """Multiply-accumulates of convolutions and matrix products, one inference."""
        return sum(self._node_macs(node) for node in self.nodes)

    def _node_macs(self, node: Node) -> int:
        if node.op == "conv":
            _, *per_output = self.weights[node.weights[0]].shape
            return math.prod(self.shapes[node.name]) * math.prod(per_output)
        if node.op in ("dense", "matmul"):
            return math.prod(self.shapes[node.name]) * self.shapes[node.inputs[0]][-1]
        return 0

    # -- operations with weights ----------------------------------------------------------

    def conv(
        self,
        x: str,
        name: str,
        out: int,
        kernel: int,
        *,
        stride: int = 1,
        dilation: int = 1,
        groups: int = 1,
        norm: bool = True,
        role: str = "body",
    ) -> str:
        """Square convolution, padded by dilation*(kernel-1)/2, with a (folded) bias."""
        batch, channels, height, width = self._rank(x, 4)
        if channels % groups or out % groups:
            raise ValueError(f"{name}: {channels}->{out} channels do not split into {groups}")
        pad = dilation * (kernel - 1) // 2
        reach = dilation * (kernel - 1) + 1
        size = [(extent + 2 * pad - reach) // stride + 1 for extent in (height, width)]
        kind = "depthwise" if groups == channels == out and groups > 1 else "conv"
        w = self._weight(f"{name}.weight", (out, channels // groups, kernel, kernel), kind)
        b = self._weight(f"{name}.bias", (out,), "bias", published=2 * out if norm else out)
        attrs = {"stride": stride, "dilation": dilation, "groups": groups, "padding": pad}
        return self._add("conv", name, (x,), (batch, out, *size), attrs, (w, b), role)

    def dense(self, x: str, name: str, out: int, *, bias: bool = True, role: str = "body") -> str:
        """x[..., in] @ weight[in, out] (+ bias[out])."""
        *lead, width = self.shapes[x]
        names = [self._weight(f"{name}.weight", (width, out), "dense")]
        if bias:
            names.append(self._weight(f"{name}.bias", (out,), "bias"))
        return self._add("dense", name, (x,), (*lead, out), {}, tuple(names), role)

    def layernorm(self, x: str, name: str, eps: float) -> str:
        """Normalise the last axis (biased variance), then gamma and beta."""
        width = self.shapes[x][-1]
        gamma = self._weight(f"{name}.gamma", (width,), "gamma")
        beta = self._weight(f"{name}.beta", (width,), "beta")
        attrs = {"eps": eps}
        return self._add("layernorm", name, (x,), self.shapes[x], attrs, (gamma, beta))

    def gather(self, ids: str, name: str, rows: int, width: int) -> str:
        """Embedding: rows of table[rows, width] chosen by an int64 tensor -> [*ids, width]."""
        table = self._weight(f"{name}.weight", (rows, width), "table")
        return self._add("gather", name, (ids,), (*self.shapes[ids], width), {}, (table,))

    def rows(self, name: str, rows: int, width: int, indices: Sequence[int]) -> str:
        """Embedding at constant indices (token type 0, fixed positions) -> [len, width]."""
        if not all(0 <= index < rows for index in indices):
            raise ValueError(f"{name}: indices outside 0..{rows - 1}")
        table = self._weight(f"{name}.weight", (rows, width), "table")
        attrs = {"indices": tuple(indices)}
        return self._add("rows", name, (), (len(indices), width), attrs, (table,))

    # -- operations without weights -------------------------------------------------------

    def activation(self, x: str, name: str, op: str) -> str:
        """``relu``, ``hardswish``, ``hardsigmoid`` (both as in PyTorch) or ``gelu`` (by erf)."""
        if op not in ("relu", "hardswish", "hardsigmoid", "gelu"):
            raise ValueError(f"{name}: unknown activation {op!r}")
        return self._add(op, name, (x,), self.shapes[x])

    def add(self, a: str, b: str, name: str) -> str:
        """Elementwise sum with broadcasting."""
        shape = np.broadcast_shapes(self.shapes[a], self.shapes[b])
        return self._add("add", name, (a, b), shape)

    def mul(self, a: str, b: str, name: str) -> str:
        """Elementwise product with broadcasting (a squeeze-and-excitation gate)."""
        shape = np.broadcast_shapes(self.shapes[a], self.shapes[b])
        return self._add("mul", name, (a, b), shape)

    def scale(self, x: str, name: str, value: float) -> str:
        """x * value for a constant (attention's 1/sqrt(d))."""
        return self._add("scale", name, (x,), self.shapes[x], {"value": value})

    def matmul(self, a: str, b: str, name: str) -> str:
        """Batched matrix product of two activations, [..., m, k] @ [..., k, n]."""
        (*lead_a, m, k), (*lead_b, k2, n) = self.shapes[a], self.shapes[b]
        if k != k2:
            raise ValueError(f"{name}: inner sizes {k} and {k2} differ")
        lead = np.broadcast_shapes(tuple(lead_a), tuple(lead_b))
        return self._add("matmul", name, (a, b), (*lead, m, n))

    def max_pool(self, x: str, name: str, kernel: int, stride: int, padding: int) -> str:
        """Square maximum pooling; padding never wins."""
        batch, channels, height, width = self._rank(x, 4)
        size = [(extent + 2 * padding - kernel) // stride + 1 for extent in (height, width)]
        attrs = {"kernel": kernel, "stride": stride, "padding": padding}
        return self._add("max_pool", name, (x,), (batch, channels, *size), attrs)

    def global_pool(self, x: str, name: str) -> str:
        """Mean over height and width -> [N, C, 1, 1]."""
        batch, channels, _, _ = self._rank(x, 4)
        return self._add("global_pool", name, (x,), (batch, channels, 1, 1))

    def resize(self, x: str, name: str, height: int, width: int) -> str:
        """Bilinear resize, half-pixel centres (align_corners False), edges clamped."""
        batch, channels, _, _ = self._rank(x, 4)
        attrs = {"height": height, "width": width}
        return self._add("resize", name, (x,), (batch, channels, height, width), attrs)

    def concat(self, xs: Sequence[str], name: str, axis: int) -> str:
        """Join tensors along one axis."""
        shape = list(self.shapes[xs[0]])
        shape[axis] = sum(self.shapes[x][axis] for x in xs)
        return self._add("concat", name, tuple(xs), tuple(shape), {"axis": axis})

    def softmax(self, x: str, name: str) -> str:
        """Softmax over the last axis."""
        return self._add("softmax", name, (x,), self.shapes[x])

    def reshape(self, x: str, name: str, shape: Shape) -> str:
        """Same elements, row-major, other shape."""
        if math.prod(shape) != math.prod(self.shapes[x]):
            raise ValueError(f"{name}: cannot reshape {self.shapes[x]} to {shape}")
        return self._add("reshape", name, (x,), shape, {"shape": shape})

    def transpose(self, x: str, name: str, perm: Sequence[int]) -> str:
        """Permute the axes."""
        shape = tuple(self.shapes[x][axis] for axis in perm)
        return self._add("transpose", name, (x,), shape, {"perm": tuple(perm)})

    def select(self, x: str, name: str, axis: int, index: int) -> str:
        """Take one index along an axis and drop the axis (token 0 of a sequence)."""
        shape = list(self.shapes[x])
        if not 0 <= index < shape.pop(axis):
            raise ValueError(f"{name}: index {index} outside axis {axis}")
        return self._add("select", name, (x,), tuple(shape), {"axis": axis, "index": index})

    def mask_bias(self, mask: str, name: str, low: float) -> str:
        """Attention mask int64 [N, S] of 0 and 1 -> float [N, 1, 1, S]: 0 where 1, low where 0."""
        batch, length = self._rank(mask, 2)
        return self._add("mask_bias", name, (mask,), (batch, 1, 1, length), {"low": low})

    def positions(self, mask: str, name: str, padding: int) -> str:
        """RoBERTa position ids, int64 [N, S]: cumulative sum of the mask, times it, + padding."""
        shape = self._rank(mask, 2)
        return self._add("positions", name, (mask,), shape, {"padding": padding})

    def l2_normalise(self, x: str, name: str) -> str:
        """Divide the last axis by its Euclidean length."""
        return self._add("l2_normalise", name, (x,), self.shapes[x])

    # -- bookkeeping ----------------------------------------------------------------------

    def _add(
        self,
        op: str,
        name: str,
        inputs: tuple[str, ...],
        shape: Shape,
        attrs: Mapping[str, Any] | None = None,
        weights: tuple[str, ...] = (),
        role: str = "",
    ) -> str:
        for tensor in inputs:
            if tensor not in self.shapes:
                self._missing(tensor)
        self._claim(name, shape)
        self.nodes.append(Node(op, name, inputs, dict(attrs or {}), weights, role))
        return name

    def _weight(self, name: str, shape: Shape, kind: str, published: int | None = None) -> str:
        if name in self.weights:
            raise ValueError(f"weight {name} exists already")
        count = math.prod(shape) if published is None else published
        self.weights[name] = Weight(name, shape, kind, count)
        return name

    def _claim(self, name: str, shape: Shape) -> None:
        if name in self.shapes:
            raise ValueError(f"tensor {name} exists already")
        self.shapes[name] = tuple(shape)

    def _rank(self, x: str, rank: int) -> Shape:
        shape = self.shapes[x] if x in self.shapes else self.shapes[self._missing(x)]
        if len(shape) != rank:
            raise ValueError(f"{x} has shape {shape}, not {rank} axes")
        return shape

    def _missing(self, tensor: str) -> str:
        raise ValueError(f"unknown tensor {tensor!r} in {self.workload}")
