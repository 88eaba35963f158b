"""A stand-in for the module ``onnxruntime``, as its Python interface is documented.

It records every session that is made: the model, the session's entries, the provider and the
options it was handed, and the device. What it computes is the probe's one node, a Relu.
"""

from __future__ import annotations

import importlib.util
import types
from dataclasses import dataclass, field
from typing import Any

import numpy as np

CPU = "CPUExecutionProvider"


@dataclass
class Hardware:
    type: Any
    vendor: str
    vendor_id: int
    device_id: int
    metadata: dict[str, str] = field(default_factory=dict)


@dataclass
class EpDevice:
    ep_name: str
    device: Hardware
    ep_metadata: dict[str, str] = field(default_factory=dict)
    ep_options: dict[str, str] = field(default_factory=dict)
    ep_vendor: str = ""


def device(
    provider: str, kind: str, vendor_id: int = 0, device_id: int = 0, **told: Any
) -> EpDevice:
    """Return a device of a provider: ``metadata`` is the hardware's, ``ep`` the provider's."""
    hardware = Hardware(
        types.SimpleNamespace(name=kind),
        told.pop("vendor", ""),
        vendor_id,
        device_id,
        told.pop("metadata", {}),
    )
    return EpDevice(provider, hardware, told.pop("ep", {}))


@dataclass
class Node:
    op_type: str = "Relu"
    name: str = "relu"


@dataclass
class Part:
    ep_name: str
    nodes: int

    def get_nodes(self) -> list[Node]:
        return [Node()] * self.nodes


class SessionOptions:
    def __init__(self) -> None:
        self.entries: dict[str, str] = {}
        self.chosen: list[tuple[EpDevice, dict[str, str]]] = []

    def add_session_config_entry(self, key: str, value: str) -> None:
        self.entries[key] = value

    def add_provider_for_devices(self, devices: list[EpDevice], options: dict[str, str]) -> None:
        self.chosen += [(one, dict(options)) for one in devices]


@dataclass
class Opened:
    """One session as it was asked for."""

    model: Any
    provider: str
    options: dict[str, str]
    entries: dict[str, str]
    device: EpDevice | None
    threads: int


class FakeOrt(types.ModuleType):
    """``listed`` are the providers compiled in; ``devices`` those the runtime lists itself, and
    ``brings`` what registering a library adds. ``broken`` providers raise their text at a
    session, ``yields_cpu`` hand out the CPU instead, ``takes`` says how many of three nodes a
    provider is given."""

    def __init__(
        self,
        listed: tuple[str, ...] = (CPU,),
        devices: tuple[EpDevice, ...] = (),
        brings: dict[str, tuple[EpDevice, ...]] | None = None,
    ) -> None:
        super().__init__("onnxruntime")
        self.__spec__ = importlib.util.find_spec("onnxruntime")
        self.__version__ = "1.99.0"
        self.listed, self.devices = list(listed), list(devices)
        self.brings = brings or {}
        self.registered: dict[str, str] = {}
        self.unloadable: dict[str, str] = {}
        self.broken: dict[str, str] = {}
        self.yields_cpu: set[str] = set()
        self.takes: dict[str, int] = {}
        self.opened: list[Opened] = []
        self.preloaded = 0
        self.SessionOptions = SessionOptions
        self.ExecutionMode = types.SimpleNamespace(ORT_SEQUENTIAL=0)
        self.GraphOptimizationLevel = types.SimpleNamespace(ORT_ENABLE_ALL=99)

    def preload_dlls(self) -> None:
        self.preloaded += 1

    def set_default_logger_severity(self, level: int) -> None:
        assert level == 3

    def get_available_providers(self) -> list[str]:
        return [*self.listed, *self.registered]

    def get_ep_devices(self) -> list[EpDevice]:
        return list(self.devices)

    def register_execution_provider_library(self, name: str, library: str) -> None:
        if name in self.registered:
            raise RuntimeError(f"library is already registered under {name}")
        if name in self.unloadable:
            raise RuntimeError(self.unloadable[name])
        self.registered[name] = library
        self.devices += self.brings.get(name, ())

    def InferenceSession(
        self,
        model: Any,
        settings: SessionOptions,
        providers: list[Any] | None = None,
        enable_fallback: int = 1,
    ) -> FakeSession:
        # The real one retries on the CPU, and prints that it did.
        assert enable_fallback == 0
        if settings.chosen:
            assert providers is None
            (pair,) = settings.chosen
            chosen, options = pair
            name = chosen.ep_name
        else:
            assert providers is not None
            (asked,) = providers
            name, options = asked if isinstance(asked, tuple) else (asked, {})
            chosen = None
        opened = Opened(
            model,
            name,
            dict(options),
            dict(settings.entries),
            chosen,
            settings.intra_op_num_threads,  # type: ignore[attr-defined]
        )
        self.opened.append(opened)
        if name in self.broken:
            raise RuntimeError(self.broken[name])
        taken = 0 if name in self.yields_cpu else self.takes.get(name, 3)
        strict = settings.entries.get("session.disable_cpu_ep_fallback") == "1"
        if strict and name == CPU:
            raise RuntimeError("[ONNXRuntimeError] : 2 : INVALID_ARGUMENT : Conflicting session")
        if strict and taken < 3:
            raise RuntimeError(
                "[ONNXRuntimeError] : 1 : FAIL : This session contains graph nodes that are "
                "assigned to the default CPU EP, but fallback to CPU EP has been explicitly "
                "disabled by the user."
            )
        listed = [CPU] if name in {CPU, *self.yields_cpu} else [name, CPU]
        return FakeSession(listed, {name: options}, {name: taken, CPU: 3 - taken})


class FakeSession:
    def __init__(
        self, listed: list[str], options: dict[str, dict[str, str]], nodes: dict[str, int]
    ) -> None:
        self._listed, self._options, self._nodes = listed, options, nodes

    def get_providers(self) -> list[str]:
        return self._listed

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        return self._options

    def get_provider_graph_assignment_info(self) -> list[Part]:
        return [Part(name, count) for name, count in self._nodes.items() if count]

    def run(self, names: None, feed: dict[str, Any]) -> list[Any]:
        assert names is None
        return [np.maximum(feed["x"], 0)]
