"""Exports definitions as programs: ``tool/build_pack.py programs``.

``<workload>/program.json`` and the part of the manifest that lists those files. Built from
what is shipped: neither PyTorch nor the photographs are needed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from npumark.pack import peak_files
from npumark.pack.program import PROGRAM, SCHEMA
from npumark.pack.program_file import parse_program
from npumark.pack.seeded import Chain
from npumark.pack.weight_encoding import FORMATS, sections
from npumark.policy import DATA
from workloads.deeplabv3_mobilenet_v3_large import definition as deeplab
from workloads.granite_embedding_30m import definition as granite
from workloads.graph import Graph, Values
from workloads.mobilenet_v3_large import definition as mobilenet
from workloads.onnx_emit import Quantisation, stored
from workloads.peak.graphs import activation_scales
from workloads.resnet50 import definition as resnet
from workloads.shipped import ShippedNetwork, open_network

SHIPPED = DATA / "pack"
PART = DATA / "manifest.programs.json"

CHAINS = (Chain(512, 2048, 8), Chain(2048, 2048, 4), Chain(16, 256, 3), Chain(64, 256, 3))
"""All chains but the large-batch one, which only ONNX Runtime's variants measure."""

Document = dict[str, Any]
Placed = tuple[str, np.dtype[Any], tuple[int, ...], int]
"""Name, type, shape and byte offset of a section."""


def main(argv: Sequence[str]) -> int:
    """Write every program and the part."""
    argparse.ArgumentParser(prog="build_pack.py programs", description=__doc__).parse_args(argv)
    files = []
    for document in documents():
        raw = encode(document)
        parse_program(raw)
        path = f"{document['workload']}/{PROGRAM}"
        (SHIPPED / path).write_bytes(raw)
        digest = hashlib.sha256(raw).hexdigest()
        files.append({"path": path, "size": len(raw), "sha256": digest, "origin": "shipped"})
        print(f"{path}: {len(raw) / 1e3:.1f} kB", flush=True)
    part = {"files": files, "variants": {}}
    PART.write_text(json.dumps(part, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return 0


def documents() -> Iterator[Document]:
    """Yield the program of every chain and network, as what its JSON holds."""
    for chain in CHAINS:
        yield chain_document(chain)
    for network in networks():
        yield network_document(network)


def networks() -> Iterator[ShippedNetwork]:
    """Open the shipped networks one after the other."""
    yield open_network(mobilenet.build())
    yield open_network(resnet.build())
    yield open_network(deeplab.build())
    yield open_network(granite.build(), granite.PRODUCTS)


def network_document(network: ShippedNetwork) -> Document:
    """Return the program of a shipped network."""
    graph, quantisation = network.graph, network.quantisation
    files = weight_files(graph, network.values, quantisation)
    return document(graph, quantisation) | {"files": files}


def weight_files(graph: Graph, values: Values, quantisation: Quantisation) -> Document:
    """Return where every array lies in each of a network's weight files."""
    return {
        form: _weight_file(
            graph.workload,
            form,
            (
                (section.name, section.array.dtype, section.array.shape, offset)
                for section, offset in sections(form, stored(graph, values, quantisation))
            ),
        )
        for form in FORMATS
    }


def chain_document(chain: Chain) -> Document:
    """Return the program of a peak chain: dense layers without bias, each with a ReLU."""
    graph = chain_graph(chain)
    names = ["x", *(f"relu{layer}" for layer in range(chain.layers))]
    zeros = [128, *(0 for _ in range(chain.layers))]
    scales = (float(scale) for scale in activation_scales(chain))
    ranges = dict(zip(names, zip(scales, zeros, strict=True), strict=True))
    files = {
        form: _weight_file(chain.workload, form, _chain_sections(chain, form)) for form in FORMATS
    }
    quantisation = Quantisation(ranges, frozenset({"dense"}))
    return document(graph, quantisation) | {"files": files}


def chain_graph(chain: Chain) -> Graph:
    """Return a peak chain in the intermediate form."""
    graph = Graph(chain.workload)
    y = graph.input("x", (chain.rows, chain.width))
    for layer in range(chain.layers):
        y = graph.dense(y, f"mm{layer}", chain.width, bias=False)
        y = graph.activation(y, f"relu{layer}", "relu")
    graph.output("y", y)
    return graph


def document(graph: Graph, quantisation: Quantisation) -> Document:
    """Return what a program's JSON holds of structure and ranges."""
    return {
        "schema": SCHEMA,
        "workload": graph.workload,
        "inputs": [
            {"name": name, "dtype": kind, "shape": list(graph.shapes[name])}
            for name, kind in graph.inputs.items()
        ],
        "outputs": [{"name": name, "tensor": tensor} for name, tensor in graph.outputs.items()],
        "weights": [
            {"name": w.name, "kind": w.kind, "shape": list(w.shape)} for w in graph.weights.values()
        ],
        "nodes": [
            {
                "op": node.op,
                "name": node.name,
                "inputs": list(node.inputs),
                "shape": list(graph.shapes[node.name]),
                "attrs": dict(node.attrs),
                "weights": list(node.weights),
            }
            for node in graph.nodes
        ],
        "activations": {
            tensor: {"scale": scale, "zero": zero}
            for tensor, (scale, zero) in quantisation.activations.items()
        },
        "quantised_ops": sorted(quantisation.ops),
    }


def encode(doc: Document) -> bytes:
    """Return a program's bytes: one list item or mapping entry to a line, so that diffs tell."""
    parts = []
    for key, value in doc.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            items = ",\n ".join(_compact(item) for item in value)
            parts.append(f"{_compact(key)}: [\n {items}\n]")
        elif key in ("activations", "files"):
            items = ",\n ".join(f"{_compact(k)}: {_compact(v)}" for k, v in value.items())
            parts.append(f"{_compact(key)}: {{\n {items}\n}}")
        else:
            parts.append(f"{_compact(key)}: {_compact(value)}")
    return ("{\n" + ",\n".join(parts) + "\n}\n").encode()


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def _chain_sections(chain: Chain, form: str) -> Iterator[Placed]:
    """Yield a chain's weight file under the program's names: w0 is mm0.weight or mm0.weight.q."""
    for at in peak_files.layout(chain, peak_files.weight_form(form)):
        layer, _, part = at.name.removeprefix("w").partition(".")
        part = part or ("q" if form == "int8" else "")
        name = f"mm{layer}.weight" + (f".{part}" if part else "")
        yield name, np.dtype(at.dtype), at.shape, at.offset


def _weight_file(workload: str, form: str, placed: Iterable[Placed]) -> Document:
    return {
        "path": f"{workload}/{form}.weights",
        "sections": [
            {"name": name, "dtype": dtype.name, "shape": list(shape), "offset": offset}
            for name, dtype, shape, offset in placed
        ],
    }
