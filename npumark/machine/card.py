"""A device as the operating system or a vendor's library lists it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Role = Literal["CPU", "iGPU", "dGPU", "NPU"]
ROLES: tuple[Role, ...] = ("CPU", "iGPU", "dGPU", "NPU")

CPU_KEY = "cpu"

VENDORS: dict[int, str] = {
    0x1002: "AMD",
    0x1022: "AMD",
    0x106B: "Apple",
    0x10DE: "NVIDIA",
    0x17CB: "Qualcomm",
    0x5143: "Qualcomm",
    0x4D4F4351: "Qualcomm",
    0x8086: "Intel",
}
"""PCI vendor ids, and those that Windows makes of ACPI names (``QCOM``), as people say them."""


@dataclass(frozen=True, slots=True)
class Card:
    """One physical device. ``keys`` maps a kind (``bus``, ``uuid``, ``luid``, ``key``) to the
    values that name this device in that kind, as ``npumark.hardware`` writes them.

    ``name_sure`` says that ``name`` names this product and no other (the vendor's own library
    or driver says it, or an id that only one product has). ``driver`` and ``firmware`` are
    versions with what they are versions of, null where nothing tells.
    """

    role: Role
    keys: Mapping[str, frozenset[str]]
    vendor_id: int | None = None
    device_id: int | None = None
    name: str | None = None
    name_sure: bool = False
    driver: str | None = None
    firmware: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


def vendor_name(vendor_id: int | None) -> str | None:
    return None if vendor_id is None else VENDORS.get(vendor_id)
