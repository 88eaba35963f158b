"""Which devices MLX drives here: each runs a compiled function, or says why it cannot."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as package_version
from pathlib import Path
from typing import Any

import numpy as np

from npumark.engines import number_probe
from npumark.engines.catalogue import provider
from npumark.engines.missing_libraries import in_words, missing
from npumark.engines.native_libraries import digests
from npumark.engines.number_probe import Verdict
from npumark.engines.one_node import SHAPE
from npumark.errors import EngineError, Unsupported, WrongDevice
from npumark.worker.protocol import EngineInfo

_BACK_ENDS = ("mlx-metal", "mlx-cuda-13", "mlx-cuda-12", "mlx-cpu")
_SHARED_MEMORY = re.compile(r"\b(GB10|Thor|Orin|Xavier|Tegra)\b")
"""NVIDIA's GPUs that are one chip with a processor, by their names."""

_TITLE = "MLX"

_SLOW = "on this system MLX computes on one thread of the CPU, and slowly"


@dataclass(frozen=True, slots=True)
class Device:
    """``kind`` is ``gpu`` or ``cpu``; ``index`` is MLX's own."""

    kind: str
    index: int = 0


@dataclass(frozen=True, slots=True)
class Told:
    """What MLX says of the device in use: of its stream, of its default, and its properties."""

    stream: str
    default: str
    info: dict[str, Any]


def import_core() -> Any:
    """Import ``mlx.core``. Raises EngineError where the package is here and does not load."""
    try:
        import mlx.core as mx
    except ModuleNotFoundError:
        raise
    except ImportError as fault:
        text = in_words(fault)
        if missing(str(fault)):
            raise EngineError(f"MLX cannot be loaded: {text}") from fault
        raise EngineError(
            f"MLX is installed without what it computes with ({text}); "
            "`npumark engines install mlx` installs both"
        ) from fault
    return mx


def asked(options: dict[str, Any]) -> Device:
    """Return the device that the options name, the CPU by default.

    Raises Unsupported for one that MLX does not have.
    """
    kind, index = str(options.get("device", "cpu")), options.get("index", 0)
    if kind not in ("cpu", "gpu") or isinstance(index, bool) or not isinstance(index, int):
        raise Unsupported(f"MLX has no device {kind!r} {index!r}; name cpu or gpu")
    return Device(kind, index)


def use(device: Device) -> Told:
    """Make ``device`` the one that everything after runs on, and return what MLX says of it.

    Raises WrongDevice where MLX then names another, EngineError where it has no such device.
    """
    mx = import_core()
    wanted = mx.Device(getattr(mx, device.kind), device.index)
    mx.set_default_device(wanted)
    default = mx.default_device()
    stream = mx.default_stream(default).device
    if default != wanted or stream != wanted:
        raise WrongDevice(f"MLX computes on {stream}, not on {wanted}")
    return Told(str(stream), str(default), _plain(mx.device_info(wanted)))


def run_one_node(device: Device) -> None:
    """Run a small compiled function on ``device``.

    Two operations, which ``mx.compile`` may fuse into a kernel of its own: where it cannot
    make that, networks would not run either. Raises EngineError for a wrong answer.
    """
    mx = import_core()
    use(device)
    x = np.linspace(-1, 1, num=SHAPE[1], dtype=np.float32).reshape(SHAPE)
    y = mx.compile(lambda array: mx.maximum(array, 0) * 0.5)(mx.array(x))
    mx.eval(y)
    if not np.allclose(np.array(y), np.maximum(x, 0) / 2, atol=1e-2):
        raise EngineError("it gives a wrong answer")


def multiplies_in(computed: str) -> Verdict:
    """Return the format that the device in use multiplies arrays of type ``computed`` in."""
    mx = import_core()
    carried = "float16" if computed == "float16" else "float32"
    operands = number_probe.product(carried)
    kind = getattr(mx, computed)
    x, w, u, v = (
        mx.array(a).astype(kind) for a in (operands.x, operands.w, operands.u, operands.v)
    )
    outputs = [mx.matmul(x, w), mx.matmul(mx.matmul(x, u), v)]
    found = [np.array(y.astype(mx.float32)) for y in outputs]
    return number_probe.classify(found, computed)


def probe_devices() -> tuple[EngineInfo, ...]:
    """Return the engines of every GPU and of the CPU, available or not."""
    mx = import_core()
    count = gpu_count(mx)
    gpus = sorted(range(count), key=lambda i: str(_info(mx, Device("gpu", i)).get("pci_bus_id")))
    found = [
        _describe(mx, Device("gpu", index), number if count > 1 else None)
        for number, index in enumerate(gpus, start=1)
    ]
    if not found:
        found.append(_engine("mlx-gpu", Device("gpu"), no_gpu(sys.platform, versions()), {}))
    return (*found, _describe(mx, Device("cpu"), None))


def gpu_count(mx: Any) -> int:
    """Return how many GPUs MLX has a back end for here."""
    if not mx.is_available(mx.gpu):
        return 0
    return int(mx.device_count(mx.gpu))


def no_gpu(platform: str, installed: dict[str, str]) -> str:
    """Return why there is no GPU for MLX, and what would change that."""
    if platform == "darwin":
        return "MLX finds no GPU with Metal here; it needs Apple silicon, and no virtual machine"
    if any(name.startswith("mlx-cuda") for name in installed):
        return "MLX finds no NVIDIA GPU here; it needs NVIDIA's driver installed"
    return "not installed; `npumark engines install mlx-cuda` installs MLX for NVIDIA GPUs"


def processor(device: Device, info: dict[str, Any]) -> dict[str, Any]:
    """Return the processor behind a device, from MLX's own account of it."""
    name = info.get("device_name")
    if device.kind == "cpu":
        return {"key": "cpu", "role": "CPU", "name": name}
    if info.get("uuid") is None and info.get("pci_bus_id") is None:
        # Metal's: there is one, and it has no key.
        return {"role": "iGPU", "name": name}
    role = "iGPU" if _SHARED_MEMORY.search(str(name)) else "dGPU"
    return {"role": role, "name": name, "uuid": info.get("uuid"), "bus": info.get("pci_bus_id")}


def versions() -> dict[str, str]:
    """Return the versions of MLX and of the back ends that are installed with it."""
    found = {}
    for name in ("mlx", *_BACK_ENDS):
        try:
            found[name] = package_version(name)
        except PackageNotFoundError:
            continue
    return found


def _libraries() -> dict[str, str]:
    """Return the sha256 of MLX's own library, by file name."""
    origin = getattr(import_core(), "__file__", None)
    folder = None if origin is None else Path(origin).parent
    found = digests(folder, ("core.*",))
    return found if folder is None else found | digests(folder / "lib", ("libmlx.*",))


def _describe(mx: Any, device: Device, number: int | None) -> EngineInfo:
    reason = None
    try:
        run_one_node(device)
    except Exception as fault:  # noqa: BLE001 - a device that fails is reported, not raised
        reason = f"a small compiled function fails: {in_words(fault)}"
    name = f"mlx-{device.kind}" if number is None else f"mlx-{device.kind}-{number}"
    return _engine(name, device, reason, processor(device, _info(mx, device)))


def _engine(name: str, device: Device, reason: str | None, processor: dict[str, Any]) -> EngineInfo:
    row = provider("mlx")
    if row is None:
        raise EngineError("the catalogue has no MLX")
    role = str(processor.get("role", "iGPU"))
    variants, extra = row.variants_by_role[role], row.extra_variants_by_role[role]
    note = None
    if role == "CPU" and sys.platform != "darwin":
        # One thread and no library for products of halves: a default run would take hours.
        variants, extra, note = (), (*variants, *extra), _SLOW
    return EngineInfo(
        id=name,
        available=reason is None,
        reason=reason,
        runtime="mlx",
        runtime_title=_TITLE,
        version=versions().get("mlx"),
        versions=versions() | _libraries(),
        processor=processor,
        variants=variants,
        extra_variants=extra,
        options={"provider": "mlx", "device": device.kind, "index": device.index, "cache": False},
        note=note,
    )


def _info(mx: Any, device: Device) -> dict[str, Any]:
    try:
        return _plain(mx.device_info(mx.Device(getattr(mx, device.kind), device.index)))
    except Exception:  # noqa: BLE001 - its name is not what makes a device work
        return {}


def _plain(info: Any) -> dict[str, Any]:
    return {str(k): v for k, v in dict(info).items() if isinstance(v, (str, int))}
