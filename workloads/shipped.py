"""Reads a shipped network back: definition, weights, activation ranges, eval set, gates.

What the checks of the pack start from. Needs neither PyTorch nor the photographs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import numpy_helper

from npumark.gates.metrics import accumulator
from npumark.pack.manifest import GateSpec, Workload, workload_from
from npumark.pack.network_weights import CONSTANTS, parse_constants
from npumark.pack.pixels import decode_u8
from npumark.policy import DATA
from workloads.constants import all_values
from workloads.gate_rules import Run
from workloads.graph import Graph, Values
from workloads.onnx_emit import Quantisation

SHIPPED = DATA / "pack"
FRAGMENT = DATA / "manifest.networks.json"

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class ShippedNetwork:
    """A network as the pack holds it."""

    entry: Workload
    graph: Graph
    values: Values
    quantisation: Quantisation

    def gate(self, tier: str) -> GateSpec:
        return self.entry.gates[tier]

    def arrays(self, kind: str) -> list[Array]:
        """The eval set's ``inputs``, ``references`` or ``mu``, as stored."""
        return [
            stored_array(tensor.file, tensor.dtype, tensor.shape)
            for tensor in getattr(self.entry.eval, kind)
        ]

    def feed(self, sample: int, variant: str) -> dict[str, Array]:
        """The graph inputs of one eval sample in the types that a variant takes."""
        floats: np.dtype[Any] = np.dtype("float16" if variant == "fp16" else "float32")
        feed = {}
        for tensor, array in zip(self.entry.eval.inputs, self.arrays("inputs"), strict=True):
            x = array[sample : sample + 1]
            if tensor.transform == "u8-centred":
                x = x.astype(floats) / 128 - 1
            feed[tensor.name] = x
        return feed

    def measure(self, samples: Sequence[int], outputs: Sequence[Sequence[Array]]) -> Run:
        """Measures over some eval samples, given each one's outputs.

        Raises ValueError where outputs cannot be judged.
        """
        judged = accumulator(
            self.entry.task,
            [array[list(samples)] for array in self.arrays("references")],
            self.arrays("mu"),
            self.entry.eval.parameters,
        )
        for index, out in enumerate(outputs):
            judged.add(index, out)
        measures, why = judged.result()
        if why is not None:
            raise ValueError(why)
        return measures


def fragment(path: Path = FRAGMENT) -> dict[str, Any]:
    """The manifest fragment of the networks."""
    return dict(json.loads(path.read_text(encoding="utf-8")))


def open_network(graph: Graph, ops: frozenset[str] | None = None) -> ShippedNetwork:
    """Open the shipped form of a definition. Raises KeyError where the pack lacks it."""
    entries = {workload["id"]: workload for workload in fragment()["workloads"]}
    folder = SHIPPED / graph.workload
    constants = parse_constants((folder / CONSTANTS).read_bytes())
    ranges = activation_ranges(folder / "int8-u8s8.onnx")
    quantisation = Quantisation(ranges, ops) if ops else Quantisation(ranges)
    entry = workload_from(entries[graph.workload])
    return ShippedNetwork(entry, graph, all_values(constants), quantisation)


def activation_ranges(path: Path) -> dict[str, tuple[float, int]]:
    """Tensor -> (scale, zero point) from the constants of a quantised graph."""
    model = onnx.load(path, load_external_data=False)
    inline = {
        tensor.name: numpy_helper.to_array(tensor)
        for tensor in model.graph.initializer
        if tensor.data_location != onnx.TensorProto.EXTERNAL
    }
    return {
        name.removesuffix(".step"): (
            float(array),
            int(inline[f"{name.removesuffix('.step')}.zero"]),
        )
        for name, array in inline.items()
        if name.endswith(".step")
    }


@cache
def stored_array(file: str, dtype: str, shape: tuple[int, ...]) -> Array:
    """Read one stored tensor from the shipped files, unpacking it where it is packed. Read-only."""
    packed = SHIPPED / f"{file}.xz"
    raw = decode_u8(packed.read_bytes(), shape) if packed.exists() else _bytes(file)
    return np.frombuffer(raw, np.dtype(dtype).newbyteorder("<")).reshape(shape)


def _bytes(file: str) -> bytes:
    return (SHIPPED / file).read_bytes()
