"""What hardware is known by: bus addresses and other keys, and which adapters are programs.

Runtimes, drivers and systems each spell one device in their own way; here every spelling comes
to one form. Nothing here needs more than the standard library, and nothing here raises: what is
no address, key or number is null or stays the text it was.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping
from typing import SupportsIndex

_BUS = re.compile(
    r"(?:([0-9a-f]{1,8}):)?([0-9a-f]{1,2}):([0-9a-f]{1,2})\.([0-7])", re.IGNORECASE | re.ASCII
)
_BUS_PARTS = ("domain", "bus", "device", "function")
_BUS_NAMED = re.compile(
    r"\b(domain|bus|device|function): ?(0x[0-9a-f]{1,8}|[0-9]{1,10})\b", re.IGNORECASE | re.ASCII
)
_BUS_MOST = (0xFFFFFFFF, 0xFF, 0x1F, 7)

_UUID = re.compile(
    r"(?:gpu-)?" + "-?".join(rf"([0-9a-f]{{{n}}})" for n in (8, 4, 4, 4, 12)), re.ASCII
)
_LUID_PAIR = re.compile(r"(?:0x)?([0-9a-f]{8})[-:_](?:0x)?([0-9a-f]{8})", re.ASCII)
_LUID_HEX = re.compile(r"0x([0-9a-f]{1,16})", re.ASCII)
_LUID_BYTES = re.compile(r"[0-9a-f]{16}", re.ASCII)
_LUID_DECIMAL = re.compile(r"[0-9]{1,20}", re.ASCII)

_ID = re.compile(r"(?:0x)?([0-9a-f]{1,8})", re.IGNORECASE | re.ASCII)
_LONGEST = 200

_SOFTWARE_NAME = re.compile(
    r"swiftshader|llvmpipe|lavapipe|softpipe|\bwarp\b|basic render", re.IGNORECASE
)
_SOFTWARE_IDS = frozenset({(0x1414, 0x8C), (0x1AE0, 0xC0DE)})
"""Vendor and device of Microsoft's Basic Render Driver, which calls itself hardware in some
lists, and of SwiftShader. Mesa's vendor id is no sign: it makes drivers of real cards too."""


def bus_address(told: object) -> str | None:
    """Return a PCI address as ``0000:03:1f.2``, null for what is none.

    ``told`` is an address as text, with or without a domain of any width; text that names its
    parts (``{domain: 0 bus: 3 device: 0x1f function: 2}``); or an object with those attributes.
    """
    values = [getattr(told, part, None) for part in _BUS_PARTS]
    numbers = [operator.index(v) for v in values if isinstance(v, SupportsIndex)]
    if len(numbers) == len(_BUS_PARTS):
        return pci_address(*numbers)
    text = str(told).strip().lower()
    if found := _BUS.fullmatch(text):
        return pci_address(*(int(part or "0", 16) for part in found.groups()))
    named = dict(_BUS_NAMED.findall(text))
    if set(named) != set(_BUS_PARTS):
        return None
    read = (named[part] for part in _BUS_PARTS)
    return pci_address(*(int(n, 16) if n.startswith("0x") else int(n) for n in read))


def pci_address(domain: int, bus: int, device: int, function: int) -> str | None:
    """Return the numbers of a PCI address as text; null where they are out of range, and for
    all zeros, which drivers give for a device that is on no bus: the host bridge is there."""
    parts = (domain, bus, device, function)
    if not any(parts) or any(
        not 0 <= part <= most for part, most in zip(parts, _BUS_MOST, strict=True)
    ):
        return None
    return f"{domain:04x}:{bus:02x}:{device:02x}.{function}"


def hardware_key(kind: str, value: object) -> tuple[str, str] | None:
    """Return a key as (kind, value) in the one form that every source's spelling comes to.

    ``kind`` is the field a probe gave it in; what stands in ``key`` is recognised by its looks.
    A bus address gets its domain and lower case; a UUID loses its dashes and prefix; a LUID is
    a decimal number, whichever of ``0x…``, ``high-low``, decimal or OpenVINO's little-endian
    bytes it came as. Null for nothing, and for the zeros that stand for it.
    """
    text = str(value).strip().lower() if value is not None else ""
    if not text.strip("0-:.x"):
        return None
    if kind in ("bus", "key") and (address := bus_address(text)):
        return "bus", address
    if kind in ("uuid", "key") and (found := _UUID.fullmatch(text)):
        return "uuid", "".join(found.groups())
    if kind == "luid":
        return "luid", _luid(text)
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
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    found = _ID.fullmatch(str(value).strip())
    return int(found[1], 16) if found else None


def plain_text(value: object) -> str | None:
    """Return what a driver wrote as one printable line of at most 200 characters; null where
    nothing is left, and for what is no text."""
    if not isinstance(value, str):
        return None
    kept = "".join(
        c if c.isprintable() and c != "\N{REPLACEMENT CHARACTER}" else " " for c in value
    )
    return " ".join(kept.split())[:_LONGEST].rstrip() or None


def is_software(name: str | None, vendor_id: int | None, device_id: int | None) -> bool:
    """Say whether an adapter is a program that computes on the CPU, by its name or its ids."""
    named = bool(name and _SOFTWARE_NAME.search(name))
    return named or (vendor_id, device_id) in _SOFTWARE_IDS


def _luid(text: str) -> str:
    if found := _LUID_PAIR.fullmatch(text):
        return str(int(found[1], 16) << 32 | int(found[2], 16))
    if found := _LUID_HEX.fullmatch(text):
        return str(int(found[1], 16))
    if _LUID_BYTES.fullmatch(text):
        return str(int.from_bytes(bytes.fromhex(text), "little"))
    return str(int(text)) if _LUID_DECIMAL.fullmatch(text) else text
