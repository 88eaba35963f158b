"""OpenVINO, through its own runtime: one engine per CPU, GPU and NPU that it really drives.

What each choice is for:

- ``INFERENCE_PRECISION_HINT`` is always set: left alone, the runtime computes FP32 graphs in
  bfloat16 where the processor can. FP16 is asked for where the device lists the capability;
  where it does not, the runtime would silently take bfloat16, so FP32 is asked for and told.
- ``DYNAMIC_QUANTIZATION_GROUP_SIZE`` 0 keeps weight-only graphs weight-only.
- The latency hint and an explicit number of threads; both are read back.
- Inputs and outputs are arrays of ours that the request shares; ``share_outputs`` keeps the
  call from copying its outputs as well.
- Devices that choose among devices (AUTO, MULTI, HETERO, BATCH) are refused: what they measure
  has no name. Diagnostics alone ask for AUTO, by a switch of their own, to see what it picks.
- A CPU compiles in well under a second and its cached model would hold the weights again, so
  every attempt compiles from the verified files. GPU and NPU compile for long; their models
  are cached and checked before each use (engines.model_cache).
- The profiled twin of a cached model is compiled anew. On a CPU ``PERF_COUNT`` is no part of what
  is cached, but an NPU counts time only in what was compiled with counters, and what a GPU loads
  from its cache no longer names the types of its kernels.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from npumark.engines.base import Array, Engine, LoadRequest, Session
from npumark.engines.buffers import aligned
from npumark.engines.model_cache import ModelCache, Recipe, model_cache
from npumark.engines.openvino_batch import batched
from npumark.engines.openvino_evidence import Layer, formats, macs, multiplies, prove
from npumark.engines.openvino_probe import (
    DEVICE,
    KINDS,
    capabilities_of,
    probe_devices,
    version,
)
from npumark.errors import EngineError, Unsupported, WrongDevice
from npumark.policy import load_policy
from npumark.worker.protocol import EngineInfo, Observed, Placement

_NO_CHOOSING = ("AUTO", "MULTI", "HETERO", "BATCH")

_AUTO = "AUTO"

_KNOWN_TO_AUTO = ("PERFORMANCE_HINT", "INFERENCE_PRECISION_HINT", "PERF_COUNT")

_READ_BACK = (
    "PERFORMANCE_HINT",
    "NUM_STREAMS",
    "EXECUTION_MODE_HINT",
    "ENABLE_CPU_PINNING",
    "SCHEDULING_CORE_TYPE",
    "ENABLE_HYPER_THREADING",
    "DYNAMIC_QUANTIZATION_GROUP_SIZE",
    "RUNTIME_REQUIREMENTS",
)


class OpenVino(Engine):
    """OpenVINO's native runtime."""

    name = "openvino"
    batches = True
    automatic = _AUTO

    def __init__(self) -> None:
        self._profiles: dict[tuple[str, str, int], _Evidence] = {}

    def _prepare(self) -> None:
        import openvino  # noqa: F401 - its import is timed here

    def _probe(self, options: dict[str, Any]) -> tuple[EngineInfo, ...]:
        return probe_devices([k for k in KINDS if k in options.get("only", ())] or None)

    def _load(self, request: LoadRequest) -> Session:
        return OpenVinoSession(self, request)

    def _placement(self, request: LoadRequest, feed: list[Array], runs: int) -> Placement:
        device = requested_device(request.options)
        evidence = self.evidence(request, feed, runs)
        return prove(evidence.layers, device, evidence.executed_on)

    def evidence(self, request: LoadRequest, feed: list[Array], runs: int) -> _Evidence:
        """Return what ``runs`` calls of a profiled twin show; made once per graph."""
        key = (str(request.graph), request.encoding, runs)
        if key not in self._profiles:
            self._profiles[key] = _profiled(request, feed, runs)
        return self._profiles[key]


@dataclass(frozen=True, slots=True)
class _Evidence:
    """``primitives`` counts those of the model's multiply-accumulate layers; null: untold."""

    layers: list[Layer]
    executed_on: list[str]
    primitives: Counter[str] | None


class OpenVinoSession(Session):
    """A compiled model and one request whose tensors are arrays of ours."""

    def __init__(self, engine: OpenVino, request: LoadRequest) -> None:
        self._engine, self._request = engine, request
        self._device = requested_device(request.options)
        self._cache = _cache(request)
        if self._cache is None:
            self._model = _compile(request, None)
        else:
            load = functools.partial(_compile, request)
            self._model = self._cache.open(Recipe(load, reused=_from_cache))
        self._infer = self._model.create_infer_request()
        self._inputs = tuple(aligned(s.shape, s.dtype) for s in request.inputs)
        self._outputs = tuple(aligned(s.shape, s.dtype) for s in request.outputs)
        _bind(self._infer, request, self._inputs, self._outputs)
        self._step: Callable[[], object] = functools.partial(self._infer.infer, share_outputs=True)

    def inputs(self) -> tuple[Array, ...]:
        return self._inputs

    def outputs(self) -> tuple[Array, ...]:
        return self._outputs

    def step(self) -> Callable[[], object]:
        return self._step

    def loaded_from_cache(self) -> bool | None:
        return None if self._cache is None else self._cache.reused

    def picked(self) -> tuple[str, ...]:
        if self._request.device_choice != "automatic":
            return ()
        # AUTO brackets the CPU while that only stands in for the device still compiled for.
        found = self._model.get_property("EXECUTION_DEVICES")
        return tuple(str(name).strip("()") for name in found)

    def observed(self) -> Observed:
        """Return what the compiled model tells, and the format that a profiled twin shows."""
        import openvino

        executed_on = _executed_on(self._model, self._device)
        hint = _type_name(self._model.get_property("INFERENCE_PRECISION_HINT"))
        threads = _property(self._model, "INFERENCE_NUM_THREADS")
        told = {name: _plain(_property(self._model, name)) for name in _READ_BACK}
        timed = _mac_primitives(self._model)
        feed = [array.copy() for array in self._inputs]
        self.close()
        evidence = self._engine.evidence(self._request, feed, load_policy().placement.profile_runs)
        group = told["DYNAMIC_QUANTIZATION_GROUP_SIZE"]
        found = formats(
            evidence.layers,
            self._request.format,
            dynamic_quantisation=int(group) if group is not None else None,
            same_primitives=timed == evidence.primitives,
        )
        return Observed(
            device=", ".join(executed_on),
            precision=found.ran,
            precision_why=found.why,
            threads=int(threads) if threads is not None else None,
            runtime="openvino",
            version=version(),
            versions={"openvino": openvino.__version__},
            details={
                "inference_precision_hint": hint,
                "requested_precision_hint": precision_hint(
                    self._request.encoding, capabilities_of(openvino.Core(), self._device)
                ),
                "mac_share": found.share,
                "mac_share_by": found.by,
                "mac_primitives": found.counts,
                "properties": told,
            },
        )

    def close(self) -> None:
        self._step = _closed
        self._infer = None
        self._model = None
        if self._cache is not None:
            self._cache.settle()


def requested_device(options: dict[str, Any]) -> str:
    """Return the device that the options name, the CPU by default.

    Raises Unsupported for one that chooses among devices, or that is none.
    """
    device = str(options.get("device", "CPU"))
    if device.upper().startswith(_NO_CHOOSING):
        raise Unsupported(
            f"{device} chooses among devices, and a figure must belong to one; "
            "name the device itself, such as CPU, GPU.0 or NPU"
        )
    if not DEVICE.fullmatch(device):
        raise Unsupported(f"OpenVINO has no device {device!r}; name one such as CPU, GPU.0 or NPU")
    return device


def precision_hint(encoding: str, capabilities: list[str]) -> str:
    """Return the precision to ask for, so that what the encoding says is what is computed."""
    if encoding == "bf16":
        return "bf16"
    if encoding.startswith("fp16") and "FP16" in capabilities:
        return "f16"
    return "f32" if "FP32" in capabilities or "FP16" not in capabilities else "f16"


def _compile(request: LoadRequest, cache: Path | None, *, profile: bool = False) -> Any:
    import openvino

    device = requested_device(request.options)
    core = openvino.Core()
    capabilities = capabilities_of(core, device)
    known = set(core.get_property(device, "SUPPORTED_PROPERTIES"))
    if request.encoding == "bf16" and "BF16" not in capabilities:
        raise Unsupported(f"{device} does not compute in bfloat16")
    config: dict[str, Any] = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": precision_hint(request.encoding, capabilities),
        "PERF_COUNT": "YES" if profile else "NO",
    }
    if "DYNAMIC_QUANTIZATION_GROUP_SIZE" in known:
        config["DYNAMIC_QUANTIZATION_GROUP_SIZE"] = "0"
    if device.startswith("CPU"):
        if request.threads is None or request.threads < 1:
            raise EngineError("the job names no number of threads")
        config["INFERENCE_NUM_THREADS"] = request.threads
    if cache is not None:
        core.set_property({"CACHE_DIR": str(cache)})
    if request.device_choice == "automatic":
        return core.compile_model(str(request.graph), _AUTO, _by_device(config, device))
    graph = str(request.graph)
    source = graph if request.batch == 1 else batched(core.read_model(graph), request.batch)
    model = core.compile_model(source, device, config)
    if "DYNAMIC_QUANTIZATION_GROUP_SIZE" in known:
        group = int(_property(model, "DYNAMIC_QUANTIZATION_GROUP_SIZE") or 0)
        if group != 0:
            raise EngineError("OpenVINO keeps quantising activations although told not to")
    # Looked at here, so that a cached model that lies elsewhere is refused and compiled again.
    _executed_on(model, device)
    return model


def _by_device(config: dict[str, Any], device: str) -> dict[str, Any]:
    """Return the same hints as AUTO takes them: what it does not know goes to the device."""
    own = {k: v for k, v in config.items() if k not in _KNOWN_TO_AUTO}
    shared = {k: v for k, v in config.items() if k in _KNOWN_TO_AUTO}
    return {**shared, "DEVICE_PROPERTIES": {device.split(".")[0]: own}} if own else shared


def _executed_on(model: Any, device: str) -> list[str]:
    found = [str(name) for name in model.get_property("EXECUTION_DEVICES")]
    if any(name.split(".")[0] != device.split(".")[0] for name in found):
        raise WrongDevice(f"OpenVINO executes on {', '.join(found)}, not on {device}")
    return found


def _cache(request: LoadRequest) -> ModelCache | None:
    import openvino

    if request.device_choice == "automatic":
        return None  # a model that AUTO compiled is not this device's
    return model_cache(request, {"openvino": openvino.__version__, "threads": request.threads})


def _from_cache(model: Any) -> bool:
    return bool(model.get_property("LOADED_FROM_CACHE"))


def _bind(
    infer: Any, request: LoadRequest, inputs: tuple[Array, ...], outputs: tuple[Array, ...]
) -> None:
    import openvino

    specs = (*request.inputs, *request.outputs)
    for spec, array in zip(specs, (*inputs, *outputs), strict=True):
        infer.set_tensor(spec.name, openvino.Tensor(array, shared_memory=True))


def _profiled(request: LoadRequest, feed: list[Array], runs: int) -> _Evidence:
    model = _compile(request, None, profile=True)
    infer = model.create_infer_request()
    inputs = tuple(np.ascontiguousarray(a) for a in feed)
    outputs = tuple(aligned(s.shape, s.dtype) for s in request.outputs)
    _bind(infer, request, inputs, outputs)
    told_macs = _layer_macs(model)
    spent: Counter[tuple[str, str, str]] = Counter()
    for _ in range(runs):
        infer.infer(share_outputs=True)
        for told in infer.get_profiling_info():
            if str(told.status).endswith("NOT_RUN"):
                continue  # fused into another layer, or nothing to do
            micros = round(told.real_time.total_seconds() * 1e6)
            spent[(told.node_name, told.node_type, told.exec_type)] += micros
    layers = [
        Layer(kind, primitive, us, told_macs.get(name))
        for (name, kind, primitive), us in spent.items()
    ]
    executed_on = _executed_on(model, requested_device(request.options))
    return _Evidence(layers, executed_on, _mac_primitives(model))


def _layer_macs(model: Any) -> dict[str, int | None]:
    """Return the multiply-accumulates of each layer by its name, as far as shapes tell them.

    The names are those of the compiled model's own profile; one that two layers bear tells
    nothing.
    """
    found: dict[str, int | None] = {}
    try:
        for operator in model.get_runtime_model().get_ops():
            name = operator.get_friendly_name()
            kind = str(operator.get_rt_info()["layerType"].astype(str))
            inputs = [tuple(port.get_shape()) for port in operator.inputs()]
            outputs = [tuple(port.get_shape()) for port in operator.outputs()]
            found[name] = None if name in found else macs(kind, inputs, outputs)
    except Exception:  # noqa: BLE001 - no runtime model, no layer types, or shapes left open
        return {}
    return found


def _mac_primitives(model: Any) -> Counter[str] | None:
    """Count the primitives of the model's multiply-accumulate layers, as it was compiled."""
    try:
        operators = model.get_runtime_model().get_ops()
    except Exception:  # noqa: BLE001 - a plug-in need not offer its runtime model
        return None
    counts: Counter[str] = Counter()
    for operator in operators:
        told = operator.get_rt_info()
        if "layerType" not in told or "primitiveType" not in told:
            return None
        if multiplies(str(told["layerType"].astype(str))):
            counts[str(told["primitiveType"].astype(str))] += 1
    return counts


def _property(model: Any, name: str) -> Any:
    try:
        return model.get_property(name)
    except Exception:  # noqa: BLE001 - not every plug-in has every property
        return None


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def _type_name(value: Any) -> str:
    return str(value.to_string()) if hasattr(value, "to_string") else str(value)


def _closed() -> None:
    raise EngineError("the session is closed")
