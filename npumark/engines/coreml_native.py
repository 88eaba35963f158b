"""The one place that talks to Core ML: a thin adapter over PyObjC's bindings of Apple's framework.

Selectors and their order of arguments are those of the framework's headers and of the metadata
in pyobjc-framework-CoreML 12. Everything above it speaks in paths, NumPy arrays and plain values.
Not yet run on hardware.

What each choice is for:

- Inputs and outputs are ``MLMultiArray`` over NumPy memory of ours, made once. Memory of a pixel
  buffer would spare the Neural Engine a copy, but may only be touched while it is locked, which
  Core ML's use of it forbids between two calls.
- Outputs are offered as ``outputBackings``. Core ML may decline; then every call copies what it
  returned, inside the timed region, and says so.
- What Core ML reads during a call are Foundation's own lists and dictionaries: a Python one would
  be handed over as a proxy, and every look at it would come back into Python.
- Each call has an autorelease pool of its own: nothing it returned outlives it.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

import numpy as np

from npumark.engines.base import Array
from npumark.engines.coreml_plan import Kind, PlannedOp
from npumark.errors import EngineError, Unsupported

Units = Literal["CPU_AND_NE", "CPU_AND_GPU", "CPU_ONLY", "ALL"]

COMPILED = "model.mlmodelc"

_PLAN_WAIT_S = 120.0

_UNITS: dict[Units, str] = {
    "CPU_AND_NE": "MLComputeUnitsCPUAndNeuralEngine",
    "CPU_AND_GPU": "MLComputeUnitsCPUAndGPU",
    "CPU_ONLY": "MLComputeUnitsCPUOnly",
    "ALL": "MLComputeUnitsAll",
}

_DTYPES = {
    "float16": "MLMultiArrayDataTypeFloat16",
    "float32": "MLMultiArrayDataTypeFloat32",
    "int32": "MLMultiArrayDataTypeInt32",
}

_KINDS: tuple[tuple[str, Kind], ...] = (
    ("MLNeuralEngineComputeDevice", "NPU"),
    ("MLGPUComputeDevice", "GPU"),
    ("MLCPUComputeDevice", "CPU"),
)


@dataclass(frozen=True, slots=True)
class Device:
    """A device that Core ML may use. ``name`` is a GPU's, by Metal; ``cores`` the Neural Engine's;
    ``unified`` says whether a GPU shares the processor's memory. Null: untold."""

    kind: Kind
    name: str | None = None
    cores: int | None = None
    unified: bool | None = None


@dataclass(frozen=True, slots=True)
class Bound:
    """``step`` computes the bound outputs from the bound inputs; ``in_place`` says that Core ML
    writes them where they are bound, so that nothing is copied."""

    step: Callable[[], object]
    in_place: bool


class Native:
    """Core ML on this Mac. Raises Unsupported where there is none, EngineError where it fails."""

    def __init__(self) -> None:
        if platform.system() != "Darwin":
            raise Unsupported("Core ML needs macOS")
        if _major(self.system()) < 14:
            raise Unsupported(
                f"these Core ML programs need macOS 14 or later, and this is {self.system()}"
            )
        try:
            import CoreML
            import Foundation
            import objc
        except ModuleNotFoundError as fault:
            raise Unsupported(
                f"{fault}: install the package pyobjc-framework-CoreML to use Core ML"
            ) from fault
        self._ml: Any = CoreML
        self._foundation: Any = Foundation
        self._objc: Any = objc

    def system(self) -> str:
        """Return the release of macOS, which Core ML is a part of."""
        return platform.mac_ver()[0]

    def versions(self) -> dict[str, str]:
        """Return the versions that a figure depends on: the system and the packages."""
        found = {"macos": self.system()}
        for package in ("coremltools", "pyobjc-framework-CoreML"):
            try:
                found[package] = version(package)
            except PackageNotFoundError:
                continue
        return found

    def chip(self) -> str | None:
        """Return the processor's own name (``Apple M3 Max``), null where it cannot be read."""
        command = ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"]
        try:
            told = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
        except (OSError, subprocess.SubprocessError):
            return None
        return told.stdout.strip() or None

    def devices(self) -> tuple[Device, ...]:
        """Return the devices that Core ML lists for models, in its own order."""
        return tuple(
            device
            for raw in self._ml.MLModel.availableComputeDevices()
            if (device := self._device(raw)) is not None
        )

    def compile(self, package: Path, folder: Path) -> Path:
        """Compile a package into ``folder`` and return the compiled model's path."""
        url, error = self._ml.MLModel.compileModelAtURL_error_(self._url(package), None)
        if url is None:
            raise EngineError(f"Core ML cannot compile the program: {_told(error)}")
        place = folder / COMPILED
        shutil.move(str(url.path()), place)
        return place

    def load(self, compiled: Path, units: Units, gpu: int | None = None) -> NativeModel:
        """Load a compiled model for ``units``; ``gpu`` chooses among several by index."""
        configuration = self._configuration(units, gpu)
        model, error = self._ml.MLModel.modelWithContentsOfURL_configuration_error_(
            self._url(compiled), configuration, None
        )
        if model is None:
            raise EngineError(f"Core ML cannot load the program: {_told(error)}")
        return NativeModel(self._ml, self._foundation, self._objc, model)

    def plan(self, compiled: Path, units: Units, gpu: int | None = None) -> list[PlannedOp]:
        """Return the compute plan of a compiled model.

        Raises Unsupported where this system has none, EngineError where it cannot be made.
        """
        kind = getattr(self._ml, "MLComputePlan", None)
        if kind is None:
            raise Unsupported(
                f"compute plans need macOS 14.4 or later, and this is {self.system()}"
            )
        done, answer = threading.Event(), []

        def completed(plan: Any, error: Any) -> None:
            answer.append((plan, error))
            done.set()

        kind.loadContentsOfURL_configuration_completionHandler_(
            self._url(compiled), self._configuration(units, gpu), completed
        )
        if not done.wait(_PLAN_WAIT_S):
            raise EngineError(f"Core ML made no compute plan within {_PLAN_WAIT_S:.0f} s")
        plan, error = answer[0]
        if plan is None:
            raise EngineError(f"Core ML cannot make a compute plan: {_told(error)}")
        program = plan.modelStructure().program()
        if program is None:
            raise EngineError("the compute plan is not of a program")
        main = program.functions()["main"]
        return [self._planned(plan, op) for op in main.block().operations()]

    def _planned(self, plan: Any, op: Any) -> PlannedOp:
        usage = plan.computeDeviceUsageForMLProgramOperation_(op)
        cost = plan.estimatedCostOfMLProgramOperation_(op)
        preferred = None if usage is None else self._kind(usage.preferredComputeDevice())
        supported = () if usage is None else usage.supportedComputeDevices()
        return PlannedOp(
            operator=str(op.operatorName()),
            preferred=preferred,
            supported=tuple(k for device in supported if (k := self._kind(device)) is not None),
            cost=None if cost is None else float(cost.weight()),
        )

    def _configuration(self, units: Units, gpu: int | None) -> Any:
        configuration = self._ml.MLModelConfiguration.alloc().init()
        configuration.setComputeUnits_(getattr(self._ml, _UNITS[units]))
        configuration.setAllowLowPrecisionAccumulationOnGPU_(False)
        if gpu is not None:
            found = [
                device
                for device in self._ml.MLModel.availableComputeDevices()
                if self._kind(device) == "GPU"
            ]
            if gpu >= len(found):
                raise EngineError(f"Core ML lists {len(found)} GPUs, and none has the index {gpu}")
            configuration.setPreferredMetalDevice_(found[gpu].metalDevice())
        return configuration

    def _device(self, raw: Any) -> Device | None:
        kind = self._kind(raw)
        if kind == "GPU":
            metal = raw.metalDevice()
            return Device(kind, name=str(metal.name()), unified=bool(metal.hasUnifiedMemory()))
        if kind == "NPU":
            return Device(kind, cores=int(raw.totalCoreCount()))
        return None if kind is None else Device(kind)

    def _kind(self, raw: Any) -> Kind | None:
        for name, kind in _KINDS:
            if raw is not None and raw.isKindOfClass_(getattr(self._ml, name)):
                return kind
        return None

    def _url(self, path: Path) -> Any:
        return self._foundation.NSURL.fileURLWithPath_(str(path))


class NativeModel:
    """A loaded model."""

    def __init__(self, ml: Any, foundation: Any, objc: Any, model: Any) -> None:
        self._ml, self._foundation, self._objc = ml, foundation, objc
        self._model = model

    def bind(self, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> Bound:
        """Bind C-contiguous arrays once and run one call, which shows where outputs land.

        The arrays must live as long as what is returned.
        """
        features = {
            name: self._ml.MLFeatureValue.featureValueWithMultiArray_(self._array(array))
            for name, array in inputs.items()
        }
        provider, error = self._ml.MLDictionaryFeatureProvider.alloc().initWithDictionary_error_(
            self._dictionary(features), None
        )
        if provider is None:
            raise EngineError(f"Core ML does not take the inputs: {_told(error)}")
        backings = {name: self._array(array) for name, array in outputs.items()}
        options = self._ml.MLPredictionOptions.alloc().init()
        options.setOutputBackings_(self._dictionary(backings))
        predict = self._model.predictionFromFeatures_options_error_
        pool = self._objc.autorelease_pool

        def call() -> Any:
            result, error = predict(provider, options, None)
            if result is None:
                raise EngineError(f"the prediction failed: {_told(error)}")
            return result

        with pool():
            result = call()
            landed = {name: _returned(result, name, array) for name, array in outputs.items()}
            in_place = all(
                view.ctypes.data == outputs[name].ctypes.data for name, view in landed.items()
            )
            del result, landed

        def step_in_place() -> None:
            with pool():
                call()

        bound = tuple(outputs.items())

        def step_copying() -> None:
            with pool():
                result = call()
                for name, array in bound:
                    array[...] = _returned(result, name, array)

        return Bound(step_in_place if in_place else step_copying, in_place)

    def _array(self, array: Array) -> Any:
        if not array.flags.c_contiguous or array.dtype.name not in _DTYPES:
            raise EngineError(f"Core ML cannot share an array of {array.dtype}")
        strides = [stride // array.itemsize for stride in array.strides]
        made, error = (
            self._ml.MLMultiArray.alloc().initWithDataPointer_shape_dataType_strides_deallocator_error_(
                array,
                self._list(array.shape),
                getattr(self._ml, _DTYPES[array.dtype.name]),
                self._list(strides),
                None,
                None,
            )
        )
        if made is None:
            raise EngineError(f"Core ML cannot share an array: {_told(error)}")
        return made

    def _list(self, values: Any) -> Any:
        return self._foundation.NSArray.arrayWithArray_([int(value) for value in values])

    def _dictionary(self, values: Mapping[str, Any]) -> Any:
        return self._foundation.NSDictionary.dictionaryWithDictionary_(dict(values))


def _returned(result: Any, name: str, like: Array) -> Array:
    """Return a view of a returned array's memory, valid while ``result`` is."""
    array = result.featureValueForName_(name).multiArrayValue()
    shape = tuple(int(size) for size in array.shape())
    strides = tuple(int(stride) for stride in array.strides())
    if shape != like.shape:
        raise EngineError(f"Core ML returned {name} as {list(shape)}, not {list(like.shape)}")
    span = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    memory = array.dataPointer().as_buffer(span * like.itemsize)
    flat = np.frombuffer(memory, like.dtype, span)
    return np.lib.stride_tricks.as_strided(flat, shape, [s * like.itemsize for s in strides])


def _told(error: Any) -> str:
    """Return an NSError's own sentence, in one line."""
    if error is None:
        return "it does not say why"
    return " ".join(str(error.localizedDescription()).split())[:300]


def _major(release: str) -> int:
    first = release.partition(".")[0]
    return int(first) if first.isdigit() else 0
