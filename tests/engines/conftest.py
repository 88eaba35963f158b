"""The smallest peak chain, materialised once, and requests to load it."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from npumark.engines.base import Array, Engine, LoadRequest
from npumark.pack.manifest import Manifest, TensorSpec, load_manifest
from npumark.pack.materialize import materialize, workload_paths
from npumark.worker.eval_set import load_inputs, load_references

CHAIN = "peak-16x256x3"


class _SignalStack(ctypes.Structure):
    """``stack_t`` of sigaltstack(2)."""

    _fields_ = [
        ("sp", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("size", ctypes.c_size_t),
    ]


@pytest.fixture(autouse=True)
def signal_stack() -> Iterator[None]:
    """Give this thread its signal stack back.

    On a CPU with AMX each OpenVINO plugin puts a signal stack of its own in place and, when
    several are let go in another order than they came, leaves one behind that is freed: the
    next signal that Python handles then ends the process. Workers load one session at a time
    and are killed; this process goes on to other tests.
    """
    if not sys.platform.startswith("linux"):
        yield
        return
    libc, before, after = ctypes.CDLL(None), _SignalStack(), _SignalStack()
    libc.sigaltstack(None, ctypes.byref(before))
    yield
    libc.sigaltstack(None, ctypes.byref(after))
    if bytes(after) != bytes(before):
        gc.collect()
        libc.sigaltstack(ctypes.byref(before), None)


@dataclass
class Chain:
    """The chain's pack: ``request`` asks for a variant, ``feeds`` are its eval inputs."""

    root: Path
    manifest: Manifest

    def request(
        self, engine_id: str, variant: str, encoding: str = "", form: str = ""
    ) -> LoadRequest:
        workload = self.manifest.workloads[CHAIN]
        graph = workload.variant(variant)
        return LoadRequest(
            engine_id=engine_id,
            workload_id=CHAIN,
            graph=self.root / graph.graph,
            encoding=encoding or graph.encoding,
            format=form or graph.format,
            inputs=graph.inputs,
            outputs=graph.outputs,
            threads=1,
            options={},
            cache_dir=None,
        )

    def feeds(self, request: LoadRequest) -> list[tuple[Array, ...]]:
        return load_inputs(self.root, self.manifest.workloads[CHAIN].eval, request.inputs)

    def references(self) -> Array:
        return load_references(self.root, self.manifest.workloads[CHAIN].eval)[0]

    def answers(self, engine: Engine, request: LoadRequest) -> list[Array]:
        """Load, run every eval input once, and return copies of the outputs."""
        session = engine.load(request)
        step, found = session.step(), []
        for feed in self.feeds(request):
            session.inputs()[0][...] = feed[0]
            step()
            found.append(session.outputs()[0].copy())
        session.close()
        return found


@pytest.fixture(scope="session")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Chain:
    manifest = load_manifest()
    root = tmp_path_factory.mktemp("pack")
    materialize(manifest, workload_paths(manifest, [CHAIN]), root=root)
    return Chain(root, manifest)


@pytest.fixture
def weight_only(tmp_path: Path) -> Callable[[str], LoadRequest]:
    """Return a request for a two-layer chain with 8-bit weights that the graph unpacks."""

    def make(engine_id: str) -> LoadRequest:
        rows, width = 8, 64
        draw = np.random.default_rng(3)
        nodes, tensors, value = [], [], "x"
        for layer in range(2):
            weights = draw.standard_normal((width, width)).astype(np.float32) / 8
            scale = (np.abs(weights).max(axis=0) / 127).astype(np.float32)
            tensors.append(
                numpy_helper.from_array(np.rint(weights / scale).astype(np.int8), f"w{layer}")
            )
            tensors.append(numpy_helper.from_array(scale, f"s{layer}"))
            nodes.append(
                helper.make_node(
                    "DequantizeLinear", [f"w{layer}", f"s{layer}"], [f"d{layer}"], axis=1
                )
            )
            nodes.append(helper.make_node("MatMul", [value, f"d{layer}"], [f"m{layer}"]))
            value = "y" if layer else "r0"
            nodes.append(helper.make_node("Relu", [f"m{layer}"], [value]))
        told = [helper.make_tensor_value_info(n, TensorProto.FLOAT, (rows, width)) for n in "xy"]
        graph = helper.make_graph(nodes, "w8", told[:1], told[1:], tensors)
        path = tmp_path / "w8.onnx"
        opsets = [helper.make_opsetid("", 17)]
        onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
        return LoadRequest(
            engine_id=engine_id,
            workload_id="w8",
            graph=path,
            encoding="w8",
            format="W8",
            inputs=(TensorSpec("x", "float32", (rows, width)),),
            outputs=(TensorSpec("y", "float32", (rows, width)),),
            threads=1,
            options={},
            cache_dir=None,
        )

    return make
