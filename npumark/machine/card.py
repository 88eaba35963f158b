"""A device as the operating system or a vendor's library lists it, and the keys it is known by."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Role = Literal["CPU", "iGPU", "dGPU", "NPU"]
ROLES: tuple[Role, ...] = ("CPU", "iGPU", "dGPU", "NPU")

CPU_KEY = "cpu"

_BUS = re.compile(r"(?:([0-9a-f]{1,8}):)?([0-9a-f]{1,2}):([0-9a-f]{1,2})\.([0-7])", re.IGNORECASE)
_UUID = re.compile(r"(?:gpu-)?" + "-?".join(rf"([0-9a-f]{{{n}}})" for n in (8, 4, 4, 4, 12)))
_HEX_LUID = re.compile(r"(?:0x)?([0-9a-f]{8})[-:_](?:0x)?([0-9a-f]{8})")

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
    values that name this device in that kind, as ``hardware_key`` writes them.

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


def hardware_key(kind: str, value: object) -> tuple[str, str] | None:
    """Return a key as (kind, value) in the one form that every source's spelling comes to.

    ``kind`` is the field a probe gave it in; what stands in ``key`` is recognised by its looks.
    A bus address gets its domain and lower case; a UUID loses its dashes and prefix; a LUID is
    a decimal number, whichever of ``0x…``, ``high-low``, decimal or OpenVINO's little-endian
    bytes it came as. Null for nothing, and for the zeros that stand for it.
    """
    text = str(value).strip().lower() if value is not None else ""
    if not text or not text.strip("0-:x"):
        return None
    if kind in ("bus", "key") and (found := _BUS.fullmatch(text)):
        domain, bus, device, function = (int(part or "0", 16) for part in found.groups())
        return "bus", f"{domain:04x}:{bus:02x}:{device:02x}.{function}"
    if kind in ("uuid", "key") and (found := _UUID.fullmatch(text)):
        return "uuid", "".join(found.groups())
    if kind == "luid":
        return "luid", str(_luid(text))
    return ("key" if kind == "bus" else kind), text


def key_sets(told: Mapping[str, object]) -> dict[str, frozenset[str]]:
    """Return the hardware keys that a probe's ``processor`` states, by kind."""
    found: dict[str, frozenset[str]] = {}
    for field_name in ("key", "uuid", "bus", "luid"):
        key = hardware_key(field_name, told.get(field_name))
        if key is not None:
            found[key[0]] = found.get(key[0], frozenset()) | {key[1]}
    return found


def number(value: object) -> int | None:
    """Return a vendor or device id given as a number or as hexadecimal text; null for neither."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int):
        return value
    try:
        return int(str(value).strip(), 16)
    except ValueError:
        return None


def vendor_name(vendor_id: int | None) -> str | None:
    return None if vendor_id is None else VENDORS.get(vendor_id)


def _luid(text: str) -> int | str:
    if found := _HEX_LUID.fullmatch(text):
        return int(found[1], 16) << 32 | int(found[2], 16)
    try:
        if text.startswith("0x"):
            return int(text, 16)
        if len(text) == 16:
            return int.from_bytes(bytes.fromhex(text), "little")
        return int(text)
    except ValueError:
        return text
