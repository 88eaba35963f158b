"""Windows' adapters by DXCore: GPUs and NPUs alike, each with its LUID.

``python -m npumark.machine.dxcore`` asks and prints one JSON document, in a process of its own.
The order of DXGI's list, which DirectML's device numbers follow, is another than DXCore's and
than CUDA's, and changes when a display is plugged in: devices are told apart by LUID and bus
address, never by their place in a list. An adapter that a remote desktop lists twice has one
bus address.

Not yet run on hardware: written against the documented interfaces of dxcore.dll and gdi32.dll.
"""

from __future__ import annotations

import ctypes
import json
import sys
import uuid
from typing import Any

from npumark.machine.card import Card, Role, key_sets
from npumark.machine.host import Host

COMMAND = (sys.executable, "-P", "-m", "npumark.machine.dxcore")

_FACTORY = "78ee5945-c36e-4b13-a669-005dd11c0f06"
_LIST = "526c7776-40e9-459b-b711-f32ad76dfc28"
_ADAPTER = "f0db4c7f-fe5a-42a2-bd62-f2a6cf6fc83e"
_GRAPHICS = "0c9ece4d-2f6e-4f01-8c96-e89e331b47b1"
_CORE_COMPUTE = "248e2800-a793-4724-abaa-23a6de1be090"
_GENERIC_ML = "b71b0d41-1088-422f-a27c-0250b7d3a988"
_LUID, _VERSION, _NAME, _HARDWARE_ID, _IS_HARDWARE, _IS_INTEGRATED = 0, 1, 2, 3, 11, 12
_ADAPTER_ADDRESS = 6
_SOFTWARE = (0x1414, 0x008C)
"""Microsoft's Basic Render Driver, which calls itself hardware in some lists."""


def windows_cards(host: Host) -> tuple[Card, ...]:
    """Return the GPUs and NPUs that Windows lists, each once, software renderers left out."""
    told = host.output(COMMAND).value
    try:
        adapters = json.loads(told or "")["adapters"]
        cards = [c for a in adapters if (c := _card(a)) is not None]
    except (ValueError, KeyError, TypeError, AttributeError):
        return ()
    return tuple(_once(cards))


def _card(told: dict[str, Any]) -> Card | None:
    if not told["hardware"] or (told["vendor_id"], told["device_id"]) == _SOFTWARE:
        return None
    role: Role = "NPU"
    if told["graphics"]:
        role = "iGPU" if told["integrated"] else "dGPU"
    return Card(
        role=role,
        keys=key_sets({"luid": told["luid"], "bus": told["bus"]}),
        vendor_id=told["vendor_id"],
        device_id=told["device_id"],
        name=told["name"],
        name_sure=True,
        driver=told["driver"],
    )


def _once(cards: list[Card]) -> list[Card]:
    """Return the cards with those of one bus address as one, whose LUIDs are all its own."""
    found: dict[object, Card] = {}
    for n, card in enumerate(cards):
        place = card.keys.get("bus") or n
        first = found.get(place)
        if first is None:
            found[place] = card
            continue
        luids = first.keys.get("luid", frozenset()) | card.keys.get("luid", frozenset())
        found[place] = Card(
            role=first.role,
            keys={**first.keys, "luid": luids},
            vendor_id=first.vendor_id,
            device_id=first.device_id,
            name=first.name,
            name_sure=first.name_sure,
            driver=first.driver,
        )
    return list(found.values())


def driver_version(packed: int) -> str:
    """Return Windows' driver version, four 16-bit numbers, as it is written: 31.0.101.5590."""
    return ".".join(str(packed >> shift & 0xFFFF) for shift in (48, 32, 16, 0))


def ask() -> dict[str, Any]:  # pragma: no cover - Windows alone has what it asks
    """Return every adapter that can compute, by DXCore. Raises OSError where it is not there."""
    library = ctypes.CDLL("dxcore.dll")
    factory = ctypes.c_void_p()
    library.DXCoreCreateAdapterFactory.restype = ctypes.c_int32
    _check(library.DXCoreCreateAdapterFactory(_guid(_FACTORY), ctypes.byref(factory)))
    found: dict[int, dict[str, Any]] = {}
    for attribute in (_CORE_COMPUTE, _GENERIC_ML):
        listed = ctypes.c_void_p()
        made = _call(
            factory, 3, ctypes.c_int32, ctypes.c_uint32(1), _guid(attribute), _guid(_LIST),
            ctypes.byref(listed),
        )  # fmt: skip
        if made < 0:
            continue
        for index in range(_call(listed, 4, ctypes.c_uint32)):
            adapter = ctypes.c_void_p()
            _check(
                _call(
                    listed,
                    3,
                    ctypes.c_int32,
                    ctypes.c_uint32(index),
                    _guid(_ADAPTER),
                    ctypes.byref(adapter),
                )
            )
            told = _describe(adapter)
            found.setdefault(told["luid"], told)
    return {"adapters": list(found.values())}


def _describe(adapter: ctypes.c_void_p) -> dict[str, Any]:  # pragma: no cover - see ask
    vendor, device = (
        int.from_bytes(_property(adapter, _HARDWARE_ID)[n : n + 4], "little") for n in (0, 4)
    )
    luid = int.from_bytes(_property(adapter, _LUID), "little")
    return {
        "luid": luid,
        "vendor_id": vendor,
        "device_id": device,
        "name": _property(adapter, _NAME).split(b"\0")[0].decode("utf-8", "replace") or None,
        "driver": driver_version(int.from_bytes(_property(adapter, _VERSION), "little")),
        "hardware": any(_property(adapter, _IS_HARDWARE)),
        "integrated": any(_property(adapter, _IS_INTEGRATED)),
        "graphics": bool(_call(adapter, 4, ctypes.c_bool, _guid(_GRAPHICS))),
        "bus": _bus(luid),
    }


class _Address(ctypes.Structure):
    _fields_ = (("bus", ctypes.c_uint), ("device", ctypes.c_uint), ("function", ctypes.c_uint))


class _Open(ctypes.Structure):
    _fields_ = (("low", ctypes.c_uint), ("high", ctypes.c_int), ("handle", ctypes.c_uint))


class _Query(ctypes.Structure):
    _fields_ = (
        ("handle", ctypes.c_uint),
        ("kind", ctypes.c_int),
        ("data", ctypes.c_void_p),
        ("size", ctypes.c_uint),
    )


def _bus(luid: int) -> str | None:  # pragma: no cover - see ask
    """Return the bus address that the graphics kernel gives an adapter, null where it has none."""
    gdi = ctypes.CDLL("gdi32.dll")
    opened = _Open(low=luid & 0xFFFFFFFF, high=luid >> 32)
    if gdi.D3DKMTOpenAdapterFromLuid(ctypes.byref(opened)) != 0:
        return None
    address = _Address()
    query = _Query(
        opened.handle,
        _ADAPTER_ADDRESS,
        ctypes.cast(ctypes.byref(address), ctypes.c_void_p),
        ctypes.sizeof(address),
    )
    answered = gdi.D3DKMTQueryAdapterInfo(ctypes.byref(query)) == 0
    gdi.D3DKMTCloseAdapter(ctypes.byref(ctypes.c_uint(opened.handle)))
    if not answered or address.bus > 255 or address.device > 31 or address.function > 7:
        return None
    return f"0000:{address.bus:02x}:{address.device:02x}.{address.function}"


def _property(adapter: ctypes.c_void_p, which: int) -> bytes:  # pragma: no cover - see ask
    size = ctypes.c_size_t(0)
    _check(_call(adapter, 7, ctypes.c_int32, ctypes.c_uint32(which), ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(size.value)
    _check(
        _call(
            adapter, 6, ctypes.c_int32, ctypes.c_uint32(which), ctypes.c_size_t(size.value), buffer
        )
    )
    return buffer.raw


def _call(target: ctypes.c_void_p, slot: int, result: Any, *args: Any) -> Any:  # pragma: no cover
    """Call a COM method by its place in the interface's table."""
    table = ctypes.cast(target, ctypes.POINTER(ctypes.POINTER(ctypes.c_void_p))).contents
    return ctypes.CFUNCTYPE(result, ctypes.c_void_p, *(type(a) for a in args))(table[slot])(
        target, *args
    )


def _guid(text: str) -> Any:
    return ctypes.create_string_buffer(uuid.UUID(text).bytes_le, 16)


def _check(result: int) -> None:  # pragma: no cover - see ask
    if result < 0:
        raise OSError(f"DXCore answers {result & 0xFFFFFFFF:#010x}")


def main() -> int:
    try:
        answer = ask()
    except OSError as fault:
        sys.stderr.write(f"{fault}\n")
        return 1
    sys.stdout.write(json.dumps(answer) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
