"""The inputs and outputs of a LiteRT model: memory of ours where the device can use that."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from npumark.engines.base import Array
from npumark.engines.buffers import aligned
from npumark.engines.litert_library import Library, Pointer
from npumark.errors import EngineError

_HOST_MEMORY = 1
"""The kind of a buffer that lies in the process's own memory."""

_READ, _WRITE = 0, 1

_TENSOR_TYPE_BYTES = 1024
"""Room for a tensor's type, which is passed on as it comes."""


@dataclass(frozen=True, slots=True)
class Place:
    """What an input or output holds."""

    shape: tuple[int, ...]
    dtype: str


class Buffer:
    """One input or output of a model.

    ``array`` is what the device reads or writes where that can be memory of ours (``on_host``).
    Elsewhere ``push`` copies it to where the device reads it, and ``pull`` copies what the device
    made into it, after waiting for that; on the host they do nothing.
    """

    def __init__(
        self, library: Library, environment: Any, tensor: Any, needs: Any, place: Place
    ) -> None:
        kind = ctypes.create_string_buffer(_TENSOR_TYPE_BYTES)
        library.function("GetRankedTensorType", Pointer, Pointer)(tensor, kind)
        self._kept = kind
        self._size = int(np.prod(place.shape, dtype=np.int64)) * np.dtype(place.dtype).itemsize
        needed = library.number("GetTensorBufferRequirementsBufferSize", needs)
        self.on_host = _HOST_MEMORY in _kinds(library, needs)
        room = aligned((max(needed, self._size),), "uint8")
        self.array: Array = room[: self._size].view(place.dtype).reshape(place.shape)
        self.handle = Pointer()
        if self.on_host:
            create = library.function(
                "CreateTensorBufferFromHostMemory",
                *(Pointer, Pointer, ctypes.c_size_t, Pointer, Pointer),
            )
            create(kind, room.ctypes.data, room.size, None, ctypes.byref(self.handle))
        else:
            create = library.function("CreateManagedTensorBufferFromRequirements", *[Pointer] * 4)
            create(environment, kind, needs, ctypes.byref(self.handle))
        held = library.number("GetTensorBufferPackedSize", self.handle)
        if held != self._size:
            library.drop("DestroyTensorBuffer", self.handle)
            raise EngineError(
                f"LiteRT's buffer holds {held} bytes, not the {self._size} of "
                f"{place.dtype}{list(place.shape)}"
            )
        self.push: Callable[[], None] = _nothing
        self.pull: Callable[[], None] = _nothing
        if not self.on_host:
            host = room.ctypes.data
            self.push, self.pull = _copies(library, self.handle, host, self._size)


def _copies(
    library: Library, handle: Any, host: int, size: int
) -> tuple[Callable[[], None], Callable[[], None]]:
    """Return what copies ``size`` bytes from ``host`` to a buffer, and what copies them back.

    They run inside the timed call, so all that they need is looked up here, once.
    """
    lock = library.function("LockTensorBuffer", Pointer, Pointer, ctypes.c_int)
    unlock = library.function("UnlockTensorBuffer", Pointer)
    device, move = Pointer(), ctypes.memmove
    at, read, write = ctypes.byref(device), ctypes.c_int(_READ), ctypes.c_int(_WRITE)

    def push() -> None:
        lock(handle, at, write)
        move(device, host, size)
        unlock(handle)

    def pull() -> None:
        lock(handle, at, read)
        move(host, device, size)
        unlock(handle)

    return push, pull


def _nothing() -> None:
    """Copy nothing: the array is the device's memory."""


def _kinds(library: Library, needs: Any) -> set[int]:
    """Return the kinds of buffers that a model takes at one place."""
    count = library.number("GetNumTensorBufferRequirementsSupportedBufferTypes", needs)
    ask = "GetTensorBufferRequirementsSupportedTensorBufferType"
    return {
        library.number(ask, needs, ctypes.c_int(index), kind=ctypes.c_int) for index in range(count)
    }
