"""The oldest drivers that the engines' runtimes work with, each with who says so.

A driver is judged by a row alone, and only where its version is of the row's form: another
form, or none, is not known to be old.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from npumark.machine.card import Card

_AMD, _INTEL, _NVIDIA = 0x1002, 0x8086, 0x10DE
_AMD_CPU = 0x1022
_QUALCOMM = (0x17CB, 0x5143, 0x4D4F4351)

_CUDA = "https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html"
_WINDOWS_ML = "https://learn.microsoft.com/windows/ai/new-windows-ml/supported-execution-providers"
_OPENVINO_NPU = (
    "https://docs.openvino.ai/2026/openvino-workflow/running-inference/"
    "inference-devices-and-modes/npu-device.html"
)


@dataclass(frozen=True, slots=True)
class Minimum:
    """``form`` finds the version in a driver's text, in its first group. ``needed_by`` is what
    needs at least ``version``, and ``environments`` those that have it, null where npumark itself
    has; ``source`` is the maker's page that says so."""

    systems: tuple[str, ...]
    vendors: tuple[int, ...]
    roles: tuple[str, ...]
    form: str
    version: str
    needed_by: str
    environments: frozenset[str] | None
    source: str
    update: str

    def concerns(self, card: Card, system: str) -> bool:
        return system in self.systems and card.vendor_id in self.vendors and card.role in self.roles

    def found(self, driver: str) -> str | None:
        """Return the version in ``driver``, null where it is of another form."""
        match = re.search(self.form, driver)
        return None if match is None else match[1]

    def is_old(self, version: str) -> bool:
        return numbers(version) < numbers(self.version)

    def is_used(self, made: frozenset[str]) -> bool:
        """Say whether what needs the driver is here, where the environments ``made`` are."""
        return self.environments is None or bool(self.environments & made)


_BY_WINDOWS = frozenset({"windowsml"})
_GPUS = ("iGPU", "dGPU")
_FOUR = r"^([0-9]+\.[0-9]+\.[0-9]+\.[0-9]+)$"
"""A driver's version as Windows writes it."""

MINIMUMS: tuple[Minimum, ...] = (
    # The environments cuda, tensorrt-rtx and mlx-cuda pin builds for CUDA 13.
    Minimum(
        systems=("linux", "win32"),
        vendors=(_NVIDIA,),
        roles=_GPUS,
        form=r"^(?:NVIDIA|nvidia) ([0-9]+\.[0-9.]+)$",
        version="580",
        needed_by="CUDA 13 (the environments cuda, tensorrt-rtx and mlx-cuda)",
        environments=frozenset({"cuda", "tensorrt-rtx", "mlx-cuda"}),
        source=_CUDA,
        update="Install NVIDIA's driver 580 or later (Ubuntu: `sudo ubuntu-drivers install`).",
    ),
    # Without NVML Windows alone tells the version: 32.0.15.8088 is NVIDIA's 580.88.
    Minimum(
        systems=("win32",),
        vendors=(_NVIDIA,),
        roles=_GPUS,
        form=_FOUR,
        version="32.0.15.8000",
        needed_by="CUDA 13 (the environments cuda and tensorrt-rtx)",
        environments=frozenset({"cuda", "tensorrt-rtx"}),
        source=_CUDA,
        update="Install NVIDIA's driver 580 or later.",
    ),
    Minimum(
        systems=("win32",),
        vendors=(_INTEL,),
        roles=("NPU",),
        form=_FOUR,
        version="32.0.100.4239",
        needed_by="OpenVINO's provider of Windows ML",
        environments=_BY_WINDOWS,
        source=_WINDOWS_ML,
        update="Install Intel's NPU driver from Windows Update or Intel's download page.",
    ),
    Minimum(
        systems=("win32",),
        vendors=(_INTEL,),
        roles=_GPUS,
        form=_FOUR,
        version="32.0.101.1029",
        needed_by="OpenVINO's provider of Windows ML",
        environments=_BY_WINDOWS,
        source=_WINDOWS_ML,
        update="Install Intel's graphics driver from Windows Update or Intel's download page.",
    ),
    # The driver comes with the kernel, and bears the kernel's version.
    Minimum(
        systems=("linux",),
        vendors=(_INTEL,),
        roles=("NPU",),
        form=r"^intel_vpu of Linux ([0-9]+\.[0-9]+)",
        version="6.6",
        needed_by="OpenVINO on an NPU",
        environments=None,
        source=_OPENVINO_NPU,
        update="Update the kernel, and install Intel's NPU driver "
        "(https://github.com/intel/linux-npu-driver).",
    ),
    Minimum(
        systems=("win32",),
        vendors=_QUALCOMM,
        roles=("NPU",),
        form=_FOUR,
        version="30.0.140.0",
        needed_by="QNN's provider of Windows ML",
        environments=_BY_WINDOWS,
        source=_WINDOWS_ML,
        update="Install the NPU driver from Windows Update or the computer's maker.",
    ),
    Minimum(
        systems=("win32",),
        vendors=(_AMD, _AMD_CPU),
        roles=("NPU",),
        form=_FOUR,
        version="32.0.203.280",
        needed_by="Vitis AI's provider of Windows ML",
        environments=_BY_WINDOWS,
        source=_WINDOWS_ML,
        update="Install AMD's NPU driver 32.0.203.280 or later.",
    ),
)


def numbers(version: str) -> tuple[int, ...]:
    """Return a version's numbers; those at the end that are 0 say nothing."""
    parts = [int(part) for part in version.split(".") if part]
    while parts and parts[-1] == 0:
        parts.pop()
    return tuple(parts)
