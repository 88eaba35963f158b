"""Adds the variants with symmetric activations: ``tool/build_pack.py sym``.

``int8-sym`` multiplies signed 8-bit activations with zero point 0 by the weights of ``int8-u8s8``.
Some runtimes multiply no other integers: TensorRT and TensorRT for RTX refuse a zero point that
is not 0; MIGraphX leaves products of unsigned activations in floating point, and its first
releases those of another zero point too. A network's graph is that of ``int8-u8s8`` with every
range widened to reach as far below zero as above it: 127 steps are as long as the larger of the
two. After a ReLU half of the integers are never used, which costs a bit. So only what convolutions
and dense layers read is quantised: with every activation in 7 bits most networks miss their gates.

Biases stand in the graph as floating point: NVIDIA's parser takes no 32-bit integers to be
dequantised, and the integers in the weight file are in steps of other activations.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from workloads.int8_parts import Biases, Int8Part, is_step, scalar
from workloads.peak import graphs
from workloads.peak.build import CHAINS

PRODUCTS = frozenset({"conv", "dense"})


def main(argv: Sequence[str]) -> int:
    """Write every graph and the part."""
    argparse.ArgumentParser(prog="build_pack.py sym", description=__doc__).parse_args(argv)
    chains = tuple(chain for chain, _ in CHAINS)
    Int8Part("sym", graphs.SYMMETRIC, chains, symmetric, PRODUCTS).build()
    return 0


def symmetric(model: onnx.ModelProto, biases: Biases) -> onnx.ModelProto:
    """Return an ``int8-u8s8`` graph with its activations signed and about zero.

    ``biases`` holds the integers and scales of every bias, by the names of their sections.
    """
    told = {tensor.name: tensor for tensor in model.graph.initializer}
    signed = onnx.ModelProto()
    signed.CopyFrom(model)
    for tensor in signed.graph.initializer:
        if is_step(tensor):
            low = scalar(told[f"{tensor.name.removesuffix('.step')}.zero"])
            step = scalar(tensor) * max(low, graphs.LEVELS - low) / graphs.SYMMETRIC_LIMIT
            tensor.CopyFrom(numpy_helper.from_array(np.asarray(np.float32(step)), tensor.name))
        elif tensor.data_type == TensorProto.UINT8:
            tensor.CopyFrom(numpy_helper.from_array(np.asarray(np.int8(0)), tensor.name))
    _biases_in_float(signed.graph, biases)
    return signed


def _biases_in_float(graph: onnx.GraphProto, biases: Biases) -> None:
    """Put the values of the biases in the place of what dequantised them."""
    kept = []
    for node in graph.node:
        if node.op_type != "DequantizeLinear" or node.input[0] not in biases:
            kept.append(node)
            continue
        integers, scales = (biases[name].astype(np.float64) for name in node.input[:2])
        value = (integers * scales).astype(np.float32)
        graph.initializer.append(numpy_helper.from_array(value, node.output[0]))
    others = [tensor for tensor in graph.initializer if tensor.name not in biases]
    del graph.node[:], graph.initializer[:]
    graph.node.extend(kept)
    graph.initializer.extend(others)
