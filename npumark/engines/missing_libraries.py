"""A shared library that is not here, told by what would bring it.

A runtime that cannot load a library says so in its loader's words, which name a file. What it
means is that a driver is missing: that is what people can install. The loader's own words go to
the worker's log.
"""

from __future__ import annotations

import re
import sys

DRIVER_LACKS = "which is not here"
"""Ends the clause of ``in_words`` that tells what a missing library needs."""

_BRINGS = {
    r"libcuda\.so|nvcuda\.dll|libnvidia-ml\.so|nvml\.dll": "NVIDIA's driver",
    r"libnvinfer|nvinfer(_\d+)?\.dll": "NVIDIA's TensorRT",
    r"libOpenCL\.so|OpenCL\.dll": "an OpenCL driver",
    r"libvulkan\.so|vulkan-1\.dll": "a Vulkan driver and its loader",
    r"libxrt|xrt_\w+\.dll": "AMD's driver for its NPU (XRT)",
    r"libhsa-runtime64|libamdhip64|amdhip64(_\d+)?\.dll|libmigraphx": "AMD's ROCm",
    r"libze_loader|ze_loader\.dll": "Intel's driver with the Level Zero loader",
}
"""What brings a library, by the beginning of its name on Linux and its name on Windows."""

_GONE = r"cannot open shared object file|which is missing|could not be found|not found"
_SAID = {
    re.compile(rf"\b({names})[\w.\-]*[\"']?\s*:?\s*({_GONE})", re.IGNORECASE): brings
    for names, brings in _BRINGS.items()
}


def missing(text: str) -> str | None:
    """Return what would bring the library that ``text`` says is not here, or null where it says
    so of none that is known."""
    return next((brings for said, brings in _SAID.items() if said.search(text)), None)


def in_words(fault: object, most: int = 250) -> str:
    """Return a fault as one line of at most ``most`` characters: where a library is missing,
    what would bring it, and the fault itself goes to standard error, which is a worker's log."""
    text = " ".join(str(fault).split())
    brings = missing(text)
    if brings is None:
        return text[:most]
    print(text, file=sys.stderr)
    return f"it needs {brings}, {DRIVER_LACKS}"
