"""The shipped constants of a network: what the run-time writer needs to make its weights.

The counterpart of ``npumark.pack.network_weights``, which reads these files; the format is
described there.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from npumark.pack.network_weights import Constants, parse_constants
from workloads.graph import Graph, Weight

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class TensorConstants:
    """One weight tensor by rule (``seeded``, ``dyadic``, ``literal``).

    ``mantissa``, ``exponent``: dyadic scales, one per output channel or one alone (seeded).
    ``rows`` int16 [n, fan-in] and ``row_index`` int32 [n]: fitted channels (seeded).
    ``values``: int32 units of 1/1024 (dyadic) or float32 (literal).
    ``of``: a bias's weight tensor.
    """

    weight: Weight
    rule: str
    mantissa: Array | None = None
    exponent: Array | None = None
    centre: int = 1
    rows: Array | None = None
    row_index: Array | None = None
    values: Array | None = None

    def value(self, workload: str) -> npt.NDArray[np.float32]:
        """The tensor's float32 values, computed by the run-time reader."""
        opened = parse_constants(pack(workload, [self]))
        return opened.value(opened.header["tensors"][0])


_DTYPES = {
    "mantissa": "<u2",
    "exponent": "<i1",
    "rows": "<i2",
    "row_index": "<i4",
}


def pack(
    workload: str,
    tensors: Iterable[TensorConstants],
    *,
    partners: Mapping[str, str] | None = None,
    input_scales: Mapping[str, float] | None = None,
) -> bytes:
    """Return the bytes of a constants file.

    ``partners`` maps a bias to the weight of its layer, ``input_scales`` a bias to the
    activation scale of its layer's input where that is quantised.
    """
    entries: list[dict[str, Any]] = []
    chunks: list[bytes] = []
    offset = 0
    for tensor in tensors:
        name = tensor.weight.name
        entry: dict[str, Any] = {
            "name": name,
            "shape": list(tensor.weight.shape),
            "kind": tensor.weight.kind,
            "rule": tensor.rule,
        }
        if tensor.centre != 1:
            entry["centre"] = tensor.centre
        if partners and name in partners:
            entry["of"] = partners[name]
        if input_scales and name in input_scales:
            entry["input_scale"] = float(input_scales[name]).hex()
        value_type = "<i4" if tensor.rule == "dyadic" else "<f4"
        for key, dtype in {**_DTYPES, "values": value_type}.items():
            array = getattr(tensor, key)
            if array is not None:
                raw = np.ascontiguousarray(array, dtype=dtype)
                entry[key] = {"offset": offset, "dtype": dtype, "shape": list(raw.shape)}
                chunks.append(raw.tobytes())
                offset += raw.nbytes
        entries.append(entry)
    header = json.dumps({"workload": workload, "tensors": entries}, separators=(",", ":")).encode()
    raw_file = len(header).to_bytes(8, "little") + header + b"".join(chunks)
    return lzma.compress(raw_file, check=lzma.CHECK_CRC32, preset=9 | lzma.PRESET_EXTREME)


def bias_partners(graph: Graph) -> dict[str, str]:
    """Bias name -> weight name of the same layer."""
    return {
        node.weights[1]: node.weights[0]
        for node in graph.nodes
        if node.op in ("conv", "dense") and len(node.weights) > 1
    }


def in_order(graph: Graph, constants: Mapping[str, TensorConstants]) -> list[TensorConstants]:
    """The constants of every weight of the graph, in definition order. Raises KeyError."""
    return [replace(constants[name], weight=weight) for name, weight in graph.weights.items()]


def all_values(constants: Constants) -> dict[str, npt.NDArray[np.float32]]:
    """Every weight's float32 values by name."""
    return {stored.name: value for stored, value in constants.tensors()}
