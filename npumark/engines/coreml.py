"""Core ML: the Neural Engine, the GPU and the CPU of a Mac, each an engine of its own.

The compute units that Core ML takes are an upper bound, not a promise: a program for the Neural
Engine may run on the CPU. Where it really goes is asked of the compute plan, and beside the plan
the same model is timed for a few calls on the CPU alone. The compiled model is made once, before
the first attempt, from the pack's program and weights (engines.coreml_program), and cached.

Core ML chooses its own threads, and gives the caller no say. It does not tell the number format
that it multiplies in; for float16 programs a small product of known answers is asked for it, and
believed only where its own plan lies on the device in question. The outputs of timed and untimed
calls must agree bit by bit.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from npumark.engines import coreml_plan
from npumark.engines.base import Array, Engine, LoadRequest, Session
from npumark.engines.buffers import aligned
from npumark.engines.coreml_native import COMPILED, Bound, Native, NativeModel, Units
from npumark.engines.coreml_plan import Kind, PlannedOp
from npumark.engines.coreml_probe import number_format, probe_devices
from npumark.engines.model_cache import ModelCache, Recipe, model_cache
from npumark.errors import EngineError, Unsupported
from npumark.pack.program_file import load_program
from npumark.policy import load_policy
from npumark.worker.protocol import EngineInfo, Observed, Placement

_T = TypeVar("_T")

_UNITS: dict[Kind, Units] = {"NPU": "CPU_AND_NE", "GPU": "CPU_AND_GPU", "CPU": "CPU_ONLY"}

_ALL: Units = "ALL"

_UNTOLD = {
    "INT8": "Core ML does not tell whether it multiplies 8-bit operands as integers",
    "INT4": "Core ML does not tell whether it keeps 4-bit weights or unpacks them at load",
}


@dataclass(frozen=True, slots=True)
class Target:
    """The device that a request is for. ``gpu`` is its index among several GPUs, else null;
    ``every`` leaves the choice among all devices to Core ML."""

    kind: Kind
    gpu: int | None = None
    every: bool = False

    @property
    def units(self) -> Units:
        return _ALL if self.every else _UNITS[self.kind]


class CoreMl(Engine):
    """Core ML through Apple's own framework."""

    name = "coreml"
    automatic = _ALL

    def __init__(self, native: Callable[[], Native] = Native) -> None:
        self._connect = native
        self._native: Native | None = None

    @property
    def native(self) -> Native:
        """Return the adapter, made on first use. Raises Unsupported where there is no Core ML."""
        if self._native is None:
            self._native = self._connect()
        return self._native

    def _prepare(self) -> None:
        _ = self.native

    def _probe(self, options: dict[str, Any]) -> tuple[EngineInfo, ...]:
        del options
        return probe_devices(self.native)

    def load(self, request: LoadRequest) -> Session:
        if request.batch != 1:
            raise Unsupported("the shapes of a compiled Core ML program are fixed")
        return super().load(request)

    def _load(self, request: LoadRequest) -> Session:
        return CoreMlSession(self.native, request)

    def _placement(self, request: LoadRequest, feed: list[Array], runs: int) -> Placement:
        del feed, runs
        target = requested(request.options)
        compiled = _Compiled(self.native, request)
        try:
            ops, why = compiled.open(lambda path: _plan(self.native, path, target))
        finally:
            compiled.close()
        return coreml_plan.prove(ops, target.kind, why)


def requested(options: dict[str, Any]) -> Target:
    """Return the device that a probe's options name. Raises Unsupported for none of ours."""
    kinds: dict[str, Kind] = {"NPU": "NPU", "GPU": "GPU", "CPU": "CPU"}
    kind = kinds.get(str(options.get("device")))
    if kind is None:
        raise Unsupported(
            f"Core ML has no device {options.get('device')!r}; it has NPU, GPU and CPU"
        )
    gpu = options.get("gpu")
    return Target(kind, int(gpu) if gpu is not None else None)


class CoreMlSession(Session):
    """A loaded program whose inputs and outputs are arrays of ours."""

    def __init__(self, native: Native, request: LoadRequest) -> None:
        self._native, self._request = native, request
        self._target = requested(request.options)
        if request.device_choice == "automatic":
            self._target = replace(self._target, every=True)
        self._compiled = _Compiled(native, request)
        try:
            model = self._compiled.open(
                lambda path: native.load(path, self._target.units, self._target.gpu)
            )
            self._inputs = tuple(aligned(s.shape, s.dtype) for s in request.inputs)
            self._outputs = tuple(aligned(s.shape, s.dtype) for s in request.outputs)
            self._bound: Bound | None = _bind(model, request, self._inputs, self._outputs)
        except BaseException:
            self._compiled.close()
            raise

    def inputs(self) -> tuple[Array, ...]:
        return self._inputs

    def outputs(self) -> tuple[Array, ...]:
        return self._outputs

    def step(self) -> Callable[[], object]:
        return self._live().step

    def loaded_from_cache(self) -> bool | None:
        return self._compiled.reused

    def picked(self) -> tuple[str, ...]:
        """Return the devices that the compute plan prefers, the costliest first. Raises EngineError
        where there is no plan."""
        if not self._target.every:
            return ()
        ops, why = _plan(self._native, self._compiled.path, self._target)
        if ops is None:
            raise EngineError(why or "Core ML gave no compute plan")
        return coreml_plan.devices(ops)

    def observed(self) -> Observed:
        """Return what the plan and a small product tell, and what the CPU alone would do."""
        versions = self._native.versions()
        in_place = self._live().in_place
        ablation = self._ablation()
        ops, why = _plan(self._native, self._compiled.path, self._target)
        precision, precision_why = self._precision()
        details: dict[str, Any] = {
            "requested_units": self._target.units,
            "outputs": "in place" if in_place else "copied by every call",
            "plan": None if ops is None else coreml_plan.summary(ops),
            "plan_why": why,
            "cpu_ablation": ablation,
        }
        return Observed(
            device=None if ops is None else ", ".join(coreml_plan.devices(ops)),
            precision=precision,
            precision_why=precision_why,
            threads=None,
            runtime="coreml",
            version=versions["macos"],
            versions=versions,
            details=details,
        )

    def close(self) -> None:
        self._bound = None
        self._compiled.close()

    def _live(self) -> Bound:
        if self._bound is None:
            raise EngineError("the session is closed")
        return self._bound

    def _precision(self) -> tuple[str | None, str | None]:
        if self._request.format in _UNTOLD:
            return None, _UNTOLD[self._request.format]
        try:
            found = number_format(self._native, self._target.units, self._target.gpu)
        except EngineError as fault:
            return None, f"the small product could not be run: {fault}"
        if found.planned_on != self._target.kind:
            return None, found.elsewhere(self._target.kind)
        return found.family, found.why

    def _ablation(self) -> dict[str, Any]:
        """Time the same model on the CPU alone: what it would be if nothing were accelerated.

        The timed model is let go of first: two copies of the weights need not fit.
        """
        told: dict[str, Any] = {
            "label": "measured; no proof of placement",
            "calls": None,
            "ips": None,
            "cpu_only_ips": None,
            "ratio": None,
            "why": None,
        }
        if self._target.kind == "CPU":
            return told | {"why": "this engine is the CPU alone"}
        calls = max(1, load_policy().placement.profile_runs)
        try:
            ips = _rate(self._live().step, calls)
            inputs = tuple(array.copy() for array in self._inputs)
            self._bound = None
            model = self._native.load(self._compiled.path, _UNITS["CPU"])
            outputs = tuple(aligned(s.shape, s.dtype) for s in self._request.outputs)
            cpu_only = _rate(_bind(model, self._request, inputs, outputs).step, calls)
        except EngineError as fault:
            return told | {"why": str(fault)}
        ratio = ips / cpu_only
        return told | {"calls": calls, "ips": ips, "cpu_only_ips": cpu_only, "ratio": ratio}


class _Compiled:
    """A request's compiled model: the cached one, or one that lives as long as this does."""

    def __init__(self, native: Native, request: LoadRequest) -> None:
        self._native, self._request = native, request
        self._cache: ModelCache | None = model_cache(request, native.versions())
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._path: Path | None = None

    @property
    def path(self) -> Path:
        """Where it lies. Raises EngineError where it is not open."""
        if self._path is None:
            raise EngineError("the session is closed")
        return self._path

    @property
    def reused(self) -> bool | None:
        return None if self._cache is None else self._cache.reused

    def open(self, use: Callable[[Path], _T]) -> _T:
        """Return what ``use`` makes of the model's path, after compiling where there is none."""

        def load(folder: Path | None) -> _T:
            self._path = self._anew() if folder is None else folder / COMPILED
            return use(self._path)

        if self._cache is None:
            return load(None)
        return self._cache.open(Recipe(load, compile=self._compile))

    def close(self) -> None:
        self._path = None
        if self._cache is not None:
            self._cache.settle()
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None

    def _anew(self) -> Path:
        if self._temporary is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="npumark-coreml-")
        folder = Path(self._temporary.name)
        self._compile(folder)
        return folder / COMPILED

    def _compile(self, folder: Path) -> dict[str, Any]:
        from npumark.engines.coreml_program import digest, write_package

        graph = self._request.graph
        with tempfile.TemporaryDirectory(prefix="npumark-package-") as scratch:
            package = write_package(
                load_program(graph), graph.parent.parent, self._request.encoding, Path(scratch)
            )
            facts = {"program_sha256": digest(package)}
            self._native.compile(package, folder)
        return facts


def _bind(
    model: NativeModel,
    request: LoadRequest,
    inputs: tuple[Array, ...],
    outputs: tuple[Array, ...],
) -> Bound:
    names_in = [spec.name for spec in request.inputs]
    names_out = [spec.name for spec in request.outputs]
    return model.bind(
        dict(zip(names_in, inputs, strict=True)), dict(zip(names_out, outputs, strict=True))
    )


def _plan(
    native: Native, compiled: Path, target: Target
) -> tuple[list[PlannedOp] | None, str | None]:
    """Return the compute plan, or null and why there is none."""
    try:
        return native.plan(compiled, target.units, target.gpu), None
    except EngineError as fault:
        return None, str(fault)


def _rate(step: Callable[[], object], calls: int) -> float:
    """Return calls per second over ``calls`` of them, after one that is not counted."""
    step()
    began = time.perf_counter_ns()
    for _ in range(calls):
        step()
    return calls * 1e9 / max(1, time.perf_counter_ns() - began)
