"""Adds the variants with 16-bit activations: ``tool/build_pack.py a16w8``.

``int8-a16w8`` multiplies unsigned 16-bit activations by the 8-bit weights of ``int8-u8s8``, as
NPUs do where 8 bits lose too much. A network's graph is that of ``int8-u8s8`` with every range
divided into 65535 steps instead of 255: scales are 257 times finer, zero points 257 times
higher, and so are the integers of the biases, which stand in the graph because the weight file
holds those of 8-bit activations. 16-bit pairs are ONNX's own from opset 21 on.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from npumark.gates.judge import judge
from npumark.pack import peak_files
from npumark.pack.manifest import TensorSpec
from npumark.pack.seeded import Chain
from npumark.policy import DATA
from workloads.onnx_emit import save
from workloads.package import session
from workloads.peak import build as peak_build
from workloads.peak import graphs
from workloads.programs_build import CHAINS, networks
from workloads.shipped import SHIPPED, ShippedNetwork

VARIANT = graphs.A16W8.id
FINER = 65535 // 255
"""So many 16-bit steps make one of 8 bits."""

PART = DATA / "manifest.a16w8.json"

Document = dict[str, Any]


def main(argv: Sequence[str]) -> int:
    """Write every graph and the part."""
    argparse.ArgumentParser(prog="build_pack.py a16w8", description=__doc__).parse_args(argv)
    files: list[Document] = []
    variants: dict[str, list[Document]] = {}
    for chain in CHAINS:
        files.append(_ship(chain.workload, graphs.graph(chain, graphs.A16W8)))
        passed = {VARIANT: _chain_passes(chain)}
        variants[chain.workload] = [peak_build.variant(chain, graphs.A16W8, passed)]
    for network in networks():
        workload = network.entry.id
        with tempfile.TemporaryDirectory(prefix="npumark-a16w8-") as temporary:
            model, passed_gate = _network(network, Path(temporary))
        files.append(_ship(workload, model))
        variants[workload] = [_variant(network, passed_gate)]
    part = {"files": files, "variants": variants}
    PART.write_text(json.dumps(part, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return 0


def finer(model: onnx.ModelProto, biases: dict[str, npt.NDArray[Any]]) -> onnx.ModelProto:
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
        elif tensor.data_location != TensorProto.EXTERNAL and tensor.name.endswith(".step"):
            step = numpy_helper.to_array(tensor)
            tensor.CopyFrom(numpy_helper.from_array(_finer(step), tensor.name))
        elif tensor.data_type == TensorProto.UINT8:
            zero = numpy_helper.to_array(tensor).astype(np.uint16) * np.uint16(FINER)
            tensor.CopyFrom(numpy_helper.from_array(np.asarray(zero), tensor.name))
    for node in wide.graph.node:
        if node.op_type == "ReduceL2":
            _axes_as_input(wide.graph, node)
    return wide


def bias_sections(model: onnx.ModelProto, folder: Path) -> dict[str, npt.NDArray[Any]]:
    """Return the integers and scales of every quantised bias, read from the graph's weights."""
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    found = {}
    for node in model.graph.node:
        if node.op_type != "DequantizeLinear" or node.input[0] not in tensors:
            continue
        if tensors[node.input[0]].data_type == TensorProto.INT32:
            for name in node.input[:2]:
                found[name] = numpy_helper.to_array(tensors[name], base_dir=str(folder))
    return found


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


def _ship(workload: str, model: onnx.ModelProto) -> Document:
    path = f"{workload}/{VARIANT}.onnx"
    raw = model.SerializeToString(deterministic=True)
    (SHIPPED / path).write_bytes(raw)
    print(f"{path}: {len(raw) / 1e3:.1f} kB", flush=True)
    digest = hashlib.sha256(raw).hexdigest()
    return {"path": path, "size": len(raw), "sha256": digest, "origin": "shipped"}


def _chain_passes(chain: Chain) -> bool:
    with tempfile.TemporaryDirectory(prefix="npumark-a16w8-") as temporary:
        folder = Path(temporary) / chain.workload
        folder.mkdir()
        shutil.copy(SHIPPED / chain.workload / f"{VARIANT}.onnx", folder)
        with (folder / "int8.weights").open("wb") as out:
            peak_files.write_weights(chain, "int8", out)
        with (folder / "inputs.f32").open("wb") as out:
            peak_files.write_inputs(chain, peak_files.EVAL, out)
        with (folder / "references.f16").open("wb") as out:
            peak_files.write_references(chain, peak_files.EVAL, out)
        return peak_build.passes(chain, graphs.A16W8, Path(temporary))


def _network(network: ShippedNetwork, folder: Path) -> tuple[onnx.ModelProto, bool]:
    """Return the graph, and whether it passes the network's gate on ONNX Runtime's CPU."""
    narrow = save(network.graph, network.values, "int8-u8s8", folder, network.quantisation)
    model = onnx.load(narrow, load_external_data=False)
    wide = finer(model, bias_sections(model, folder))
    path = folder / f"{VARIANT}.onnx"
    path.write_bytes(wide.SerializeToString(deterministic=True))
    onnx.checker.check_model(str(path))
    opened = session(path)
    names = list(network.graph.outputs)
    samples = range(network.entry.eval.n)
    outputs = [opened.run(names, network.feed(i, VARIANT)) for i in samples]
    gate = judge(network.measure(samples, outputs), network.gate("standard"))
    print(f"{network.entry.id}: {gate.binding} margin {gate.margin}", flush=True)
    return wide, gate.passed


def _variant(network: ShippedNetwork, validated: bool) -> Document:
    narrow = network.entry.variant("int8-u8s8")
    graph = f"{network.entry.id}/{VARIANT}.onnx"

    def tensors(specs: Sequence[TensorSpec]) -> list[Document]:
        return [{"name": s.name, "dtype": s.dtype, "shape": list(s.shape)} for s in specs]

    return {
        "id": VARIANT,
        "format": narrow.format,
        "encoding": VARIANT,
        "graph": graph,
        "files": [graph, *(file for file in narrow.files if file != narrow.graph)],
        "inputs": tensors(narrow.inputs),
        "outputs": tensors(narrow.outputs),
        "validated": validated,
        "division": narrow.division,
    }
