"""A fake of the Core ML adapter: a Mac whose devices run programs in NumPy.

What a package computes is computed from the package (``workloads.coreml_interpret``); where it
is said to run is what the test says. ``calls`` keeps what the engine asked for.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from npumark.engines.base import Array
from npumark.engines.coreml import CoreMl
from npumark.engines.coreml_native import COMPILED, Bound, Device, Native, NativeModel, Units
from npumark.engines.coreml_plan import Kind, PlannedOp
from npumark.errors import EngineError, Unsupported
from workloads.coreml_interpret import Interpreter

ALL: tuple[Kind, ...] = ("CPU", "GPU", "NPU")
M4 = (Device("CPU"), Device("GPU", name="Apple M4 Max", unified=True), Device("NPU", cores=16))

PREFERS: dict[Units, Kind] = {
    "CPU_AND_NE": "NPU",
    "CPU_AND_GPU": "GPU",
    "CPU_ONLY": "CPU",
    "ALL": "NPU",
}


class FakeNative(Native):
    """``prefers`` is the device that every plan prefers, null: the one that was asked for.
    ``no_plan`` and ``no_load`` make the framework refuse; ``wrong`` spoils its answers."""

    def __init__(self) -> None:
        self.found: tuple[Device, ...] = M4
        self.prefers: Kind | None = None
        self.no_plan: str | None = None
        self.no_load: dict[Units, str] = {}
        self.in_place = True
        self.wrong = False
        self.calls: list[tuple[str, Units | None, int | None]] = []

    def system(self) -> str:
        return "15.1"

    def versions(self) -> dict[str, str]:
        return {"macos": "15.1", "coremltools": "9.0", "pyobjc-framework-CoreML": "12.2"}

    def chip(self) -> str | None:
        return "Apple M4 Max"

    def devices(self) -> tuple[Device, ...]:
        return self.found

    def compile(self, package: Path, folder: Path) -> Path:
        self.calls.append(("compile", None, None))
        shutil.copytree(package, folder / COMPILED / "copy.mlpackage")
        return folder / COMPILED

    def load(self, compiled: Path, units: Units, gpu: int | None = None) -> NativeModel:
        self.calls.append(("load", units, gpu))
        if units in self.no_load:
            raise EngineError(self.no_load[units])
        return FakeModel(self, compiled)

    def plan(self, compiled: Path, units: Units, gpu: int | None = None) -> list[PlannedOp]:
        self.calls.append(("plan", units, gpu))
        if self.no_plan is not None:
            raise Unsupported(self.no_plan)
        where = self.prefers or PREFERS[units]
        constant = PlannedOp("ios17.const", None, (), None)
        products = [PlannedOp("ios17.linear", where, ALL, 1 / 3) for _ in range(3)]
        assert compiled.is_dir()
        return [constant, *products]


class FakeModel(NativeModel):
    def __init__(self, native: FakeNative, compiled: Path) -> None:
        self.native = native
        self.interpreter = Interpreter(compiled / "copy.mlpackage")

    def bind(self, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> Bound:
        def step() -> None:
            for name, value in self.interpreter.run(inputs).items():
                outputs[name][...] = np.zeros_like(value) if self.native.wrong else value

        step()
        return Bound(step, self.native.in_place)


class FakeCoreMl(CoreMl):
    """The engine on the fake Mac."""

    def __init__(self) -> None:
        super().__init__(FakeNative)

    @property
    def mac(self) -> FakeNative:
        assert isinstance(self.native, FakeNative)
        return self.native


def two_gpus() -> tuple[Device, ...]:
    """Return the devices of a Mac with an Intel processor and a second, discrete GPU."""
    intel = Device("GPU", name="Intel UHD Graphics 630", unified=True)
    return (M4[0], intel, replace(intel, name="AMD Radeon Pro 5500M", unified=False))
