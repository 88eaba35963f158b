"""A session's inputs and outputs, bound once to host arrays, and the call that runs them.

Where a provider keeps its inputs in memory of its own, binding copies them there, once: what is
written into the host array afterwards is not seen. Such inputs are bound anew in every call, so
that the copy is a part of what is timed, as it is for an application. Outputs stay bound to host
arrays: the call copies them back, and so waits for a device that works behind it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

from npumark.engines.base import Array
from npumark.errors import EngineError, Unsupported

_LACKING = re.compile(r"NOT_IMPLEMENTED|requires f16 but the device does not support it")
"""What a runtime says in a call, not at the load, of a kernel or a device that lacks something."""

_HOST = "Cpu"
"""The runtime's name of the host's own memory."""


class Binding:
    """Arrays bound to a session. ``step`` runs it on them; ``close`` lets go of all of it."""

    def __init__(
        self,
        onnxruntime: Any,
        session: Any,
        inputs: Sequence[tuple[str, Array]],
        outputs: Sequence[tuple[str, Array]],
    ) -> None:
        binding = session.io_binding()
        values = [(name, shared(onnxruntime, array)) for name, array in inputs]
        for name, value in values:
            binding.bind_ortvalue_input(name, value)
        for name, array in outputs:
            binding.bind_ortvalue_output(name, shared(onnxruntime, array))
        self._binding = binding
        elsewhere = _kept_elsewhere(session)
        self.rebound = tuple(name for name, _ in inputs if elsewhere is None or name in elsewhere)
        if self.rebound:
            again = tuple((name, value) for name, value in values if name in self.rebound)
            self.step: Callable[[], object] = _Rebinding(session, binding, again)
        else:
            self.step = functools.partial(session.run_with_iobinding, binding)

    def close(self) -> None:
        """Free the device's copies before the session that they belong to."""
        self._binding.clear_binding_inputs()
        self._binding.clear_binding_outputs()
        if isinstance(self.step, _Rebinding):
            self.step.close()
        self.step = closed


class _Rebinding:
    """A call that binds its inputs first."""

    def __init__(self, session: Any, binding: Any, inputs: tuple[tuple[str, Any], ...]) -> None:
        # Looked up once, not in every timed call.
        bind = binding.bind_ortvalue_input
        self._binds = tuple(functools.partial(bind, name, value) for name, value in inputs)
        self._run: Callable[[], object] = functools.partial(session.run_with_iobinding, binding)
        self._binding = binding

    def __call__(self) -> None:
        try:
            for bind in self._binds:
                bind()
            self._run()
        except EngineError:
            raise
        except Exception as fault:
            # What the device holds must go before the session does, whoever lets go of it first.
            self._binding.clear_binding_inputs()
            self._binding.clear_binding_outputs()
            raise _told(fault) from fault

    def close(self) -> None:
        # Whoever still holds the call then holds no session.
        self._run, self._binding, self._binds = closed, None, ()


def shared(onnxruntime: Any, array: Array) -> Any:
    """Return a value of the runtime that is ``array``'s own memory. Raises EngineError where the
    runtime copies: it would fill a buffer that nobody reads."""
    value = onnxruntime.OrtValue.ortvalue_from_numpy(array)
    if value.data_ptr() != array.ctypes.data:
        raise EngineError("ONNX Runtime does not share the memory of a bound array")
    return value


def closed() -> None:
    raise EngineError("the session is closed")


def _told(fault: Exception) -> EngineError:
    text = " ".join(str(fault).split())[:300]
    if _LACKING.search(text):
        return Unsupported(f"the device cannot compute this graph: {text}")
    return EngineError(f"a call failed: {text}")


def _kept_elsewhere(session: Any) -> set[str] | None:
    """Return the inputs that the provider keeps in memory of its own; null where an older
    runtime does not tell."""
    if list(session.get_providers()) == ["CPUExecutionProvider"]:
        return set()
    try:
        kept = session.get_input_memory_infos()
    except Exception:  # noqa: BLE001 - absent before 1.23
        return None
    names = [entry.name for entry in session.get_inputs()]
    return {name for name, memory in zip(names, kept, strict=True) if memory.name != _HOST}
