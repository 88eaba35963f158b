"""What Windows says of its processor cores, through a call of its own.

The call is a few lines; the bytes it returns are taken apart by a pure function, so that a
recorded answer can stand in for a Windows machine in a test.
"""

from __future__ import annotations

import struct
import sys

_RELATION_CORE = 0
_HEAD = struct.Struct("<II")
_CORE = struct.Struct("<BB20xH")
_MASK = struct.Struct("<QH6x")


def cores_blob() -> bytes:
    """Return GetLogicalProcessorInformationEx's answer about cores; empty elsewhere."""
    if sys.platform == "win32":
        import ctypes

        call = ctypes.windll.kernel32.GetLogicalProcessorInformationEx
        size = ctypes.c_ulong(0)
        call(_RELATION_CORE, None, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        return buffer.raw if call(_RELATION_CORE, buffer, ctypes.byref(size)) else b""
    else:  # noqa: RET505 - a type checker sees one branch only, and calls the rest unreachable
        return b""


def core_classes(blob: bytes) -> list[tuple[int, int]]:
    """Return (efficiency class, logical CPUs) of each physical core; a higher class is faster.

    Layout: SYSTEM_LOGICAL_PROCESSOR_INFORMATION_EX with PROCESSOR_RELATIONSHIP, 64-bit.
    """
    found = []
    at = 0
    while at + _HEAD.size + _CORE.size <= len(blob):
        relation, size = _HEAD.unpack_from(blob, at)
        if size < _HEAD.size or at + size > len(blob):
            break
        if relation == _RELATION_CORE:
            _, kind, groups = _CORE.unpack_from(blob, at + _HEAD.size)
            first = at + _HEAD.size + _CORE.size
            room = (at + size - first) // _MASK.size
            masks = (
                _MASK.unpack_from(blob, first + n * _MASK.size)[0] for n in range(min(groups, room))
            )
            found.append((kind, sum(mask.bit_count() for mask in masks)))
        at += size
    return found
