"""Fakes of the modules that PyObjC makes of Apple's frameworks: strict about what they are sent.

A selector's name tells how many arguments it takes: one per colon, which Python writes as an
underscore. Anything that the framework does not have raises, and so does an argument of another
kind than its headers say. What was sent is kept in ``calls``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest


class NSError:
    def __init__(self, text: str) -> None:
        self.text = text

    def localizedDescription(self) -> str:
        return self.text


class NSArray(list[Any]):
    """Foundation's own list: what a Python list must be turned into first."""

    @classmethod
    def arrayWithArray_(cls, values: list[Any]) -> NSArray:
        return cls(values)


class NSDictionary(dict[str, Any]):
    @classmethod
    def dictionaryWithDictionary_(cls, values: dict[str, Any]) -> NSDictionary:
        return cls(values)


class NSURL:
    def __init__(self, path: str) -> None:
        self._path = path

    @classmethod
    def fileURLWithPath_(cls, path: str) -> NSURL:
        assert isinstance(path, str)
        return cls(path)

    def path(self) -> str:
        return self._path


class Buffer:
    """``objc.varlist``: raw memory of a length that the caller must know."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self._bytes = array.reshape(-1).view(np.uint8)

    def as_buffer(self, count: int) -> memoryview:
        assert 0 < count <= self._bytes.size
        return memoryview(self._bytes)[:count]


class Device:
    def __init__(self, kind: type, **facts: Any) -> None:
        self.kind, self.facts = kind, facts

    def isKindOfClass_(self, kind: type) -> bool:
        return kind is self.kind

    def metalDevice(self) -> Device:
        return self

    def name(self) -> str:
        return str(self.facts["name"])

    def hasUnifiedMemory(self) -> bool:
        return bool(self.facts.get("unified", True))

    def totalCoreCount(self) -> int:
        return int(self.facts["cores"])


class NeuralEngine: ...


class Gpu: ...


class Cpu: ...


NE = Device(NeuralEngine, cores=16)
GPU = Device(Gpu, name="Apple M4 Max")
CPU = Device(Cpu)


class MLMultiArray:
    def __init__(self) -> None:
        self.memory: np.ndarray[Any, Any] | None = None

    @classmethod
    def alloc(cls) -> MLMultiArray:
        return cls()

    def initWithDataPointer_shape_dataType_strides_deallocator_error_(
        self, data: Any, shape: Any, kind: int, strides: Any, deallocator: Any, error: Any
    ) -> tuple[Any, Any]:
        assert isinstance(shape, NSArray)
        assert isinstance(strides, NSArray)
        assert deallocator is None
        assert error is None
        assert kind == {"float16": 65552, "float32": 65568, "int32": 131104}[data.dtype.name]
        assert tuple(shape) == data.shape
        assert tuple(s * data.itemsize for s in strides) == data.strides
        self.memory = data
        return self, None

    def shape(self) -> tuple[int, ...]:
        assert self.memory is not None
        return self.memory.shape

    def strides(self) -> tuple[int, ...]:
        assert self.memory is not None
        return tuple(s // self.memory.itemsize for s in self.memory.strides)

    def dataPointer(self) -> Buffer:
        assert self.memory is not None
        return Buffer(self.memory if self.memory.base is None else _root(self.memory))


def _root(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the memory that a view begins in, from its first element on."""
    last = sum((n - 1) * s for n, s in zip(array.shape, array.strides, strict=True))
    count = last // array.itemsize + 1
    return np.lib.stride_tricks.as_strided(array, (count,), (array.itemsize,))


class MLFeatureValue:
    def __init__(self, array: MLMultiArray) -> None:
        self._array = array

    @classmethod
    def featureValueWithMultiArray_(cls, array: MLMultiArray) -> MLFeatureValue:
        assert isinstance(array, MLMultiArray)
        return cls(array)

    def multiArrayValue(self) -> MLMultiArray:
        return self._array


class MLDictionaryFeatureProvider:
    def __init__(self) -> None:
        self.features: dict[str, MLFeatureValue] = {}

    @classmethod
    def alloc(cls) -> MLDictionaryFeatureProvider:
        return cls()

    def initWithDictionary_error_(self, features: Any, error: Any) -> tuple[Any, Any]:
        assert isinstance(features, NSDictionary)
        assert error is None
        self.features = dict(features)
        return self, None

    def featureValueForName_(self, name: str) -> MLFeatureValue:
        return self.features[name]


class MLPredictionOptions:
    def __init__(self) -> None:
        self.backings: dict[str, MLMultiArray] = {}

    @classmethod
    def alloc(cls) -> MLPredictionOptions:
        return cls()

    def init(self) -> MLPredictionOptions:
        return self

    def setOutputBackings_(self, backings: Any) -> None:
        assert isinstance(backings, NSDictionary)
        self.backings = dict(backings)


class MLModelConfiguration:
    def __init__(self) -> None:
        self.units: int | None = None
        self.metal: Any = None
        self.low: bool | None = None

    @classmethod
    def alloc(cls) -> MLModelConfiguration:
        return cls()

    def init(self) -> MLModelConfiguration:
        return self

    def setComputeUnits_(self, units: int) -> None:
        self.units = units

    def setAllowLowPrecisionAccumulationOnGPU_(self, low: bool) -> None:
        self.low = low

    def setPreferredMetalDevice_(self, device: Any) -> None:
        self.metal = device


class Cost:
    def __init__(self, weight: float) -> None:
        self._weight = weight

    def weight(self) -> float:
        return self._weight


class Usage:
    def __init__(self, preferred: Device, supported: list[Device]) -> None:
        self._preferred, self._supported = preferred, supported

    def preferredComputeDevice(self) -> Device:
        return self._preferred

    def supportedComputeDevices(self) -> list[Device]:
        return self._supported


class Operation:
    def __init__(self, name: str, usage: Usage | None, cost: Cost | None) -> None:
        self._name, self.usage, self.cost = name, usage, cost

    def operatorName(self) -> str:
        return self._name


class Plan:
    """A compute plan, and everything that stands between it and its operations."""

    def __init__(self, operations: list[Operation], *, program: bool = True) -> None:
        self._operations, self._program = operations, program

    def modelStructure(self) -> Plan:
        return self

    def program(self) -> Plan | None:
        return self if self._program else None

    def functions(self) -> dict[str, Plan]:
        return {"main": self}

    def block(self) -> Plan:
        return self

    def operations(self) -> list[Operation]:
        return self._operations

    def computeDeviceUsageForMLProgramOperation_(self, op: Operation) -> Usage | None:
        return op.usage

    def estimatedCostOfMLProgramOperation_(self, op: Operation) -> Cost | None:
        return op.cost


class Framework:
    """What the fake framework does, and what it was sent."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        self.devices = [CPU, GPU, NE]
        self.calls: list[tuple[str, Any]] = []
        self.pools = 0
        self.plan: Plan | None = Plan([])
        self.error: NSError | None = None
        self.backed = True
        self.compute: Callable[[dict[str, Any]], dict[str, Any]] = lambda x: {"y": x["x"] * 2}

    def predict(
        self, provider: MLDictionaryFeatureProvider, options: MLPredictionOptions, error: Any
    ) -> tuple[Any, Any]:
        assert error is None
        assert self.pools == 1
        self.calls.append(("predict", options))
        if self.error is not None:
            return None, self.error
        given = {n: v.multiArrayValue().memory for n, v in provider.features.items()}
        made = {}
        for name, value in self.compute(given).items():
            array = MLMultiArray()
            if self.backed:
                array = options.backings[name]
                assert array.memory is not None
                array.memory[...] = value
            else:
                # Rows padded to 32 elements, as the framework may return them.
                wide = np.zeros((*value.shape[:-1], 32), value.dtype)
                wide[..., : value.shape[-1]] = value
                array.memory = wide[..., : value.shape[-1]]
            made[name] = MLFeatureValue(array)
        result = MLDictionaryFeatureProvider()
        result.features = made
        return result, None

    @contextmanager
    def pool(self) -> Iterator[None]:
        self.pools += 1
        try:
            yield
        finally:
            self.pools -= 1


def install(monkeypatch: pytest.MonkeyPatch, framework: Framework) -> None:
    """Put the fakes in place of CoreML, Foundation and objc, on a Mac with macOS 15."""

    class MLModel:
        @classmethod
        def availableComputeDevices(cls) -> list[Device]:
            return framework.devices

        @classmethod
        def compileModelAtURL_error_(cls, url: NSURL, error: Any) -> tuple[Any, Any]:
            assert isinstance(url, NSURL)
            assert error is None
            if framework.error is not None:
                return None, framework.error
            made = framework.scratch / "temporary.mlmodelc"
            made.mkdir()
            (made / "model.mil").write_text(Path(url.path()).name)
            return NSURL(str(made)), None

        @classmethod
        def modelWithContentsOfURL_configuration_error_(
            cls, url: NSURL, configuration: MLModelConfiguration, error: Any
        ) -> tuple[Any, Any]:
            assert isinstance(url, NSURL)
            assert isinstance(configuration, MLModelConfiguration)
            assert error is None
            framework.calls.append(("load", configuration))
            if framework.error is not None:
                return None, framework.error
            return cls(), None

        def predictionFromFeatures_options_error_(
            self, features: Any, options: Any, error: Any
        ) -> tuple[Any, Any]:
            return framework.predict(features, options, error)

    class MLComputePlan:
        @classmethod
        def loadContentsOfURL_configuration_completionHandler_(
            cls, url: NSURL, configuration: MLModelConfiguration, handler: Any
        ) -> None:
            assert isinstance(url, NSURL)
            framework.calls.append(("plan", configuration))
            handler(framework.plan, framework.error)

    core, foundation, objc = (ModuleType(n) for n in ("CoreML", "Foundation", "objc"))
    core.__dict__.update(
        MLModel=MLModel,
        MLComputePlan=MLComputePlan,
        MLMultiArray=MLMultiArray,
        MLFeatureValue=MLFeatureValue,
        MLDictionaryFeatureProvider=MLDictionaryFeatureProvider,
        MLPredictionOptions=MLPredictionOptions,
        MLModelConfiguration=MLModelConfiguration,
        MLNeuralEngineComputeDevice=NeuralEngine,
        MLGPUComputeDevice=Gpu,
        MLCPUComputeDevice=Cpu,
        MLComputeUnitsCPUOnly=0,
        MLComputeUnitsCPUAndGPU=1,
        MLComputeUnitsCPUAndNeuralEngine=3,
        MLMultiArrayDataTypeFloat16=65552,
        MLMultiArrayDataTypeFloat32=65568,
        MLMultiArrayDataTypeInt32=131104,
    )
    foundation.__dict__.update(NSURL=NSURL, NSArray=NSArray, NSDictionary=NSDictionary)
    objc.__dict__.update(autorelease_pool=framework.pool)
    for module in (core, foundation, objc):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    on_macos(monkeypatch, "15.1")


def on_macos(monkeypatch: pytest.MonkeyPatch, release: str) -> None:
    """Let ``platform`` describe a Mac."""
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    monkeypatch.setattr("platform.mac_ver", lambda: (release, ("", "", ""), "arm64"))
