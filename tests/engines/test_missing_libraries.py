"""A library that is not here is told by what would bring it; anything else by its own words."""

from __future__ import annotations

import pytest

from npumark.engines.missing_libraries import DRIVER_LACKS, in_words, missing


@pytest.mark.parametrize(
    ("said", "brings"),
    [
        (
            "libcuda.so.1: cannot open shared object file: No such file or directory",
            "NVIDIA's driver",
        ),
        (
            (
                'Error loading "C:\\x\\onnxruntime_providers_nv.dll" which depends on "nvcuda.dll" '
                "which is missing. (Error 126)"
            ),
            "NVIDIA's driver",
        ),
        ("libOpenCL.so.1: cannot open shared object file", "an OpenCL driver"),
        ("libvulkan.so.1: cannot open shared object file", "a Vulkan driver and its loader"),
        ("libxrt_coreutil.so.2: cannot open shared object file", "AMD's driver for its NPU (XRT)"),
        ("libhsa-runtime64.so.1: cannot open shared object file", "AMD's ROCm"),
        ("libamdhip64.so.7: cannot open shared object file", "AMD's ROCm"),
        (
            'depends on "ze_loader.dll" which is missing',
            "Intel's driver with the Level Zero loader",
        ),
        ("libnvinfer.so.10: cannot open shared object file", "NVIDIA's TensorRT"),
    ],
)
def test_a_missing_library_is_told_by_what_brings_it(
    said: str, brings: str, capfd: pytest.CaptureFixture[str]
) -> None:
    raw = f"Failed to load library /a/b/libonnxruntime_x.so with error: {said}" + " " * 3 + "end"
    assert missing(raw) == brings
    assert in_words(RuntimeError(raw)) == f"it needs {brings}, {DRIVER_LACKS}"
    assert said in capfd.readouterr().err


@pytest.mark.parametrize(
    "said",
    [
        "libfoo.so.1: cannot open shared object file",
        "libcuda.so.1: version `X' does not suit; file not found elsewhere: y",
        "CUDA failure 35: the driver version is insufficient",
    ],
)
def test_what_is_not_known_to_be_missing_keeps_its_words(
    said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert missing(said) is None
    assert in_words(f"  {said}\n\n") == said
    assert in_words("x" * 999) == "x" * 250
    assert capfd.readouterr().err == ""
