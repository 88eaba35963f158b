"""Apple's chips: CPU, GPU and Neural Engine are three processors of one piece of silicon.

Core ML and MLX state no hardware key for them, and none is needed: there is one of each. 0x106B
is Apple's id in the PCI id list; there is no structure of a library's here, only the texts of
``sysctl``, ``sw_vers`` and ``system_profiler``, whose keys were not yet seen on a Mac.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from npumark.hardware import plain_text
from npumark.machine.card import CPU_KEY, VENDORS, Card, Role
from npumark.machine.host import Host

BRAND = ("sysctl", "-n", "machdep.cpu.brand_string")
SYSTEM = ("sw_vers", "-productVersion")
DISPLAYS = ("system_profiler", "-json", "SPDisplaysDataType")

_APPLE = 0x106B


def apple_cards(host: Host) -> tuple[Card, ...]:
    """Return a Mac's processors, named after the chip: ``Apple M4 Pro Neural Engine``."""
    chip = plain_text(host.output(BRAND).value)
    version = plain_text(host.output(SYSTEM).value)
    driver = f"macOS {version}" if version else None
    if host.architecture() != "arm64":
        cpu = Card("CPU", {"key": frozenset({CPU_KEY})}, name=chip, name_sure=chip is not None)
        return (cpu, *_graphics(host, driver))
    keyed: tuple[tuple[Role, dict[str, frozenset[str]], str], ...] = (
        ("CPU", {"key": frozenset({CPU_KEY})}, ""),
        ("iGPU", {}, " GPU"),
        ("NPU", {}, " Neural Engine"),
    )
    return tuple(
        Card(
            role,
            keys,
            vendor_id=_APPLE,
            name=f"{chip or 'Apple silicon'}{part}",
            name_sure=chip is not None,
            driver=None if role == "CPU" else driver,
            details=_cores(host) if role == "iGPU" else {},
        )
        for role, keys, part in keyed
    )


def _graphics(host: Host, driver: str | None) -> Iterator[Card]:
    """Yield the GPUs of a Mac with an Intel processor."""
    for told in _displays(host):
        name = plain_text(told.get("sppci_model"))
        maker = str(told.get("spdisplays_vendor", ""))
        vendor = next((v for v, word in VENDORS.items() if word.lower() in maker.lower()), None)
        built_in = told.get("sppci_bus") == "spdisplays_builtin"
        role: Role = "iGPU" if built_in else "dGPU"
        yield Card(role, {}, vendor_id=vendor, name=name, name_sure=name is not None, driver=driver)


def _cores(host: Host) -> dict[str, Any]:
    cores = next((d["sppci_cores"] for d in _displays(host) if "sppci_cores" in d), None)
    return {} if cores is None else {"cores": cores}


def _displays(host: Host) -> list[dict[str, Any]]:
    try:
        listed = json.loads(host.output(DISPLAYS).value or "")["SPDisplaysDataType"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return []
    return [d for d in listed if isinstance(d, dict)] if isinstance(listed, list) else []
