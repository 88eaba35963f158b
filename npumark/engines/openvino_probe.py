"""Which devices OpenVINO drives here: each runs a one-node model, or says why it cannot."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from npumark.engines.native_libraries import openvino_libraries
from npumark.engines.one_node import SHAPE, one_node_model
from npumark.errors import EngineError, WrongDevice
from npumark.hardware import bus_address
from npumark.worker.protocol import EngineInfo

_DRIVERS = {
    "GPU": {"gpu driver": "GPU_DRIVER_VERSION"},
    "NPU": {"npu driver": "NPU_DRIVER_VERSION", "npu compiler": "NPU_COMPILER_VERSION"},
}
"""What compiled models depend on beside OpenVINO itself, by the names of its properties."""

DEVICE = re.compile(r"(CPU|GPU|NPU)(\.\w+)?")


KINDS = ("CPU", "GPU", "NPU")


def probe_devices(only: list[str] | None = None) -> tuple[EngineInfo, ...]:
    """Return an engine for every device, then those for kinds that are not here.

    ``only`` are the KINDS that are asked for, and no other's plug-in is loaded; null for all.
    """
    import openvino

    core = openvino.Core()
    if only is None:
        devices = [d for d in core.available_devices if DEVICE.fullmatch(d)]
    else:
        devices = [device for kind in only for device in _devices_of(core, kind)]
    kinds = Counter(d.split(".")[0] for d in devices)
    numbers: Counter[str] = Counter()
    found = []
    for device in devices:
        kind = device.split(".")[0]
        numbers[kind] += 1
        name = f"openvino-{kind.lower()}"
        if kinds[kind] > 1:
            name += f"-{numbers[kind]}"
        found.append(_describe(core, device, name))
    absent = (kind for kind in only or ("GPU", "NPU") if kind not in kinds)
    seen = f", only {', '.join(devices) or 'nothing'}" if only is None else ""
    return (*found, *(_absent(kind, seen) for kind in absent))


def _devices_of(core: Any, kind: str) -> list[str]:
    """Return the devices of one kind as OpenVINO names them; asking for all loads every plug-in."""
    numbers = [str(n) for n in _device_property(core, kind, "AVAILABLE_DEVICES") or ()]
    return [kind] if len(numbers) == 1 else [f"{kind}.{number}" for number in numbers]


def _describe(core: Any, device: str, name: str) -> EngineInfo:
    import openvino

    kind = device.split(".")[0]
    capabilities = capabilities_of(core, device)
    reason = None
    try:
        _try_one_node(core, device)
    except Exception as fault:  # noqa: BLE001 - a device that fails is reported, not raised
        reason = " ".join(f"a one-node model fails: {fault}".split())[:300]
    variants = ["fp32"] if "FP32" in capabilities else []
    if "FP16" in capabilities or kind == "CPU":
        variants.append("fp16")
    # Signed activations have kernels of their own here, some 5 to 20 % faster on a CPU.
    variants += ["w8", "int8-u8s8", "int8-s8s8"] if "INT8" in capabilities else []
    derived = {"bf16": "fp32"} if "BF16" in capabilities and "FP32" in capabilities else {}
    return EngineInfo(
        id=name,
        available=reason is None,
        reason=reason,
        runtime="openvino",
        runtime_title="OpenVINO",
        version=version(),
        versions={
            "openvino": openvino.__version__,
            **drivers_of(core, device),
            **openvino_libraries(Path(openvino.__file__).parent / "libs", kind),
        },
        processor=_processor(core, device),
        variants=(*variants, *derived),
        derived_from=derived,
        options={"device": device, "cache": kind != "CPU"},
    )


def drivers_of(core: Any, device: str) -> dict[str, str]:
    """Return the versions of the device's driver and compiler, as far as it tells them."""
    told = {
        name: _text(_device_property(core, device, prop))
        for name, prop in _DRIVERS.get(device.split(".")[0], {}).items()
    }
    return {name: value for name, value in told.items() if value}


def _absent(kind: str, seen: str) -> EngineInfo:
    """Return the engine of a kind of device that OpenVINO does not find here, and why not."""
    import openvino

    return EngineInfo(
        id=f"openvino-{kind.lower()}",
        available=False,
        reason=f"OpenVINO finds no {kind} here{seen}; an Intel {kind} needs its driver installed",
        runtime="openvino",
        runtime_title="OpenVINO",
        version=version(),
        versions={"openvino": openvino.__version__},
    )


def _try_one_node(core: Any, device: str) -> None:
    model = core.compile_model(core.read_model(one_node_model()), device, {"PERF_COUNT": "NO"})
    executed_on = [str(n) for n in model.get_property("EXECUTION_DEVICES")]
    if any(n.split(".")[0] != device.split(".")[0] for n in executed_on):
        raise WrongDevice(f"it landed on {', '.join(executed_on)}")
    x = np.linspace(-1, 1, num=SHAPE[1], dtype=np.float32).reshape(SHAPE)
    y = model.create_infer_request().infer({"x": x})["y"]
    if not np.allclose(y, np.maximum(x, 0), atol=1e-2):
        raise EngineError("it gives a wrong answer")


def _processor(core: Any, device: str) -> dict[str, Any]:
    kind = device.split(".")[0]
    told: dict[str, Any] = {
        "role": "CPU" if kind == "CPU" else "NPU",
        "name": _device_property(core, device, "FULL_DEVICE_NAME"),
    }
    if kind == "CPU":
        return {"key": "cpu", **told}
    if kind == "GPU":
        integrated = "INTEGRATED" in str(_device_property(core, device, "DEVICE_TYPE")).upper()
        told["role"] = "iGPU" if integrated else "dGPU"
    told["uuid"] = _text(_device_property(core, device, "DEVICE_UUID"))
    told["luid"] = _text(_device_property(core, device, "DEVICE_LUID"))
    told["bus"] = bus_address(_device_property(core, device, "DEVICE_PCI_INFO"))
    return told


def capabilities_of(core: Any, device: str) -> list[str]:
    """Return what the device says it can compute in: FP32, BF16, INT8 …"""
    return [str(c) for c in _device_property(core, device, "OPTIMIZATION_CAPABILITIES") or ()]


def _device_property(core: Any, device: str, name: str) -> Any:
    try:
        return core.get_property(device, name)
    except Exception:  # noqa: BLE001 - not every plug-in has every property
        return None


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def version() -> str:
    """Return the release, without the build number and branch that follow it."""
    import openvino

    return str(openvino.__version__).split("-", 1)[0]
