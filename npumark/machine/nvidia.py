"""NVIDIA's cards by NVML, the library that comes with the driver.

``python -m npumark.machine.nvidia`` asks it and prints one JSON document: in a process of its
own, so that a driver that crashes costs its answer and nothing else. NVML numbers cards in bus
order and CUDA may not; what is kept is each card's UUID and bus address, never its number.

Not yet run on hardware: written against NVML's documented C API.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from npumark.machine.card import Card, hardware_key, key_sets
from npumark.machine.host import Host

COMMAND = (sys.executable, "-P", "-m", "npumark.machine.nvidia")
_WSL = "/usr/lib/wsl/lib/libnvidia-ml.so.1"
_VENDOR = 0x10DE
_NAME, _UUID, _VBIOS, _DRIVER = 96, 96, 32, 80
"""Sizes of the buffers that NVML's calls fill, by its header."""


class _PciInfo(ctypes.Structure):
    """nvmlPciInfo_t; ``pci_device_id`` holds the device id above the vendor id."""

    _fields_ = (
        ("bus_id_legacy", ctypes.c_char * 16),
        ("domain", ctypes.c_uint),
        ("bus", ctypes.c_uint),
        ("device", ctypes.c_uint),
        ("pci_device_id", ctypes.c_uint),
        ("pci_subsystem_id", ctypes.c_uint),
        ("bus_id", ctypes.c_char * 32),
    )


def nvidia_cards(host: Host) -> tuple[Card, ...]:
    """Return the cards that NVML names; none where there is no such driver or no answer."""
    if host.system == "linux" and not any(
        host.path(p).exists() for p in ("/proc/driver/nvidia/version", _WSL)
    ):
        return ()
    told = host.output(COMMAND).value
    try:
        answer = json.loads(told or "")
        return tuple(_card(c, answer) for c in answer["cards"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return ()


def _card(told: dict[str, Any], answer: dict[str, Any]) -> Card:
    driver = answer.get("driver")
    cuda = answer.get("cuda")
    return Card(
        role="dGPU" if told.get("bus") else "iGPU",
        keys=key_sets({"uuid": told.get("uuid"), "bus": told.get("bus")}),
        vendor_id=_VENDOR,
        device_id=told.get("device_id"),
        name=told.get("name"),
        name_sure=True,
        driver=f"NVIDIA {driver}" if driver else None,
        firmware=f"VBIOS {told['vbios']}" if told.get("vbios") else None,
        details={"cuda_driver": f"{cuda // 1000}.{cuda % 1000 // 10}"} if cuda else {},
    )


def ask(nvml: Any) -> dict[str, Any]:
    """Return what a loaded NVML says: driver, CUDA version, and each card it can open.

    Raises OSError where it does not start; a value it cannot tell is null.
    """
    if nvml.nvmlInit_v2() != 0:
        raise OSError("NVML does not start")
    try:
        count, cuda = ctypes.c_uint(0), ctypes.c_int(0)
        if nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
            raise OSError("NVML counts no cards")
        spoken = nvml.nvmlSystemGetCudaDriverVersion_v2(ctypes.byref(cuda)) == 0
        return {
            "driver": _text(nvml.nvmlSystemGetDriverVersion, (), _DRIVER),
            "cuda": cuda.value if spoken else None,
            "cards": [c for i in range(count.value) if (c := _one(nvml, i)) is not None],
        }
    finally:
        nvml.nvmlShutdown()


def _one(nvml: Any, index: int) -> dict[str, Any] | None:
    handle, pci = ctypes.c_void_p(), _PciInfo()
    if nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(handle)) != 0:
        return None
    placed = nvml.nvmlDeviceGetPciInfo_v3(handle, ctypes.byref(pci)) == 0
    bus = hardware_key("bus", pci.bus_id.decode("ascii", "replace")) if placed else None
    return {
        "name": _text(nvml.nvmlDeviceGetName, (handle,), _NAME),
        "uuid": _text(nvml.nvmlDeviceGetUUID, (handle,), _UUID),
        "bus": bus[1] if bus else None,
        "device_id": pci.pci_device_id >> 16 if placed else None,
        "vbios": _text(nvml.nvmlDeviceGetVbiosVersion, (handle,), _VBIOS),
    }


def _text(call: Callable[..., int], args: tuple[Any, ...], size: int) -> str | None:
    buffer = ctypes.create_string_buffer(size)
    if call(*args, buffer, ctypes.c_uint(size)) != 0:
        return None
    return buffer.value.decode("utf-8", "replace").strip() or None


def _library() -> Any:
    if sys.platform == "win32":
        return ctypes.CDLL(str(Path(os.environ["SYSTEMROOT"], "System32", "nvml.dll")))
    return ctypes.CDLL(_WSL if Path(_WSL).exists() else "libnvidia-ml.so.1")


def main() -> int:
    try:
        answer = ask(_library())
    except (OSError, AttributeError, KeyError) as fault:
        sys.stderr.write(f"{fault}\n")
        return 1
    sys.stdout.write(json.dumps(answer) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
