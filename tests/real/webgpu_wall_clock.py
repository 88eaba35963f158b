"""Times calls of ONNX Runtime's WebGPU provider twice: as the timed loop does, and by the wall
clock until the outputs have been read and are seen to be those of this call.

    PYTHON webgpu_wall_clock.py FOLDER GRAPH ROWS WIDTH CALLS

FOLDER holds inputs.f32. One JSON document on standard output: per call the nanoseconds ``timed``,
``wall`` and, ``left_on_device``, those of a call whose output stays there, with its ``read_back``.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np
import onnxruntime

from npumark.engines.base import LoadRequest
from npumark.engines.ort import OnnxRuntime
from npumark.pack.manifest import TensorSpec


def main(folder: Path, graph: str, rows: int, width: int, calls: int) -> int:
    inputs = np.fromfile(folder / "inputs.f32", "<f4").reshape(-1, rows, width)
    engine = OnnxRuntime()
    engine.prepare()
    (info,) = (e for e in engine.probe({"only": ["ort-webgpu"]}) if e.available)
    shape = (rows, width)
    session = engine.load(
        LoadRequest(
            engine_id=info.id,
            workload_id="chain",
            graph=folder / graph,
            encoding="fp32",
            format="FP32",
            inputs=(TensorSpec("x", "float32", shape),),
            outputs=(TensorSpec("y", "float32", shape),),
            threads=1,
            options={**info.options, "cache": False},
            cache_dir=None,
        )
    )
    step, buffer, output = session.step(), session.inputs()[0], session.outputs()[0]
    answers = []
    for x in inputs:
        buffer[...] = x
        step()
        answers.append(output.copy())
    timed, wall = [], []
    for i in range(calls):
        output[...] = np.nan
        x, answer = inputs[i % len(inputs)], answers[i % len(inputs)]
        start = time.perf_counter_ns()
        buffer[...] = x
        step()
        end = time.perf_counter_ns()
        read = output.copy()
        wall.append(time.perf_counter_ns() - start)
        timed.append(end - start)
        if not np.array_equal(read, answer):
            raise SystemExit("a call returned before its outputs were there")
    session.close()
    left, read_back = _left_on_device(folder / graph, inputs[0], shape, calls)
    told = {"timed": timed, "wall": wall, "left_on_device": left, "read_back": read_back}
    print(json.dumps(told))
    return 0


def _left_on_device(
    graph: Path, x: np.ndarray, shape: tuple[int, int], calls: int
) -> tuple[list[int], list[int]]:
    """Time calls whose output stays on the device: they return with the work still to be done."""
    session = onnxruntime.InferenceSession(str(graph), providers=["WebGpuExecutionProvider"])
    binding = session.io_binding()
    binding.bind_cpu_input("x", x)
    binding.bind_output("y", "webgpu", 0, np.float32, shape)
    left, read_back = [], []
    for _ in range(calls):
        start = time.perf_counter_ns()
        session.run_with_iobinding(binding)
        end = time.perf_counter_ns()
        binding.copy_outputs_to_cpu()
        read_back.append(time.perf_counter_ns() - end)
        left.append(end - start)
    # What it holds on the device goes before the session does.
    binding.clear_binding_inputs()
    binding.clear_binding_outputs()
    return left[1:], read_back[1:]


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:6])))
