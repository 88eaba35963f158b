"""What a worker inherits: nothing that bends a measurement, everything that chooses a device."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import npumark
from npumark.orchestrator.supervisor import worker_command
from npumark.orchestrator.worker_env import MARKER, environment_facts, worker_environment

BASE = {
    "PATH": "/usr/bin",
    "PYTHONPATH": "/elsewhere",
    "PYTHONSTARTUP": "x",
    "OMP_NUM_THREADS": "1",
    "mkl_num_threads": "1",
    "KMP_AFFINITY": "none",
    "MLX_DISABLE_COMPILE": "1",
    "CUDA_VISIBLE_DEVICES": "1",
    "LD_PRELOAD": "lib.so",
}


def test_what_bends_a_measurement_is_removed_and_named() -> None:
    env = worker_environment(BASE, "run-1/2")
    assert "OMP_NUM_THREADS" not in env
    assert "mkl_num_threads" not in env
    assert "PYTHONSTARTUP" not in env
    assert env.get("PYTHONPATH") != "/elsewhere"
    assert env["PYTHONHASHSEED"] == "0"
    assert env[MARKER] == "run-1/2"
    facts = environment_facts(BASE)
    assert facts["removed"] == [
        "KMP_AFFINITY",
        "MLX_DISABLE_COMPILE",
        "OMP_NUM_THREADS",
        "PYTHONPATH",
        "PYTHONSTARTUP",
        "mkl_num_threads",
    ]
    assert facts["noted"] == ["CUDA_VISIBLE_DEVICES", "LD_PRELOAD"]


@pytest.mark.parametrize(
    "name",
    [
        "VK_ICD_FILENAMES",
        "VK_DRIVER_FILES",
        "VK_LAYER_PATH",
        "VK_INSTANCE_LAYERS",
        "XLNX_VART_FIRMWARE",
        "XLNX_TARGET_NAME",
        "ADSP_LIBRARY_PATH",
        "QNN_SDK_ROOT",
        "GGML_VK_VISIBLE_DEVICES",
        "DAWN_DEBUG_BREAK_ON_ERROR",
        "XNNPACK_DISABLE",
        "TFLITE_ENABLE_XNNPACK",
        "CUDA_VISIBLE_DEVICES",
        "CUDA_MODULE_LOADING",
        "NVIDIA_TF32_OVERRIDE",
        "NVIDIA_VISIBLE_DEVICES",
        "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
        "HSA_OVERRIDE_GFX_VERSION",
        "ROCR_VISIBLE_DEVICES",
        "MIGRAPHX_DISABLE_MLIR",
        "ZE_AFFINITY_MASK",
        "SYCL_DEVICE_FILTER",
        "DML_VISIBLE_DEVICES",
        "COREML_DISABLE",
        "LD_AUDIT",
        "DYLD_LIBRARY_PATH",
        "ORT_TENSORRT_FP16_ENABLE",
        "LP_NUM_THREADS",
        "mesa_loader_driver_override",
    ],
)
def test_what_chooses_or_bends_a_device_stays_and_is_noted_by_name(name: str) -> None:
    base = {**BASE, name: "/home/somebody/driver"}
    assert worker_environment(base, "m")[name] == "/home/somebody/driver"
    facts = environment_facts(base)
    assert name in facts["noted"]
    assert "somebody" not in str(facts)


@pytest.mark.parametrize("name", ["PATH", "HOME", "LANG", "VKONTAKTE", "LDFLAGS", "ZED"])
def test_what_has_no_bearing_on_a_device_is_not_noted(name: str) -> None:
    facts = environment_facts({**BASE, name: "x"})
    assert name not in facts["noted"] + facts["removed"]


def test_the_users_choice_of_device_stays() -> None:
    env = worker_environment(BASE, "m")
    assert env["CUDA_VISIBLE_DEVICES"] == "1"
    assert env["LD_PRELOAD"] == "lib.so"
    assert env["PATH"] == "/usr/bin"


def test_a_worker_imports_this_package_and_nothing_from_its_folder(tmp_path: Path) -> None:
    """A ``random.py`` in the current folder must not become part of a measurement."""
    (tmp_path / "random.py").write_text("raise SystemExit(99)")
    command = (*worker_command()[:-1], "-c", "import npumark, random; print(npumark.__file__)")
    done = subprocess.run(
        command,
        env=worker_environment(os.environ, "m"),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == npumark.__file__
    assert command[0] == sys.executable
