"""NVIDIA cards as the CUDA driver counts them: what a CUDA device number stands for.

Not yet run on hardware. The driver's own library is asked, in the process that will compute, so
that the numbers are those the runtime uses: they follow CUDA_VISIBLE_DEVICES, and the bus order
that a worker's environment sets. Calls, their arguments and the constant were checked against
cuda.h of CUDA 12.9.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from npumark.errors import EngineError
from npumark.hardware import bus_address, plain_text

_NAME_BYTES = 256
_INTEGRATED = 18
"""CU_DEVICE_ATTRIBUTE_INTEGRATED of cuda.h."""


@dataclass(frozen=True, slots=True)
class Card:
    """One GPU. ``bus`` is ``0000:01:00.0``, ``uuid`` ``GPU-…``, ``luid`` Windows' own number in
    decimal; each null where the driver does not tell."""

    ordinal: int
    name: str | None
    uuid: str | None
    bus: str | None
    luid: str | None
    integrated: bool


def cuda_cards(load: Callable[[str], Any] = ctypes.CDLL) -> tuple[Card, ...]:
    """Return the cards that CUDA sees. Raises EngineError where there is no driver or no card."""
    name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        driver = load(name)
    except OSError as fault:
        raise EngineError(
            "NVIDIA's driver is not installed (its CUDA library is missing)"
        ) from fault
    try:
        status = driver.cuInit(0)
        if status != 0:
            raise EngineError(f"NVIDIA's driver finds no usable card (cuInit gives {status})")
        count = ctypes.c_int(0)
        if driver.cuDeviceGetCount(ctypes.byref(count)) != 0 or count.value <= 0:
            raise EngineError("NVIDIA's driver lists no card")
        return tuple(_card(driver, ordinal) for ordinal in range(count.value))
    except AttributeError as fault:
        said = f"NVIDIA's CUDA library is not whole ({fault}); reinstall the driver"
        raise EngineError(said) from fault


def _card(driver: Any, ordinal: int) -> Card:
    device = ctypes.c_int(0)
    if driver.cuDeviceGet(ctypes.byref(device), ordinal) != 0:
        return Card(ordinal, None, None, None, None, integrated=False)
    integrated = ctypes.c_int(0)
    driver.cuDeviceGetAttribute(ctypes.byref(integrated), _INTEGRATED, device)
    return Card(
        ordinal,
        _text(driver.cuDeviceGetName, device),
        _uuid(driver, device),
        bus_address(_text(driver.cuDeviceGetPCIBusId, device)),
        _luid(driver, device),
        integrated=bool(integrated.value),
    )


def _text(ask: Any, device: ctypes.c_int) -> str | None:
    buffer = ctypes.create_string_buffer(_NAME_BYTES)
    # The one call takes (buffer, length, device), and so does the other.
    if ask(buffer, _NAME_BYTES, device) != 0:
        return None
    return plain_text(buffer.value.decode(errors="replace"))


def _uuid(driver: Any, device: ctypes.c_int) -> str | None:
    raw = (ctypes.c_ubyte * 16)()
    # The second version tells a slice of a card (MIG) from the card.
    ask = getattr(driver, "cuDeviceGetUuid_v2", None) or driver.cuDeviceGetUuid
    if ask(ctypes.byref(raw), device) != 0:
        return None
    digits = bytes(raw).hex()
    parts = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
    return "GPU-" + "-".join(parts)


def _luid(driver: Any, device: ctypes.c_int) -> str | None:
    ask = getattr(driver, "cuDeviceGetLuid", None)
    if ask is None:
        return None
    raw, mask = (ctypes.c_ubyte * 8)(), ctypes.c_uint(0)
    # Only Windows numbers its adapters; elsewhere the call says so.
    if ask(ctypes.byref(raw), ctypes.byref(mask), device) != 0:
        return None
    return str(int.from_bytes(bytes(raw), "little"))
