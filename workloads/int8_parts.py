"""Parts of the manifest that hold further INT8 variants, over the weights of ``int8-u8s8``.

Such a part has a graph per chain and per network: a chain's is made from its calibration as the
others are, a network's from its ``int8-u8s8`` graph. Each is judged on ONNX Runtime's CPU over its
eval set when it is made.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, numpy_helper

from npumark.gates.judge import judge
from npumark.pack import peak_files
from npumark.pack.manifest import TensorSpec
from npumark.pack.seeded import Chain
from npumark.policy import DATA
from workloads.onnx_emit import save
from workloads.package import session
from workloads.peak import build as peak_build
from workloads.peak import graphs
from workloads.programs_build import networks
from workloads.shipped import SHIPPED, ShippedNetwork

Document = dict[str, Any]
Biases = dict[str, npt.NDArray[Any]]
"""Integers and scales of quantised biases, by the names of their sections."""


@dataclass(frozen=True)
class Int8Part:
    """``name`` is the part's, ``rewrite`` makes a network's graph of its ``int8-u8s8``. ``ops`` are
    the operations whose inputs stay quantised in it; null: all."""

    name: str
    encoding: graphs.Encoding
    chains: tuple[Chain, ...]
    rewrite: Callable[[onnx.ModelProto, Biases], onnx.ModelProto]
    ops: frozenset[str] | None = None

    def build(self) -> None:
        """Write every graph into the shipped files, and the part."""
        files: list[Document] = []
        variants: dict[str, list[Document]] = {}
        for chain in self.chains:
            files.append(self._ship(chain.workload, graphs.graph(chain, self.encoding)))
            passed = {self.encoding.id: self._chain_passes(chain)}
            variants[chain.workload] = [peak_build.variant(chain, self.encoding, passed)]
        for network in networks():
            workload = network.entry.id
            with tempfile.TemporaryDirectory(prefix="npumark-int8-") as temporary:
                model, passed_gate = self._network(network, Path(temporary))
            files.append(self._ship(workload, model))
            variants[workload] = [self._variant(network, passed_gate)]
        part = json.dumps({"files": files, "variants": variants}, indent=1, ensure_ascii=False)
        (DATA / f"manifest.{self.name}.json").write_text(part + "\n", encoding="utf-8")

    def _ship(self, workload: str, model: onnx.ModelProto) -> Document:
        path = f"{workload}/{self.encoding.id}.onnx"
        raw = model.SerializeToString(deterministic=True)
        (SHIPPED / path).write_bytes(raw)
        print(f"{path}: {len(raw) / 1e3:.1f} kB", flush=True)
        digest = hashlib.sha256(raw).hexdigest()
        return {"path": path, "size": len(raw), "sha256": digest, "origin": "shipped"}

    def _chain_passes(self, chain: Chain) -> bool:
        with tempfile.TemporaryDirectory(prefix="npumark-int8-") as temporary:
            folder = Path(temporary) / chain.workload
            folder.mkdir()
            shutil.copy(SHIPPED / chain.workload / f"{self.encoding.id}.onnx", folder)
            with (folder / "int8.weights").open("wb") as out:
                peak_files.write_weights(chain, "int8", out)
            with (folder / "inputs.f32").open("wb") as out:
                peak_files.write_inputs(chain, peak_files.EVAL, out)
            with (folder / "references.f16").open("wb") as out:
                peak_files.write_references(chain, peak_files.EVAL, out)
            return peak_build.passes(chain, self.encoding, Path(temporary))

    def _network(self, network: ShippedNetwork, folder: Path) -> tuple[onnx.ModelProto, bool]:
        """Return the graph, and whether it passes the network's gate on ONNX Runtime's CPU."""
        ranges = network.quantisation
        if self.ops is not None:
            ranges = replace(ranges, ops=ranges.ops & self.ops)
        narrow = save(network.graph, network.values, "int8-u8s8", folder, ranges)
        model = onnx.load(narrow, load_external_data=False)
        rewritten = self.rewrite(model, bias_sections(model, folder))
        path = folder / f"{self.encoding.id}.onnx"
        path.write_bytes(rewritten.SerializeToString(deterministic=True))
        onnx.checker.check_model(str(path))
        opened = session(path)
        names = list(network.graph.outputs)
        samples = range(network.entry.eval.n)
        outputs = [opened.run(names, network.feed(i, self.encoding.id)) for i in samples]
        gate = judge(network.measure(samples, outputs), network.gate("standard"))
        print(f"{network.entry.id}: {gate.binding} margin {gate.margin}", flush=True)
        return rewritten, gate.passed

    def _variant(self, network: ShippedNetwork, validated: bool) -> Document:
        narrow = network.entry.variant("int8-u8s8")
        graph = f"{network.entry.id}/{self.encoding.id}.onnx"

        def tensors(specs: Sequence[TensorSpec]) -> list[Document]:
            return [{"name": s.name, "dtype": s.dtype, "shape": list(s.shape)} for s in specs]

        return {
            "id": self.encoding.id,
            "format": narrow.format,
            "encoding": self.encoding.id,
            "graph": graph,
            "files": [graph, *(file for file in narrow.files if file != narrow.graph)],
            "inputs": tensors(narrow.inputs),
            "outputs": tensors(narrow.outputs),
            "validated": validated,
            "division": narrow.division,
        }


def bias_sections(model: onnx.ModelProto, folder: Path) -> Biases:
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


def is_step(tensor: onnx.TensorProto) -> bool:
    """Say whether a constant is the scale of an activation."""
    inline = tensor.data_location != TensorProto.EXTERNAL
    return bool(inline and tensor.name.endswith(".step"))


def scalar(tensor: onnx.TensorProto) -> float:
    """Return the one number that a constant of the graph holds."""
    return float(np.asarray(numpy_helper.to_array(tensor)))
