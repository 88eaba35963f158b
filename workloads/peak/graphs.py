"""A peak chain as ONNX, in six encodings over three weight files.

INT8 puts a quantise-dequantise pair on every activation and a dequantise on every weight,
where runtimes look for them: after ReLU the quantised range starts at zero, so that ReLU
itself becomes the clipping of the integer result. ``int8-u8s8`` has unsigned activations with
zero point 0, ``int8-s8s8`` the same numbers shifted to signed ones with zero point -128.
``int8-sym`` has signed activations with zero point 0, whose range is as wide below zero as above
it; after ReLU half of it stays empty. Some runtimes multiply no other integers, and others then
leave ReLU standing and the products in floating point. ``int8-a16w8`` has unsigned activations of
16 bits over the same weights, which NPUs multiply as integers too; 16-bit pairs are ONNX's own
from opset 21 on. The first input is signed, so its range is centred. Outputs are float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from npumark.pack import peak_files, seeded
from npumark.pack.peak_files import WeightForm
from npumark.pack.seeded import Chain

OPSET = 17
IR_VERSION = 8
OPSET_16_BITS = 21
IR_VERSION_16_BITS = 10
LEVELS = 255
"""Steps of an 8-bit range: an activation scale is the calibrated range over this."""
SYMMETRIC_LIMIT = 127
"""Largest integer of a range about zero: its scale is the largest magnitude over this."""


@dataclass(frozen=True)
class Encoding:
    """One variant of a chain: ``io`` is the type of its input and output, ``activation`` that of
    its quantised activations. ``symmetric``: their zero points are all 0."""

    id: str
    format: str
    weights: WeightForm
    io: str
    activation: str | None
    symmetric: bool = False


ENCODINGS = (
    Encoding("fp32", "FP32", "fp32", "float32", None),
    Encoding("fp16", "FP16", "fp16", "float16", None),
    Encoding("int8-u8s8", "INT8", "int8", "float32", "uint8"),
    Encoding("int8-s8s8", "INT8", "int8", "float32", "int8"),
)

A16W8 = Encoding("int8-a16w8", "INT8", "int8", "float32", "uint16")

SYMMETRIC = Encoding("int8-sym", "INT8", "int8", "float32", "int8", symmetric=True)


def graph(chain: Chain, encoding: Encoding) -> onnx.ModelProto:
    """Return the model of one encoding; its weights are external data beside it."""
    builder = _Builder(chain, encoding)
    builder.chain_of_layers()
    io = helper.np_dtype_to_tensor_dtype(np.dtype(encoding.io))
    shape = (chain.rows, chain.width)
    proto = helper.make_graph(
        builder.nodes,
        chain.workload,
        [helper.make_tensor_value_info("x", io, shape)],
        [helper.make_tensor_value_info("y", io, shape)],
        builder.initializers,
    )
    wide = encoding.activation == "uint16"
    return helper.make_model(
        proto,
        opset_imports=[helper.make_opsetid("", OPSET_16_BITS if wide else OPSET)],
        ir_version=IR_VERSION_16_BITS if wide else IR_VERSION,
        producer_name="npumark",
    )


@cache
def activation_scales(chain: Chain, levels: int = LEVELS) -> tuple[np.float32, ...]:
    """Return the scale of the input (centred range) and of every layer's output (from zero).

    ``levels`` is the number of steps that the calibrated range is divided into.
    """
    peaks = seeded.activation_peaks(chain, peak_files.CALIBRATION)
    return (np.float32(2 * peaks[0] / levels), *(np.float32(p / levels) for p in peaks[1:]))


@cache
def symmetric_scales(chain: Chain) -> tuple[np.float32, ...]:
    """Return the scale of the input and of every layer's output, each over a centred range."""
    peaks = seeded.activation_peaks(chain, peak_files.CALIBRATION)
    return tuple(np.float32(peak / SYMMETRIC_LIMIT) for peak in peaks)


def steps(activation: str) -> int:
    """Return the number of steps in the range of an integer type: 255, or 65535."""
    limits = np.iinfo(activation)
    return int(limits.max) - int(limits.min)


class _Builder:
    def __init__(self, chain: Chain, encoding: Encoding) -> None:
        self.chain = chain
        self.encoding = encoding
        self.nodes: list[onnx.NodeProto] = []
        self.initializers = [
            _external(placed, f"{encoding.weights}.weights")
            for placed in peak_files.layout(chain, encoding.weights)
        ]

    def chain_of_layers(self) -> None:
        kind = self.encoding.activation
        quantised = kind is not None
        scales: tuple[np.float32, ...] = ()
        if kind is not None:
            symmetric = self.encoding.symmetric
            scales = (
                symmetric_scales(self.chain)
                if symmetric
                else activation_scales(self.chain, steps(kind))
            )
        value = self._quantised("x", scales[0], centred=True) if quantised else "x"
        for layer in range(self.chain.layers):
            last = layer == self.chain.layers - 1
            weight = self._weight(layer)
            product = self._node("MatMul", [value, weight], f"mm{layer}")
            plain_end = "y" if last and not quantised else f"relu{layer}"
            value = self._node("Relu", [product], plain_end)
            if quantised:
                end = "y" if last else None
                value = self._quantised(value, scales[layer + 1], centred=False, end=end)

    def _weight(self, layer: int) -> str:
        name = f"w{layer}"
        if self.encoding.weights != "int8":
            return name
        zero = self._constant("weight.zero", np.zeros(self.chain.width, np.int8))
        return self._node("DequantizeLinear", [name, f"{name}.scale", zero], f"{name}.dq", axis=1)

    def _quantised(
        self, value: str, scale: np.float32, *, centred: bool, end: str | None = None
    ) -> str:
        kind = np.dtype(self.encoding.activation)
        lowest = int(np.iinfo(kind).min)
        centred = centred or self.encoding.symmetric
        point = lowest + (steps(kind.name) + 1) // 2 if centred else lowest
        step = self._constant(f"{value}.scale", np.asarray(scale))
        zero = self._constant(f"{value}.zero", np.asarray(point, kind))
        q = self._node("QuantizeLinear", [value, step, zero], f"{value}.q")
        return self._node("DequantizeLinear", [q, step, zero], end or f"{value}.dq")

    def _node(self, op: str, inputs: list[str], output: str, **attributes: int) -> str:
        self.nodes.append(helper.make_node(op, inputs, [output], name=output, **attributes))
        return output

    def _constant(self, name: str, value: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> str:
        if all(initializer.name != name for initializer in self.initializers):
            self.initializers.append(numpy_helper.from_array(value, name))
        return name


def _external(placed: peak_files.Placed, location: str) -> onnx.TensorProto:
    dtype = np.dtype(placed.dtype)
    tensor = TensorProto()
    tensor.name = placed.name
    tensor.data_type = helper.np_dtype_to_tensor_dtype(dtype)
    tensor.dims.extend(placed.shape)
    tensor.data_location = TensorProto.EXTERNAL
    length = int(np.prod(placed.shape)) * dtype.itemsize
    for key, value in (("location", location), ("offset", placed.offset), ("length", length)):
        entry = tensor.external_data.add()
        entry.key, entry.value = key, str(value)
    return tensor
