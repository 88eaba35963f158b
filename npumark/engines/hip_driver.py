"""AMD cards as the HIP runtime counts them: what a HIP device number stands for.

Not yet run on hardware. See cuda_driver for why the runtime's own library is asked. Calls and
constants were checked against hip_runtime_api.h of HIP 5 and later, the header of the libraries
below: before it, hipDeviceAttribute_t had another order.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Any

from npumark.engines.cuda_driver import Card
from npumark.errors import EngineError
from npumark.hardware import bus_address, plain_text

_NAME_BYTES = 256
_INTEGRATED = 16
"""hipDeviceAttributeIntegrated of hip_runtime_api.h; 17 is hipDeviceAttributeIsMultiGpuBoard."""

_LIBRARIES = {
    "linux": ("libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6"),
    "win32": ("amdhip64_7.dll", "amdhip64_6.dll", "amdhip64.dll"),
}


def hip_cards(load: Callable[[str], Any] = ctypes.CDLL) -> tuple[Card, ...]:
    """Return the cards that HIP sees. Raises EngineError where there is no runtime or no card."""
    runtime = None
    for name in _LIBRARIES.get(sys.platform, ()):
        try:
            runtime = load(name)
            break
        except OSError:
            continue
    if runtime is None:
        raise EngineError("AMD's ROCm is not installed (its HIP library is missing)")
    count = ctypes.c_int(0)
    try:
        status = runtime.hipGetDeviceCount(ctypes.byref(count))
        if status != 0 or count.value <= 0:
            raise EngineError(f"AMD's driver lists no usable card (HIP gives {status})")
        return tuple(_card(runtime, ordinal) for ordinal in range(count.value))
    except AttributeError as fault:
        raise EngineError(f"AMD's HIP library is not whole ({fault}); reinstall ROCm") from fault


def _card(runtime: Any, ordinal: int) -> Card:
    integrated = ctypes.c_int(0)
    runtime.hipDeviceGetAttribute(ctypes.byref(integrated), _INTEGRATED, ordinal)
    name = ctypes.create_string_buffer(_NAME_BYTES)
    bus = ctypes.create_string_buffer(_NAME_BYTES)
    named = runtime.hipDeviceGetName(name, _NAME_BYTES, ordinal) == 0
    placed = runtime.hipDeviceGetPCIBusId(bus, _NAME_BYTES, ordinal) == 0
    return Card(
        ordinal,
        plain_text(name.value.decode(errors="replace")) if named else None,
        None,
        bus_address(bus.value.decode(errors="replace")) if placed else None,
        None,
        integrated=bool(integrated.value),
    )
