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
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from npumark.engines.litert_buffer import Buffer, Place
from npumark.engines.litert_library import Library, Pointer
from npumark.errors import EngineError

CPU, GPU, NPU = 1, 2, 4
"""Accelerators, as bits."""

_COMPILER_FOLDER, _DISPATCH_FOLDER, _RUNTIME_FOLDER, _REGISTERED = 0, 1, 22, 24
"""Tags of environment options: where an NPU's compiler and its driver's library lie, where those
of other accelerators do, and which accelerators are registered."""

_INTEGER, _TEXT = 2, 8

_Freed = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_nothing_to_free = _Freed(lambda _: None)
"""What the runtime calls when it lets go of a text that stays ours."""


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


def npu_vendor(package: Path) -> Path | None:
    """Return the folder of the first vendor whose NPU driver library the package holds."""
    names = ("LiteRtDispatch*.dll", "libLiteRtDispatch_*")
    for folder in sorted(package.glob("vendors/*/dispatch")):
        if any(any(folder.glob(name)) for name in names):
            return folder.parent
    return None


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
        library.function("SetOptionsHardwareAccelerators", Pointer, ctypes.c_int)(
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
        told: list[tuple[int, int, bytes | int]] = [
            (_RUNTIME_FOLDER, _TEXT, bytes(self.library.folder)),
            (_REGISTERED, _INTEGER, settings.accelerators),
        ]
        if settings.accelerators & NPU and (vendor := npu_vendor(self.library.folder)):
            told.append((_COMPILER_FOLDER, _TEXT, bytes(vendor / "compiler")))
            told.append((_DISPATCH_FOLDER, _TEXT, bytes(vendor / "dispatch")))
        options = (_Option * len(told))()
        for option, (tag, kind, value) in zip(options, told, strict=True):
            option.tag, option.value.kind = tag, kind
            if isinstance(value, bytes):
                text = ctypes.create_string_buffer(value)
                self._kept.append(text)
                option.value.value = ctypes.addressof(text)
            else:
                option.value.value = value
        handle = Pointer()
        create = self.library.function("CreateEnvironment", ctypes.c_int, Pointer, Pointer)
        create(len(told), options, ctypes.byref(handle))
        return handle

    def _keep(self, kind: str, handle: Any) -> Any:
        self._open.append((f"Destroy{kind}", handle))
        return handle

    def _add(self, options: Any, name: str, text: str) -> None:
        payload = ctypes.create_string_buffer(text.encode())
        self._kept.append(payload)
        handle = Pointer()
        create = self.library.function(
            "CreateOpaqueOptions", ctypes.c_char_p, Pointer, _Freed, Pointer
        )
        create(name.encode(), payload, _nothing_to_free, ctypes.byref(handle))
        self.library.function("AddOpaqueOptions", Pointer, Pointer)(options, handle)

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
        self._in = (Pointer * len(self.inputs))(*(b.handle.value for b in self.inputs))
        self._out = (Pointer * len(self.outputs))(*(b.handle.value for b in self.outputs))
        self._run = self.library.function(
            "RunCompiledModel",
            *(Pointer, ctypes.c_size_t, ctypes.c_size_t, Pointer, ctypes.c_size_t, Pointer),
        )

    def call(self) -> tuple[Any, tuple[Any, ...]]:
        """Return the function that runs the model once, and what it takes."""
        # Made into what the interface takes here, not anew in every timed call.
        counts = [ctypes.c_size_t(n) for n in (0, len(self.inputs), len(self.outputs))]
        lists = [Pointer(ctypes.addressof(handles)) for handles in (self._in, self._out)]
        return self._run, (self.compiled, *counts[:2], lists[0], counts[2], lists[1])

    def _names(self, side: str) -> list[str]:
        count = self.library.number(f"GetNumSignature{side}s", self._signature)
        name = ctypes.c_char_p()
        ask = self.library.function(f"GetSignature{side}Name", Pointer, ctypes.c_size_t, Pointer)
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

    def elsewhere(self) -> bool:
        """Say whether accelerators other than the CPU took every operator of the model.

        Asked beside ``fully_accelerated``: an NPU's driver that takes nothing can leave a model
        to the CPU and have it called fully accelerated.
        """
        ask = "CompiledModelIsNonCpuFullyAccelerated"
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
        self.library.function("StartProfiler", Pointer)(profiler)
        for _ in range(runs):
            run(*arguments)
        self.library.function("StopProfiler", Pointer)(profiler)
        text = ctypes.c_char_p()
        self.library.function("GetProfileSummary", Pointer, Pointer, Pointer)(
            profiler, self.compiled, ctypes.byref(text)
        )
        return (text.value or b"").decode(errors="replace")

    def close(self) -> None:
        """Free everything, newest first. The buffers' arrays stay: they are ours."""
        self.inputs, self.outputs = [], []
        while self._open:
            self.library.drop(*self._open.pop())
        self._kept.clear()
