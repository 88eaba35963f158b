"""ONNX Runtime without its optimiser."""

from __future__ import annotations

from pathlib import Path

import onnxruntime


def unoptimised(path: Path) -> onnxruntime.InferenceSession:
    """Open a graph as it is written: every pair rounds, every product is in floating point."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
