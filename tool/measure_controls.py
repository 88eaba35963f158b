"""Measures the shipped vision networks and their negative controls on ONNX Runtime's CPU.

Prints one line per network, variant and defect: the measures over a share of the eval set and
whether the standard gate lets it pass. A defect that passes, or a network that is whole and
fails, makes the exit status 1.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from npumark.gates.judge import judge  # noqa: E402
from npumark.record.model import Gate  # noqa: E402
from workloads.deeplabv3_mobilenet_v3_large import definition as deeplab  # noqa: E402
from workloads.defects import Broken, planted  # noqa: E402
from workloads.mobilenet_v3_large import definition as mobilenet  # noqa: E402
from workloads.onnx_emit import WEIGHT_FORMAT, save  # noqa: E402
from workloads.resnet50 import definition as resnet  # noqa: E402
from workloads.shipped import ShippedNetwork, open_network  # noqa: E402

NETWORKS = {module.WORKLOAD: module for module in (mobilenet, resnet, deeplab)}
CORRECT = "correct"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workload", choices=NETWORKS, action="append")
    parser.add_argument("--samples", type=int, default=8, help="eval samples per run")
    args = parser.parse_args(argv)
    wrong = 0
    for name in args.workload or NETWORKS:
        net = open_network(NETWORKS[name].build())
        for defect in (CORRECT, *planted(name)):
            for variant in WEIGHT_FORMAT:
                verdict = verdict_on(net, defect, variant, args.samples)
                wrong += verdict.passed != (defect == CORRECT)
                print(line(name, defect, variant, verdict), flush=True)
    return 1 if wrong else 0


def verdict_on(net: ShippedNetwork, defect: str, variant: str, count: int) -> Gate:
    """Judge a network with a defect planted, in one variant, on ``count`` eval samples."""
    broken = Broken(net.graph, net.values, net.quantisation)
    if defect != CORRECT:
        broken = planted(net.entry.id)[defect](net.graph, net.values, net.quantisation)
    n = net.entry.eval.n
    samples = sorted({i * n // min(count, n) for i in range(min(count, n))})
    with tempfile.TemporaryDirectory(prefix="npumark-controls-") as folder:
        path = save(broken.graph, broken.values, variant, Path(folder), broken.quantisation)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        outputs = [
            [np.asarray(y) for y in session.run(None, net.feed(sample, variant))]
            for sample in samples
        ]
    return judge(net.measure(samples, outputs), net.gate("standard"))


def line(name: str, defect: str, variant: str, verdict: Gate) -> str:
    figures = " ".join(f"{k}={v:.4g}" for k, v in verdict.measures.items() if v is not None)
    return f"{name} {defect} {variant}: {'pass' if verdict.passed else 'fail'} {figures}"


if __name__ == "__main__":
    sys.exit(main())
