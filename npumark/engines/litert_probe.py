"""Which devices LiteRT drives here: each runs a one-node model, or says why it cannot."""

from __future__ import annotations

import json
import lzma
import sys
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as package_version
from pathlib import Path
from typing import Any

import numpy as np

from npumark.engines import number_probe
from npumark.engines.litert_adapter import processor_of, taken_adapter
from npumark.engines.litert_buffer import Place
from npumark.engines.litert_library import Library, package_folder
from npumark.engines.litert_native import CPU, GPU, NPU, Model, Settings, npu_vendor
from npumark.engines.native_libraries import digests
from npumark.engines.number_probe import Verdict
from npumark.engines.one_node import SHAPE
from npumark.engines.vulkan_adapters import vulkan_adapters
from npumark.errors import EngineError
from npumark.policy import DATA
from npumark.worker.protocol import EngineInfo

MODELS = DATA / "litert"
ONE_NODE = "one_node.tflite"
"""y = relu(x), float32 [1, 4]."""
NUMBER_PROBE = "number_probe.tflite.xz"
"""The products of engines.number_probe with float16 weights, in float32 between them."""

VARIANTS = ("litert-fp16", "litert-int8")

DEVICES = ("CPU", "GPU", "NPU")

_UNTOLD = (
    "LiteRT computes on a GPU but does not say on which, so that it may be a program on the CPU; "
    "update the package ai-edge-litert, or the GPU's driver"
)

_PACKAGE = "ai-edge-litert"
_TITLE = "LiteRT"


def probe_devices(devices: tuple[str, ...] = DEVICES) -> tuple[EngineInfo, ...]:
    """Return the engines of the CPU, the GPU and an NPU, available or not; of those alone that
    ``devices`` names, and no other is tried."""
    library = Library(package_folder())
    asked = {"CPU": _cpu, "GPU": _gpu, "NPU": _npu}
    return tuple(asked[device](library) for device in devices)


def one_node() -> bytes:
    """Return the one-node model."""
    return (MODELS / ONE_NODE).read_bytes()


def settings(
    device: str, threads: int | None, *, profile: bool = False, weights: Path | None = None
) -> Settings:
    """Return what a model is compiled with on one of DEVICES.

    A GPU is asked to compute in FP16, as applications ask it to; where it cannot it computes in
    FP32 and its answers show it. ``weights`` is the file in which the CPU's delegate keeps its
    packed weights, null for none. Raises EngineError where a CPU's number of threads is missing.
    """
    if device == "GPU":
        return Settings(GPU, {"gpu_options": "precision = 1\n"}, profile)
    if device == "NPU":
        return Settings(NPU, {}, profile)
    if threads is None or threads < 1:
        raise EngineError("the job names no number of threads")
    text = f"num_threads = {threads}\n"
    if weights is not None:
        text += f"weight_cache_file_path = {toml_string(str(weights))}\n"
    return Settings(CPU, {"xnnpack": text}, profile)


def toml_string(text: str) -> str:
    """Return ``text`` as a basic string of TOML: JSON's, but characters beyond the basic plane
    are written as they are (TOML has no surrogates), and DEL is not."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def multiplies_in(library: Library, compiled_with: Settings) -> Verdict:
    """Return the format that a small product with float16 weights is computed in."""
    source = lzma.decompress((MODELS / NUMBER_PROBE).read_bytes())
    operands = number_probe.product("float16")
    rows, width = number_probe.ROWS, number_probe.WIDTH
    model = Model(library, source, compiled_with)
    try:
        model.bind(
            {"x": Place(operands.x.shape, "float32")},
            dict.fromkeys("yz", Place((rows, width), "float32")),
        )
        outputs = run_once(model, {"x": operands.x}, ("y", "z"))
    finally:
        model.close()
    return number_probe.classify(outputs, "float16")


def run_once(model: Model, feed: dict[str, Any], wanted: tuple[str, ...]) -> list[Any]:
    """Run a bound model once and return copies of the outputs ``wanted``."""
    for name, value in feed.items():
        model.names[name].array[...] = value
    for buffer in model.inputs:
        buffer.push()
    run, arguments = model.call()
    run(*arguments)
    for buffer in model.outputs:
        buffer.pull()
    return [model.names[name].array.copy() for name in wanted]


def version() -> str | None:
    """Return the package's version, null where it was installed without its metadata."""
    try:
        return package_version(_PACKAGE)
    except PackageNotFoundError:
        return None


def _cpu(library: Library) -> EngineInfo:
    reason = _fault(library, settings("CPU", 1))
    return EngineInfo(
        id="litert-cpu",
        available=reason is None,
        reason=reason,
        runtime="litert",
        runtime_title=_TITLE,
        version=version(),
        versions=_versions() | digests(library.folder, ("libLiteRt.*",)),
        processor={"key": "cpu", "role": "CPU", "name": None},
        variants=VARIANTS,
        options={"provider": "litert", "device": "CPU", "cache": True},
    )


def _gpu(library: Library) -> EngineInfo:
    reason = _fault(library, settings("GPU", None))
    processor: dict[str, Any] = {}
    emulated = False
    if reason is None:
        known = processor_of(sys.platform, taken_adapter(), vulkan_adapters() or ())
        if known is None:
            reason = _UNTOLD
        else:
            processor, emulated = known
    return EngineInfo(
        id="litert-gpu",
        available=reason is None,
        reason=reason,
        runtime="litert",
        runtime_title=_TITLE,
        version=version(),
        versions=_versions() | digests(library.folder, ("libLiteRt.*", "libLiteRt*Accelerator*")),
        processor=processor,
        variants=VARIANTS[:1],
        extra_variants=VARIANTS[1:],
        options={"provider": "litert", "device": "GPU", "cache": False},
        emulated=emulated,
    )


def _npu(library: Library) -> EngineInfo:
    reason = _fault(library, settings("NPU", None))
    return EngineInfo(
        id="litert-npu",
        available=reason is None,
        reason=reason,
        runtime="litert",
        runtime_title=_TITLE,
        version=version(),
        versions=_versions() | digests(library.folder, ("libLiteRt.*",)),
        processor={} if reason else {"role": "NPU", "name": None},
        variants=VARIANTS[::-1],
        options={"provider": "litert", "device": "NPU", "cache": False},
    )


def _fault(library: Library, compiled_with: Settings) -> str | None:
    """Return why a one-node model does not run, or null where it gives the right answer."""
    x = np.linspace(-1, 1, num=SHAPE[1], dtype=np.float32).reshape(SHAPE)
    try:
        model = Model(library, one_node(), compiled_with)
        try:
            model.bind({"x": Place(SHAPE, "float32")}, {"y": Place(SHAPE, "float32")})
            (y,) = run_once(model, {"x": x}, ("y",))
            left = compiled_with.accelerators != CPU and not model.elsewhere()
        finally:
            model.close()
    except Exception as fault:  # noqa: BLE001 - a device that fails is reported, not raised
        print(f"a one-node model fails: {_one_line(fault)}", file=sys.stderr)
        if compiled_with.accelerators != CPU:
            return _absent(compiled_with.accelerators, library)
        return f"a one-node model fails: {_one_line(fault)}"
    if not np.allclose(y, np.maximum(x, 0), atol=1e-2):
        return "a one-node model gives a wrong answer"
    return "it leaves a one-node model to the CPU" if left else None


def _absent(accelerator: int, library: Library) -> str:
    if accelerator == GPU:
        driver = "a Vulkan driver" if sys.platform == "linux" else "its driver"
        return f"LiteRT finds no GPU that it can use here; it needs {driver} installed"
    if npu_vendor(library.folder) is None:
        return "LiteRT's package holds no driver library of an NPU for this platform"
    return "LiteRT finds no NPU that it can use here; it needs the maker's runtime installed"


def _versions() -> dict[str, str]:
    told = version()
    return {_PACKAGE: told} if told else {}


def _one_line(fault: Exception) -> str:
    return " ".join(str(fault).split())[:300]
