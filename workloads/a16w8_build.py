"""Adds the variants with 16-bit activations: ``tool/build_pack.py a16w8``.

``int8-a16w8`` multiplies unsigned 16-bit activations by the 8-bit weights of ``int8-u8s8``, as
NPUs do where 8 bits lose too much. A network's graph is that of ``int8-u8s8`` with every range
divided into 65535 steps instead of 255: scales are 257 times finer, zero points 257 times
higher, and so are the integers of the biases, which stand in the graph because the weight file
holds those of 8-bit activations. 16-bit pairs are ONNX's own from opset 21 on.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from workloads.int8_parts import Biases, Int8Part, is_step
from workloads.peak import graphs
from workloads.programs_build import CHAINS

FINER = 65535 // 255
"""So many 16-bit steps make one of 8 bits."""


def main(argv: Sequence[str]) -> int:
    """Write every graph and the part."""
    argparse.ArgumentParser(prog="build_pack.py a16w8", description=__doc__).parse_args(argv)
    Int8Part("a16w8", graphs.A16W8, CHAINS, finer).build()
    return 0


def finer(model: onnx.ModelProto, biases: Biases) -> onnx.ModelProto:
    """Return an ``int8-u8s8`` graph with its activations in 16 bits.

    ``biases`` holds the integers and scales of every bias, by the names of their sections. Raises
    ValueError where a bias has no room for 257 times its value in 32 bits.
    """
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    wide.ir_version = graphs.IR_VERSION_16_BITS
    del wide.opset_import[:]
    wide.opset_import.append(helper.make_opsetid("", graphs.OPSET_16_BITS))
    for tensor in wide.graph.initializer:
        if tensor.name in biases:
            tensor.CopyFrom(numpy_helper.from_array(_finer(biases[tensor.name]), tensor.name))
        elif is_step(tensor):
            step = numpy_helper.to_array(tensor)
            tensor.CopyFrom(numpy_helper.from_array(_finer(step), tensor.name))
        elif tensor.data_type == TensorProto.UINT8:
            zero = numpy_helper.to_array(tensor).astype(np.uint16) * np.uint16(FINER)
            tensor.CopyFrom(numpy_helper.from_array(np.asarray(zero), tensor.name))
    for node in wide.graph.node:
        if node.op_type == "ReduceL2":
            _axes_as_input(wide.graph, node)
    return wide


def _finer(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return scales that are 257 times finer, or the integers that then mean the same."""
    if values.dtype == np.float32:
        return np.asarray((values.astype(np.float64) / FINER).astype(np.float32))
    wide = values.astype(np.int64) * FINER
    if wide.size and np.abs(wide).max() > np.iinfo(np.int32).max:
        raise ValueError("a bias does not fit into 32 bits over 16-bit activations")
    return wide.astype(np.int32)


def _axes_as_input(graph: onnx.GraphProto, node: onnx.NodeProto) -> None:
    # Opset 18 made the axes of a reduction an input.
    (axes,) = (a for a in node.attribute if a.name == "axes")
    name = f"{node.output[0]}.axes"
    graph.initializer.append(numpy_helper.from_array(np.array(axes.ints, np.int64), name))
    node.attribute.remove(axes)
    node.input.append(name)
