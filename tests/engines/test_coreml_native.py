"""The adapter sends Apple's framework what its headers say, and reads what it answers."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from npumark.engines.coreml_native import COMPILED, Device, Native
from npumark.engines.coreml_plan import PlannedOp
from npumark.errors import EngineError, Unsupported
from tests.engines import fake_objc as fakes


@pytest.fixture
def framework(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[fakes.Framework]:
    made = fakes.Framework(tmp_path)
    fakes.install(monkeypatch, made)
    yield made
    assert made.pools == 0


@pytest.fixture
def native(framework: fakes.Framework) -> Native:
    return Native()


def test_elsewhere_than_on_a_mac_there_is_no_core_ml(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.system", lambda: "Linux")
    with pytest.raises(Unsupported, match=r"^Core ML needs macOS$"):
        Native()


@pytest.mark.parametrize("release", ["13.7", "12.0", ""])
def test_an_older_system_is_refused_by_name(
    framework: fakes.Framework, monkeypatch: pytest.MonkeyPatch, release: str
) -> None:
    fakes.on_macos(monkeypatch, release)
    with pytest.raises(Unsupported, match="need macOS 14 or later"):
        Native()


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    fakes.on_macos(monkeypatch, "15.1")
    monkeypatch.setitem(sys.modules, "CoreML", None)
    with pytest.raises(Unsupported, match="install the package pyobjc-framework-CoreML"):
        Native()


def test_devices_are_named_by_kind(native: Native, framework: fakes.Framework) -> None:
    framework.devices = [fakes.CPU, fakes.GPU, fakes.NE, fakes.Device(object)]
    assert native.devices() == (
        Device("CPU"),
        Device("GPU", name="Apple M4 Max", unified=True),
        Device("NPU", cores=16),
    )


def test_a_compiled_model_is_moved_where_it_is_wanted(
    native: Native, framework: fakes.Framework, tmp_path: Path
) -> None:
    folder = tmp_path / "cache"
    folder.mkdir()
    place = native.compile(tmp_path / "model.mlpackage", folder)
    assert place == folder / COMPILED
    assert (place / "model.mil").read_text() == "model.mlpackage"
    assert not (tmp_path / "temporary.mlmodelc").exists()


@pytest.mark.parametrize(("units", "number"), [("CPU_ONLY", 0), ("CPU_AND_GPU", 1)])
def test_compute_units_are_asked_for_by_number(
    native: Native, framework: fakes.Framework, units: str, number: int
) -> None:
    native.load(Path("m.mlmodelc"), units)  # type: ignore[arg-type]
    (name, configuration) = framework.calls[-1]
    assert name == "load"
    assert configuration.units == number
    assert configuration.low is False
    assert configuration.metal is None


def test_the_neural_engine_is_asked_for_by_number(
    native: Native, framework: fakes.Framework
) -> None:
    native.load(Path("m.mlmodelc"), "CPU_AND_NE")
    assert framework.calls[-1][1].units == 3


def test_one_of_several_gpus_is_chosen(native: Native, framework: fakes.Framework) -> None:
    second = fakes.Device(fakes.Gpu, name="AMD Radeon Pro", unified=False)
    framework.devices = [fakes.CPU, fakes.GPU, second]
    native.load(Path("m.mlmodelc"), "CPU_AND_GPU", 1)
    assert framework.calls[-1][1].metal is second
    with pytest.raises(EngineError, match="lists 2 GPUs"):
        native.load(Path("m.mlmodelc"), "CPU_AND_GPU", 2)


def bound(native: Native) -> tuple[object, np.ndarray, np.ndarray]:
    x, y = np.zeros((2, 3), np.float16), np.zeros((2, 3), np.float16)
    made = native.load(Path("m.mlmodelc"), "CPU_ONLY").bind({"x": x}, {"y": y})
    return made, x, y


def test_outputs_are_written_where_they_are_bound(
    native: Native, framework: fakes.Framework
) -> None:
    made, x, y = bound(native)
    assert made.in_place  # type: ignore[attr-defined]
    for value in (1, 2):
        x[...] = value
        made.step()  # type: ignore[attr-defined]
        assert (y == 2 * value).all()
    options = {id(call[1]) for call in framework.calls if call[0] == "predict"}
    assert len(options) == 1


def test_outputs_that_land_elsewhere_are_copied_and_told(
    native: Native, framework: fakes.Framework
) -> None:
    framework.backed = False
    made, x, y = bound(native)
    assert not made.in_place  # type: ignore[attr-defined]
    x[...] = np.arange(6).reshape(2, 3)
    made.step()  # type: ignore[attr-defined]
    assert (y == 2 * x).all()


def test_token_ids_are_shared_as_int32(native: Native, framework: fakes.Framework) -> None:
    ids, y = np.zeros((1, 4), np.int32), np.zeros((1, 4), np.float16)
    framework.compute = lambda given: {"y": given["ids"].astype(np.float16)}
    made = native.load(Path("m.mlmodelc"), "CPU_ONLY").bind({"ids": ids}, {"y": y})
    ids[...] = 7
    made.step()
    assert (y == 7).all()


@pytest.mark.parametrize(
    "array", [np.zeros((2, 2), np.int64), np.zeros((4, 4), np.float16)[:, ::2]]
)
def test_what_cannot_be_shared_is_refused(native: Native, array: np.ndarray) -> None:
    with pytest.raises(EngineError, match="cannot share an array"):
        native.load(Path("m.mlmodelc"), "CPU_ONLY").bind({"x": array}, {})


def test_an_output_of_another_shape_is_refused(native: Native, framework: fakes.Framework) -> None:
    framework.backed = False
    framework.compute = lambda _: {"y": np.zeros((3, 2), np.float16)}
    with pytest.raises(EngineError, match=r"returned y as \[3, 2\], not \[2, 3\]"):
        bound(native)


def test_a_refusal_is_told_in_apples_words(
    native: Native, framework: fakes.Framework, tmp_path: Path
) -> None:
    framework.error = fakes.NSError("Unable to load\n model")
    with pytest.raises(EngineError, match="cannot load the program: Unable to load model"):
        native.load(Path("m.mlmodelc"), "CPU_ONLY")
    with pytest.raises(EngineError, match="cannot compile the program: Unable to load model"):
        native.compile(Path("m.mlpackage"), tmp_path)
    framework.plan = None
    with pytest.raises(EngineError, match="cannot make a compute plan: Unable to load model"):
        native.plan(Path("m.mlmodelc"), "CPU_ONLY")


def test_a_failed_prediction_is_told(native: Native, framework: fakes.Framework) -> None:
    made, _, _ = bound(native)
    framework.error = fakes.NSError("out of memory")
    with pytest.raises(EngineError, match="the prediction failed: out of memory"):
        made.step()  # type: ignore[attr-defined]


def test_a_plan_is_read_operation_by_operation(native: Native, framework: fakes.Framework) -> None:
    everywhere = [fakes.CPU, fakes.GPU, fakes.NE]
    framework.plan = fakes.Plan(
        [
            fakes.Operation("ios17.const", None, None),
            fakes.Operation("ios17.linear", fakes.Usage(fakes.NE, everywhere), fakes.Cost(0.9)),
            fakes.Operation("ios17.gather", fakes.Usage(fakes.CPU, [fakes.CPU]), None),
            fakes.Operation("ios17.relu", fakes.Usage(fakes.Device(object), []), fakes.Cost(0.1)),
        ]
    )
    assert native.plan(Path("m.mlmodelc"), "CPU_AND_NE") == [
        PlannedOp("ios17.const", None, (), None),
        PlannedOp("ios17.linear", "NPU", ("CPU", "GPU", "NPU"), 0.9),
        PlannedOp("ios17.gather", "CPU", ("CPU",), None),
        PlannedOp("ios17.relu", None, (), 0.1),
    ]
    assert framework.calls[-1][1].units == 3


def test_an_older_system_has_no_plan(
    native: Native, framework: fakes.Framework, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(sys.modules["CoreML"], "MLComputePlan")
    fakes.on_macos(monkeypatch, "14.3")
    with pytest.raises(Unsupported, match=r"need macOS 14\.4 or later, and this is 14\.3"):
        native.plan(Path("m.mlmodelc"), "CPU_AND_NE")


def test_a_plan_of_something_else_is_refused(native: Native, framework: fakes.Framework) -> None:
    framework.plan = fakes.Plan([], program=False)
    with pytest.raises(EngineError, match="not of a program"):
        native.plan(Path("m.mlmodelc"), "CPU_AND_NE")


def test_the_system_and_packages_are_told(native: Native) -> None:
    assert native.versions()["macos"] == "15.1"
