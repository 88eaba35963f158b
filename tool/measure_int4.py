"""Measures whether 4-bit weights would pass the standard gates, and so could ship.

The methodology ships a 4-bit variant of a network other than a language model only if it passes
its standard gate on a CPU when the pack is built. Weights are rounded to 4 bits (symmetric, one
scale per block of 32 inputs of an output channel, max|w| / 7) and computed in FP32 on ONNX
Runtime: no runtime can do better than that. Prints one line per network; exit status 1 where one
passes that the pack does not ship.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from npumark.gates.judge import judge  # noqa: E402
from npumark.record.model import Gate  # noqa: E402
from workloads.deeplabv3_mobilenet_v3_large import definition as deeplab  # noqa: E402
from workloads.granite_embedding_30m import definition as granite  # noqa: E402
from workloads.mobilenet_v3_large import definition as mobilenet  # noqa: E402
from workloads.onnx_emit import save  # noqa: E402
from workloads.resnet50 import definition as resnet  # noqa: E402
from workloads.shipped import ShippedNetwork, open_network  # noqa: E402

NETWORKS = {module.WORKLOAD: module for module in (mobilenet, resnet, deeplab, granite)}
BLOCK = 32
LEVELS = 7
MATRICES = ("conv", "depthwise", "dense")

FloatArray = npt.NDArray[np.float32]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workload", choices=NETWORKS, action="append")
    args = parser.parse_args(argv)
    unshipped = 0
    for name in args.workload or NETWORKS:
        net = open_network(NETWORKS[name].build())
        verdict = verdict_on(net)
        shipped = any(v.format == "INT4" for v in net.entry.variants)
        unshipped += verdict.passed and not shipped
        figures = " ".join(f"{k}={v:.4g}" for k, v in verdict.measures.items() if v is not None)
        print(f"{name} int4: {'pass' if verdict.passed else 'fail'} {figures}", flush=True)
    return 1 if unshipped else 0


def rounded(value: FloatArray, kind: str) -> FloatArray:
    """Return weights as 4 bits hold them; others unchanged. Dense weights are [in, out]."""
    if kind not in MATRICES:
        return value
    rows = value.T if kind == "dense" else value
    flat = rows.reshape(rows.shape[0], -1)
    padded = np.pad(flat, ((0, 0), (0, -flat.shape[1] % BLOCK)))
    blocks = padded.reshape(flat.shape[0], -1, BLOCK)
    scale = np.abs(blocks).max(axis=2, keepdims=True) / LEVELS
    scale[scale == 0] = 1
    held = (np.rint(blocks / scale) * scale).reshape(padded.shape)[:, : flat.shape[1]]
    held = held.reshape(rows.shape).astype(np.float32)
    return np.ascontiguousarray(held.T) if kind == "dense" else held


def verdict_on(net: ShippedNetwork) -> Gate:
    """Judge the network with 4-bit weights over its whole eval set."""
    kinds = {name: weight.kind for name, weight in net.graph.weights.items()}
    values = {n: rounded(v, kinds[n]) if n in kinds else v for n, v in net.values.items()}
    with tempfile.TemporaryDirectory(prefix="npumark-int4-") as folder:
        path = save(net.graph, values, "fp32", Path(folder))
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        samples = range(net.entry.eval.n)
        outputs: list[list[npt.NDArray[Any]]] = [
            [np.asarray(y) for y in session.run(None, net.feed(sample, "fp32"))]
            for sample in samples
        ]
    return judge(net.measure(samples, outputs), net.gate("standard"))


if __name__ == "__main__":
    sys.exit(main())
