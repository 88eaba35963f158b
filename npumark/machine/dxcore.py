"""Windows' adapters by DXCore: GPUs and NPUs alike, each with its LUID.

``python -m npumark.machine.dxcore`` asks and prints one JSON document, in a process of its own.
The order of DXGI's list, which DirectML's device numbers follow, is another than DXCore's and
than CUDA's, and changes when a display is plugged in: devices are told apart by LUID and bus
address, never by their place in a list. An adapter that a remote desktop lists twice has one
bus address.

Not yet run on hardware. Ids, property numbers, types and the order of methods were checked
against dxcore_interface.h of Microsoft's DirectX-Headers (IDXCoreAdapterFactory,
IDXCoreAdapterList and IDXCoreAdapter as Windows 10 2004 has them; the attribute of generic
machine learning as release 1.614 added it), the graphics kernel's against d3dkmthk.h of the
Windows driver kit (KMTQAITYPE_ADAPTERADDRESS, D3DKMT_OPENADAPTERFROMLUID,
D3DKMT_QUERYADAPTERINFO, D3DKMT_ADAPTERADDRESS).
"""

from __future__ import annotations

import ctypes
import json
import sys
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from npumark.hardware import is_software, key_sets, pci_address, plain_text
from npumark.machine.card import Card, Role
from npumark.machine.host import Host

COMMAND = (sys.executable, "-P", "-m", "npumark.machine.dxcore")

_FACTORY = "78ee5945-c36e-4b13-a669-005dd11c0f06"
_LIST = "526c7776-40e9-459b-b711-f32ad76dfc28"
_ADAPTER = "f0db4c7f-fe5a-42a2-bd62-f2a6cf6fc83e"
_GRAPHICS = "0c9ece4d-2f6e-4f01-8c96-e89e331b47b1"
_CORE_COMPUTE = "248e2800-a793-4724-abaa-23a6de1be090"
_GENERIC_ML = "b71b0d41-1088-422f-a27c-0250b7d3a988"
_LUID, _VERSION, _NAME, _HARDWARE_ID, _MEMORY, _IS_HARDWARE, _IS_INTEGRATED = 0, 1, 2, 3, 7, 11, 12
"""DXCoreAdapterProperty. Of HardwareID, vendor and device are the first two 32-bit numbers."""

_ADAPTER_ADDRESS = 6
_MOST_BYTES = 1 << 16
"""Longer than any property: a size beyond it is no answer."""

_MOST_ADAPTERS = 1024

_PROTOTYPE = getattr(ctypes, "WINFUNCTYPE", ctypes.CFUNCTYPE)
_This, _Guid, _Out = ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p)
_Result = ctypes.c_int32

Create = Callable[..., int]
"""``DXCoreCreateAdapterFactory(REFIID, void **)``, which returns an HRESULT."""


@dataclass(frozen=True, slots=True)
class _Method:
    """A COM method: its place in the interface's table, after IUnknown's three, and its type."""

    slot: int
    prototype: Any


def _method(slot: int, result: Any, *arguments: Any) -> _Method:
    return _Method(slot, _PROTOTYPE(result, _This, *arguments))


_CREATE_LIST = _method(3, _Result, ctypes.c_uint32, _Guid, _Guid, _Out)
_GET_ADAPTER = _method(3, _Result, ctypes.c_uint32, _Guid, _Out)
_COUNT = _method(4, ctypes.c_uint32)
_SUPPORTS = _method(4, ctypes.c_bool, _Guid)
_GET = _method(6, _Result, ctypes.c_uint32, ctypes.c_size_t, ctypes.c_void_p)
_SIZE = _method(7, _Result, ctypes.c_uint32, ctypes.POINTER(ctypes.c_size_t))


def windows_cards(host: Host) -> tuple[tuple[Card, ...], str | None]:
    """Return the GPUs and NPUs that Windows lists, each once, software renderers left out; and
    in a clause why some or all are missing, null where none is."""
    reading = host.output(COMMAND)
    if reading.value is None:
        why = (reading.why or "it gave no answer").removeprefix(COMMAND[0]).strip()
        return (), f"the process that asks Windows for its adapters {why}"
    try:
        answer = json.loads(reading.value)
        cards = [c for a in answer["adapters"] if (c := _card(a)) is not None]
        faults = [said for f in answer.get("faults", ()) if (said := plain_text(f))]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return (), "Windows' adapters were told in a form that npumark does not know"
    return tuple(_once(cards)), "; ".join(dict.fromkeys(faults)) or None


def _card(told: dict[str, Any]) -> Card | None:
    ids = (told["vendor_id"], told["device_id"])
    name = plain_text(told["name"])
    if not told["hardware"] or is_software(name, *ids):
        return None
    role: Role = "NPU"
    if told["graphics"]:
        role = "iGPU" if told["integrated"] else "dGPU"
    memory = told.get("memory_bytes")
    return Card(
        role=role,
        keys=key_sets({"luid": told["luid"], "bus": told["bus"]}),
        vendor_id=ids[0],
        device_id=ids[1],
        name=name,
        name_sure=name is not None,
        driver=plain_text(told["driver"]),
        details={"memory_bytes": memory} if memory else {},
    )


def _once(cards: list[Card]) -> list[Card]:
    """Return the cards of one bus address and one model as one, whose LUIDs are all its own."""
    found: dict[object, Card] = {}
    for n, card in enumerate(cards):
        bus = card.keys.get("bus")
        place = (bus, card.vendor_id, card.device_id) if bus else n
        first = found.get(place)
        if first is None:
            found[place] = card
            continue
        luids = first.keys.get("luid", frozenset()) | card.keys.get("luid", frozenset())
        found[place] = replace(first, keys={**first.keys, "luid": luids})
    return list(found.values())


def driver_version(packed: int) -> str:
    """Return Windows' driver version, four 16-bit numbers, as it is written: 31.0.101.5590."""
    return ".".join(str(packed >> shift & 0xFFFF) for shift in (48, 32, 16, 0))


def ask(create: Create, bus: Callable[[int], str | None]) -> dict[str, Any]:
    """Return every adapter that can compute, and in ``faults`` why one or all are missing.

    ``create`` is the library's one function, ``bus`` gives the bus address of a LUID. Raises
    OSError where DXCore makes no factory. What it hands out is not released: the process ends.
    """
    factory = ctypes.c_void_p()
    _check(create(_guid(_FACTORY), ctypes.byref(factory)), "makes no factory")
    found: dict[int, dict[str, Any]] = {}
    faults: list[str] = []
    listed = 0
    # Windows before 11 22H2 knows no adapters that compute and draw nothing.
    for attribute in (_CORE_COMPUTE, _GENERIC_ML):
        adapters = ctypes.c_void_p()
        result = _call(
            factory, _CREATE_LIST, 1, _guid(attribute), _guid(_LIST), ctypes.byref(adapters)
        )
        if result < 0:
            continue
        listed += 1
        for index in range(min(_call(adapters, _COUNT), _MOST_ADAPTERS)):
            try:
                told = _adapter(adapters, index, bus)
            except OSError as fault:
                faults.append(f"adapter {index}: {fault}")
                continue
            found.setdefault(told["luid"], told)
    if not listed:
        faults.append("DXCore makes no list of adapters")
    return {"adapters": list(found.values()), "faults": faults}


def _adapter(
    adapters: ctypes.c_void_p, index: int, bus: Callable[[int], str | None]
) -> dict[str, Any]:
    """Return what an adapter tells. Raises OSError where it does not say which one it is."""
    adapter = ctypes.c_void_p()
    got = _call(adapters, _GET_ADAPTER, index, _guid(_ADAPTER), ctypes.byref(adapter))
    _check(got, "does not hand it out")
    luid = int.from_bytes(_required(adapter, _LUID, 8), "little")
    ids = _required(adapter, _HARDWARE_ID, 8)
    version = _property(adapter, _VERSION, 8)
    memory = _property(adapter, _MEMORY, 8)
    hardware = _property(adapter, _IS_HARDWARE, 1)
    return {
        "luid": luid,
        "vendor_id": int.from_bytes(ids[:4], "little"),
        "device_id": int.from_bytes(ids[4:8], "little"),
        "name": _property(adapter, _NAME, 1).split(b"\0")[0].decode("utf-8", "replace") or None,
        "driver": driver_version(int.from_bytes(version[:8], "little")) if version else None,
        "memory_bytes": int.from_bytes(memory[:8], "little") or None,
        # Where it does not say, its name and ids still tell a software renderer.
        "hardware": any(hardware) if hardware else True,
        "integrated": any(_property(adapter, _IS_INTEGRATED, 1)),
        "graphics": bool(_call(adapter, _SUPPORTS, _guid(_GRAPHICS))),
        "bus": bus(luid),
    }


def _required(adapter: ctypes.c_void_p, which: int, least: int) -> bytes:
    told = _property(adapter, which, least)
    if not told:
        raise OSError(f"DXCore does not tell its property {which}")
    return told


def _property(adapter: ctypes.c_void_p, which: int, least: int) -> bytes:
    """Return a property's bytes; empty where the adapter has none of at least ``least``."""
    size = ctypes.c_size_t(0)
    if _call(adapter, _SIZE, which, ctypes.byref(size)) < 0:
        return b""
    if not least <= size.value <= _MOST_BYTES:
        return b""
    buffer = ctypes.create_string_buffer(size.value)
    if _call(adapter, _GET, which, size.value, buffer) < 0:
        return b""
    return buffer.raw


def _call(target: ctypes.c_void_p, method: _Method, *arguments: Any) -> Any:
    """Call a method of a COM object. Raises OSError where there is no object."""
    if not target:
        raise OSError("DXCore gave nothing where an object belongs")
    # An object begins with a pointer to its table of methods.
    table = ctypes.cast(target, ctypes.POINTER(ctypes.POINTER(ctypes.c_void_p))).contents
    return method.prototype(table[method.slot])(target, *arguments)


def _guid(text: str) -> Any:
    return ctypes.create_string_buffer(uuid.UUID(text).bytes_le, 16)


def _check(result: int, said: str) -> None:
    if result < 0:
        raise OSError(f"DXCore {said} (it answers {result & 0xFFFFFFFF:#010x})")


class _Address(ctypes.Structure):
    """D3DKMT_ADAPTERADDRESS."""

    _fields_ = (("bus", ctypes.c_uint), ("device", ctypes.c_uint), ("function", ctypes.c_uint))


class _Open(ctypes.Structure):
    """D3DKMT_OPENADAPTERFROMLUID; a LUID is a 32-bit number below a signed one."""

    _fields_ = (("low", ctypes.c_uint), ("high", ctypes.c_int), ("handle", ctypes.c_uint))


class _Query(ctypes.Structure):
    """D3DKMT_QUERYADAPTERINFO."""

    _fields_ = (
        ("handle", ctypes.c_uint),
        ("kind", ctypes.c_int),
        ("data", ctypes.c_void_p),
        ("size", ctypes.c_uint),
    )


def kernel_bus(gdi: Any, luid: int) -> str | None:
    """Return the bus address that the graphics kernel gives an adapter, null where it has none.

    ``gdi`` is gdi32.dll. The kernel does not tell the domain: it is taken to be the first.
    """
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
    if not answered:
        return None
    return pci_address(0, address.bus, address.device, address.function)


def _windows() -> dict[str, Any]:
    """Ask this computer. Raises OSError where it has no DXCore."""
    load = getattr(ctypes, "WinDLL", ctypes.CDLL)
    create = load("dxcore.dll").DXCoreCreateAdapterFactory
    create.argtypes, create.restype = (_Guid, _Out), _Result  # pragma: no cover - only Windows
    gdi = load("gdi32.dll")  # pragma: no cover - only Windows has it
    return ask(create, lambda luid: kernel_bus(gdi, luid))  # pragma: no cover - likewise


def main() -> int:
    """Print what Windows lists, or why it cannot be asked: the reason is for people to read."""
    try:
        answer = _windows()
    except Exception as fault:  # noqa: BLE001 - whatever happens, its reason must arrive
        said = str(fault) or type(fault).__name__
        answer = {"adapters": [], "faults": [f"Windows' adapters cannot be listed: {said}"]}
    sys.stdout.write(json.dumps(answer) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
