"""Which devices ONNX Runtime's providers drive here, each with what is needed to bind to it.

A provider reaches a device in one of two ways. Where the runtime lists devices for it
(``get_ep_devices``), one of those is bound by its identity. Where it only lists the provider's
name, the device is a number or a word among the provider's own options, and what stands behind
the number is asked of the driver.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from npumark.engines.catalogue import Provider
from npumark.engines.cuda_driver import Card, cuda_cards
from npumark.engines.hip_driver import hip_cards
from npumark.engines.openvino_probe import DEVICE
from npumark.engines.ort_plugins import Plugin
from npumark.engines.ort_session import hardware_type, identity
from npumark.engines.platforms import is_x86
from npumark.engines.vulkan_adapters import SOFTWARE_ROLE, software_key, vulkan_adapters
from npumark.errors import EngineError
from npumark.hardware import bus_address, is_software

_NVIDIA, _APPLE = 0x10DE, 0x106B
WITHOUT_GPU = "docs/ENGINES.md tells how SwiftShader emulates a GPU where there is none"
"""Ends a reason of WebGPU's: what else would do."""

_UNTOLD = "nothing: which adapter WebGPU takes is not told"


@dataclass(frozen=True, slots=True)
class Device:
    """One device of one provider.

    ``keys`` are what other runtimes may know it by (bus, uuid, luid), ``binding`` what a session
    needs to find it again; both hold JSON's types only. ``why`` says in a sentence that it
    cannot be used, or is null.
    """

    role: str
    name: str | None
    keys: dict[str, str]
    binding: dict[str, Any]
    details: dict[str, Any] = field(default_factory=dict)
    emulated: bool = False
    why: str | None = None

    def processor(self) -> dict[str, Any]:
        """Return what the probe reports of the hardware."""
        if self.role == "CPU":
            # One processor however many runtimes see it; its name is the machine's to tell.
            return {"key": "cpu", "role": "CPU", "name": None, "details": self.details}
        return {"role": self.role, "name": self.name, **self.keys, "details": self.details}


def listed_devices(row: Provider, devices: list[Any], plugin: Plugin | None) -> list[Device]:
    """Return those of the runtime's ``devices`` that are the provider's and of its roles."""
    found: list[Device] = []
    seen: dict[str, int] = {}
    for device in devices:
        if device.ep_name != row.provider_name:
            continue
        made = _listed(row, device, plugin)
        if made is None:
            continue
        key = repr(sorted(made.binding["identity"].items()))
        made.binding["twin"] = seen.get(key, 0)
        seen[key] = made.binding["twin"] + 1
        found.append(made)
    if row.id == "ort-webgpu":
        found = _only_one(found)
    return sorted(found, key=lambda d: (row.roles.index(d.role), d.keys.get("bus", "~")))


def named_devices(row: Provider, onnxruntime: Any, plugin: Plugin | None) -> list[Device]:
    """Return the devices of a provider that the runtime knows by name only.

    Raises EngineError with the reason where there is none.
    """
    ask = _NAMED.get(row.id)
    if ask is None:
        raise EngineError(f"{row.provider_name} is listed, but names no device here")
    found = ask(row, onnxruntime)
    if plugin is not None:
        for device in found:
            device.binding["source"] = plugin.details.get("source", "package")
    return found


def _listed(row: Provider, device: Any, plugin: Plugin | None) -> Device | None:
    hardware, told = device.device, {k: str(v) for k, v in dict(device.ep_metadata).items()}
    metadata = {k: str(v) for k, v in dict(hardware.metadata).items()}
    kind = hardware_type(device)
    role, guessed = _role(row, kind, metadata, told, int(hardware.vendor_id))
    if role not in row.roles or told.get("ov_meta_device"):
        return None
    emulator = row.id == "ort-qnn" and kind == "CPU" and is_x86()
    name = told.get("FULL_DEVICE_NAME") or metadata.get("Description") or None
    binding: dict[str, Any] = {"route": "devices", "identity": identity(device)}
    if plugin is not None:
        binding["source"] = plugin.details.get("source", "package")
        if row.id == "ort-qnn" and binding["source"] == "package":
            binding["module"] = row.module
    if told.get("ov_device"):
        binding["ov_device"] = told["ov_device"]
        binding["capabilities"] = told.get("OPTIMIZATION_CAPABILITIES", "").split()
    details: dict[str, Any] = {
        "vendor": str(hardware.vendor or "") or None,
        "vendor_id": f"0x{int(hardware.vendor_id):04x}",
        "device_id": f"0x{int(hardware.device_id):04x}",
    }
    if guessed:
        details["role_from"] = guessed
    if told.get("version"):
        details["provider_version"] = told["version"]
    if emulator:
        binding["emulated"] = True
        return Device(
            "NPU",
            "Qualcomm HTP emulator",
            {"key": "qnn-htp-emulator"},
            binding,
            {"provider_version": told.get("version")},
            emulated=True,
            why=_missing_backend(binding),
        )
    software = is_software(name, int(hardware.vendor_id), int(hardware.device_id))
    why = _missing_backend(binding)
    if row.id == "ort-webgpu" and not software and sys.platform.startswith("linux"):
        # The card is real; what WebGPU computes on is whatever Vulkan offers beside it.
        software, adapter, why = _webgpu_adapter()
        name = adapter if software else name or adapter
    if software:
        keys = software_key(name)
        return Device(SOFTWARE_ROLE, name, keys, binding, emulated=True, why=why)
    return Device(str(role), name, _keys(metadata, told), binding, details, why=why)


def _missing_backend(binding: dict[str, Any]) -> str | None:
    """Say that QNN's library for the NPU is missing: the provider would leave all to the CPU."""
    if "module" not in binding:
        return None
    path = Path(str(importlib.import_module(str(binding["module"])).get_qnn_htp_path()))
    if path.is_file():
        return None
    return f"{path.name} is not where the package says it is; reinstall the package"


def _role(
    row: Provider, kind: str, metadata: dict[str, str], told: dict[str, str], vendor: int
) -> tuple[str | None, str | None]:
    """Return the role, and what it was concluded from where nothing states it."""
    if row.id == "ort-qnn":
        return (None if kind == "GPU" else "NPU"), None
    if kind != "GPU":
        return kind, None
    stated = told.get("DEVICE_TYPE", "").lower()
    if stated in ("integrated", "discrete"):
        return ("iGPU" if stated == "integrated" else "dGPU"), None
    if metadata.get("Discrete") in ("0", "1"):
        return ("dGPU" if metadata["Discrete"] == "1" else "iGPU"), None
    graphics = [role for role in row.roles if role.endswith("GPU")]
    if len(graphics) == 1:
        return graphics[0], None
    if vendor in (_NVIDIA, _APPLE):
        return ("dGPU" if vendor == _NVIDIA else "iGPU"), "its vendor"
    return "iGPU", "nothing: the runtime does not say whether the card is a discrete one"


def _keys(metadata: dict[str, str], told: dict[str, str]) -> dict[str, str]:
    keys: dict[str, str | None] = {
        "bus": bus_address(metadata.get("pci_bus_id")) or bus_address(told.get("DEVICE_PCI_INFO")),
        "luid": metadata.get("LUID") or told.get("DEVICE_LUID"),
        "uuid": told.get("DEVICE_UUID"),
    }
    return {key: value for key, value in keys.items() if value}


def _cpu(row: Provider, onnxruntime: Any) -> list[Device]:
    del row, onnxruntime
    return [Device("CPU", None, {}, {"route": "name"})]


def _cards(read: Callable[[], tuple[Card, ...]]) -> Callable[[Provider, Any], list[Device]]:
    def ask(row: Provider, onnxruntime: Any) -> list[Device]:
        del onnxruntime
        found = []
        for card in read():
            role = "iGPU" if card.integrated and "iGPU" in row.roles else "dGPU"
            keys = {"uuid": card.uuid, "bus": card.bus, "luid": card.luid}
            found.append(
                Device(
                    role,
                    card.name,
                    {key: value for key, value in keys.items() if value},
                    {"route": "name", "ordinal": card.ordinal},
                )
            )
        return sorted(found, key=lambda d: (row.roles.index(d.role), d.keys.get("bus", "~")))

    return ask


def _coreml(row: Provider, onnxruntime: Any) -> list[Device]:
    del onnxruntime
    units = {"NPU": "CPUAndNeuralEngine", "iGPU": "CPUAndGPU", "CPU": "CPUOnly"}
    names = {"NPU": "Apple Neural Engine", "iGPU": "Apple GPU", "CPU": None}
    keys = {"NPU": {"key": "apple-ane"}, "iGPU": {"key": "apple-gpu"}, "CPU": {}}
    return [
        Device(role, names[role], keys[role], {"route": "name", "compute_units": units[role]})
        for role in row.roles
    ]


def _mlx(row: Provider, onnxruntime: Any) -> list[Device]:
    del row, onnxruntime
    return [Device("iGPU", "Apple GPU", {"key": "apple-gpu"}, {"route": "name"})]


def _vitisai(row: Provider, onnxruntime: Any) -> list[Device]:
    del row, onnxruntime
    return [Device("NPU", None, {}, {"route": "name"})]


def _webgpu(row: Provider, onnxruntime: Any) -> list[Device]:
    del row, onnxruntime
    if sys.platform == "darwin":
        return [Device("iGPU", "Apple GPU", {"key": "apple-gpu"}, {"route": "name"})]
    if sys.platform == "win32":
        # It computes through Direct3D there, and the runtime lists every adapter that is real.
        raise EngineError("Windows lists no graphics hardware that WebGPU could use")
    software, name, why = _webgpu_adapter()
    if software:
        keys = software_key(name)
        return [Device(SOFTWARE_ROLE, name, keys, {"route": "name"}, emulated=True, why=why)]
    hardware = [a for a in vulkan_adapters() or () if not a.software]
    kinds = {"integrated": "iGPU", "discrete": "dGPU"}
    stated = {kinds.get(a.kind) for a in hardware}
    role = stated.pop() if len(stated) == 1 else None
    details = {} if role else {"role_from": _UNTOLD}
    if len(hardware) > 1:
        details["identity"] = _either([a.name for a in hardware])
    return [Device(role or "iGPU", name, {}, {"route": "name"}, details, why=why)]


def _only_one(found: list[Device]) -> list[Device]:
    """Return WebGPU's devices with the cards as one, in doubt where there are several.

    It computes on the adapter that its own library prefers, whichever device it was bound to.
    """
    cards = [device for device in found if not device.emulated]
    if len(cards) < 2:
        return found
    roles = {card.role for card in cards}
    details: dict[str, Any] = {"identity": _either([card.name or card.role for card in cards])}
    if len(roles) > 1:
        details["role_from"] = _UNTOLD
    role = roles.pop() if len(roles) == 1 else "iGPU"
    one = Device(role, None, {}, cards[0].binding, details, why=cards[0].why)
    return [one, *(device for device in found if device.emulated)]


def _either(names: list[str]) -> str:
    return f"WebGPU does not say which of these it computes on: {', '.join(names)}"


def _webgpu_adapter() -> tuple[bool, str | None, str | None]:
    """Return whether WebGPU computes in software here, the adapter's name, and why it cannot."""
    adapters = vulkan_adapters()
    if not adapters:
        return (
            False,
            None,
            f"no Vulkan driver is found; install the GPU's driver and the loader; {WITHOUT_GPU}",
        )
    hardware = [adapter for adapter in adapters if not adapter.software]
    chosen = hardware or list(adapters)
    return not hardware, chosen[0].name if len(chosen) == 1 else None, None


def _openvino(row: Provider, onnxruntime: Any) -> list[Device]:
    state = importlib.import_module(f"{onnxruntime.__name__}.capi._pybind_state")
    ask = getattr(state, "get_available_openvino_device_ids", None)
    if ask is None:
        raise EngineError("this build of OpenVINO's provider does not list its devices")
    found = []
    for name in (str(n) for n in ask()):
        if not DEVICE.fullmatch(name):
            continue
        kind = name.split(".")[0]
        # This older build does not tell an integrated card from a discrete one.
        role = "iGPU" if kind == "GPU" else kind
        binding = {"route": "name", "ov_device": name, "capabilities": ["FP32", "BF16", "INT8"]}
        if kind != "CPU":
            binding["capabilities"] = ["FP16", "INT8"]
        found.append(Device(role, None, {}, binding))
    return sorted(found, key=lambda d: row.roles.index(d.role))


_NAMED: dict[str, Callable[[Provider, Any], list[Device]]] = {
    "ort-coreml": _coreml,
    "ort-cpu": _cpu,
    "ort-cuda": _cards(cuda_cards),
    "ort-migraphx": _cards(hip_cards),
    "ort-mlx": _mlx,
    "ort-openvino": _openvino,
    "ort-tensorrt": _cards(cuda_cards),
    "ort-trt-rtx": _cards(cuda_cards),
    "ort-vitisai": _vitisai,
    "ort-webgpu": _webgpu,
}
