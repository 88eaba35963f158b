"""Emits a network as ONNX in every number format, weights in one external file per format.

Variants: ``fp32``; ``fp16`` (float16 weights, inputs and outputs); ``w8`` (int8 weights per
output channel, dequantised in the graph, everything else float32); ``int8-u8s8`` (the same
weights and 8-bit unsigned activations as QuantizeLinear/DequantizeLinear pairs, float32
inputs and outputs). ``w8`` and ``int8-u8s8`` share one weight file.

Opset 17 and IR version 8, which ONNX Runtime and OpenVINO both read. Graphs hold nothing but
structure, activation scales and offsets into the weight file. Any graph and any values can be
emitted, defective ones too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from npumark.pack.weight_encoding import MATRICES, Stored, sections
from workloads.constants import bias_partners
from workloads.graph import Graph, Node, Values

OPSET = 17
IR_VERSION = 8
WEIGHT_FORMAT = {"fp32": "fp32", "fp16": "fp16", "w8": "int8", "int8-u8s8": "int8"}
"""Variant -> format of its weight file."""

VISION_OPS = frozenset(
    {"conv", "dense", "relu", "hardswish", "hardsigmoid", "add", "mul", "max_pool"}
    | {"global_pool", "reshape", "concat", "resize"}
)
"""Operations of a vision network that read quantised activations."""


@dataclass(frozen=True)
class Quantisation:
    """Static uint8 activation ranges: tensor -> (scale, zero point), and who reads them.

    ``ops`` are the operations that read the quantised form of their inputs; others read the
    tensor as it was produced. An encoder whose products alone are quantised has
    ``ops = {"dense"}``.
    """

    activations: Mapping[str, tuple[float, int]] = field(default_factory=dict)
    ops: frozenset[str] = VISION_OPS

    def reads(self, node: Node, tensor: str) -> bool:
        """Whether the node reads this tensor in 8 bits."""
        return node.op in self.ops and tensor in self.activations


def input_scales(graph: Graph, quantisation: Quantisation) -> dict[str, float]:
    """Bias name -> activation scale, for every layer whose bias is quantised too."""
    return {
        node.weights[1]: quantisation.activations[node.inputs[0]][0]
        for node in graph.nodes
        if node.op in ("conv", "dense")
        and len(node.weights) > 1
        and quantisation.reads(node, node.inputs[0])
    }


def stored(
    graph: Graph, values: Values, quantisation: Quantisation | None
) -> Iterator[tuple[Stored, npt.NDArray[np.float32]]]:
    """Every weight as the weight file holds it, in definition order."""
    partners = bias_partners(graph)
    scales = input_scales(graph, quantisation) if quantisation else {}
    for weight in graph.weights.values():
        partner = partners.get(weight.name, "")
        tensor = Stored(weight.name, weight.shape, weight.kind, partner, scales.get(weight.name))
        yield tensor, values[weight.name]


@dataclass(frozen=True)
class Placed:
    """Where a section lies in a weight file."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    offset: int
    length: int


def save(
    graph: Graph,
    values: Values,
    variant: str,
    folder: Path,
    quantisation: Quantisation | None = None,
) -> Path:
    """Write ``<variant>.onnx`` and its weight file into ``folder``; return the graph's path.

    ``quantisation`` is that of the network's ``int8-u8s8`` variant; ``w8`` needs it as well,
    because the two share a file. Raises KeyError on an unknown variant.
    """
    form = WEIGHT_FORMAT[variant]
    placed: dict[str, Placed] = {}
    end = 0
    with (folder / f"{form}.weights").open("wb") as out:
        for section, offset in sections(form, stored(graph, values, quantisation)):
            array = np.ascontiguousarray(section.array)
            out.write(bytes(offset - end))
            out.write(array.data)
            end = offset + array.nbytes
            placed[section.name] = Placed(
                section.name, array.dtype, section.array.shape, offset, array.nbytes
            )
    path = folder / f"{variant}.onnx"
    path.write_bytes(emit(graph, variant, placed, quantisation).SerializeToString())
    return path


def emit(
    graph: Graph,
    variant: str,
    placed: Mapping[str, Placed],
    quantisation: Quantisation | None = None,
) -> onnx.ModelProto:
    """Return the graph of a variant over a weight file in which ``placed`` finds everything."""
    return _Emitter(graph, variant, quantisation).model(placed)


class _Emitter:
    def __init__(self, graph: Graph, variant: str, quantisation: Quantisation | None) -> None:
        self.graph = graph
        self.int8_weights = WEIGHT_FORMAT[variant] == "int8"
        self.quantisation = (quantisation if variant == "int8-u8s8" else None) or Quantisation()
        self.float = TensorProto.FLOAT16 if variant == "fp16" else TensorProto.FLOAT
        self.numpy_float = np.float16 if variant == "fp16" else np.float32
        self.location = f"{WEIGHT_FORMAT[variant]}.weights"
        self.nodes: list[onnx.NodeProto] = []
        self.inline: list[onnx.TensorProto] = []
        self.used: list[str] = []

    # -- pieces ---------------------------------------------------------------------------

    def put(self, op: str, inputs: Iterable[str], output: str, **attrs: Any) -> str:
        self.nodes.append(helper.make_node(op, list(inputs), [output], name=output, **attrs))
        return output

    def constant(self, name: str, array: npt.NDArray[Any]) -> str:
        self.inline.append(numpy_helper.from_array(array, name))
        return name

    def scalar(self, name: str, value: float) -> str:
        return self.constant(name, np.array(value, self.numpy_float))

    def weight(self, name: str) -> str:
        """Name the float form of a weight: stored as such, or dequantised in the graph."""
        kind = self.graph.weights[name].kind
        if not (self.int8_weights and kind in MATRICES):
            self.used.append(name)
            return name
        axis = 1 if kind == "dense" else 0
        return self.dequantised(name, axis=axis, zero=True)

    def dequantised(self, name: str, *, axis: int, zero: bool = False) -> str:
        inputs = [f"{name}.q", f"{name}.scale"] + ([f"{name}.zero"] if zero else [])
        self.used += inputs
        return self.put("DequantizeLinear", inputs, f"{name}.dq", axis=axis)

    def source(self, node: Node, tensor: str) -> str:
        return f"{tensor}.dq" if self.quantisation.reads(node, tensor) else tensor

    def quantise(self, tensor: str) -> None:
        """Follow a tensor with its QuantizeLinear/DequantizeLinear pair."""
        scale, zero = self.quantisation.activations[tensor]
        step = self.constant(f"{tensor}.step", np.array(scale, np.float32))
        offset = self.constant(f"{tensor}.zero", np.array(zero, np.uint8))
        self.put("QuantizeLinear", (tensor, step, offset), f"{tensor}.q")
        self.put("DequantizeLinear", (f"{tensor}.q", step, offset), f"{tensor}.dq")

    # -- the model ------------------------------------------------------------------------

    def model(self, placed: Mapping[str, Placed]) -> onnx.ModelProto:
        graph = self.graph
        outputs = {tensor: name for name, tensor in graph.outputs.items()}
        read = {x for node in graph.nodes for x in node.inputs if self.quantisation.reads(node, x)}
        for tensor in graph.inputs:
            if tensor in read:
                self.quantise(tensor)
        for node in graph.nodes:
            self.node(node, [self.source(node, x) for x in node.inputs])
            if node.name in read:
                self.quantise(node.name)
            if node.name in outputs:
                self.put("Identity", (node.name,), outputs[node.name])
        kinds = {"float": self.float, "int64": TensorProto.INT64}
        return helper.make_model(
            helper.make_graph(
                self.nodes,
                graph.workload,
                [
                    helper.make_tensor_value_info(name, kinds[kind], graph.shapes[name])
                    for name, kind in graph.inputs.items()
                ],
                [
                    helper.make_tensor_value_info(name, self.float, graph.shapes[tensor])
                    for tensor, name in outputs.items()
                ],
                self.inline + [self.external(placed[name]) for name in dict.fromkeys(self.used)],
            ),
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
            producer_name="npumark",
        )

    def external(self, at: Placed) -> onnx.TensorProto:
        tensor = onnx.TensorProto()
        tensor.name = at.name
        tensor.data_type = helper.np_dtype_to_tensor_dtype(at.dtype)
        tensor.dims.extend(at.shape)
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (
            ("location", self.location),
            ("offset", str(at.offset)),
            ("length", str(at.length)),
        ):
            tensor.external_data.add(key=key, value=value)
        return tensor

    def node(self, node: Node, xs: list[str]) -> None:
        if node.weights:
            self.weighted(node, xs)
        else:
            self.plain(node, xs)

    def weighted(self, node: Node, xs: list[str]) -> None:
        """Emit a node that has weights."""
        a, name, w = node.attrs, node.name, node.weights
        match node.op:
            case "conv":
                self.put(
                    "Conv",
                    (xs[0], self.weight(w[0]), self.bias(node)),
                    name,
                    strides=[a["stride"]] * 2,
                    dilations=[a["dilation"]] * 2,
                    pads=[a["padding"]] * 4,
                    group=a["groups"],
                    kernel_shape=list(self.graph.weights[w[0]].shape[2:]),
                )
            case "dense" if len(w) > 1 and len(self.graph.shapes[name]) == 2:
                self.put("Gemm", (xs[0], self.weight(w[0]), self.bias(node)), name)
            case "dense" if len(w) > 1 and self.quantisation.reads(node, node.inputs[0]):
                self.quantised_rows(node)
            case "dense" if len(w) > 1:
                product = self.put("MatMul", (xs[0], self.weight(w[0])), f"{name}.product")
                self.put("Add", (product, self.weight(w[1])), name)
            case "dense":
                self.put("MatMul", (xs[0], self.weight(w[0])), name)
            case "layernorm":
                weights = (self.weight(w[0]), self.weight(w[1]))
                self.put("LayerNormalization", (xs[0], *weights), name, axis=-1, epsilon=a["eps"])
            case "gather":
                self.gather(w[0], xs[0], name)
            case "rows":
                indices = np.array(a["indices"], np.int64)
                self.gather(w[0], self.constant(f"{name}.indices", indices), name)
            case _:
                raise ValueError(f"no emission of operation {node.op!r} with weights")

    def quantised_rows(self, node: Node) -> None:
        """Emit a dense layer over more than two axes as one Gemm over all rows.

        ONNX Runtime runs a Gemm with its bias in 8 bits whether or not the result is quantised
        again; a MatMul with an Add after it, only where it is.
        """
        name, tensor, w = node.name, node.inputs[0], node.weights
        *_, width = self.graph.shapes[tensor]
        shape = self.graph.shapes[name]
        flat = self.constant(f"{name}.flat", np.array([-1, width], np.int64))
        rows = self.put("Reshape", (f"{tensor}.q", flat), f"{name}.rows.q")
        rows = self.put(
            "DequantizeLinear", (rows, f"{tensor}.step", f"{tensor}.zero"), f"{name}.rows"
        )
        y = self.put("Gemm", (rows, self.weight(w[0]), self.bias(node)), f"{name}.product")
        self.put("Reshape", (y, self.constant(f"{name}.shape", np.array(shape, np.int64))), name)

    def bias(self, node: Node) -> str:
        if self.quantisation.reads(node, node.inputs[0]):
            return self.dequantised(node.weights[1], axis=0)
        return self.weight(node.weights[1])

    def gather(self, table: str, ids: str, name: str) -> None:
        """Gather rows; an int8 table is dequantised after the gather, row by row."""
        if not self.int8_weights:
            self.put("Gather", (self.weight(table), ids), name)
            return
        self.used += [f"{table}.q", f"{table}.scale"]
        rows = self.put("Gather", (f"{table}.q", ids), f"{name}.rows")
        self.put("DequantizeLinear", (rows, f"{table}.scale"), name)

    def plain(self, node: Node, xs: list[str]) -> None:
        """Emit a node without weights."""
        a, name = node.attrs, node.name
        simple = {
            "relu": "Relu",
            "hardswish": "HardSwish",
            "add": "Add",
            "mul": "Mul",
            "matmul": "MatMul",
            "global_pool": "GlobalAveragePool",
        }
        match node.op:
            case op if op in simple:
                self.put(simple[op], xs, name)
            case "hardsigmoid":
                self.put("HardSigmoid", xs, name, alpha=1 / 6, beta=0.5)
            case "gelu":
                root = self.scalar(f"{name}.root", 2**0.5)
                one = self.scalar(f"{name}.one", 1.0)
                half = self.scalar(f"{name}.half", 0.5)
                y = self.put("Div", (xs[0], root), f"{name}.scaled")
                y = self.put("Erf", (y,), f"{name}.erf")
                y = self.put("Add", (y, one), f"{name}.shifted")
                y = self.put("Mul", (xs[0], y), f"{name}.product")
                self.put("Mul", (y, half), name)
            case "scale":
                self.put("Mul", (xs[0], self.scalar(f"{name}.factor", a["value"])), name)
            case "max_pool":
                self.put(
                    "MaxPool",
                    xs,
                    name,
                    kernel_shape=[a["kernel"]] * 2,
                    strides=[a["stride"]] * 2,
                    pads=[a["padding"]] * 4,
                )
            case "resize":
                sizes = np.array(self.graph.shapes[name], np.int64)
                self.put(
                    "Resize",
                    (xs[0], "", "", self.constant(f"{name}.sizes", sizes)),
                    name,
                    mode="linear",
                    coordinate_transformation_mode="half_pixel",
                )
            case "concat":
                self.put("Concat", xs, name, axis=a["axis"])
            case "softmax":
                self.put("Softmax", xs, name, axis=-1)
            case "reshape":
                shape = self.constant(f"{name}.shape", np.array(a["shape"], np.int64))
                self.put("Reshape", (xs[0], shape), name)
            case "transpose":
                self.put("Transpose", xs, name, perm=list(a["perm"]))
            case "select":
                index = self.constant(f"{name}.index", np.array(a["index"], np.int64))
                self.put("Gather", (xs[0], index), name, axis=a["axis"])
            case "l2_normalise":
                length = self.put("ReduceL2", xs, f"{name}.length", axes=[-1], keepdims=1)
                self.put("Div", (xs[0], length), name)
            case "mask_bias" | "positions":
                self.from_mask(node, xs[0])
            case _:
                raise ValueError(f"no emission of operation {node.op!r}")

    def from_mask(self, node: Node, mask: str) -> None:
        """Emit what is computed from the attention mask."""
        name = node.name
        if node.op == "positions":
            axis = self.constant(f"{name}.axis", np.array(1, np.int64))
            padding = self.constant(f"{name}.padding", np.array(node.attrs["padding"], np.int64))
            y = self.put("CumSum", (mask, axis), f"{name}.sum")
            y = self.put("Mul", (y, mask), f"{name}.masked")
            self.put("Add", (y, padding), name)
            return
        axes = self.constant(f"{name}.axes", np.array([1, 2], np.int64))
        y = self.put("Unsqueeze", (mask, axes), f"{name}.wide")
        y = self.put("Cast", (y,), f"{name}.cast", to=self.float)
        y = self.put("Sub", (self.scalar(f"{name}.one", 1.0), y), f"{name}.off")
        self.put("Mul", (y, self.scalar(f"{name}.low", node.attrs["low"])), name)
