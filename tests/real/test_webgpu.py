"""ONNX Runtime's WebGPU provider on a Vulkan adapter in software: what is timed is the work.

A provider that works behind the call could return at once and look fast. That the timed figure
is the wall clock's, with the outputs read and found right, is shown on the product's own session;
that a call which leaves its output on the device would be told, on one that does.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from npumark.orchestrator.supervisor import Outcome
from npumark.pack.manifest import Manifest
from npumark.worker.protocol import EngineInfo
from tests.real.ort_jobs import chain_job, measured, passes

CALLS = 12
SCRIPT = Path(__file__).with_name("webgpu_wall_clock.py")
ROOT = Path(__file__).parents[2]

Work = Callable[..., Outcome]
Find = Callable[..., EngineInfo]


@pytest.fixture(scope="module")
def durations(
    engine_environment: Callable[[str], str],
    swiftshader: dict[str, str],
    chain_pack: tuple[Manifest, Path],
) -> dict[str, list[int]]:
    """Return nanoseconds per call, as the script gives them."""
    folder = chain_pack[1] / "peak-64x256x3"
    command = [engine_environment("webgpu"), str(SCRIPT), str(folder), "fp32.onnx"]
    done = subprocess.run(
        [*command, "64", "256", str(CALLS)],
        env={**os.environ, **swiftshader, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return dict(json.loads(done.stdout.splitlines()[-1]))


def test_the_timed_figure_is_the_wall_clocks_to_the_last_output(
    durations: dict[str, list[int]],
) -> None:
    # The script has already refused a call whose outputs were not there when it returned.
    timed, wall = np.array(durations["timed"]), np.array(durations["wall"])
    assert len(timed) == CALLS
    assert np.median(timed / wall) >= 0.9


def test_a_call_that_leaves_its_output_on_the_device_would_be_told(
    durations: dict[str, list[int]],
) -> None:
    left, read_back = (np.array(durations[k]) for k in ("left_on_device", "read_back"))
    assert np.median(left / (left + read_back)) < 0.5


@pytest.mark.parametrize("variant", ["fp32", "int8-u8s8"])
def test_webgpu_is_named_by_what_it_computed(
    run_worker: Work,
    find_engine: Find,
    chain_pack: tuple[Manifest, Path],
    swiftshader: dict[str, str],
    variant: str,
) -> None:
    engine = find_engine("webgpu", "ort-webgpu", "ort-webgpu-gpu", swiftshader)
    assert engine.emulated
    result = measured(run_worker(chain_job(chain_pack, engine, variant), "webgpu", swiftshader))
    assert result.observed is not None
    assert result.placement is not None
    # 8-bit operands are unpacked, and multiplied in FP32.
    assert (result.observed.precision, result.observed.precision_why) == ("FP32", None)
    assert result.observed.details["number_probe"]["float32"]["family"] == "FP32"
    assert result.placement.verdict == "proved"
    assert result.placement.share is not None
    assert 0.9 <= result.placement.share <= 1
    assert passes(chain_pack[0], result)


def test_an_adapter_without_16_bit_shaders_does_not_run_fp16(
    run_worker: Work,
    find_engine: Find,
    chain_pack: tuple[Manifest, Path],
    swiftshader: dict[str, str],
) -> None:
    engine = find_engine("webgpu", "ort-webgpu", "ort-webgpu-gpu", swiftshader)
    out = run_worker(chain_job(chain_pack, engine, "fp16"), "webgpu", swiftshader)
    assert out.status == "unsupported", (out.status, out.why)
