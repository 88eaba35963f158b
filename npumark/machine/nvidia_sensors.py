"""Clocks, temperature, power and reasons for slowing down of NVIDIA's cards, by NVML.

``python -m npumark.machine.nvidia_sensors SECONDS`` starts NVML once and prints one JSON line
every so many seconds, until its standard input ends: in a process of its own, so that a driver
that crashes or hangs costs its readings and nothing else. Without a number it prints one line
and ends.

Not yet run on hardware. Calls, numbers and nvmlTemperature_v1_t were checked against nvml.h as
the package nvidia-ml-py 13.615 carries it over.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from npumark.hardware import bus_address, plain_text
from npumark.machine import nvidia
from npumark.machine.host import Host

COMMAND = (sys.executable, "-P", "-m", "npumark.machine.nvidia_sensors")

_GRAPHICS, _MEMORY = 0, 2
_GPU_TEMPERATURE = 0
_REASONS = {
    0x002: "clocks set by an application",
    0x004: "power cap",
    0x008: "hardware slowdown",
    0x010: "kept in step with other cards",
    0x020: "heat (driver)",
    0x040: "heat (hardware)",
    0x080: "power brake",
    0x100: "clocks set for the display",
}
"""NVML's clocks event reasons; bit 0, that the card idles, is none that slows work."""


class _Temperature(ctypes.Structure):
    """nvmlTemperature_v1_t."""

    _fields_ = (
        ("version", ctypes.c_uint),
        ("sensor", ctypes.c_uint),
        ("celsius", ctypes.c_int),
    )


_TEMPERATURE_V1 = ctypes.sizeof(_Temperature) | 1 << 24


def present(host: Host) -> bool:
    """Say whether NVIDIA's driver is here, so that asking NVML is worth a process."""
    if host.system == "linux":
        return any(host.exists(path) for path in ("/proc/driver/nvidia/version", nvidia.WSL))
    root = os.environ.get("SYSTEMROOT", "")
    return host.system == "win32" and host.exists(f"{root}/System32/nvml.dll")


def readings(nvml: Any) -> list[dict[str, Any]]:
    """Return what each card of a started NVML tells now, as ``gpu_sensors.readings`` does, with
    ``memory_mhz`` besides. Raises OSError where it counts no cards."""
    count = ctypes.c_uint(0)
    if nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
        raise OSError("NVML counts no cards")
    found = []
    for index in range(count.value):
        handle = ctypes.c_void_p()
        if nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(handle)) == 0:
            found.append(_one(nvml, handle))
    return found


def ask_once(host: Host) -> tuple[list[dict[str, Any]], str | None]:
    """Return what a process of its own reads once, nothing where NVIDIA's driver is not here;
    and in a clause why NVML does not answer, null where it does or there is none to ask."""
    if not present(host):
        return [], None
    reading = host.output(COMMAND)
    if reading.value is None:
        why = (reading.why or "it gave no answer").removeprefix(COMMAND[0]).strip()
        return [], f"the process that asks NVIDIA's NVML {why}"
    try:
        answer = json.loads(reading.value)
        if "fault" in answer:
            return [], plain_text(answer["fault"]) or "NVIDIA's NVML cannot be asked"
        return [_known(card) for card in answer["gpus"]], None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return [], "NVIDIA's NVML answered in a form that npumark does not know"


def _known(told: dict[str, Any]) -> dict[str, Any]:
    """Return a card's reading as ``readings`` made it. Raises ValueError where it is none."""
    reasons, celsius = told["reasons"], told["celsius"]
    if not (
        (reasons is None or all(isinstance(r, str) for r in reasons))
        and (celsius is None or isinstance(celsius, int))
    ):
        raise ValueError("not a card's reading")
    return told


def stream(nvml: Any, period_s: float) -> Iterator[dict[str, Any]]:
    """Start NVML and yield readings for ever, ``at_ns`` of the performance counter; ends only by
    OSError, where NVML does not start or no longer answers."""
    if nvml.nvmlInit_v2() != 0:
        raise OSError("NVML does not start")
    while True:
        yield {"at_ns": time.perf_counter_ns(), "gpus": readings(nvml)}
        time.sleep(period_s)


def _one(nvml: Any, handle: ctypes.c_void_p) -> dict[str, Any]:
    pci = nvidia.PciInfo()
    placed = nvml.nvmlDeviceGetPciInfo_v3(handle, ctypes.byref(pci)) == 0
    milliwatts = _number(nvml, "nvmlDeviceGetPowerUsage", handle)
    told: dict[str, Any] = {
        "card": bus_address(pci.bus_id.decode("ascii", "replace")) if placed else None,
        "vendor": "NVIDIA",
        "clock_mhz": _number(nvml, "nvmlDeviceGetClockInfo", handle, _GRAPHICS),
        "memory_mhz": _number(nvml, "nvmlDeviceGetClockInfo", handle, _MEMORY),
        "celsius": _celsius(nvml, handle),
        "power_w": None if milliwatts is None else milliwatts / 1000,
        "reasons": _reasons(nvml, handle),
    }
    return {
        **told,
        "why": {name: "NVML does not tell it" for name, value in told.items() if value is None},
    }


def _call(nvml: Any, name: str) -> Callable[..., int] | None:
    """Return a call, null where this driver's NVML has none of that name."""
    call: Callable[..., int] | None = getattr(nvml, name, None)
    return call


def _number(nvml: Any, name: str, handle: ctypes.c_void_p, *kind: int) -> int | None:
    call, value = _call(nvml, name), ctypes.c_uint()
    if call is None or call(handle, *(ctypes.c_uint(k) for k in kind), ctypes.byref(value)) != 0:
        return None
    return value.value


def _celsius(nvml: Any, handle: ctypes.c_void_p) -> int | None:
    """Return the die's temperature: newer drivers have a call of their own for it."""
    asked = _Temperature(version=_TEMPERATURE_V1, sensor=_GPU_TEMPERATURE)
    call = _call(nvml, "nvmlDeviceGetTemperatureV")
    if call is not None and call(handle, ctypes.byref(asked)) == 0:
        return int(asked.celsius)
    return _number(nvml, "nvmlDeviceGetTemperature", handle, _GPU_TEMPERATURE)


def _reasons(nvml: Any, handle: ctypes.c_void_p) -> list[str] | None:
    """Return why the clock is held down; older drivers know the call by another name."""
    bits = ctypes.c_ulonglong()
    for name in (
        "nvmlDeviceGetCurrentClocksEventReasons",
        "nvmlDeviceGetCurrentClocksThrottleReasons",
    ):
        call = _call(nvml, name)
        if call is not None and call(handle, ctypes.byref(bits)) == 0:
            return [reason for bit, reason in _REASONS.items() if bits.value & bit]
    return None


def _until_input_ends() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


def main(arguments: list[str]) -> int:
    """Print readings until the standard input ends, one where no period is given; one line with
    the reason where none come."""
    period = float(arguments[0]) if arguments else None
    if period is not None:
        threading.Thread(target=_until_input_ends, daemon=True).start()
    try:
        for answer in stream(nvidia.library(), period or 0.0):
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()
            if period is None:
                break
    except Exception as fault:  # noqa: BLE001 - whatever happens, its reason must arrive
        said = str(fault) or type(fault).__name__
        sys.stdout.write(json.dumps({"fault": f"NVIDIA's NVML cannot be asked: {said}"}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
