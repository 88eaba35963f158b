from __future__ import annotations

import gc
import weakref
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from npumark.engines.ort_binding import Binding
from npumark.errors import EngineError, Unsupported


class Value:
    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def data_ptr(self) -> int:
        return int(self.array.ctypes.data)


class Copying(Value):
    def data_ptr(self) -> int:
        return 0


def runtime(value: type[Value] = Value) -> Any:
    return SimpleNamespace(OrtValue=SimpleNamespace(ortvalue_from_numpy=value))


class IoBinding:
    """As ONNX Runtime's: an input that the device keeps elsewhere is copied when it is bound."""

    def __init__(self, elsewhere: bool) -> None:
        self._elsewhere = elsewhere
        self.bound: dict[str, np.ndarray] = {}
        self.outputs: dict[str, np.ndarray] = {}

    def bind_ortvalue_input(self, name: str, value: Value) -> None:
        self.bound[name] = value.array.copy() if self._elsewhere else value.array

    def bind_ortvalue_output(self, name: str, value: Value) -> None:
        self.outputs[name] = value.array

    def clear_binding_inputs(self) -> None:
        self.bound.clear()

    def clear_binding_outputs(self) -> None:
        self.outputs.clear()


@dataclass
class Session:
    """Doubles its input. ``memory`` is where the provider keeps it, null where it won't say."""

    memory: str | None
    providers: tuple[str, ...] = ("AcmeExecutionProvider", "CPUExecutionProvider")

    def __post_init__(self) -> None:
        self.binding = IoBinding(self.memory != "Cpu" and len(self.providers) > 1)

    def get_providers(self) -> list[str]:
        return list(self.providers)

    def get_inputs(self) -> list[Any]:
        return [SimpleNamespace(name="x")]

    def get_input_memory_infos(self) -> list[Any]:
        if self.memory is None:
            raise AttributeError("get_input_memory_infos")
        return [SimpleNamespace(name=self.memory)]

    def io_binding(self) -> IoBinding:
        return self.binding

    def run_with_iobinding(self, binding: IoBinding) -> None:
        binding.outputs["y"][...] = 2 * binding.bound["x"]


def bound(session: Session) -> tuple[Binding, np.ndarray, np.ndarray]:
    x, y = np.zeros(4, np.float32), np.zeros(4, np.float32)
    return Binding(runtime(), session, [("x", x)], [("y", y)]), x, y


@pytest.mark.parametrize(
    ("session", "rebound"),
    [
        (Session("Cpu"), ()),
        (Session("OpenVINO_shared_CPU"), ("x",)),
        (Session("WebGPU_Buf"), ("x",)),
        (Session(None), ("x",)),
        (Session(None, ("CPUExecutionProvider",)), ()),
    ],
)
def test_a_call_computes_on_what_the_input_holds_now(
    session: Session, rebound: tuple[str, ...]
) -> None:
    binding, x, y = bound(session)
    assert binding.rebound == rebound
    for value in (1.0, 5.0):
        x[...] = value
        binding.step()
        assert np.all(y == 2 * value)


def test_binding_once_would_have_computed_on_what_it_held_then() -> None:
    session = Session("WebGPU_Buf")
    _, x, y = bound(session)
    x[...] = 1.0
    session.run_with_iobinding(session.binding)
    assert np.all(y == 0)


@pytest.mark.parametrize("memory", ["Cpu", "WebGPU_Buf"])
def test_closing_frees_the_devices_copies_first(memory: str) -> None:
    session = Session(memory)
    binding, _, _ = bound(session)
    binding.close()
    assert session.binding.bound == {}
    assert session.binding.outputs == {}
    with pytest.raises(EngineError, match="closed"):
        binding.step()


def test_a_call_that_somebody_keeps_keeps_no_session() -> None:
    session = Session("WebGPU_Buf")
    binding, _, _ = bound(session)
    step, seen = binding.step, weakref.ref(session)
    binding.close()
    del session
    gc.collect()
    assert seen() is None
    with pytest.raises(EngineError, match="closed"):
        step()


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("Program MatMul requires f16 but the device does not support it.", Unsupported),
        ("the device was lost", EngineError),
    ],
)
def test_a_call_that_fails_says_why_and_frees_the_devices_copies(
    said: str, kind: type[EngineError]
) -> None:
    session = Session("WebGPU_Buf")

    def fail(binding: IoBinding) -> None:
        raise RuntimeError(said)

    session.run_with_iobinding = fail  # type: ignore[method-assign]
    binding, _, _ = bound(session)
    with pytest.raises(EngineError, match=said) as found:
        binding.step()
    assert type(found.value) is kind
    assert session.binding.bound == {}
    assert session.binding.outputs == {}


def test_a_runtime_that_copies_an_array_is_refused() -> None:
    x = np.zeros(4, np.float32)
    with pytest.raises(EngineError, match="does not share the memory"):
        Binding(runtime(Copying), Session("Cpu"), [("x", x)], [])
