"""LiteRT's library and the calls of its C interface, each failed one an error that names it."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from typing import Any

from npumark.errors import EngineError

Pointer = ctypes.c_void_p

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


class NativeError(EngineError):
    """A call of the C interface failed."""


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
        handle = Pointer()
        self.function(name, *map(_kind, values), Pointer)(*values, ctypes.byref(handle))
        return handle

    def number(self, name: str, *values: Any, kind: Any = ctypes.c_size_t) -> int:
        """Call a function whose last argument returns a number; return that."""
        answer = kind()
        self.function(name, *map(_kind, values), Pointer)(*values, ctypes.byref(answer))
        return int(answer.value)

    def drop(self, name: str, handle: Any) -> None:
        """Call a function that frees a handle and returns nothing."""
        found = self._library[f"LiteRt{name}"]
        found.restype, found.argtypes = None, (Pointer,)
        found(handle)


def _kind(value: Any) -> Any:
    return ctypes.c_char_p if isinstance(value, bytes) else type(value)
