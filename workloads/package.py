"""Turns a finished network into its part of the pack, and measures what its gates come from.

What is shipped per network: four graphs, the constants of its weights, its reference outputs
and their calibration mean. Weight files are made from the constants by the same recipe that a
user's machine will follow, hashed, measured on ONNX Runtime's CPU provider, and thrown away.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime

from npumark.gates.judge import judge
from npumark.gates.metrics import accumulator
from npumark.pack.manifest import GateSpec
from npumark.pack.network_weights import CONSTANTS, parse_constants, write_weights
from npumark.pack.weight_encoding import FORMATS
from npumark.policy import load_policy
from workloads.constants import TensorConstants, all_values, bias_partners, in_order, pack
from workloads.gate_rules import Run, derive_gates
from workloads.graph import Graph, Values
from workloads.onnx_emit import WEIGHT_FORMAT, Quantisation, input_scales, save

FAMILY = {"fp32": "FP32", "fp16": "FP16", "w8": "W8", "int8-u8s8": "INT8"}
"""Variant -> number format family."""

Array = npt.NDArray[Any]
Document = dict[str, Any]
Outputs = Callable[[int], Sequence[Array]]
"""Eval input index -> outputs, in the order of the graph's."""


@dataclass(frozen=True)
class EvalInput:
    """One graph input over the whole eval set.

    ``array``: what the file holds, [n, *sample]. ``shipped``: bytes of the shipped file, where
    it is packed (the file at ``path`` is then derived by ``unpack-u8``), else None.
    """

    name: str
    path: str
    array: Array
    transform: str | None = None
    shipped: bytes | None = None

    def sample(self, index: int, floats: type[np.floating[Any]]) -> Array:
        """The graph's input for one eval sample, batch axis included."""
        x = self.array[index : index + 1]
        if self.transform == "u8-centred":
            return np.asarray(x.astype(floats) / 128 - 1)
        return x.astype(floats) if np.issubdtype(x.dtype, np.floating) else x


@dataclass(frozen=True)
class Network:
    """A network whose weights and references are final.

    ``references`` and ``means``: output name -> float array [n, ...] and [...]; an embedding
    also has the integer ``positions`` of its token states, and no mean of those. ``emulated``
    runs the half-precision emulation.
    """

    graph: Graph
    title: str
    task: str
    published: Document
    params: int
    constants: Mapping[str, TensorConstants]
    quantisation: Quantisation
    inputs: Sequence[EvalInput]
    references: Mapping[str, Array]
    means: Mapping[str, Array]
    parameters: Mapping[str, float]
    emulated: Outputs
    canonical: int = 0
    tier: str = "scored"

    @property
    def workload(self) -> str:
        return self.graph.workload


@dataclass
class Part:
    """Fragment of the manifest under construction."""

    files: dict[str, Document] = field(default_factory=dict)
    workloads: list[Document] = field(default_factory=list)

    def shipped(self, root: Path, path: str, data: bytes) -> None:
        """Write a shipped file and enter it."""
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
        self.files[path] = _entry(path, data) | {"origin": "shipped"}

    def derived(
        self, path: str, data: bytes, recipe: str, args: Document, needs: list[str]
    ) -> None:
        """Enter a file that the user's machine makes."""
        made = {"origin": "derived", "recipe": recipe, "args": args, "needs": needs}
        self.files[path] = _entry(path, data) | made

    def document(self) -> Document:
        return {"files": list(self.files.values()), "workloads": self.workloads}


def _kept(reference: Array) -> Array:
    """A reference as it is stored: float16, or int32 where it holds positions."""
    return reference.astype("<i4" if np.issubdtype(reference.dtype, np.integer) else "<f2")


def _reference_path(workload: str, output: str, reference: Array) -> str:
    suffix = {"f": "f16", "i": "i32"}[reference.dtype.kind]
    return f"{workload}/{output}.reference.{suffix}"


def _entry(path: str, data: bytes) -> Document:
    return {"path": path, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def constants_bytes(network: Network) -> bytes:
    """The bytes of the network's constants file."""
    return pack(
        network.workload,
        in_order(network.graph, network.constants),
        partners=bias_partners(network.graph),
        input_scales=input_scales(network.graph, network.quantisation),
    )


def ship(network: Network, root: Path, part: Part) -> dict[str, Run]:
    """Write a network's shipped files under ``root``, enter everything in ``part``.

    Returns the measures of every run that a gate or a verdict came from, by name. Raises
    ValueError where the weights made from the constants differ from those emitted.
    """
    name = network.workload
    constants = constants_bytes(network)
    part.shipped(root, f"{name}/{CONSTANTS}", constants)
    for tensor in network.inputs:
        if tensor.shipped is not None:
            part.shipped(root, f"{tensor.path}.xz", tensor.shipped)
            args = {"shape": list(tensor.array.shape)}
            raw = tensor.array.tobytes()
            part.derived(tensor.path, raw, "unpack-u8", args, [f"{tensor.path}.xz"])
        else:
            part.shipped(root, tensor.path, tensor.array.tobytes())
    for output, reference in network.references.items():
        part.shipped(root, _reference_path(name, output, reference), _kept(reference).tobytes())
    for output, mean in network.means.items():
        part.shipped(root, f"{name}/{output}.mu.f32", mean.astype("<f4").tobytes())
    with tempfile.TemporaryDirectory(prefix="npumark-network-") as temporary:
        folder = Path(temporary) / name
        folder.mkdir()
        (folder / CONSTANTS).write_bytes(constants)
        _materialise(network, folder, root, part)
        runs = {variant: run_onnx(network, folder / f"{variant}.onnx") for variant in FAMILY}
    runs["emulated fp16"] = measure(network, network.emulated)
    gates = derive_gates(network.task, runs, load_policy().gates)
    part.workloads.append(_document(network, gates, runs))
    return runs


def _materialise(network: Network, folder: Path, root: Path, part: Part) -> None:
    """Emit the graphs, make the weight files by recipe, and hold one against the other."""
    name = network.workload
    values: Values = all_values(parse_constants((folder / CONSTANTS).read_bytes()))
    for variant in FAMILY:
        graph = save(network.graph, values, variant, folder, network.quantisation)
        part.shipped(root, f"{name}/{graph.name}", graph.read_bytes())
    for form in FORMATS:
        emitted = folder / f"{form}.weights"
        expected = emitted.read_bytes()
        with emitted.open("wb") as out:
            write_weights(folder.parent, name, form, out)
        made = emitted.read_bytes()
        if made != expected:
            raise ValueError(f"{name}: {form}.weights made from the constants differ")
        args = {"workload": name, "form": form}
        needs = [f"{name}/{CONSTANTS}"]
        part.derived(f"{name}/{form}.weights", made, "network-weights", args, needs)


def session(path: Path) -> onnxruntime.InferenceSession:
    """Open a graph on ONNX Runtime's CPU provider."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def run_onnx(network: Network, path: Path) -> Run:
    """Measure a graph of the network over its eval set."""
    opened = session(path)
    half = opened.get_inputs()[0].type == "tensor(float16)" or path.stem == "fp16"
    floats = np.float16 if half else np.float32
    names = list(network.graph.outputs)

    def outputs(index: int) -> Sequence[Array]:
        feed = {tensor.name: tensor.sample(index, floats) for tensor in network.inputs}
        return [np.asarray(y) for y in opened.run(names, feed)]

    return measure(network, outputs)


def measure(network: Network, outputs: Outputs) -> Run:
    """Take the task's measures over the eval set against the references as shipped.

    Raises ValueError where the outputs cannot be judged.
    """
    references = [_kept(array) for array in network.references.values()]
    means = [mean.astype("<f4") for mean in network.means.values()]
    judged = accumulator(network.task, references, means, network.parameters)
    for index in range(len(references[0])):
        judged.add(index, outputs(index))
    measures, why = judged.result()
    if why is not None:
        raise ValueError(f"{network.workload}: {why}")
    return measures


def _document(network: Network, gates: Mapping[str, GateSpec], runs: Mapping[str, Run]) -> Document:
    name, graph = network.workload, network.graph

    def stored(tensor: str, file: str, array: Array, dtype: str) -> Document:
        return {"name": tensor, "file": file, "dtype": dtype, "shape": list(array.shape)}

    inputs = [
        stored(x.name, x.path, x.array, x.array.dtype.name)
        | ({"transform": x.transform} if x.transform else {})
        for x in network.inputs
    ]
    references = [
        stored(output, _reference_path(name, output, array), array, _kept(array).dtype.name)
        for output, array in network.references.items()
    ]
    means = [
        stored(output, f"{name}/{output}.mu.f32", mean, "float32")
        for output, mean in network.means.items()
    ]
    return {
        "id": name,
        "kind": "network",
        "tier": network.tier,
        "task": network.task,
        "title": network.title,
        "macs": graph.macs(),
        "params": network.params,
        "published": network.published,
        "eval": {
            "n": len(network.inputs[0].array),
            "canonical": network.canonical,
            "inputs": inputs,
            "references": references,
            "mu": means,
            "parameters": dict(network.parameters),
        },
        "gates": {k: {"basis": g.basis, "bounds": g.bounds} for k, g in gates.items()},
        "variants": [
            _variant(network, variant, judge(runs[variant], gates["standard"]).passed)
            for variant in FAMILY
        ],
    }


def _variant(network: Network, variant: str, validated: bool) -> Document:
    name, graph = network.workload, network.graph
    floats = "float16" if variant == "fp16" else "float32"
    path = f"{name}/{variant}.onnx"
    return {
        "id": variant,
        "format": FAMILY[variant],
        "encoding": variant,
        "graph": path,
        "files": [path, f"{name}/{WEIGHT_FORMAT[variant]}.weights"],
        "inputs": [
            {
                "name": x,
                "dtype": floats if kind == "float" else kind,
                "shape": list(graph.shapes[x]),
            }
            for x, kind in graph.inputs.items()
        ],
        "outputs": [
            {"name": output, "dtype": floats, "shape": list(graph.shapes[tensor])}
            for output, tensor in graph.outputs.items()
        ],
        "validated": validated,
        "division": "standard",
    }
