"""LiteRT on the desktop: its compiled-model API, one engine for the CPU, the GPU and an NPU.

What each choice is for:

- On the CPU the model's own buffers lie in memory that is written and read in place: a call
  copies nothing but what the timed loop copies into it. A GPU's buffers do not; there each
  timed call uploads its inputs and reads its outputs back, as an application does.
- The number of threads is always set; the package's shortcut for an accelerator takes one.
- An accelerator is compiled for without the CPU as a helper first. The runtime then says whether
  accelerators other than the CPU took every operator; where they did not, nothing tells whose
  time it was.
- The CPU's delegate unpacks FP16 weights and multiplies in FP32, and the profile of a second
  model, compiled alike, names the kernels that did. A GPU's profile names none: a small product
  shows its format where the graph multiplies in floating point.
- The CPU's delegate packs weights for its kernels at every load. They are packed once, into a file
  that every attempt maps (engines.model_cache): that is how an application that keeps its start
  short loads them. A GPU or NPU is offered no such file.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil

from npumark.engines.base import Array, Engine, LoadRequest, Session
from npumark.engines.formats import Formats
from npumark.engines.litert_batch import batched
from npumark.engines.litert_buffer import Place
from npumark.engines.litert_evidence import (
    Kernel,
    accelerated_percent,
    formats,
    kernels,
    on_accelerator,
    on_cpu,
)
from npumark.engines.litert_library import Library, NativeError, package_folder
from npumark.engines.litert_native import CPU, Model
from npumark.engines.litert_probe import (
    DEVICES,
    multiplies_in,
    one_node,
    probe_devices,
    settings,
    version,
)
from npumark.engines.model_cache import Recipe, model_cache
from npumark.engines.number_probe import Verdict
from npumark.errors import EngineError, Unsupported
from npumark.pack.manifest import TensorSpec
from npumark.policy import load_policy
from npumark.worker.protocol import EngineInfo, Observed, Placement

_ONE_NODE = "one-node"
"""The workload that measures the harness; it comes as an ONNX graph."""

_SUFFIX = ".tflite"
_WEIGHTS = "weights.xnnpack"


class LiteRt(Engine):
    """LiteRT through its compiled-model API."""

    name = "litert"
    batches = True

    def __init__(self) -> None:
        self._library: Library | None = None
        self._profiles: dict[tuple[str, int | None, int], _Evidence] = {}

    def _prepare(self) -> None:
        self._library = Library(package_folder())

    def _probe(self, options: dict[str, Any]) -> tuple[EngineInfo, ...]:
        only = [device for device in DEVICES if device in options.get("only", ())]
        return probe_devices(tuple(only) or DEVICES)

    def _load(self, request: LoadRequest) -> Session:
        return LiteRtSession(self, request)

    def _placement(self, request: LoadRequest, feed: list[Array], runs: int) -> Placement:
        if device_of(request) == "CPU":
            return on_cpu(self.evidence(request, feed, runs).kernels)
        model = open_model(self.library(), request)
        whole = model.elsewhere()
        model.close()
        return on_accelerator(whole=whole)

    def library(self) -> Library:
        """Return the runtime's library, opened once."""
        if self._library is None:
            self._library = Library(package_folder())
        return self._library

    def evidence(self, request: LoadRequest, feed: list[Array], runs: int) -> _Evidence:
        """Return the profile of ``runs`` calls of a twin on the CPU; made once per graph."""
        key = (str(request.graph), request.threads, runs)
        if key not in self._profiles:
            self._profiles[key] = _profiled(self.library(), request, feed, runs)
        return self._profiles[key]


@dataclass(frozen=True, slots=True)
class _Evidence:
    kernels: list[Kernel]
    operators: int
    fully: bool


class LiteRtSession(Session):
    """A compiled model with its buffers, whose arrays are the session's."""

    def __init__(self, engine: LiteRt, request: LoadRequest) -> None:
        self._engine, self._request = engine, request
        self._device = device_of(request)
        self._cache = model_cache(
            request, {"litert": version(), "threads": request.threads, "device": self._device}
        )
        before = _threads()
        if self._cache is None:
            self._model = open_model(engine.library(), request)
        else:
            load = functools.partial(open_model, engine.library(), request)
            recipe = Recipe(lambda folder: load(cache=folder), free=Model.close)
            self._model = self._cache.open(recipe)
        self._started = _threads() - before
        self._fully = self._model.fully_accelerated()
        self._elsewhere = self._model.elsewhere()
        names = self._model.names
        self._inputs = tuple(names[spec.name].array for spec in request.inputs)
        self._outputs = tuple(names[spec.name].array for spec in request.outputs)
        self._step = _step(self._model)

    def inputs(self) -> tuple[Array, ...]:
        return self._inputs

    def outputs(self) -> tuple[Array, ...]:
        return self._outputs

    def step(self) -> Callable[[], object]:
        return self._step

    def loaded_from_cache(self) -> bool | None:
        return None if self._cache is None else self._cache.reused

    def observed(self) -> Observed:
        """Return what the runtime tells of a model compiled alike, whose kernels it names."""
        fully, started = self._fully, self._started
        feed = [array.copy() for array in self._inputs]
        self.close()
        details: dict[str, Any] = {
            "fully_accelerated": fully,
            "fully_on_accelerator": self._elsewhere,
        }
        if self._device == "CPU":
            runs = load_policy().placement.profile_runs
            evidence = self._engine.evidence(self._request, feed, runs)
            found = formats(evidence.kernels)
            details["accel_ops_pct"] = accelerated_percent(
                evidence.kernels, evidence.operators, fully=evidence.fully
            )
            details["operators"] = evidence.operators
            details["mac_share"], details["mac_share_by"] = found.share, found.by
            details["mac_kernels"] = found.counts
        else:
            found, told = self._device_format()
            details |= told
            details["accel_ops_pct"] = 100.0 if self._elsewhere else None
        details["threads_requested"] = self._request.threads
        return Observed(
            device=self._device,
            precision=found.ran,
            precision_why=found.why,
            threads=self._threads(started),
            runtime="litert",
            version=version(),
            versions={"ai-edge-litert": version() or "unknown"},
            details=details,
        )

    def close(self) -> None:
        self._step = _closed
        self._model.close()

    def _threads(self, started: int) -> int | None:
        """Return the threads that compute: those that compiling started, and the caller's.

        Null where that is not what was asked for, as on systems whose thread pool is shared.
        """
        if self._device != "CPU" or 1 + started != self._request.threads:
            return None
        return 1 + started

    def _device_format(self) -> tuple[Formats, dict[str, Any]]:
        untold = Formats(None, None, {}, "macs", {})
        if self._request.format == "INT8":
            why = f"LiteRT's {self._device} does not tell whether it multiplies in 8 bits"
            return untold.unknown(why), {}
        verdict = multiplies_in(self._engine.library(), settings(self._device, None))
        return replace(untold, ran=verdict.family, why=verdict.why), _facts(verdict)


def device_of(request: LoadRequest) -> str:
    """Return the device that the options name. Raises Unsupported for one that is none."""
    device = str(request.options.get("device", "CPU"))
    if device not in DEVICES:
        raise Unsupported(f"LiteRT has no device {device!r}; name {', '.join(DEVICES)}")
    return device


def open_model(
    library: Library,
    request: LoadRequest,
    *,
    profile: bool = False,
    cache: Path | None = None,
) -> Model:
    """Compile the request's model and make its buffers; packed weights are kept in ``cache``.

    An accelerator that does not take every operator is given the CPU as a helper.

    Raises Unsupported for a graph that is none of LiteRT's, EngineError where it does not
    compile.
    """
    source: Any = request.graph
    if request.workload_id == _ONE_NODE:
        source = one_node()
    elif request.graph.suffix != _SUFFIX:
        raise Unsupported(f"LiteRT does not read {request.graph.name}")
    elif request.batch != 1:
        source = batched(request.graph.read_bytes(), request.batch)
    device = device_of(request)
    weights = None if cache is None else cache / _WEIGHTS
    wanted = settings(device, request.threads, profile=profile, weights=weights)
    try:
        model = Model(library, source, wanted)
    except NativeError as fault:
        if device == "CPU" and request.batch != 1:
            raise Unsupported(
                f"the graph does not allow {request.batch} inputs per call: {fault}"
            ) from fault
        if device == "CPU":
            raise
        helped = settings("CPU", request.threads)
        both = {**wanted.options, **helped.options}
        accelerators = wanted.accelerators | CPU
        model = Model(library, source, replace(wanted, accelerators=accelerators, options=both))
    try:
        model.bind(_shapes(request.inputs), _shapes(request.outputs))
    except BaseException:
        model.close()
        raise
    return model


def _shapes(specs: tuple[TensorSpec, ...]) -> dict[str, Place]:
    return {spec.name: Place(spec.shape, spec.dtype) for spec in specs}


def _step(model: Model) -> Callable[[], object]:
    run, arguments = model.call()
    away = [buffer for buffer in (*model.inputs, *model.outputs) if not buffer.on_host]
    if not away:
        return functools.partial(run, *arguments)
    pushes = [buffer.push for buffer in model.inputs]
    pulls = [buffer.pull for buffer in model.outputs]

    def step() -> None:
        for push in pushes:
            push()
        run(*arguments)
        for pull in pulls:
            pull()

    return step


def _profiled(library: Library, request: LoadRequest, feed: list[Array], runs: int) -> _Evidence:
    model = open_model(library, request, profile=True)
    try:
        for spec, value in zip(request.inputs, feed, strict=True):
            model.names[spec.name].array[...] = value
        return _Evidence(kernels(model.profile(runs)), model.operators(), model.fully_accelerated())
    finally:
        model.close()


def _facts(verdict: Verdict) -> dict[str, Any]:
    return {"number_probe": {"family": verdict.family, "accumulator": verdict.accumulator}}


def _threads() -> int:
    return int(psutil.Process().num_threads())


def _closed() -> None:
    raise EngineError("the session is closed")
