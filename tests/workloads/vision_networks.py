"""The shipped vision networks, opened once per test process."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime

from workloads.deeplabv3_mobilenet_v3_large import definition as deeplab
from workloads.mobilenet_v3_large import definition as mobilenet
from workloads.resnet50 import definition as resnet
from workloads.shipped import ShippedNetwork, open_network

DEFINITIONS: dict[str, ModuleType] = {m.WORKLOAD: m for m in (mobilenet, resnet, deeplab)}
VARIANTS = ("fp32", "fp16", "w8", "int8-u8s8")


@cache
def network(workload: str) -> ShippedNetwork:
    return open_network(DEFINITIONS[workload].build())


def run(
    net: ShippedNetwork, graph: Path, variant: str, samples: Sequence[int]
) -> list[list[npt.NDArray[Any]]]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # other tests run beside this one
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    feeds = [net.feed(sample, variant) for sample in samples]
    return [[np.asarray(y) for y in session.run(None, feed)] for feed in feeds]
