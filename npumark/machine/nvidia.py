"""NVIDIA's cards by NVML, the library that comes with the driver.

``python -m npumark.machine.nvidia`` asks it and prints one JSON document: in a process of its
own, so that a driver that crashes costs its answer and nothing else. NVML numbers cards in bus
order and CUDA may not; what is kept is each card's UUID and bus address, never its number.

Not yet run on hardware. Calls, buffer sizes and nvmlPciInfo_t were checked against nvml.h as the
package nvidia-ml-py 13.615 carries it over; nvmlDeviceGetPciInfo_v3 and its structure are those
of NVML 9.2 and later.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from npumark.hardware import bus_address, key_sets, plain_text
from npumark.machine.card import Card
from npumark.machine.host import Host

COMMAND = (sys.executable, "-P", "-m", "npumark.machine.nvidia")
WSL = "/usr/lib/wsl/lib/libnvidia-ml.so.1"
_VENDOR = 0x10DE
_NAME, _UUID, _VBIOS, _DRIVER = 96, 96, 32, 80
"""Sizes of the buffers that NVML's calls fill, by its header."""


class PciInfo(ctypes.Structure):
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


def nvidia_cards(host: Host) -> tuple[tuple[Card, ...], str | None]:
    """Return the cards that NVML names, none where there is no such driver; and in a clause why
    NVML does not answer, null where it does or is not there."""
    if host.system == "linux" and not any(
        host.exists(p) for p in ("/proc/driver/nvidia/version", WSL)
    ):
        return (), None
    reading = host.output(COMMAND)
    if reading.value is None:
        why = (reading.why or "it gave no answer").removeprefix(COMMAND[0]).strip()
        return (), f"the process that asks NVIDIA's NVML {why}"
    try:
        answer = json.loads(reading.value)
        cards = tuple(_card(c, answer) for c in answer["cards"])
        return cards, plain_text(answer.get("fault"))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return (), "NVIDIA's NVML answered in a form that npumark does not know"


def _card(told: dict[str, Any], answer: dict[str, Any]) -> Card:
    driver, vbios = plain_text(answer.get("driver")), plain_text(told.get("vbios"))
    cuda, name = answer.get("cuda"), plain_text(told.get("name"))
    return Card(
        role="dGPU" if told.get("bus") else "iGPU",
        keys=key_sets({"uuid": told.get("uuid"), "bus": told.get("bus")}),
        vendor_id=_VENDOR,
        device_id=told.get("device_id"),
        name=name,
        name_sure=name is not None,
        driver=f"NVIDIA {driver}" if driver else None,
        firmware=f"VBIOS {vbios}" if vbios else None,
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
    handle, pci = ctypes.c_void_p(), PciInfo()
    if nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(handle)) != 0:
        return None
    placed = nvml.nvmlDeviceGetPciInfo_v3(handle, ctypes.byref(pci)) == 0
    return {
        "name": _text(nvml.nvmlDeviceGetName, (handle,), _NAME),
        "uuid": _text(nvml.nvmlDeviceGetUUID, (handle,), _UUID),
        "bus": bus_address(pci.bus_id.decode("ascii", "replace")) if placed else None,
        "device_id": pci.pci_device_id >> 16 if placed else None,
        "vbios": _text(nvml.nvmlDeviceGetVbiosVersion, (handle,), _VBIOS),
    }


def _text(call: Callable[..., int], args: tuple[Any, ...], size: int) -> str | None:
    buffer = ctypes.create_string_buffer(size)
    if call(*args, buffer, ctypes.c_uint(size)) != 0:
        return None
    return buffer.value.decode("utf-8", "replace").strip() or None


def library() -> Any:
    if sys.platform == "win32":
        return ctypes.CDLL(str(Path(os.environ["SYSTEMROOT"], "System32", "nvml.dll")))
    return ctypes.CDLL(WSL if Path(WSL).exists() else "libnvidia-ml.so.1")


def main() -> int:
    """Print what NVML tells, or why it does not: the reason is for people to read."""
    try:
        answer = ask(library())
    except Exception as fault:  # noqa: BLE001 - whatever happens, its reason must arrive
        said = str(fault) or type(fault).__name__
        answer = {"cards": [], "fault": f"NVIDIA's NVML cannot be asked: {said}"}
    sys.stdout.write(json.dumps(answer) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
