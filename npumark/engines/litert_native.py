"""LiteRT's compiled-model API, through its C interface.

The package's Python layer offers the same calls, but hands out every output as a new array and
offers neither the memory of its buffers nor its profiler. The C interface gives both: a buffer
on the host is written and read in place, and a profile names the kernels that ran. Only opaque
handles cross it, and the one structure its makers call stable.

Options for accelerators are short TOML texts under a name, as the package's own layers pass
them.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from npumark.engines.base import Array
from npumark.engines.buffers import aligned
from npumark.errors import EngineError

CPU, GPU, NPU = 1, 2, 4
"""Accelerators, as bits."""

HOST_MEMORY = 1
"""The kind of a buffer that lies in the process's own memory."""

_READ, _WRITE = 0, 1

_RUNTIME_FOLDER, _REGISTERED = 22, 24
"""Tags of environment options: where accelerators' libraries lie, and which are registered."""

_INTEGER, _TEXT = 2, 8

_TENSOR_TYPE_BYTES = 1024
"""Room for a tensor's type, which is passed on as it comes."""

_STATUS = {
    1: "invalid argument",
    2: "out of memory",
    3: "runtime failure",
    4: "missing input",
    5: "unsupported",
    6: "not found",
    500: "cannot read the file",
    501: "not a model",
    504: "compilation failed",
}

_Pointer = ctypes.c_void_p
_Freed = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_nothing_to_free = _Freed(lambda _: None)
"""What the runtime calls when it lets go of a text that stays ours."""


class NativeError(EngineError):
    """A call of the C interface failed."""


class _Value(ctypes.Structure):
    """The interface's tagged value; texts and numbers both fill its 8 bytes."""

    _fields_ = (("kind", ctypes.c_int), ("value", ctypes.c_int64))


class _Option(ctypes.Structure):
    _fields_ = (("tag", ctypes.c_int), ("value", _Value))


@dataclass(frozen=True, slots=True)
class Settings:
    """What a model is compiled with: accelerators as bits, and a text of options by name."""

    accelerators: int
    options: Mapping[str, str]
    profile: bool = False


@dataclass(frozen=True, slots=True)
class Place:
    """What an input or output holds."""

    shape: tuple[int, ...]
    dtype: str


def package_folder() -> Path:
    """Return where the runtime lies. Raises ImportError where it is not installed."""
    import ai_edge_litert

    return Path(str(ai_edge_litert.__file__)).parent


class Library:
    """The runtime's library, with every failed call an error that names it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        name = {"win32": "libLiteRt.dll", "darwin": "libLiteRt.dylib"}.get(
            sys.platform, "libLiteRt.so"
        )
        self._library = ctypes.CDLL(str(folder / name))

    def function(self, name: str, *arguments: Any) -> Any:
        """Return a function of the interface that takes ``arguments`` and raises on failure."""
        try:
            found = self._library[f"LiteRt{name}"]
        except AttributeError as fault:
            raise NativeError(f"this version of LiteRT has no {name}") from fault

        def check(status: int) -> None:
            if status:
                told = _STATUS.get(status, f"status {status}")
                raise NativeError(f"LiteRT's {name} failed: {told}")

        found.restype, found.argtypes = check, arguments
        return found

    def made(self, name: str, *values: Any) -> Any:
        """Call a function whose last argument returns a handle; return that."""
        handle = _Pointer()
        self.function(name, *map(_kind, values), _Pointer)(*values, ctypes.byref(handle))
        return handle

    def number(self, name: str, *values: Any, kind: Any = ctypes.c_size_t) -> int:
        """Call a function whose last argument returns a number; return that."""
        answer = kind()
        self.function(name, *map(_kind, values), _Pointer)(*values, ctypes.byref(answer))
        return int(answer.value)

    def drop(self, name: str, handle: Any) -> None:
        """Call a function that frees a handle and returns nothing."""
        found = self._library[f"LiteRt{name}"]
        found.restype, found.argtypes = None, (_Pointer,)
        found(handle)


def _kind(value: Any) -> Any:
    return ctypes.c_char_p if isinstance(value, bytes) else type(value)


class Buffer:
    """One input or output of a model.

    ``array`` is what the device reads or writes where that can be memory of ours, and else what
    ``push`` and ``pull`` copy from and to.
    """

    def __init__(
        self, library: Library, environment: Any, tensor: Any, needs: Any, place: Place
    ) -> None:
        kind = ctypes.create_string_buffer(_TENSOR_TYPE_BYTES)
        library.function("GetRankedTensorType", _Pointer, _Pointer)(tensor, kind)
        self._kept = kind
        self._size = int(np.prod(place.shape, dtype=np.int64)) * np.dtype(place.dtype).itemsize
        needed = library.number("GetTensorBufferRequirementsBufferSize", needs)
        self.on_host = HOST_MEMORY in _kinds(library, needs)
        room = aligned((max(needed, self._size),), "uint8")
        self.array: Array = room[: self._size].view(place.dtype).reshape(place.shape)
        self.handle = _Pointer()
        if self.on_host:
            create = library.function(
                "CreateTensorBufferFromHostMemory",
                *(_Pointer, _Pointer, ctypes.c_size_t, _Pointer, _Pointer),
            )
            create(kind, room.ctypes.data, room.size, None, ctypes.byref(self.handle))
        else:
            create = library.function("CreateManagedTensorBufferFromRequirements", *[_Pointer] * 4)
            create(environment, kind, needs, ctypes.byref(self.handle))
        self._lock = library.function("LockTensorBuffer", _Pointer, _Pointer, ctypes.c_int)
        self._unlock = library.function("UnlockTensorBuffer", _Pointer)
        self._address = _Pointer()
        self._at = ctypes.byref(self._address)
        held = library.number("GetTensorBufferPackedSize", self.handle)
        if held != self._size:
            library.drop("DestroyTensorBuffer", self.handle)
            raise EngineError(
                f"LiteRT's buffer holds {held} bytes, not the {self._size} of "
                f"{place.dtype}{list(place.shape)}"
            )

    def push(self) -> None:
        """Copy the array to where the device reads it; nothing where that is its memory."""
        if self.on_host:
            return
        self._lock(self.handle, self._at, _WRITE)
        ctypes.memmove(self._address.value or 0, self.array.ctypes.data, self._size)
        self._unlock(self.handle)

    def pull(self) -> None:
        """Copy what the device made into the array, after waiting for it; nothing where it is
        there."""
        if self.on_host:
            return
        self._lock(self.handle, self._at, _READ)
        ctypes.memmove(self.array.ctypes.data, self._address.value or 0, self._size)
        self._unlock(self.handle)


def _kinds(library: Library, needs: Any) -> set[int]:
    """Return the kinds of buffers that a model takes at one place."""
    count = library.number("GetNumTensorBufferRequirementsSupportedBufferTypes", needs)
    ask = "GetTensorBufferRequirementsSupportedTensorBufferType"
    return {
        library.number(ask, needs, ctypes.c_int(index), kind=ctypes.c_int) for index in range(count)
    }


class Model:
    """A compiled model with its buffers. Every handle lives until ``close``."""

    def __init__(self, library: Library, source: Path | bytes, settings: Settings) -> None:
        self.library = library
        self._kept: list[Any] = [source]
        self._open: list[tuple[str, Any]] = []
        self.inputs: list[Buffer] = []
        self.outputs: list[Buffer] = []
        try:
            self._build(source, settings)
        except BaseException:
            self.close()
            raise

    def _build(self, source: Path | bytes, settings: Settings) -> None:
        library = self.library
        self._environment = self._keep("Environment", self._new_environment(settings))
        if isinstance(source, Path):
            model = library.made("CreateModelFromFile", self._environment, bytes(source))
        else:
            size = ctypes.c_size_t(len(source))
            model = library.made("CreateModelFromBuffer", self._environment, source, size)
        self._model = self._keep("Model", model)
        options = self._keep("Options", library.made("CreateOptions"))
        library.function("SetOptionsHardwareAccelerators", _Pointer, ctypes.c_int)(
            options, settings.accelerators
        )
        texts = dict(settings.options)
        if settings.profile:
            texts["runtime_options_string"] = "enable_profiling = true\n"
        for name, text in texts.items():
            self._add(options, name, text)
        compiled = library.made("CreateCompiledModel", self._environment, self._model, options)
        self.compiled = self._keep("CompiledModel", compiled)
        self._signature = library.made("GetModelSignature", self._model, ctypes.c_size_t(0))

    def _new_environment(self, settings: Settings) -> Any:
        folder = str(self.library.folder).encode()
        told = [(_RUNTIME_FOLDER, _TEXT, folder), (_REGISTERED, _INTEGER, settings.accelerators)]
        options = (_Option * len(told))()
        for option, (tag, kind, value) in zip(options, told, strict=True):
            option.tag, option.value.kind = tag, kind
            if isinstance(value, bytes):
                text = ctypes.create_string_buffer(value)
                self._kept.append(text)
                option.value.value = ctypes.addressof(text)
            else:
                option.value.value = value
        handle = _Pointer()
        create = self.library.function("CreateEnvironment", ctypes.c_int, _Pointer, _Pointer)
        create(len(told), options, ctypes.byref(handle))
        return handle

    def _keep(self, kind: str, handle: Any) -> Any:
        self._open.append((f"Destroy{kind}", handle))
        return handle

    def _add(self, options: Any, name: str, text: str) -> None:
        payload = ctypes.create_string_buffer(text.encode())
        self._kept.append(payload)
        handle = _Pointer()
        create = self.library.function(
            "CreateOpaqueOptions", ctypes.c_char_p, _Pointer, _Freed, _Pointer
        )
        create(name.encode(), payload, _nothing_to_free, ctypes.byref(handle))
        self.library.function("AddOpaqueOptions", _Pointer, _Pointer)(options, handle)

    # -- running --------------------------------------------------------------------------

    def bind(
        self,
        inputs: Mapping[str, Place],
        outputs: Mapping[str, Place],
    ) -> None:
        """Make the buffers, once.

        ``inputs`` and ``outputs`` of this object are then in the order of the model's signature.
        Raises EngineError where names or sizes differ from the model's.
        """
        self.inputs = self._buffers("Input", inputs)
        self.outputs = self._buffers("Output", outputs)
        self.names = {
            **dict(zip(self._names("Input"), self.inputs, strict=True)),
            **dict(zip(self._names("Output"), self.outputs, strict=True)),
        }
        self._in = (_Pointer * len(self.inputs))(*(b.handle.value for b in self.inputs))
        self._out = (_Pointer * len(self.outputs))(*(b.handle.value for b in self.outputs))
        self._run = self.library.function(
            "RunCompiledModel",
            *(_Pointer, ctypes.c_size_t, ctypes.c_size_t, _Pointer, ctypes.c_size_t, _Pointer),
        )

    def call(self) -> tuple[Any, tuple[Any, ...]]:
        """Return the function that runs the model once, and what it takes."""
        ins, outs = len(self.inputs), len(self.outputs)
        return self._run, (self.compiled, 0, ins, self._in, outs, self._out)

    def _names(self, side: str) -> list[str]:
        count = self.library.number(f"GetNumSignature{side}s", self._signature)
        name = ctypes.c_char_p()
        ask = self.library.function(f"GetSignature{side}Name", _Pointer, ctypes.c_size_t, _Pointer)
        found = []
        for index in range(count):
            ask(self._signature, index, ctypes.byref(name))
            found.append((name.value or b"").decode(errors="replace"))
        return found

    def _buffers(self, side: str, wanted: Mapping[str, Place]) -> list[Buffer]:
        names = self._names(side)
        if sorted(names) != sorted(wanted):
            raise EngineError(
                f"the model's {side.lower()}s are {', '.join(names)}, not {', '.join(wanted)}"
            )
        zero, found = ctypes.c_size_t(0), []
        for at, name in enumerate(names):
            index = ctypes.c_size_t(at)
            tensor = self.library.made(f"GetSignature{side}TensorByIndex", self._signature, index)
            needs = self.library.made(
                f"GetCompiledModel{side}BufferRequirements", self.compiled, zero, index
            )
            buffer = Buffer(self.library, self._environment, tensor, needs, wanted[name])
            self._keep("TensorBuffer", buffer.handle)
            found.append(buffer)
        return found

    # -- what it tells --------------------------------------------------------------------

    def fully_accelerated(self) -> bool:
        """Say whether accelerators took every operator of the model."""
        ask = "CompiledModelIsFullyAccelerated"
        return bool(self.library.number(ask, self.compiled, kind=ctypes.c_bool))

    def operators(self) -> int:
        """Return how many operators the model file has."""
        subgraph = self.library.made("GetModelSubgraph", self._model, ctypes.c_size_t(0))
        return self.library.number("GetNumSubgraphOps", subgraph)

    def profile(self, runs: int) -> str:
        """Run the model ``runs`` times and return the runtime's summary of them.

        The text is the runtime's and stays allocated: freeing it would need its allocator.
        """
        profiler = self.library.made("CompiledModelGetProfiler", self.compiled)
        run, arguments = self.call()
        self.library.function("StartProfiler", _Pointer)(profiler)
        for _ in range(runs):
            run(*arguments)
        self.library.function("StopProfiler", _Pointer)(profiler)
        text = ctypes.c_char_p()
        self.library.function("GetProfileSummary", _Pointer, _Pointer, _Pointer)(
            profiler, self.compiled, ctypes.byref(text)
        )
        return (text.value or b"").decode(errors="replace")

    def close(self) -> None:
        """Free everything, newest first. The buffers' arrays stay: they are ours."""
        self.inputs, self.outputs = [], []
        while self._open:
            self.library.drop(*self._open.pop())
        self._kept.clear()
