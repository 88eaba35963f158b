"""DXCore's objects as C sees them: tables of functions, made of callbacks, in this process.

The slots and types are those of dxcore_interface.h; a wrong slot, type or size in what calls
them crashes or fails here as it would on Windows.
"""

from __future__ import annotations

import ctypes
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

FUNCTION = getattr(ctypes, "WINFUNCTYPE", ctypes.CFUNCTYPE)
FAILS = -0x7FFBFFFE  # 0x80040002

FACTORY = uuid.UUID("78ee5945-c36e-4b13-a669-005dd11c0f06")
LIST = uuid.UUID("526c7776-40e9-459b-b711-f32ad76dfc28")
ADAPTER = uuid.UUID("f0db4c7f-fe5a-42a2-bd62-f2a6cf6fc83e")
GRAPHICS = uuid.UUID("0c9ece4d-2f6e-4f01-8c96-e89e331b47b1")
CORE_COMPUTE = uuid.UUID("248e2800-a793-4724-abaa-23a6de1be090")
GENERIC_ML = uuid.UUID("b71b0d41-1088-422f-a27c-0250b7d3a988")

LUID, VERSION, NAME, HARDWARE_ID, MEMORY, IS_HARDWARE, IS_INTEGRATED = 0, 1, 2, 3, 7, 11, 12


def guid(at: int) -> uuid.UUID:
    return uuid.UUID(bytes_le=ctypes.string_at(at, 16))


class Com:
    """An object: a pointer to a table, whose functions check that it is this object they got."""

    def __init__(self, methods: dict[int, tuple[Any, Callable[..., Any]]]) -> None:
        self._kept: list[Any] = []
        table = (ctypes.c_void_p * (max(methods) + 1))()
        for slot in range(len(table)):
            prototype, method = methods.get(slot, (FUNCTION(None, ctypes.c_void_p), self._never))
            callback = prototype(self._checked(method))
            self._kept.append(callback)
            table[slot] = ctypes.cast(callback, ctypes.c_void_p).value
        self._table = table
        self._object = ctypes.pointer(table)
        self.address = ctypes.addressof(self._object)
        self.wrong: list[str] = []

    def _checked(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def called(this: int, *arguments: Any) -> Any:
            if this != self.address:
                self.wrong.append("called on another object")
            return method(*arguments)

        return called

    def _never(self) -> None:
        self.wrong.append("a function that nothing should call was called")


@dataclass
class Adapter:
    """``properties`` by number; one that is absent is not supported."""

    properties: dict[int, bytes]
    attributes: set[uuid.UUID] = field(default_factory=lambda: {GRAPHICS, CORE_COMPUTE})
    broken: bool = False
    size_told: int | None = None
    com: Com = field(init=False)

    def __post_init__(self) -> None:
        supports = FUNCTION(ctypes.c_bool, ctypes.c_void_p, ctypes.c_void_p)
        get = FUNCTION(
            ctypes.c_int32, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_size_t, ctypes.c_void_p
        )
        size = FUNCTION(
            ctypes.c_int32, ctypes.c_void_p, ctypes.c_uint32, ctypes.POINTER(ctypes.c_size_t)
        )
        self.com = Com(
            {
                4: (supports, lambda at: guid(at) in self.attributes),
                6: (get, self._get),
                7: (size, self._size),
            }
        )

    def _size(self, which: int, size: Any) -> int:
        if which not in self.properties:
            return FAILS
        told = len(self.properties[which])
        size[0] = told if self.size_told is None else self.size_told
        return 0

    def _get(self, which: int, room: int, at: int) -> int:
        value = self.properties.get(which)
        if value is None or room < len(value) or self.broken:
            return FAILS
        ctypes.memmove(at, value, len(value))
        return 0


class Dxcore:
    """The library. ``lists`` is what each attribute filters, null where no list can be made."""

    def __init__(
        self,
        adapters: Sequence[Adapter] = (),
        *,
        result: int = 0,
        unlisted: frozenset[uuid.UUID] = frozenset(),
        refused: frozenset[int] = frozenset(),
    ) -> None:
        self.adapters, self._result = adapters, result
        self._unlisted, self._refused = unlisted, refused
        self.lists: list[Com] = []
        self.asked: list[uuid.UUID] = []
        out = ctypes.POINTER(ctypes.c_void_p)
        make = FUNCTION(
            ctypes.c_int32,
            ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_void_p, out,
        )  # fmt: skip
        self.factory = Com({3: (make, self._list)})
        self._create = FUNCTION(ctypes.c_int32, ctypes.c_void_p, out)(self._made)

    def create(self, *arguments: Any) -> int:
        return int(self._create(*arguments))

    def wrong(self) -> list[str]:
        objects = [self.factory, *self.lists, *(a.com for a in self.adapters)]
        return [said for one in objects for said in one.wrong]

    def _made(self, at: int, factory: Any) -> int:
        if guid(at) != FACTORY or self._result < 0:
            return self._result or FAILS
        factory[0] = self.factory.address
        return 0

    def _list(self, count: int, filters: int, at: int, made: Any) -> int:
        wanted = guid(filters)
        self.asked.append(wanted)
        if count != 1 or guid(at) != LIST or wanted in self._unlisted:
            return FAILS
        chosen = [a for a in self.adapters if wanted in a.attributes]
        get = FUNCTION(
            ctypes.c_int32,
            ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p),
        )  # fmt: skip

        def hand_out(index: int, at: int, adapter: Any) -> int:
            if guid(at) != ADAPTER or index in self._refused:
                return FAILS
            adapter[0] = chosen[index].com.address
            return 0

        count_of = FUNCTION(ctypes.c_uint32, ctypes.c_void_p)
        self.lists.append(Com({3: (get, hand_out), 4: (count_of, lambda: len(chosen))}))
        made[0] = self.lists[-1].address
        return 0
