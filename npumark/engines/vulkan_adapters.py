"""Which adapters Vulkan offers here, and whether they are hardware.

A provider that computes through Vulkan does not say which adapter it took. Where every adapter
is a program that runs on the CPU (SwiftShader, llvmpipe), the device is an emulated one.

Numbers and structures were checked against vulkan_core.h of Vulkan 1.3.275; those used here are
of Vulkan 1.0 and never change.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from npumark.hardware import is_software, plain_text

SOFTWARE_ROLE = "iGPU"
"""What an adapter that is a program counts as: the memory it computes in is the computer's own."""

_KINDS = {0: "other", 1: "integrated", 2: "discrete", 3: "virtual", 4: "cpu"}
_INSTANCE_INFO, _PROPERTIES_BYTES, _MOST = 1, 4096, 64
_SUCCESS, _INCOMPLETE = 0, 5
"""VkResult; the second says that there are more adapters than there was room for."""


@dataclass(frozen=True, slots=True)
class Adapter:
    """``kind`` is Vulkan's own word: integrated, discrete, virtual, cpu or other."""

    name: str
    kind: str
    vendor_id: int
    device_id: int

    @property
    def software(self) -> bool:
        return self.kind == "cpu" or is_software(self.name, self.vendor_id, self.device_id)


def software_key(name: str | None) -> dict[str, str]:
    """Return the key of an adapter that is a program, empty where it has no name.

    Every runtime that computes on it states this one: it is one processor, and never a card
    that is beside it.
    """
    return {"key": f"software-{name}"} if name else {}


class _InstanceInfo(ctypes.Structure):
    """``VkInstanceCreateInfo``; all that is left out stays null."""

    _fields_ = [
        ("kind", ctypes.c_int),
        ("next", ctypes.c_void_p),
        ("flags", ctypes.c_uint32),
        ("application", ctypes.c_void_p),
        ("layers", ctypes.c_uint32),
        ("layer_names", ctypes.c_void_p),
        ("extensions", ctypes.c_uint32),
        ("extension_names", ctypes.c_void_p),
    ]


class _Properties(ctypes.Structure):
    """The head of ``VkPhysicalDeviceProperties``, with room for the rest."""

    _fields_ = [
        ("api", ctypes.c_uint32),
        ("driver", ctypes.c_uint32),
        ("vendor", ctypes.c_uint32),
        ("device", ctypes.c_uint32),
        ("kind", ctypes.c_uint32),
        ("name", ctypes.c_char * 256),
        ("rest", ctypes.c_ubyte * _PROPERTIES_BYTES),
    ]


def vulkan_adapters(load: Callable[[str], Any] = ctypes.CDLL) -> tuple[Adapter, ...] | None:
    """Return the adapters in the loader's order; null where there is no Vulkan to ask."""
    loader = _loader(load)
    if loader is None:
        return None
    instance = ctypes.c_void_p()
    info = _InstanceInfo(kind=_INSTANCE_INFO)
    if loader.vkCreateInstance(ctypes.byref(info), None, ctypes.byref(instance)) != 0:
        return None
    try:
        count = ctypes.c_uint32(_MOST)
        handles = (ctypes.c_void_p * _MOST)()
        listed = loader.vkEnumeratePhysicalDevices(instance, ctypes.byref(count), handles)
        if listed not in (_SUCCESS, _INCOMPLETE):
            return None
        return tuple(_adapter(loader, handles[n]) for n in range(min(count.value, _MOST)))
    finally:
        loader.vkDestroyInstance(instance, None)


def _adapter(loader: Any, handle: int | None) -> Adapter:
    told = _Properties()
    loader.vkGetPhysicalDeviceProperties(ctypes.c_void_p(handle), ctypes.byref(told))
    return Adapter(
        plain_text(told.name.decode(errors="replace")) or "unnamed",
        _KINDS.get(told.kind, "other"),
        int(told.vendor),
        int(told.device),
    )


def _loader(load: Callable[[str], Any]) -> Any:
    names = ["vulkan-1.dll"] if sys.platform == "win32" else ["libvulkan.so.1"]
    # A driver that brings its own loader keeps both in one folder.
    for told in os.environ.get("VK_ICD_FILENAMES", "").split(os.pathsep):
        if told:
            names.append(str(Path(told).parent / names[0]))
    for name in names:
        try:
            return load(name)
        except OSError:
            continue
    return None
